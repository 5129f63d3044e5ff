"""An exported model answers as the task does: the same classes, masks, boxes and texts from the same outputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from playbook import Task
from playbook.deploy.runtime import InputError
from playbook.testing.artefacts import artefact_of
from src.data.vision.masks import MaskFolder
from src.data.vision.yolo_detection import YOLODetection
from src.nets.vision.yolo import YOLO
from src.tasks.detection import Detection
from src.tasks.segmentation import Segmentation

Arrays = Mapping[str, np.ndarray]


def plan_of(task: Task, facts: dict[str, Any]) -> dict[str, Any]:
    plan = task.postprocessing(facts)
    assert plan is not None
    return json.loads(json.dumps(plan))


def tensors(inputs: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}


# masks


@pytest.mark.parametrize("num_classes", [2, 5, 300])
def test_masks_in_the_size_of_the_file(num_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to one pixel in 100,000, where two classes are equally likely to the last bit."""
    torch.manual_seed(0)
    net = nn.Conv2d(3, num_classes, 5, padding=2)
    task = Segmentation(net, num_classes).eval()
    facts = {"classes": [f"class {k}" for k in range(num_classes)]}
    data = MaskFolder("images", image_size=[40, 56], num_classes=num_classes)

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        return {"logits": net(tensors(inputs)["image"]).detach().numpy()}

    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {"image": ("float32", ["B", 3, 40, 56])},
        ["logits"],
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    rng = np.random.default_rng(1)
    files = []
    for number, (width, height) in enumerate([(56, 40), (93, 131), (20, 17), (56, 41), (300, 2)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(files[-1])
    num_pixels = num_different = 0
    for answer, file in zip(model.predict(files), files, strict=True):
        image, target = data.unlabelled(file)
        batch = image[None], {"file_size": target["file_size"][None]}
        with torch.no_grad():
            [expected] = task.answer(task.predict_step(batch, 0), facts)
        mask = expected["mask"].numpy()
        assert answer["mask"].dtype == mask.dtype
        assert answer["mask"].shape == mask.shape
        num_pixels += mask.size
        num_different += int((answer["mask"] != mask).sum())
        assert list(answer["area"]) == list(expected["area"])
        np.testing.assert_allclose(list(answer["area"].values()), list(expected["area"].values()), atol=1e-4)
    assert num_different <= num_pixels * 1e-5, (num_different, num_pixels)


# boxes


@pytest.mark.parametrize("image_size", [None, [64, 96]])
def test_boxes_in_pixels_of_the_file(image_size: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = YOLO(3, strides=[8, 16], score_threshold=0.2, max_detections=20)
    for head in net.head:
        nn.init.normal_(head.labels.weight, std=0.2)  # type: ignore[union-attr, arg-type]  # a _Head
        nn.init.normal_(head.sides.weight, std=0.2)  # type: ignore[union-attr, arg-type]  # a _Head
        nn.init.zeros_(head.labels.bias)  # type: ignore[union-attr, arg-type]  # a _Head
    task = Detection(net, 3, class_names=["cat", "dog", "owl"]).eval()
    facts = {"classes": ["a", "b", "c"]}
    data = YOLODetection("images", image_size=image_size)

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            boxes, scores = net.candidates(tensors(inputs)["image"])
        return {"boxes": boxes.numpy(), "scores": scores.numpy()}

    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {"image": ("float32", ["B", 3, "H", "W"])},
        ["boxes", "scores"],
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    rng = np.random.default_rng(0)
    files = []
    for number, (width, height) in enumerate([(100, 70), (64, 64), (131, 57)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(files[-1])
    num_boxes = 0
    for score in (0.25, 0.0, 0.5):
        answers = model.predict(files, score=score)
        for answer, file in zip(answers, files, strict=True):
            image, target = data.unlabelled(file)
            with torch.no_grad():
                [expected] = task.answer(task.predict_step(([image], [target]), 0), facts, score)
            assert [box["class"] for box in answer["boxes"]] == [box["class"] for box in expected["boxes"]]
            for box, own in zip(answer["boxes"], expected["boxes"], strict=True):
                assert list(box) == list(own)
                assert [box[key] for key in list(box)[1:]] == pytest.approx(
                    [own[key] for key in list(own)[1:]], rel=1e-6
                )
            num_boxes += len(answer["boxes"])
    assert num_boxes > 25, num_boxes
    with pytest.raises(InputError, match=r"score: expected a number in \[0, 1\], got 2"):
        model.predict(files, score=2)
