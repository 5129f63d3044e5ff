"""Classification against plain loops in float64."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from playbook.errors import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.ops.losses import weighted_cross_entropy
from src.ops.vocabularies import Words
from src.tasks.classification import Classification
from tests.tasks.reports import assert_means, report_of

K = 3


def samples(num_samples: int, *labels: int) -> list[tuple[Tensor, int]]:
    """Random inputs; the labels given come last."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 4, generator=generator)
    targets = [i * i % K for i in range(num_samples - len(labels))] + list(labels)
    return list(zip(inputs, targets, strict=True))


def loader(samples: list[Any], batch_size: int = 4) -> DataLoader:
    return DataLoader(samples, batch_size=batch_size)  # type: ignore[arg-type]


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, K)


def reference(net: nn.Linear, data: list[tuple[Tensor, int]], smoothing: float) -> tuple[float, float]:
    """Mean loss and accuracy, a sample at a time, in float64."""
    weight, bias = net.weight.double().tolist(), net.bias.double().tolist()
    loss, correct = 0.0, 0
    for x, target in data:
        logits = [
            sum(w * v for w, v in zip(row, x.tolist(), strict=True)) + b for row, b in zip(weight, bias, strict=True)
        ]
        total = math.log(sum(math.exp(logit) for logit in logits))
        wanted = [smoothing / K + (1 - smoothing) * (k == target) for k in range(K)]
        loss += sum(share * (total - logit) for share, logit in zip(wanted, logits, strict=True))
        correct += logits.index(max(logits)) == target
    return loss / len(data), correct / len(data)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(("num_samples", "batch_size"), [(11, 4), (9, 8), (3, 5)])
def test_loss_and_accuracy_are_exact_over_uneven_batches(num_samples: int, batch_size: int, smoothing: float) -> None:
    task, data = Classification(linear(), K, label_smoothing=smoothing), samples(num_samples)
    trainer = Trainer(**UNSAVED)
    validated = trainer.validate(task, loader(data, batch_size), verbose=False)[0]
    tested = trainer.test(task, loader(data, batch_size), verbose=False)[0]
    assert isinstance(task.net, nn.Linear)
    loss, accuracy = reference(task.net, data, smoothing)
    assert 0 < accuracy < 1
    assert validated == pytest.approx({"val/loss": loss, "val/accuracy": accuracy}, rel=1e-6)
    assert tested == pytest.approx({"test/loss": loss, "test/accuracy": accuracy}, rel=1e-6)


def test_training_descends_the_gradient_of_the_cross_entropy() -> None:
    """One step of plain SGD on a linear model: the gradient of a logit is softmax minus one-hot, over B."""
    net, data = linear().double(), [(x.double(), target) for x, target in samples(6)]
    inputs, targets = torch.stack([x for x, _ in data]), torch.tensor([target for _, target in data])
    slope = ((inputs @ net.weight.T + net.bias).softmax(1) - torch.eye(K)[targets]).detach() / 6
    expected = net.weight.detach() - 0.5 * slope.T @ inputs
    task = Classification(net, K, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0).fit(task, loader(data, 6), loader(data, 6))
    torch.testing.assert_close(net.weight.detach(), expected)


def test_a_separable_problem_is_learnt() -> None:
    torch.manual_seed(0)
    data = [(torch.eye(4)[i % K] + 0.1 * torch.randn(4), i % K) for i in range(30)]
    task = Classification(linear(), K, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.1))
    trainer = Trainer(**UNSAVED, max_epochs=10)
    trainer.fit(task, loader(data, 10), loader(data, 10))
    assert trainer.callback_metrics["val/accuracy"] == 1
    assert trainer.callback_metrics["train/accuracy"] == 1


