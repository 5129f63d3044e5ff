"""Which samples a report shows, and in which form."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from playbook import Data
from playbook.insight.report import examples
from playbook.insight.report.blocks import Table, Text
from playbook.insight.report.thumbnails import MOST_BYTES, source
from playbook.testing.line import Line


class Numbers(Dataset):
    """Sample i is the number i, or what a file contains."""

    def __init__(self, count: int, start: int = 0, files: list[Path] | None = None, broken: int = -1) -> None:
        self.count, self.start, self.broken = count, start, broken
        self.files = files or []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == self.broken:
            raise OSError("cannot be read")
        return torch.tensor([float(self.start + index)]), torch.tensor(0)


class Counts(Data):
    """Names samples by their numbers, whatever data set they are from."""

    def __init__(self, tested: Any, predicted: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.test_set, self.predict_set = tested, predicted

    def ids(self, dataset: Any) -> list[str]:
        return [f"n{index}" for index in range(len(dataset))]


class Echo(Line):
    """Answers with what it was given."""

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return batch[0][:, 0]

    def answer(self, outputs: Tensor, facts: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"value": int(value)} for value in outputs]


class Drawn(Echo):
    """Paints its answers, and says what it paints on."""

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        _, height, width = inputs.shape
        return Image.fromarray(np.full((height, width, 3), answer["value"], dtype=np.uint8))


class Trained:
    """A trainer after its test."""

    def __init__(self, data: Data, world_size: int = 1) -> None:
        self.datamodule, self.world_size = data, world_size
        self.precision_plugin = self

    def predict_step_context(self) -> Any:
        return torch.inference_mode()


def shown(data: Data, model: Any = None, rankings: dict[str, Tensor] | None = None, **options: Any) -> list[Any]:
    return examples.blocks(Trained(data, **options), model or Echo(), {}, rankings or {})


def test_the_first_samples_and_those_that_rank_first() -> None:
    ranks = torch.tensor([3.0, -torch.inf, 7.0] + 17 * [-torch.inf])
    first, largest = shown(Counts(Numbers(20)), rankings={"Largest": ranks})
    assert first.title == "First test samples"
    assert list(first.rows) == [{"id": f"n{i}", "value": i} for i in range(12)]
    assert (largest.title, list(largest.rows)) == ("Largest", [{"id": "n2", "value": 2}, {"id": "n0", "value": 0}])


@pytest.mark.parametrize("model", [Echo, Drawn])
def test_metrics_of_samples_stand_beside_their_answers(model: Any) -> None:
    data = Counts(Numbers(3, files=[Path("a")] * 3))
    data.picture = lambda file: torch.zeros(3, 4, 4)
    loss = torch.tensor([0.5, 2.0])  # of a test that was cut short
    measured = {"loss": loss} if model is Echo else {"loss": loss, "second": loss, "third": loss}
    blocks: list[Any] = examples.blocks(Trained(data), model(), {}, {"Largest": loss}, measured)
    first, largest = blocks
    if model is Drawn:
        assert [text for _, text in first.pictures] == [
            "n0: value 0, loss 0.5, second 0.5",
            "n1: value 1, loss 2, second 2",
            "n2: value 2",
        ]
    else:
        assert [row.get("loss") for row in first.rows] == [0.5, 2.0, None]
        assert [row["loss"] for row in largest.rows] == [2.0, 0.5]


@pytest.mark.parametrize(("num_predicted", "start"), [(4, 100), (3, 0)])
def test_samples_have_the_form_that_predict_takes_if_they_are_the_same(num_predicted: int, start: int) -> None:
    [table] = shown(Counts(Numbers(4), Numbers(num_predicted, 100)))
    assert [row["value"] for row in table.rows] == [start + i for i in range(4)]


def test_without_a_test_samples_of_predict_are_shown() -> None:
    [table] = shown(Counts(None, Numbers(2, 100)))
    assert table == Table(examples.UNTESTED, [{"id": "n0", "value": 100}, {"id": "n1", "value": 101}])


def test_values_of_parts_of_samples_are_not_taken_for_those_of_samples() -> None:
    blocks: list[Any] = examples.blocks(Trained(Counts(Numbers(2))), Echo(), {}, {}, {"of nodes": torch.zeros(9)})
    assert list(blocks[0].rows) == [{"id": "n0", "value": 0}, {"id": "n1", "value": 1}]


def test_a_step_of_its_own_takes_the_place_of_predict_step() -> None:
    class Short(Echo):
        def example_step(self, batch: Any) -> Tensor:
            return -batch[0][:, 0]

    [table] = shown(Counts(Numbers(3)), Short())
    assert [row["value"] for row in table.rows] == [0, -1, -2]


def test_samples_that_cannot_be_loaded_are_left_out_where_the_test_skipped_them() -> None:
    ranks = {"Largest": torch.arange(3.0)}
    with pytest.raises(OSError, match="cannot be read"):
        shown(Counts(Numbers(3, broken=1)), rankings=ranks)
    data = Counts(Numbers(3, broken=1), on_error="skip")
    data.skipped_samples = {"n1"}
    text, table = shown(data, rankings=ranks)
    assert text.text == "No samples by Largest: samples were skipped, so that results have other places than samples."
    assert [row["id"] for row in table.rows] == ["n0", "n2"]
    [text] = shown(Counts(Numbers(1, broken=0), on_error="skip"))
    assert text == Text("First test samples: none of them can be loaded.")


def test_results_of_one_of_several_processes_rank_nothing() -> None:
    text, table = shown(Counts(Numbers(3)), rankings={"Largest": torch.arange(2.0)}, world_size=2)
    assert text.text.startswith("No samples by Largest: the test ran in several processes")
    assert len(table.rows) == 3


def test_pictures_are_painted_on_the_files(tmp_path: Path) -> None:
    data = Counts(Numbers(2, files=[tmp_path / "a.png", tmp_path / "b.png"]))
    data.picture = lambda file: torch.zeros(3, 40, 80 if file.name == "a.png" else 60)
    [gallery] = shown(data, Drawn())
    assert [text for _, text in gallery.pictures] == ["n0: value 0", "n1: value 1"]
    assert [opened(source).size for source, _ in gallery.pictures] == [(80, 40), (60, 40)]
    assert opened(gallery.pictures[1][0]).getpixel((5, 5)) == (1, 1, 1)


def test_what_cannot_be_drawn_is_a_table() -> None:
    table, text = shown(Counts(Numbers(2)), Drawn(), {"Largest": torch.full((2,), -torch.inf)})
    assert [row["value"] for row in table.rows] == [0, 1]
    assert text.text.startswith("Answers are not drawn: not enough values to unpack"), "height and width of numbers"


def test_an_error_in_draw_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Faulty(Echo):
        def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Any:
            return answer["valeu"]

    first, largest, text = shown(Counts(Numbers(2)), Faulty(), {"Largest": torch.arange(2.0)})
    assert isinstance(first, Table)
    assert isinstance(largest, Table)
    assert text.text.startswith("Pictures are missing, as draw raised KeyError: 'valeu' (")
    assert "test_examples.py:" in text.text
    assert capsys.readouterr().err == f"warning: the report is incomplete: {text.text}\n", "once"


class Knowing(Drawn):
    """Tells the answers that would be right."""

    def target_answer(self, batch: Any, facts: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"value": 100 + int(value)} for value in batch[0].flatten(1)[:, 0]]


class Pictures(Numbers):
    """Sample i is a picture of i."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.full((3, 40, 20), float(self.start + index)), torch.tensor(0)


