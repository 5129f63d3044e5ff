"""Detection: losses by plain sums, precision against COCO's own evaluation on another path."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torchvision.ops import box_iou

from playbook.batches import split
from playbook.runs.predictions import WritePredictions
from playbook.testing.command import UNSAVED
from playbook.testing.processes import values
from playbook.training.resume.exact import ExactResume
from src.tasks.detection import Detection
from tests.conftest import Group
from tests.tasks.reports import report_of
from tests.tasks.scenes import K, Known, Sample, collate, loader, samples

NAMES = ["cat", "dog", "owl"]


def average_precision(data: list[Sample], label: int, threshold: float) -> float:
    """COCO's, written from its definition: 101 recalls, the best precision at that recall or a higher one."""
    net = Known().eval()
    ranked = []
    num_objects = 0
    for image, target in data:
        (found,) = net([image])
        objects = target["boxes"][target["labels"] == label].double()
        num_objects += len(objects)
        free = set(range(len(objects)))
        own = [i for i in found["scores"].argsort(descending=True).tolist() if found["labels"][i] == label]
        for i in own:
            overlaps = box_iou(found["boxes"][i : i + 1].double(), objects)[0] if len(objects) else []
            best = max(free, key=lambda m: overlaps[m].item(), default=None)
            hit = best is not None and overlaps[best].item() >= threshold
            if hit:
                free.remove(best)  # type: ignore[arg-type]
            ranked.append((found["scores"][i].item(), hit))
    ranked.sort(key=lambda pair: -pair[0])
    points, hits = [], 0
    for number, (_, hit) in enumerate(ranked, start=1):
        hits += hit
        points.append((hits / num_objects, hits / number))
    return sum(max([p for r, p in points if r >= step / 100 - 1e-12], default=0.0) for step in range(101)) / 101


def test_precision_is_that_of_coco_over_uneven_batches() -> None:
    data = samples(23)
    task = Detection(Known(), K, class_names=["cat", "dog", "owl"])
    trainer = Trainer(**UNSAVED)
    validated = trainer.validate(task, loader(data), verbose=False)[0]
    tested = trainer.test(task, loader(data, batch_size=7), verbose=False)[0]
    thresholds = [0.5 + 0.05 * step for step in range(10)]
    each = {label: [average_precision(data, label, t) for t in thresholds] for label in range(K - 1)}
    expected = {
        "map": sum(map(sum, each.values())) / 10 / (K - 1),  # over the classes that there are objects of
        "map_50": sum(values[0] for values in each.values()) / (K - 1),
        "map_75": sum(values[5] for values in each.values()) / (K - 1),
    }
    assert 0.1 < expected["map_75"] < expected["map_50"] < 0.9
    assert validated == pytest.approx({f"val/{name}": value for name, value in expected.items()}, abs=1e-6)
    of_classes = {f"test/map_{name}": sum(each[label]) / 10 for label, name in enumerate(["cat", "dog"])}
    expected = {f"test/{name}": value for name, value in expected.items()} | of_classes
    assert tested == pytest.approx(expected, abs=1e-6)


def counted(sample: Sample) -> list[list[int]]:
    """Hits, false boxes and missed objects of each class at IoU 0.5 and score 0.25, by plain loops."""
    image, target = sample
    [found] = Known().eval()([image])
    counts = [[0] * K for _ in range(3)]
    free = set(range(len(target["labels"])))
    for i in found["scores"].argsort(descending=True).tolist():
        label = int(found["labels"][i])
        if found["scores"][i] < 0.25:
            continue
        overlaps = box_iou(found["boxes"][i : i + 1], target["boxes"])[0].tolist()
        own = {overlaps[m]: m for m in free if target["labels"][m] == label and overlaps[m] >= 0.5}
        counts[0 if own else 1][label] += 1
        free -= {own[max(own)]} if own else set()
    for m in free:
        counts[2][int(target["labels"][m])] += 1
    return counts


