"""An exported model answers as the task does: the same classes, masks, boxes and texts from the same outputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from playbook import Task
from playbook.deploy.runtime import InputError
from playbook.testing.artefacts import artefact_of
from src.tasks.classification import Classification
from src.tasks.detection import Detection


def plan_of(task: Task, facts: dict[str, Any]) -> dict[str, Any]:
    plan = task.postprocessing(facts)
    assert plan is not None
    return json.loads(json.dumps(plan))


# classes


@pytest.mark.parametrize("top", [1, 3, 5, 99])
@pytest.mark.parametrize("classes", [[], [f"class {k}" for k in range(7)]])
def test_classes(top: int, classes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Classification(nn.Identity(), num_classes=7)
    facts = {"classes": classes} if classes else {}
    logits = np.random.default_rng(0).normal(0, 4, (20, 7)).astype(np.float32)
    logits[0], logits[1, :3] = 0, 1e4
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["x"]},
        {"x": ("float32", ["B", 7])},
        ["logits"],
        postprocessing=plan_of(task, facts),
    )
    outputs = task.predict_step((torch.from_numpy(logits[2:]), torch.full((18,), -1)), 0)
    expected = task.answer(outputs, facts, top)
    answers = model.predict(list(logits[2:]), top=top)
    for answer, own in zip(answers, expected, strict=True):
        assert list(answer) == list(own)
        assert [v for v in answer.values() if isinstance(v, str)] == [v for v in own.values() if isinstance(v, str)]
        np.testing.assert_allclose(
            [v for v in answer.values() if isinstance(v, float)],
            [v for v in own.values() if isinstance(v, float)],
            rtol=3e-6,
        )
    assert sum(v for v in model.predict([logits[0]], top=7)[0].values() if isinstance(v, float)) == pytest.approx(1)
    assert model.predict([logits[1]], top=1)[0]["probability"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("top", [0, -1, 1.5, "3", True, None])
def test_top_out_of_range(top: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"kind": "classes", "names": ["a", "b"], "top": 5}
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["x"]},
        {"x": ("float32", ["B", 2])},
        ["logits"],
        postprocessing=plan,
    )
    with pytest.raises(InputError, match="top: expected at least 1 class"):
        model.predict([[0.5, 0.5]], top=top)


def test_arrays_have_masks_of_their_own_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["image"]},
        {"image": ("float32", ["B", 2, "H", "W"])},
        ["logits"],
        {"B": [1, 8], "H": [1, None], "W": [1, None]},
        postprocessing={"kind": "mask", "names": ["ground", "pet"]},
    )
    image = np.zeros((2, 3, 5), np.float32)
    image[1, 0] = 1
    [answer, wide] = model.predict([image, np.zeros((2, 1, 9), np.float32)])
    assert answer["mask"].tolist() == [[1] * 5, [0] * 5, [0] * 5]
    assert answer["area"] == {"ground": 2 / 3, "pet": 1 / 3}
    assert wide["mask"].shape == (1, 9)


def test_detectors_that_select_boxes_themselves_are_not_described() -> None:
    assert Detection(nn.Identity(), 3).postprocessing({}) is None