def test_targets_are_drawn_beside_answers() -> None:
    """What predict takes, from 50 on, is the same as what is tested, from 0 on, but in another form."""

    class Seeing(Knowing):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return batch[0][:, 0, 0, 0]

    data = Counts(Pictures(2), Pictures(2, start=50))
    [gallery] = shown(data, Seeing())
    assert [text for _, text in gallery.pictures] == [
        f"n{i}: value {50 + i}; on the right, the target: value {100 + i}" for i in range(2)
    ]
    picture = opened(gallery.pictures[1][0])
    assert picture.size == (46, 40)
    assert (picture.getpixel((10, 20)), picture.getpixel((36, 20))) == ((51, 51, 51), (101, 101, 101))
    [untested] = shown(Counts(None, Pictures(1, start=50)), Seeing())
    assert [text for _, text in untested.pictures] == ["n0: value 50"]


def test_targets_stand_beside_answers_in_rows() -> None:
    class Worded(Knowing):
        draw = None  # type: ignore[assignment]  # of a task that cannot draw

    [table] = shown(Counts(Numbers(2)), Worded())
    assert list(table.rows) == [{"id": f"n{i}", "value": i, "target value": 100 + i} for i in range(2)]


def test_a_picture_is_reduced_until_it_is_small_enough() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (640, 1280, 3), dtype=np.uint8))
    assert len(source(noise)) < 4 / 3 * MOST_BYTES + 100


@pytest.mark.parametrize(
    ("size", "expected"), [((900, 300), (640, 213)), ((500, 500), (320, 320)), ((90, 30), (90, 30))]
)
def test_wide_pictures_stay_legible(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert opened(source(Image.new("RGB", size))).size == expected


def opened(source: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"class": "cat", "probability": 0.98765, "target": "dog"}, "class cat, probability 0.988, target dog"),
        ({"boxes": [{"class": "cat"}, {"class": "dog"}, {"class": "cat"}]}, "2 × cat, 1 × dog"),
        ({"boxes": []}, "0 boxes"),
        (
            {"mask": torch.zeros(4, 4, dtype=torch.uint8), "area": {"cat": 0.2, "sky": 0.799, "dog": 0.001}},
            "sky 80%, cat 20%",
        ),
        ({"forecast": [{"step": 1, "y": 2.0}]}, ""),
        ({"labels": 300 * "a"}, f"labels {200 * 'a'} …"),
    ],
)
def test_words_below_a_picture(answer: dict[str, Any], words: str) -> None:
    assert examples._words(answer) == words


def test_long_texts_are_cut() -> None:
    row = examples._row({"text": 600 * "a", "loss": 0.5, "tokens": [1, 2], "links": [{"source": 1}, {"source": 2}]})
    assert row == {"text": f"{500 * 'a'} …", "loss": 0.5, "tokens": "2 tokens", "links": "2 links"}


def test_a_model_without_answers_has_no_examples() -> None:
    assert shown(Counts(Numbers(2)), Line()) == []