def test_the_report_counts_hits_false_boxes_and_missed_objects() -> None:
    data = samples(41)
    task = Detection(Known(), K, class_names=NAMES)
    report, _, outputs = report_of(task, loader(data))
    expected = torch.tensor([counted(sample) for sample in data])  # (N, 3, K)
    hits, false, missed = expected.unbind(dim=1)
    for name, counts in {"hits": hits, "false": false, "missed": missed}.items():
        assert outputs[name].equal(counts), name
    wrong = (false + missed).sum(dim=1)
    f1 = [1.0 if not h + w else 2 * h / (2 * h + w) for h, w in zip(hits.sum(1).tolist(), wrong.tolist(), strict=True)]
    assert report.samples["image_f1"].tolist() == pytest.approx(f1)
    ranks = report.rankings["Most missed and false boxes"]
    assert ranks[wrong > 0].tolist() == wrong[wrong > 0].tolist()
    assert (ranks[wrong == 0] == -torch.inf).all()
    [title] = [title for title in report.tables if title.startswith("Classes")]
    for k, row in enumerate(report.tables[title]):
        tp, fp, fn = (int(counts[:, k].sum()) for counts in (hits, false, missed))
        scores = {"precision": tp / max(tp + fp, 1), "recall": tp / max(tp + fn, 1), "F1": 2 * tp / (2 * tp + fp + fn)}
        numbers = {"objects": tp + fn, "found": tp, "missed": fn, "false": fp}
        assert row == pytest.approx({"class": NAMES[k], **scores, **numbers})


def test_the_curve_of_a_class_is_that_of_its_average_precision() -> None:
    data = samples(23)
    task = Detection(Known(), K, class_names=NAMES)
    report, _, _ = report_of(task, loader(data))
    lines = {line.get_label(): line for line in report.figures["Precision and recall at IoU 0.5"][0].axes[0].lines}
    assert list(lines) == NAMES[:2], "the last class has no object"
    for label, name in enumerate(lines):
        assert lines[name].get_xdata() == pytest.approx([step / 100 for step in range(101)])
        mean = np.asarray(lines[name].get_ydata()).sum() / 101
        assert mean == pytest.approx(average_precision(data, label, 0.5), abs=1e-6)


def test_targets_are_answers_without_scores() -> None:
    boxes = torch.tensor([[0.0, 1, 8, 9]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1])}, {"boxes": boxes[:0], "labels": torch.zeros(0).long()}]
    task = Detection(Known(), K, class_names=NAMES)
    answers = task.target_answer(([torch.zeros(1, 3, 7)] * 2, targets), {})
    box = {"class": NAMES[1], "left": 0, "top": 1, "right": 8, "bottom": 9}
    assert answers == [{"boxes": [box]}, {"boxes": []}]
    assert task.draw(torch.zeros(3, 32, 32), answers[0]).size == (256, 256)


def test_the_report_counts_nothing_in_a_crowd() -> None:
    rows = torch.tensor([[0.0, 0, 8, 8, 0, 0.9], [20, 20, 24, 24, 0, 0.95], [50, 50, 60, 60, 0, 0.5]])
    image = torch.zeros(1, 3, 7)
    image[0, :, :6], image[0, 0, 6] = rows, 3
    boxes = torch.tensor([[0.0, 0, 8, 8], [16, 16, 40, 40]])
    target = {"boxes": boxes, "labels": torch.tensor([0, 0]), "iscrowd": torch.tensor([0, 1])}
    _, _, outputs = report_of(Detection(Known(), K), loader([(image, target)]))
    assert {name: counts[0, 0].item() for name, counts in outputs.items()} == {"hits": 1, "false": 1, "missed": 0}