def test_predictions_name_label_probability_and_target() -> None:
    task, data = Classification(linear(), K), samples(7)
    batches: Any = Trainer(**UNSAVED).predict(task, loader(data))
    assert [set(batch) for batch in batches] == [{"label", "probability", "target"}] * 2
    assert [len(batch["label"]) for batch in batches] == [4, 3]
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    odds = task(torch.stack([x for x, _ in data])).double().exp()
    torch.testing.assert_close(whole["probability"].double(), odds / odds.sum(1, keepdim=True), rtol=1e-5, atol=1e-7)
    assert whole["label"].tolist() == [row.index(max(row)) for row in odds.tolist()]
    assert whole["target"].tolist() == [target for _, target in data]


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
@pytest.mark.parametrize(("label", "extremes"), [(K, "0 to 3"), (-1, "-1 to 1")])
def test_a_label_out_of_range_is_an_error_in_words(verb: str, label: int, extremes: str) -> None:
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    bad, good = loader(samples(4, label)), loader(samples(4))
    message = f"num_classes: labels run from {extremes}, expected 0 to 2"
    with pytest.raises(ValueError, match=message):
        getattr(trainer, verb)(Classification(linear(), K), *([bad, good] if verb == "fit" else [bad]))


@pytest.mark.parametrize(
    ("net", "shape"),
    [(nn.Linear(4, 5), "4, 5"), (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), "4,"), (nn.Identity(), "4, 4")],
)
def test_a_net_with_other_than_k_outputs_is_an_error_in_words(net: nn.Module, shape: str) -> None:
    message = rf"num_classes: expected logits of shape \(4, 3\), the net returned \({shape}\); set --model.num_classes"
    with pytest.raises(ValueError, match=message):
        Trainer(**UNSAVED).test(Classification(net, K), loader(samples(4)), verbose=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes: expected at least 2, got 1"),
        ({"label_smoothing": 1.1}, r"label_smoothing: expected a share in \[0, 1\], got 1.1"),
        ({"top_k": 0}, "top_k: expected 1 to num_classes 10, got 0"),
        ({"num_classes": 3, "top_k": 4}, "top_k: expected 1 to num_classes 3, got 4"),
        ({"calibration_bins": -1}, "calibration_bins: expected at least 0, got -1"),
        ({"metrics": ["auprc"]}, "metrics: expected some of f1, auroc, average_precision, got auprc"),
        ({"label_smoothing": -0.1}, r"label_smoothing: expected a share in \[0, 1\], got -0.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classification(linear(), **arguments)


def test_calibration_and_top_k_of_the_whole_set() -> None:
    """Guo et al. 2017, equations 2 to 5, written out; over batches of different sizes."""
    torch.manual_seed(0)
    task, data = Classification(linear(), K, top_k=2, calibration_bins=15), samples(61)
    [found] = Trainer(**UNSAVED).test(task, loader(data), verbose=False)
    probability = task(torch.stack([x for x, _ in data])).detach().double().softmax(1)
    target = torch.tensor([label for _, label in data])
    confidence, label = probability.max(1)
    error = 0.0
    for i in range(15):
        inside = (confidence > i / 15) & (confidence <= (i + 1) / 15)
        if inside.any():
            accuracy = (label[inside] == target[inside]).double().mean()
            error += inside.double().mean().item() * (accuracy - confidence[inside].mean()).abs().item()
    assert found["test/calibration_error"] == pytest.approx(error, rel=1e-5)
    least = probability.argmin(1)  # with K = 3, the second of the likeliest is what is not the least
    assert found["test/top2_accuracy"] == pytest.approx((least != target).double().mean().item())


def test_calibration_of_small_logits() -> None:
    """All in [0, 1], as of a net that is sure of nothing yet; they are no probabilities."""
    torch.manual_seed(0)
    logits, target = torch.rand(1000, K), torch.randint(K, (1000,))
    task = Classification(linear(), K, calibration_bins=15)
    task.val_metrics["calibration_error"].update(logits, target)
    assert task.val_metrics["calibration_error"].compute() < 0.1


# classes that count differently

WEIGHTS = {"a": 0.25, "c": 3.0}  # b weighs 1


def weighed(class_weights: Any = WEIGHTS, smoothing: float = 0.0, **facts: Any) -> Classification:
    """A task that stays as it is, for steps to be comparable."""
    still: Any = lambda parameters: torch.optim.SGD(parameters, lr=0.0)  # noqa: E731
    task = Classification(linear().double(), K, still, label_smoothing=smoothing, class_weights=class_weights)
    task.double().facts = {"classes": ["a", "b", "c"], **facts}
    return task


def rows(mixed: bool = False) -> tuple[Tensor, Tensor]:
    """23 samples in float64, the rare classes at the end; the targets may be shares of two classes."""
    inputs = torch.randn(23, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([0] * 17 + [1] * 4 + [2] * 2)
    if not mixed:
        return inputs, target
    share = torch.rand(23, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one = torch.eye(K, dtype=torch.float64)[target]
    return inputs, share * one + (1 - share) * one.flip(0)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weighted_loss_is_torchs(smoothing: float) -> None:
    inputs, target = rows()
    task, weight = weighed(smoothing=smoothing), torch.tensor([0.25, 1.0, 3.0]).double()
    task.setup("fit")
    loss, total = weighted_cross_entropy(task(inputs), target, task.class_weight, task.label_smoothing)
    expected = nn.functional.cross_entropy(task(inputs), target, weight, label_smoothing=smoothing)
    assert total == 17 * 0.25 + 4 + 2 * 3
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_weighted_loss_of_probabilities_is_torchs_over_what_they_weigh(smoothing: float) -> None:
    """torch divides the same sum by the number of samples."""
    inputs, target = rows(mixed=True)
    task, weight = weighed(smoothing=smoothing), torch.tensor([0.25, 1.0, 3.0]).double()
    task.setup("fit")
    loss, total = weighted_cross_entropy(task(inputs), target, task.class_weight, task.label_smoothing)
    by_hand = sum(weight[k].item() * share for row in target.tolist() for k, share in enumerate(row))
    assert float(total) == pytest.approx(by_hand)
    expected = nn.functional.cross_entropy(task(inputs), target, weight, label_smoothing=smoothing) * 23 / by_hand
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    hard = torch.eye(K, dtype=torch.float64)[rows()[1]]
    pair = [weighted_cross_entropy(task(inputs), each, weight, smoothing) for each in (hard, rows()[1])]
    for a, b in zip(*pair, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("accumulate", [1, 3, 23])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_weighted_step_is_the_same_however_it_is_split(mixed: bool, accumulate: int, num_parts: int) -> None:
    for seed in range(2):
        batches, large = random_split(rows(mixed), seed, accumulate)
        found = step_gradients(weighed(smoothing=0.1), batches, accumulate, num_parts)
        assert_same_steps(found, step_gradients(weighed(smoothing=0.1), large, weighed=False))


def test_counting_samples_instead_would_be_another_step() -> None:
    batches, large = random_split(rows(), 0, 3)
    task = weighed()
    task.weighs_samples = True
    with pytest.raises(AssertionError, match="relative error"):
        assert_same_steps(step_gradients(task, batches, 3), step_gradients(weighed(), large, weighed=False))


def test_classes_that_weigh_nothing_leave_no_trace() -> None:
    """The first batches have no other sample."""
    inputs, target = rows()
    task = weighed({"a": 0.0})
    batches = [[inputs[i : i + 4], target[i : i + 4]] for i in range(0, 23, 4)]
    found = step_gradients(task, batches)
    assert all(not gradient.any() for gradient in [*found[0], *found[3]])
    expected = step_gradients(weighed({}), [[inputs[17:20], target[17:20]]], weighed=False)
    assert_same_steps([found[4]], expected)
    loss, weight = weighted_cross_entropy(task(inputs[:4]), target[:4], task.class_weight)
    assert (loss, weight) == (0, 0)


@pytest.mark.parametrize("weights", ["auto", WEIGHTS])
def test_only_training_is_weighted(weights: Any) -> None:
    inputs, target = rows()
    task = weighed(weights, class_counts=[17, 4, 2])
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    data = list(zip(inputs, target.tolist(), strict=True))
    trainer.fit(task, loader(data), loader(data))
    plain = nn.functional.cross_entropy(task(inputs), target).item()
    weight = torch.tensor([23 / 51, 23 / 12, 23 / 6] if weights == "auto" else [0.25, 1.0, 3.0]).double()
    assert trainer.callback_metrics["val/loss"] == pytest.approx(plain, rel=1e-6)
    weighted = nn.functional.cross_entropy(task(inputs), target, weight).item()
    assert trainer.callback_metrics["train/loss"] == pytest.approx(weighted, rel=1e-6)
    assert abs(weighted - plain) > 0.01


def test_weights_by_number_where_classes_have_no_names() -> None:
    task = weighed({"2": 5.0})
    task.facts.clear()
    task.setup("fit")
    assert task.class_weight is not None
    assert task.class_weight.tolist() == [1.0, 1.0, 5.0]


def test_data_of_another_number_of_classes() -> None:
    task = weighed("auto", class_counts=[17, 4])
    task.trainer = Trainer(**UNSAVED)
    with pytest.raises(UserError, match=r"^num_classes: the data has 2 classes, expected 3$"):
        task.setup("fit")


def test_weighted_checkpoints_load_without_the_data(tmp_path: Path) -> None:
    task = weighed("auto", class_counts=[17, 4, 2])
    inputs, target = rows()
    data = loader(list(zip(inputs, target.tolist(), strict=True)))
    trainer = Trainer(**UNSAVED, max_steps=1)
    trainer.fit(task, data, data)
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    assert not [name for name in torch.load(tmp_path / "task.ckpt")["state_dict"] if "class_weight" in name]
    loaded = Classification.load_from_checkpoint(tmp_path / "task.ckpt", net=nn.Linear(4, K)).double()
    [found] = Trainer(**UNSAVED).validate(loaded, data, verbose=False)
    assert found["val/loss"] == pytest.approx(nn.functional.cross_entropy(task(inputs), target).item())


def test_macro_accuracy_is_the_mean_over_the_classes_that_occur() -> None:
    """Four classes, of which one does not occur in targets, but is predicted."""
    task = Classification(nn.Identity(), 4, macro_accuracy=True)
    labels, targets = [0, 0, 0, 3, 1, 0, 2], [0, 0, 0, 0, 1, 1, 2]
    data = [(torch.eye(4)[label], target) for label, target in zip(labels, targets, strict=True)]
    [found] = Trainer(**UNSAVED).test(task, loader(data), verbose=False)
    assert found["test/macro_accuracy"] == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert found["test/accuracy"] == pytest.approx(5 / 7)


def test_metrics_for_rare_classes_in_validation_and_test(tmp_path: Path) -> None:
    net, data = nn.Linear(4, 2), [(x, int(target == 1)) for x, target in samples(61)]
    task = Classification(net, 2, metrics=["auroc", "f1", "average_precision"])
    trainer = Trainer(**UNSAVED, max_epochs=2)
    trainer.fit(task, loader(data), loader(data))
    logits, target = net(torch.stack([x for x, _ in data])).detach(), [label for _, label in data]
    share = logits.softmax(1)[:, 1]
    expected = {
        "f1": f1_score(target, logits.argmax(1)),
        "auroc": roc_auc_score(target, share),
        "average_precision": average_precision_score(target, share),
    }
    found = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert {name: found[f"val/{name}"] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert "train/auroc" not in found
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    loaded = Classification.load_from_checkpoint(tmp_path / "task.ckpt", net=nn.Linear(4, 2))
    [found] = Trainer(**UNSAVED).test(loaded, loader(data), verbose=False)
    assert {name: found[f"test/{name}"] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_numbers_in_place_of_classes_are_an_error_in_words() -> None:
    data = [(x, 0.5 * target) for x, target in samples(4)]
    message = (
        "targets: expected classes, got numbers, as in a regression; set --data.target_kind classes, or --model Re"
    )
    with pytest.raises(UserError, match=message):
        Trainer(**UNSAVED).test(Classification(nn.Linear(4, 1), K), loader(data), verbose=False)


# ensembles


class Ensemble(nn.Module):
    """Linear classifiers, each with the inputs of all (B, 4) or its own (B, k, 4)."""

    def __init__(self, members: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(members, 4, K))

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.ndim == 3 else x[:, None].expand(-1, len(self.weight), -1)
        logits = torch.einsum("bkd,kdc->bkc", x, self.weight)  # (B, k, K)
        return logits if self.training else logits.softmax(-1).mean(1).log()


def ensemble(class_weights: Any = None, smoothing: float = 0.1) -> Classification:
    still: Any = lambda parameters: torch.optim.SGD(parameters, lr=0.0)  # noqa: E731
    task = Classification(Ensemble(), K, still, label_smoothing=smoothing, class_weights=class_weights)
    task.double().facts = {"classes": ["a", "b", "c"]}
    return task


def own_rows(kind: str) -> tuple[Tensor, Tensor]:
    inputs, target = rows(mixed=kind == "mixed")
    if kind != "own":
        return inputs, target
    orders = [torch.randperm(len(target), generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    return torch.stack([inputs[order] for order in orders], 1), torch.stack([target[order] for order in orders], 1)


@pytest.mark.parametrize("kind", ["shared", "mixed", "own"])
@pytest.mark.parametrize("class_weights", [None, WEIGHTS])
def test_a_step_of_an_ensemble_is_the_same_however_it_is_split(class_weights: Any, kind: str) -> None:
    batches, large = random_split(own_rows(kind), 0, 3)
    found = step_gradients(ensemble(class_weights), batches, 3, num_parts=2)
    assert_same_steps(found, step_gradients(ensemble(class_weights), large, weighed=False))


@pytest.mark.parametrize("kind", ["shared", "mixed", "own"])
def test_the_loss_of_an_ensemble_is_the_mean_of_its_members(kind: str) -> None:
    task, (inputs, target) = ensemble(smoothing=0.0), own_rows(kind)
    trainer = Trainer(**UNSAVED, max_epochs=1, num_sanity_val_steps=0)
    data, plain = list(zip(inputs, target, strict=True)), list(zip(*rows(), strict=True))
    trainer.fit(task, loader(data), loader(plain))
    losses, hits = [], []
    for i, weight in enumerate(task.net.weight):  # type: ignore[arg-type]  # of Ensemble
        x, y = (inputs[:, i], target[:, i]) if kind == "own" else (inputs, target)
        losses.append(nn.functional.cross_entropy(x @ weight, y))
        hits.append(((x @ weight).argmax(1) == (y.argmax(1) if kind == "mixed" else y)).double().mean())
    assert trainer.callback_metrics["train/loss"] == pytest.approx(torch.stack(losses).mean().item(), rel=1e-6)
    assert trainer.callback_metrics["train/accuracy"] == pytest.approx(torch.stack(hits).mean().item())
    answer = nn.functional.cross_entropy(task.eval()(rows()[0]), rows()[1]).item()
    assert trainer.callback_metrics["val/loss"] == pytest.approx(answer, rel=1e-6)


def test_members_that_are_not_averaged_in_validation() -> None:
    class Never(Ensemble):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bd,kdc->bkc", x, self.weight)

    message = r"num_classes: expected logits of shape \(4, 3\), the net returned \(4, 2, 3\)"
    with pytest.raises(UserError, match=message):
        Trainer(**UNSAVED).test(Classification(Never(), K), loader(samples(4)), verbose=False)


# inputs and checkpoints


class TwoInputs(nn.Module):
    """Gives its inputs different roles."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = linear()

    def forward(self, plus: Tensor, minus: Tensor) -> Tensor:
        return self.linear(plus - minus)


def test_named_inputs_train_and_predict_by_name() -> None:
    data = [({"minus": torch.zeros(4), "plus": x}, target) for x, target in samples(6)]
    task = Classification(TwoInputs(), K)
    trainer = Trainer(**UNSAVED, max_epochs=1)
    trainer.fit(task, loader(data), loader(data))
    batches: Any = trainer.predict(task, loader(data))
    assert isinstance(task.net, TwoInputs)
    expected = task.net.linear(torch.stack([x for x, _ in samples(6)])).softmax(1)
    torch.testing.assert_close(torch.cat([batch["probability"] for batch in batches]), expected.detach())


def test_a_checkpoint_made_in_python_holds_plain_values(tmp_path: Path) -> None:
    task = Classification(linear(), K, optimizer=torch.optim.SGD, label_smoothing=0.25)
    defaults = {"top_k": 1, "calibration_bins": 0, "class_weights": None, "macro_accuracy": False}
    defaults["metrics"] = None
    assert dict(task.hparams) == {"num_classes": K, "label_smoothing": 0.25, **defaults}
    trainer, data = Trainer(**UNSAVED, max_steps=1), loader(samples(4))
    trainer.fit(task, data, data)
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    content = torch.load(tmp_path / "task.ckpt", weights_only=True)
    assert content["hyper_parameters"] == dict(task.hparams)

    loaded = Classification.load_from_checkpoint(tmp_path / "task.ckpt", net=nn.Linear(4, K))
    assert (loaded.num_classes, loaded.label_smoothing) == (K, 0.25)
    x = torch.randn(5, 4)
    assert torch.equal(loaded(x), task(x))


def test_examples_of_texts_have_their_words() -> None:
    vocabulary = Words(["good", "bad"])
    task = Classification(_Bag(), 2)
    task.facts = {"tokenizer": vocabulary.plain(), "classes": ["no", "yes"]}
    tokens = torch.tensor([vocabulary.encode("good bad"), [*vocabulary.encode("bad"), 0]])
    answers = task.answer(task.example_step(({"tokens": tokens}, torch.tensor([1, -1]))), task.facts, top=1)
    assert [answer["text"] for answer in answers] == ["good bad", "bad"]
    assert [answer.get("target") for answer in answers] == ["yes", None]
    [plain] = task.answer(task.predict_step(({"tokens": tokens[:1]}, torch.tensor([-1])), 0), task.facts, top=1)
    assert list(plain) == ["class", "probability"], "predict writes texts no second time"


class _Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens].sum(dim=1)


@pytest.mark.parametrize("soft", [False, True])
def test_the_report_has_accuracy_and_loss_of_each_sample(soft: bool) -> None:
    torch.manual_seed(0)
    inputs, target = torch.randn(30, 4), torch.randint(3, (30,))
    data = TensorDataset(inputs, nn.functional.one_hot(target, 3).float() if soft else target)
    task = Classification(nn.Linear(4, 3), 3)
    report, logged, _ = report_of(task, DataLoader(data, batch_size=8))
    assert_means(report, logged, {"accuracy", "loss"})
    is_right = report.samples["accuracy"].bool()
    assert (report.rankings["Most confident errors"][is_right] == -torch.inf).all()
    assert is_right.equal(task.net(inputs).argmax(dim=1) == target)
    assert list(report.figures) == ["Confusion matrix", "Precision and recall", "Reliability"]


def test_data_with_several_labels_a_sample_is_refused() -> None:
    task = Classification(nn.Linear(2, 3), num_classes=3)
    task.facts = {"classes": ["a", "b", "c"], "multilabel": True}
    with pytest.raises(UserError, match="several labels a sample; expected MultilabelClassification"):
        task.setup("fit")
    task.facts["multilabel"] = False
    task.setup("fit")
