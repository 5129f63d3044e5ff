"""Segmentation against confusion matrices made by hand, pixel by pixel."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.errors import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.ops.losses import cross_entropy_loss, dice_loss, focal_loss, lovasz_softmax
from src.tasks.segmentation import LOSSES, Segmentation
from tests.tasks.reports import report_of

K, IGNORED = 4, 255
Samples = list[tuple[Tensor, Tensor]]


class Pixelwise(nn.Module):
    """Logits of every pixel from its channels alone."""

    def __init__(self, in_channels: int = 3, num_classes: int = K) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(in_channels, num_classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(image)


def samples(num_samples: int, absent: int | None = None, ignore: bool = False) -> Samples:
    """Images whose channels tell their masks now and then; a class may be absent from masks and predictions."""
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(K, (num_samples, 5, 6), generator=generator)
    if absent is not None:
        masks[masks == absent] = (absent + 1) % K
    if ignore:
        masks[torch.rand(masks.shape, generator=generator) < 0.2] = IGNORED
    images = torch.randn(num_samples, 3, 5, 6, generator=generator)
    return list(zip(images, masks, strict=True))


def loader(samples: Samples, batch_size: int = 4) -> DataLoader:
    return DataLoader(samples, batch_size=batch_size)  # type: ignore[arg-type]


def reference(net: nn.Module, data: Samples, ignored: int | None) -> dict[str, float]:
    """One matrix over all pixels, counted one at a time."""
    matrix = [[0] * K for _ in range(K)]
    for image, mask in data:
        predicted = net(image[None])[0].argmax(0)
        for truth, guess in zip(mask.flatten().tolist(), predicted.flatten().tolist(), strict=True):
            if truth != ignored:
                matrix[truth][guess] += 1
    scores = {}
    for k in range(K):
        union = sum(matrix[k]) + sum(row[k] for row in matrix) - matrix[k][k]
        if union and k != ignored:
            scores[f"iou_{k}"] = matrix[k][k] / union
    scores["miou"] = sum(scores.values()) / len(scores)
    scores["pixel_accuracy"] = sum(matrix[k][k] for k in range(K)) / sum(map(sum, matrix))
    return scores


def without_class(net: Pixelwise, k: int) -> Pixelwise:
    """Never predicts a class."""
    with torch.no_grad():
        assert net.conv.bias is not None
        net.conv.bias[k] = -1000
    return net


@pytest.mark.parametrize(("num_samples", "batch_size"), [(11, 4), (9, 8), (3, 5)])
@pytest.mark.parametrize("absent", [None, 2])
@pytest.mark.parametrize("ignored", [None, IGNORED, 1])
def test_scores_are_those_of_all_pixels_together(
    num_samples: int, batch_size: int, absent: int | None, ignored: int | None
) -> None:
    net, data = Pixelwise(), samples(num_samples, absent, ignore=ignored == IGNORED)
    if absent is not None:
        without_class(net, absent)
    task = Segmentation(net, K, ignore_index=ignored)
    trainer = Trainer(**UNSAVED)
    expected = reference(net, data, ignored)
    assert (f"iou_{absent}" in expected) is False
    for stage, found in [
        ("val", trainer.validate(task, loader(data, batch_size), verbose=False)[0]),
        ("test", trainer.test(task, loader(data, batch_size), verbose=False)[0]),
    ]:
        assert found.keys() - {f"{stage}/loss"} == {f"{stage}/{name}" for name in expected}
        for name, value in expected.items():
            assert found[f"{stage}/{name}"] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("absent", [None, 2])
@pytest.mark.parametrize("ignored", [None, IGNORED, 1])
def test_the_report_scores_classes_over_all_pixels_and_images_by_themselves(
    absent: int | None, ignored: int | None
) -> None:
    net, data = Pixelwise(), samples(7, absent, ignore=ignored == IGNORED)
    if absent is not None:
        without_class(net, absent)
    report, logged, outputs = report_of(Segmentation(net, K, ignore_index=ignored), loader(data))
    assert not report.samples.keys() & logged.keys(), "they are other numbers than the metrics"
    for number, pair in enumerate(data):
        expected = reference(net, [pair], ignored)
        assert report.samples["image_miou"][number].item() == pytest.approx(expected["miou"])
        assert report.samples["image_pixel_accuracy"][number].item() == pytest.approx(expected["pixel_accuracy"])
    assert report.rankings["Lowest IoU"].argmax() == report.samples["image_miou"].argmin()
    rows = {row["class"]: row for row in report.tables["Classes, over all pixels"]}
    assert list(rows) == [str(k) for k in range(K) if k != ignored]
    truth = torch.stack([mask for _, mask in data])
    guess = torch.stack([net(image[None])[0].argmax(0) for image, _ in data])
    counts = truth != (-1 if ignored is None else ignored)
    for name, row in rows.items():
        is_class, is_guessed = (truth == int(name)) & counts, (guess == int(name)) & counts
        hits = (is_class & is_guessed).sum().item()
        assert row["IoU"] == (None if int(name) == absent else pytest.approx(logged[f"iou_{name}"], rel=1e-5))
        assert row["precision"] == pytest.approx(hits / max(is_guessed.sum().item(), 1))
        assert row["recall"] == pytest.approx(hits / max(is_class.sum().item(), 1))
        assert row["share of pixels"] == pytest.approx((is_class.sum() / counts.sum()).item())
        assert row["images"] == is_class.any(dim=(1, 2)).sum()
    assert {name: tuple(counts.shape) for name, counts in outputs.items()} == dict.fromkeys(outputs, (7, K))


@pytest.mark.parametrize("ignored", [None, IGNORED, -100])
def test_targets_are_answers_whose_ignored_pixels_are_named(ignored: int | None) -> None:
    mask = torch.tensor([[0, 1], [1, 1 if ignored is None else ignored]])
    task = Segmentation(Pixelwise(), K, ignore_index=ignored)
    [answer] = task.target_answer((torch.zeros(1, 3, 2, 2), mask[None]), {})
    assert answer["mask"].tolist() == [[0, 1], [1, 1 if ignored is None else K]]
    shares = [1 / 4, 3 / 4] if ignored is None else [1 / 3, 2 / 3]
    assert list(answer["area"].values()) == pytest.approx([*shares, *[0.0] * (K - 2)])
    assert task.draw(torch.zeros(3, 2, 2), answer).size == (256, 256)


def test_an_image_of_ignored_pixels_has_no_score_and_no_rank() -> None:
    data = samples(4)
    data[1] = data[1][0], torch.full_like(data[1][1], IGNORED)
    report, _, _ = report_of(Segmentation(Pixelwise(), K, ignore_index=IGNORED), loader(data))
    for name in ("image_miou", "image_pixel_accuracy"):
        assert report.samples[name].isnan().tolist() == [False, True, False, False]
    assert report.rankings["Lowest IoU"][1] == -torch.inf


def test_scores_do_not_come_from_averages_over_batches() -> None:
    """Where batches differ, the mean of their scores is another number."""
    net, data = Pixelwise(), samples(8)
    data[4:] = [(image, net(image[None])[0].argmax(0)) for image, _ in data[4:]]  # all right in the second batch
    whole, halves = reference(net, data, None), [reference(net, part, None) for part in (data[:4], data[4:])]
    assert abs(whole["miou"] - sum(half["miou"] for half in halves) / 2) > 0.01
    found = Trainer(**UNSAVED).test(Segmentation(net, K), loader(data), verbose=False)[0]
    assert found["test/miou"] == pytest.approx(whole["miou"], rel=1e-6)


def test_counts_of_processes_add_up() -> None:
    """What torchmetrics does between ranks: states are gathered and reduced as each says."""
    task, data = Segmentation(Pixelwise(), K), samples(6)
    metric: Any = task.test_metrics["scores"]
    matrices = []
    for part in (data[:4], data[4:]):
        for image, mask in part:
            metric.update(task(image[None]).argmax(1), mask[None])
        matrices.append(metric.confmat)
        metric.reset()
    metric.confmat = metric._reductions["confmat"](torch.stack(matrices))
    metric._update_count = 1
    assert metric.compute()["miou"].item() == pytest.approx(reference(task.net, data, None)["miou"], rel=1e-6)


def test_loss_is_the_mean_over_samples() -> None:
    net, data = Pixelwise(), samples(8)
    found = Trainer(**UNSAVED).test(Segmentation(net, K), loader(data), verbose=False)[0]
    images, masks = (torch.stack(part) for part in zip(*data, strict=True))
    expected = nn.functional.cross_entropy(net(images).double(), masks).item()
    assert found["test/loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "functions"),
    [
        ("cross-entropy", [cross_entropy_loss]),
        ("dice", [dice_loss]),
        ("focal", [focal_loss]),
        ("lovasz", [lovasz_softmax]),
        ("cross-entropy+dice", [cross_entropy_loss, dice_loss]),
        ("cross-entropy+lovasz", [cross_entropy_loss, lovasz_softmax]),
    ],
)
@pytest.mark.parametrize("ignored", [None, IGNORED])
def test_training_descends_the_gradient_of_the_named_loss(loss: Any, functions: list[Any], ignored: int | None) -> None:
    """One step of plain SGD."""
    net, data = Pixelwise().double(), samples(4, ignore=ignored is not None)
    data = [(image.double(), mask) for image, mask in data]
    images, masks = (torch.stack(part) for part in zip(*data, strict=True))
    value = torch.stack([function(net(images), masks, ignored) for function in functions]).sum()
    slopes = torch.autograd.grad(value, list(net.parameters()))
    expected = [p.detach() - 0.5 * slope for p, slope in zip(net.parameters(), slopes, strict=True)]
    task = Segmentation(net, K, loss, ignored, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    assert task.loss_name == loss
    trainer = Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0)
    trainer.fit(task, loader(data), loader(data))
    torch.testing.assert_close([p.detach() for p in net.parameters()], expected)
    assert trainer.callback_metrics["train/loss"] == pytest.approx(value.item(), rel=1e-6)


@pytest.mark.parametrize("loss", [*LOSSES, "cross-entropy+dice"])
def test_a_separable_problem_is_learnt(loss: Any) -> None:
    """Channel k is bright where the mask is k."""
    torch.manual_seed(0)
    masks = torch.randint(K, (12, 5, 6))
    images = nn.functional.one_hot(masks, K).movedim(-1, 1) + 0.1 * torch.randn(12, K, 5, 6)
    data = list(zip(images, masks, strict=True))
    task = Segmentation(Pixelwise(K), K, loss, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.2))
    trainer = Trainer(**UNSAVED, max_epochs=12)
    trainer.fit(task, loader(data), loader(data))
    assert trainer.callback_metrics["val/miou"] == 1
    assert trainer.callback_metrics["train/pixel_accuracy"] == 1


# the weight of a batch: steps that are split, and means over an epoch


def few_labels() -> tuple[Tensor, Tensor]:
    """23 images in float64, with masks of which 0 % to 100 % are ignored; the first and the last are ignored whole."""
    images, masks = (torch.stack(part) for part in zip(*samples(23), strict=True))
    share = torch.linspace(0, 1, 23)[torch.randperm(23, generator=torch.Generator().manual_seed(1))]
    share[[0, -1]] = 1.0
    ignored = torch.rand(masks.shape, generator=torch.Generator().manual_seed(2)) < share[:, None, None]
    return images.double(), masks.masked_fill(ignored, IGNORED)


def still(loss: Any, ignored: int | None = IGNORED) -> Segmentation:
    """A task that stays as it is, for steps to be comparable."""
    return Segmentation(Pixelwise().double(), K, loss, ignored, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 3, 23])
@pytest.mark.parametrize("loss", ["cross-entropy", "focal"])
def test_a_step_is_the_same_however_it_is_split(loss: str, accumulate: int, num_parts: int) -> None:
    for seed in range(2):
        batches, large = random_split(few_labels(), seed, accumulate)
        found = step_gradients(still(loss), batches, accumulate, num_parts)
        assert_same_steps(found, step_gradients(still(loss), large, weighed=False))


def weighed(loss: Any, **weights: float) -> Segmentation:
    task = Segmentation(
        Pixelwise().double(),
        K,
        loss,
        IGNORED,
        class_names=["a", "b", "c", "d"],
        optimizer=lambda p: torch.optim.SGD(p, lr=0.0),
        class_weights=weights,
    )
    return task.double()


@pytest.mark.parametrize("accumulate", [1, 3, 23])
@pytest.mark.parametrize("loss", ["cross-entropy", "focal"])
def test_a_weighted_step_is_the_same_however_it_is_split(loss: str, accumulate: int) -> None:
    batches, large = random_split(few_labels(), 0, accumulate)
    found = step_gradients(weighed(loss, a=0.2, d=5.0), batches, accumulate, num_parts=3)
    assert_same_steps(found, step_gradients(weighed(loss, a=0.2, d=5.0), large, weighed=False))


@pytest.mark.parametrize("loss", ["cross-entropy", "cross-entropy+dice"])
def test_classes_weigh_in_the_cross_entropy_of_training_alone(loss: str) -> None:
    images, masks = few_labels()
    task = weighed(loss, a=0.25, d=3.0)
    data = loader(list(zip(images, masks, strict=True)), 23)
    trainer = Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0)
    trainer.fit(task, data, data)
    weight = torch.tensor([0.25, 1.0, 1.0, 3.0]).double()
    for stage, of_classes in (("train", weight), ("val", None)):
        expected = nn.functional.cross_entropy(task(images), masks, of_classes, ignore_index=IGNORED)
        if "dice" in loss:
            expected = expected + dice_loss(task(images), masks, IGNORED)
        assert trainer.callback_metrics[f"{stage}/loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_names_of_the_data_come_before_numbers() -> None:
    task = Segmentation(Pixelwise(), K, class_weights={"sky": 2.0})
    task.facts["classes"] = ["cat", "dog", "cow", "sky"]
    task.setup("fit")
    assert task.class_weight is not None
    assert task.class_weight.tolist() == [1.0, 1.0, 1.0, 2.0]
    task.facts["classes"] = ["cat", "dog", "cow", "ski"]
    with pytest.raises(UserError, match=r"no class is called sky, expected cat, dog, cow, ski\. Nearest: ski"):
        task.setup("fit")


@pytest.mark.parametrize("loss", ["dice", "lovasz", "cross-entropy+dice", "cross-entropy+lovasz"])
def test_losses_over_the_whole_batch_say_that_a_split_changes_them(
    loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batches, large = random_split(few_labels(), 0, 3)
    assert still(loss).weight((batches[0][0], batches[0][1])) is None
    found = step_gradients(still(loss), batches, 3)
    assert "warning: the loss is not a mean over parts of a batch" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="relative error"):
        assert_same_steps(found, step_gradients(still(loss), large, weighed=False))


@pytest.mark.parametrize("loss", ["cross-entropy", "focal"])
def test_without_ignored_pixels_every_pixel_counts(loss: str) -> None:
    images, masks = (torch.stack(part) for part in zip(*samples(23), strict=True))
    assert still(loss, None).weight((images, masks)) == 23 * 5 * 6
    batches, large = random_split((images.double(), masks), 0, 3)
    found = step_gradients(still(loss, None), batches, 3)
    assert_same_steps(found, step_gradients(still(loss, None), large, weighed=False))


@pytest.mark.parametrize("batch_size", [1, 4, 23])
@pytest.mark.parametrize("loss", ["cross-entropy", "focal"])
def test_loss_of_an_epoch_is_the_mean_over_counted_pixels(loss: str, batch_size: int) -> None:
    images, masks = few_labels()
    task = still(loss)
    expected = LOSSES[loss](task(images), masks, IGNORED).item()
    data = list(zip(images, masks, strict=True))
    [found] = Trainer(**UNSAVED).validate(task, loader(data, batch_size), verbose=False)
    assert found["val/loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("batch_size", [4, 23])
def test_loss_of_an_epoch_without_weights_is_the_mean_over_samples(batch_size: int) -> None:
    images, masks = (torch.stack(part) for part in zip(*samples(23), strict=True))
    task = Segmentation(Pixelwise(), K, "dice")
    parts = list(zip(images.split(batch_size), masks.split(batch_size), strict=True))
    expected = sum(dice_loss(task(image), mask).item() * len(mask) for image, mask in parts) / 23
    [found] = Trainer(**UNSAVED).validate(task, loader(samples(23), batch_size), verbose=False)
    assert found["val/loss"] == pytest.approx(expected, rel=1e-6)


def test_metrics_bear_the_names_of_classes() -> None:
    task = Segmentation(Pixelwise(), K, class_names=["cat", "dog", "cow", "sky"])
    found = Trainer(**UNSAVED).test(task, loader(samples(4)), verbose=False)[0]
    scores = ["test/iou_cat", "test/iou_dog", "test/iou_cow", "test/iou_sky", "test/miou", "test/pixel_accuracy"]
    assert sorted(found) == sorted([*scores, "test/loss"])


@pytest.mark.parametrize(("num_classes", "dtype"), [(4, torch.uint8), (256, torch.uint8), (257, torch.int32)])
def test_predictions_are_masks(num_classes: int, dtype: torch.dtype) -> None:
    net, data = Pixelwise(num_classes=num_classes), samples(7)
    batches: Any = Trainer(**UNSAVED).predict(Segmentation(net, num_classes), loader(data))
    assert [set(batch) for batch in batches] == [{"mask"}] * 2
    masks = torch.cat([batch["mask"] for batch in batches])
    assert masks.dtype == dtype
    for (image, _), mask in zip(data, masks, strict=True):
        for y in range(5):
            for x in range(6):
                logits = net(image[None])[0, :, y, x].tolist()
                assert logits[mask[y, x]] == max(logits)


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
@pytest.mark.parametrize(
    ("value", "ignored", "message"),
    [
        (K, None, r"masks contain 4, expected 0 to 3; none is ignored, see --model.num_classes and --m"),
        (-1, None, r"masks contain -1, expected 0 to 3; none is ignored"),
        (254, IGNORED, r"masks contain 254, expected 0 to 3; 255 is ignored"),
    ],
)
def test_a_class_out_of_range_is_an_error_in_words(verb: str, value: int, ignored: int | None, message: str) -> None:
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    data = samples(5)
    data[4][1][0, 0] = value  # in the second batch
    with pytest.raises(ValueError, match=f"^num_classes: {message}"):
        getattr(trainer, verb)(
            Segmentation(Pixelwise(), K, ignore_index=ignored),
            *([loader(data), loader(samples(4))] if verb == "fit" else [loader(data)]),
        )


@pytest.mark.parametrize(
    ("net", "shape"),
    [(Pixelwise(num_classes=5), "4, 5, 5, 6"), (nn.AvgPool2d(2), "4, 3, 2, 3"), (nn.Flatten(2), "4, 3, 30")],
)
def test_logits_of_another_shape_are_an_error_in_words(net: nn.Module, shape: str) -> None:
    message = rf"num_classes: expected logits of shape \(4, 4, 5, 6\), the net returned \({shape}\); set --model.num"
    with pytest.raises(ValueError, match=message):
        Trainer(**UNSAVED).test(Segmentation(net, K), loader(samples(4)), verbose=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes: expected at least 2, got 1"),
        (
            {"loss": "dise"},
            r"loss: expected cross-entropy, dice, focal, lovasz, .* joined by \+, got dise",
        ),
        ({"class_names": ["a", "b"], "num_classes": 3}, "class_names: expected 3 different names, got a, b"),
        ({"class_weights": {"0": -1.0}}, "class_weights: expected finite weights of at least 0, got -1.0 for 0"),
        (
            {"class_weights": {"0": 2.0}, "loss": "dice"},
            "class_weights: expected a cross-entropy or focal loss",
        ),
        ({"class_names": ["a", "a"]}, "class_names: expected 2 different names, got a, a"),
        ({"class_names": ["a", "a", "b"]}, "class_names: expected 2 different names, got a, a, b"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Segmentation(Pixelwise(), **arguments)


def test_a_batch_in_which_nothing_counts_costs_nothing() -> None:
    data = [(image, torch.full_like(mask, IGNORED)) for image, mask in samples(4)]
    net = Pixelwise()
    before = [p.detach().clone() for p in net.parameters()]
    task = Segmentation(net, K, "cross-entropy+dice", IGNORED, optimizer=torch.optim.SGD)
    Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0).fit(task, loader(data), loader(samples(4)))
    torch.testing.assert_close([p.detach() for p in net.parameters()], before)


def test_the_ignored_class_comes_from_the_data() -> None:
    """open-mmlab/mmsegmentation#1609: masks with borders of 255 ended in a traceback."""
    task = Segmentation(nn.Conv2d(1, 2, 1), num_classes=2)
    task.facts = {"classes": ["a", "b"], "ignore_index": 255}
    task.setup("fit")
    image, mask = torch.randn(2, 1, 4, 4), torch.tensor([0, 1, 255, 255]).repeat(2, 4, 1)
    explicit = Segmentation(task.net, num_classes=2, ignore_index=255)
    for name in ("train_metrics", "val_metrics", "test_metrics"):
        found, expected = getattr(task, name), getattr(explicit, name)
        for metrics in (found, expected):
            metrics["scores"].update(task(image).argmax(1), mask)
        assert found["scores"].confmat.sum() == expected["scores"].confmat.sum() == 16
    assert task.weight((image, mask)) == 16
    task.setup("test")
    contradicting = Segmentation(task.net, num_classes=2, ignore_index=0)
    contradicting.facts = task.facts
    with pytest.raises(UserError, match=r"^--model.ignore_index: expected 255 as in the data, got 0; leave it out"):
        contradicting.setup("fit")