def test_what_is_found_in_a_crowd_counts_neither_for_nor_against() -> None:
    rows = torch.tensor([[0.0, 0, 8, 8, 0, 0.9], [20, 20, 24, 24, 0, 0.95]])  # an object, and one in the crowd
    image = torch.zeros(1, 2, 7)
    image[0, :, :6], image[0, 0, 6] = rows, 2
    boxes, labels = torch.tensor([[0.0, 0, 8, 8], [16, 16, 40, 40]]), torch.tensor([0, 0])
    for iscrowd, expected in (([0, 1], 1.0), ([0, 0], 0.25)):
        target = {"boxes": boxes, "labels": labels, "iscrowd": torch.tensor(iscrowd)}
        [found] = Trainer(**UNSAVED).test(Detection(Known(), K), loader([(image, target)]), verbose=False)
        assert found["test/map"] == pytest.approx(expected, abs=0.01)


def test_images_without_objects_or_detections_are_evaluated() -> None:
    nothing = torch.zeros(1, 5, 7), {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}
    data = samples(8)
    task, trainer = Detection(Known(), K), Trainer(**UNSAVED)
    expected = trainer.test(task, loader(data), verbose=False)[0]
    assert set(expected) == {"test/map", "test/map_50", "test/map_75", "test/map_0", "test/map_1"}
    assert trainer.test(task, loader([nothing, *data]), verbose=False)[0] == expected
    found = trainer.test(task, loader([nothing]), verbose=False)[0]
    assert found == {"test/map": -1, "test/map_50": -1, "test/map_75": -1}  # COCO's word for no object


def test_training_descends_the_weighted_sum_of_the_losses() -> None:
    net, data = Known(), samples(6)
    task = Detection(
        net, K, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01), loss_weights={"count": 10.0}
    )
    Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0).fit(task, loader(data, 6), loader(data, 6))
    size = sum(target["boxes"].sum().item() for _, target in data) / 6
    count = sum(len(target["labels"]) for _, target in data) / 6
    torch.testing.assert_close(net.factor.detach(), torch.tensor([1 - 0.01 * size, 1 - 0.1 * count]))


def test_every_loss_is_logged_as_its_mean_over_samples() -> None:
    data = samples(6)
    task = Detection(Known(), K, optimizer=lambda p: torch.optim.SGD(p, lr=0.0), loss_weights={"size": 0.5})
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(task, loader(data), loader(data))
    size = sum(target["boxes"].sum().item() for _, target in data) / 6
    count = sum(len(target["labels"]) for _, target in data) / 6
    found = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("train")}
    expected = {"train/size": size, "train/count": count, "train/loss": 0.5 * size + count}
    assert found == pytest.approx(expected, rel=1e-6)
    assert "val/loss" not in trainer.callback_metrics


def test_predictions_become_a_row_a_box(tmp_path: Path) -> None:
    data = samples(5)
    writer = WritePredictions(tmp_path, options={"score": 0.0})
    Trainer(**UNSAVED, callbacks=[writer]).predict(Detection(Known(), K, class_names=NAMES), loader(data, 2))
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == sorted(int(row["id"]) for row in rows)
    assert {row["id"] for row in rows} == {"0", "1", "2", "3", "4"}
    for index, (image, _) in enumerate(data):
        (found,) = Known().eval()([image])
        own = [row for row in rows if row["id"] == str(index) and row["class"]]
        assert sorted(row["class"] for row in own) == sorted(NAMES[k] for k in found["labels"].tolist())
        corners = torch.tensor([[float(row[side]) for side in ("left", "top", "right", "bottom")] for row in own])
        assert_same_boxes(corners.view(-1, 4), found["boxes"])


def assert_same_boxes(boxes: torch.Tensor, expected: torch.Tensor) -> None:
    """In any order."""
    torch.testing.assert_close(torch.tensor(sorted(boxes.tolist())), torch.tensor(sorted(expected.tolist())))


