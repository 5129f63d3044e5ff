"""Scenes of digits: deterministic, with captions that tell what they show."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook.deploy.runtime.images import read_image
from src.data.multimodal.captioned_digits import (
    DRIFT,
    LARGEST,
    RELATIONS,
    WORDS,
    CaptionedDigits,
    _Scenes,
    load_digits,
)
from src.ops.vocabularies import vocabulary_from


def set_up(**options: Any) -> Any:
    data = CaptionedDigits(**{"num_train": 60, "num_val": 8, "num_test": 8, "batch_size": 8, **options})
    data.setup("fit")
    return data


def test_scenes_depend_only_on_split_and_index() -> None:
    first, second = set_up(), set_up(num_train=20, num_val=30)
    for index in (3, 19):
        for one, other in zip(first.train_set[index][0].values(), second.train_set[index][0].values(), strict=True):
            assert torch.equal(one, other)
    assert not torch.equal(first.val_set[3][0]["image"], first.train_set[3][0]["image"])
    assert torch.equal(first.train_set[3][0]["image"], first.train_set[3][0]["image"]), "kept or made again"


def test_captions_name_digits_and_their_order() -> None:
    """Bright digits on black, one of them twice as bright: the caption says on which side it is."""
    digits = np.stack([np.full((8, 8), 0.2, np.float32), np.ones((8, 8), np.float32)])
    scenes = _Scenes(digits, [3, 7], 0, 32, (2, 2))
    captions = set()
    for index in range(30):
        caption = scenes.caption(index)
        first, relation, second = re.split(f" ({'|'.join(RELATIONS)}) ", caption)
        image = scenes(index)[0]
        halves = image.split(16, dim=1 if relation == "left of" else 0)
        bright = [half.flatten().topk(60).values.mean().item() > 0.45 for half in halves]
        assert bright == [name == "a seven" for name in (first, second)], caption
        captions.add(caption)
    assert len(captions) == 8, "both digits on both sides, in rows and columns"


def test_the_digits_of_a_row_are_on_a_line() -> None:
    """Otherwise, one at the upper left and one at the lower right could be a row or a column."""
    scenes = _Scenes(np.ones((2, 8, 8), np.float32), [3, 7], 0, 64, (2, 2))
    for index in range(30):
        is_row = RELATIONS[0] in scenes.caption(index)
        bright = (scenes(index)[0] > 0.5).any(dim=1 if is_row else 0).nonzero().flatten()
        assert bright.max() - bright.min() < LARGEST + 2 * DRIFT, scenes.caption(index)


def test_numbers_of_digits() -> None:
    data = set_up(min_digits=1, max_digits=3, image_size=48, num_train=200)
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    captions = [vocabulary.decode(inputs["tokens"].tolist()) for inputs, _ in (data.train_set[i] for i in range(200))]
    counts = [len(re.split(f" (?:{'|'.join(RELATIONS)}) ", caption)) for caption in captions]
    assert set(counts) == {1, 2, 3}
    words = {word for caption in captions for word in re.split(f" (?:{'|'.join(RELATIONS)}) ", caption)}
    assert words == set(WORDS)
    assert vocabulary.size == 2 + 15, "padding, unknown, a, an, ten digits, left, of, above"


def test_equal_captions_have_equal_numbers() -> None:
    data = set_up(max_digits=1, num_train=60)
    numbers = data.train_set.numbers
    assert len(numbers[:, 0].unique()) == 60
    assert len(numbers[:, 1].unique()) == 10


def test_splits_share_no_digits() -> None:
    images, labels = load_digits()
    assert images.shape == (1797, 8, 8)
    assert images.max() == 1
    assert labels[:3] == [0, 1, 2]
    data = set_up()
    used = [{id(row.base) for row in part.load.digits} for part in (data.train_set, data.val_set, data.test_set)]
    assert len(set().union(*used)) == 3
    sizes = [len(part.load.digits) for part in (data.train_set, data.val_set, data.test_set)]
    assert sizes == [1078, 360, 359]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_digits": 8}, "max_digits: expected 1 to 7, got 8"),
        ({"min_digits": 3}, "min_digits: expected 1 to max_digits 2, got 3"),
        ({"image_size": 30}, "image_size: expected at least 32 pixels for 2 digits, got 30"),
        ({"num_val": 0}, "num_val: expected at least 1, got 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CaptionedDigits(**options)


def test_a_saved_scene_is_read_as_it_is(tmp_path: Path) -> None:
    data = set_up(num_train=4)
    data.setup("test")
    image = data.val_set[2][0]["image"]
    Image.fromarray((image[0] * 255).round().byte().numpy()).save(tmp_path / "scene.png")
    inputs, numbers = data.unlabelled(tmp_path / "scene.png")
    torch.testing.assert_close(inputs["image"], image)
    assert numbers.tolist() == [-1, -1]
    theirs = read_image((tmp_path / "scene.png").read_bytes(), data.preprocessing())
    torch.testing.assert_close(torch.from_numpy(theirs.inputs["image"]), image)
    assert data.ids(data.val_set)[2] == "val:2"