def test_boxes_below_the_score_are_no_answers() -> None:
    output = {"boxes": torch.rand(3, 4), "labels": torch.tensor([0, 1, 1]), "scores": torch.tensor([0.2, 0.9, 0.5])}
    task = Detection(Known(), K)
    [answer] = task.answer([output], {"classes": ["cat", "dog"]}, score=0.4)
    assert [(box["class"], round(box["score"], 1)) for box in answer["boxes"]] == [("dog", 0.9), ("dog", 0.5)]
    with pytest.raises(ValueError, match=r"score: expected a number in \[0, 1\], got 2"):
        task.answer([output], {}, score=2)


def test_results_for_the_tools_of_coco() -> None:
    output = {"boxes": torch.tensor([[1.0, 2, 4, 8]]), "labels": torch.tensor([1]), "scores": torch.tensor([0.01])}
    task = Detection(Known(), K)
    facts = {"classes": ["cat", "dog"], "category_ids": [17, 18]}
    entries = task.results([output, {**output, "image_id": 42}], facts, ["a/000000000139.jpg", "b.jpg"])
    assert entries is not None
    [[first], [second]] = entries
    assert (first["image_id"], second["image_id"]) == (139, 42)
    assert first["category_id"] == 18
    assert first["bbox"] == [1, 2, 3, 6]
    assert first["score"] == pytest.approx(0.01)
    assert task.results([output], {"classes": ["cat", "dog"]}, ["b.jpg"]) is None


def test_predictions_are_in_pixels_of_the_file() -> None:
    [(image, target)] = [pair for pair in samples(4) if len(pair[1]["labels"]) == 3]
    height, width = image.shape[-2:]
    target = {**target, "image_id": 17, "file_size": (2 * width, 3 * height)}
    [found] = Detection(Known(), K).eval().predict_step(([image], [target]), 0)
    (expected,) = Known().eval()([image])
    torch.testing.assert_close(found["boxes"], expected["boxes"] * torch.tensor([2, 3, 2, 3]))
    assert found["image_id"] == 17
    assert torch.equal(found["labels"], expected["labels"])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_batch_that_does_not_fit_is_cut_between_images(size: int) -> None:
    images, targets = collate(samples(size))
    parts = split((images, targets), 2)
    assert [share for share, _ in parts] == [size // 2 / size, (size - size // 2) / size]
    for field, whole in enumerate((images, targets)):
        found = [entry for _, part in parts for entry in part[field]]
        assert all(a is b for a, b in zip(found, whole, strict=True))


def test_a_half_filled_metric_survives_a_checkpoint(tmp_path: Path) -> None:
    """Its states are lists, an entry an image; files are read without running code."""
    data = samples(8)
    whole, task = Detection(Known(), K), Detection(Known(), K)
    images, targets = collate(data)
    for metrics, cut in ((whole.test_metrics, 8), (task.test_metrics, 5)):
        metrics.update(preds=Known().eval()(images[:cut]), target=targets[:cut])
    losses = {"box": torch.tensor(3.0), "class": torch.tensor(5.0)}
    task.train_metrics["losses"].update(losses, 2)
    trainer, resume, checkpoint = Trainer(**UNSAVED), ExactResume(), {}
    resume.on_save_checkpoint(trainer, task, checkpoint)
    torch.save(checkpoint, tmp_path / "x.ckpt")
    fresh = Detection(Known(), K)
    trainer.state.fn = "fit"  # type: ignore[assignment]  # where checkpoints are continued
    resume.on_load_checkpoint(trainer, fresh, torch.load(tmp_path / "x.ckpt", weights_only=True))
    fresh.test_metrics.update(preds=Known().eval()(images[5:]), target=targets[5:])
    assert fresh.test_metrics.compute() == whole.test_metrics.compute()
    assert fresh.train_metrics["losses"].compute() == losses


def test_a_checkpoint_made_in_python_holds_plain_values(tmp_path: Path) -> None:
    task = Detection(Known(), K, loss_weights={"size": 2.0}, class_names=["a", "b", "c"])
    data = loader(samples(4))
    trainer = Trainer(**UNSAVED, max_steps=1)
    trainer.fit(task, data, data)
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    content = torch.load(tmp_path / "task.ckpt", weights_only=True)
    expected = {"num_classes": K, "loss_weights": {"size": 2.0}, "class_names": ["a", "b", "c"]}
    assert content["hyper_parameters"] == expected
    loaded = Detection.load_from_checkpoint(tmp_path / "task.ckpt", net=Known())
    assert loaded.loss_weights == {"size": 2.0}


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
@pytest.mark.parametrize(
    ("boxes", "labels", "message"),
    [
        ([[1, 1, 2, 2], [1, 1, 2, 2]], [0, 3], "num_classes: labels run from 0 to 3, expected 0 to 2"),
        ([[1, 1, 2, 2]], [-1], "num_classes: labels run from -1 to 1, expected 0 to 2"),
        ([[1, 1, 2, 2]], [1, 2], r"boxes: expected shape \(2, 4\) for 2 labels, got \(1, 4\)"),
        ([[1, 1, 2]], [1], r"boxes: expected shape \(1, 4\) for 1 labels, got \(1, 3\)"),
        ([[1, 1, 2, 2], [5, 1, 5, 2]], [1, 1], r"expected left < right and top < bottom, got \[5.0, 1.0, 5.0, 2.0\]"),
    ],
)
def test_bad_targets_are_errors_in_words(verb: str, boxes: list[Any], labels: list[int], message: str) -> None:
    good = samples(4)
    bad = [*good[:3], (good[3][0], {"boxes": torch.tensor(boxes, dtype=torch.float), "labels": torch.tensor(labels)})]
    trainer, loaders = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0), [loader(bad), loader(good)]
    with pytest.raises(ValueError, match=message):
        getattr(trainer, verb)(Detection(Known(), K), *(loaders if verb == "fit" else loaders[:1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"num_classes": 4}, "num_classes: expected 3 as in the net, got 4"),
        ({"class_names": ["a", "b", "a"]}, r"class_names: expected different names, got \['a', 'b', 'a'\]"),
        ({"class_names": ["a"]}, "class_names: expected num_classes = 3 names, got 1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Detection(Known(), **{"num_classes": K, **arguments})


def test_a_weight_for_no_loss_is_an_error_in_words() -> None:
    task, data = Detection(Known(), K, loss_weights={"box": 1.0}), loader(samples(4))
    with pytest.raises(ValueError, match="loss_weights: expected names among size, count, got box"):
        Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0).fit(task, data, data)


def test_a_missing_pycocotools_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(ImportError, match="pycocotools"):
        Detection(Known(), K)


IMAGES = """
from playbook.data.base import Data
from tests.tasks.test_detection import collate, samples

class Images(Data):
    '''Seven images to evaluate: two processes have four and three of them.'''
    collate = staticmethod(collate)

    def setup(self, stage):
        self.train_set = self.val_set = self.test_set = samples(7)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
def test_processes_with_different_numbers_of_images_measure_what_one_does(tmp_path: Path) -> None:
    (tmp_path / "images.py").write_text(IMAGES)
    options = ("--model", "Detection", "--model.net", f"{__name__}.Known", "--model.num_classes", "3")
    options = (
        *options,
        "--data",
        "images.Images",
        "--trainer.max_epochs",
        "1",
        "--trainer.devices",
        "2",
        "--trainer.strategy",
        "ddp",
        "--data.batch_size",
        "2",
        "--run_dir",
        "run",
    )
    Group(2, "fit", *options, cwd=tmp_path).finish()
    expected = Trainer(**UNSAVED).test(Detection(Known(), K), loader(samples(7)), verbose=False)[0]
    assert len(expected) == 5
    assert json.loads((tmp_path / "run/metrics.json").read_text())["test"] == pytest.approx(expected)
    size = sum(target["boxes"].sum().item() for _, target in samples(7)) / 7
    assert values(tmp_path / "run", "train/size") == pytest.approx([size], rel=0.01)  # the factor moves by 0.001
