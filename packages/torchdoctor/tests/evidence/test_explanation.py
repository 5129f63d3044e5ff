"""What the review says of torch's most frequent errors; each of them is raised by torch itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from programs import Blobs, Classifier, needs_fork
from script_programs import changed, written
from torchdoctor.evidence.explanation import Explanation, explain
from torchdoctor.evidence.failure import as_finding
from torchdoctor.options import select_ids
from torchdoctor.review import review_module
from torchdoctor.scripts.command import review_script

x = torch.randn(20, 3, 8, 8)
scores = torch.randn(20, 3, requires_grad=True)


def explained(run: Callable[[], Any]) -> Explanation:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of whatever type torch chooses
        run()
    explanation = explain(caught.value)
    assert explanation is not None, caught.value
    assert as_finding(caught.value).message.endswith(f". Cause: {explanation.cause}")
    return explanation


class Net(nn.Module):
    def __init__(self, features: int = 100, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(features, 5), nn.BatchNorm1d(5))

    def forward(self, image: Tensor) -> Tensor:
        return self.net(self.conv(image))


def test_a_linear_behind_flatten() -> None:
    cause, fix = explained(lambda: Net()(x))
    assert "self.net[1] takes 100 features, and the last dimension of what it gets (20×144) has 144" in cause
    assert fix.startswith("nn.Linear(144, 5)")


def test_a_linear_without_flatten() -> None:
    layer = nn.Linear(192, 3)
    cause, fix = explained(lambda: layer(x))
    assert "layer takes 192 features" in cause
    assert cause.endswith("the samples are not flattened")
    assert fix.startswith("x.flatten(1)")


def test_labels_that_are_floats() -> None:
    labels = torch.zeros(20)
    cause, fix = explained(lambda: F.cross_entropy(scores, labels))
    assert "int64 (Long), and labels is float" in cause
    assert fix == "labels.long()"


def test_targets_that_are_integers() -> None:
    labels = torch.zeros(20).long()
    cause, fix = explained(lambda: F.binary_cross_entropy_with_logits(scores[:, 0], labels))
    assert "labels holds integers" in cause
    assert fix.startswith("labels.float()")
    cause, fix = explained(lambda: F.cross_entropy(scores, F.one_hot(labels, 3)))
    assert fix.startswith("F.one_hot(labels, 3).argmax(1)")


def test_inputs_in_double_precision() -> None:
    layer, features = nn.Linear(3, 3), torch.zeros(20, 3, dtype=torch.float64)
    cause, fix = explained(lambda: layer(features))
    assert "layer gets double numbers, and its weights are float: arrays of NumPy" in cause
    assert fix.startswith("features.float()")


def test_two_devices() -> None:
    """The device that every build has beside the CPU."""

    def add() -> Tensor:
        far, mask = torch.zeros(20, 3, device="meta"), torch.ones(20, 3)
        return far + scores * mask

    cause, fix = explained(add)
    assert "far on meta" in cause
    assert "mask on cpu" in cause
    assert ".to(device)" in fix


class Rising(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden.exp()
        hidden += 1
        return hidden


def test_a_change_in_place() -> None:
    def train() -> None:
        Rising()(scores).sum().backward()

    cause, fix = explained(train)
    assert cause.startswith("backward needs what exp gave (20, 3) as it was")
    assert fix.startswith("x = x + y")  # this file has several such lines
    cause, fix = explained(_write_into_a_weight)
    assert fix.startswith("with torch.no_grad():")


def _write_into_a_weight() -> None:
    weight = torch.zeros(3, requires_grad=True)
    weight += 1


RISING = """
def rise(hidden):
    number = 0
    number += 1
    made = hidden.exp()
    made *= 2
    return made


def train(hidden):
    rise(hidden).sum().backward()
"""


def test_the_one_change_in_place_of_a_file(tmp_path: Path) -> None:
    file, scope = tmp_path / "rising.py", dict[str, Any]()
    file.write_text(RISING)
    exec(compile(RISING, str(file), "exec"), scope)  # a program of the test's own
    cause, fix = explained(lambda: scope["train"](scores))
    assert cause.endswith("line 6, `made *= 2`")
    assert fix == "made = made * 2"


def test_a_state_of_the_batch_before() -> None:
    rnn = nn.LSTM(3, 5)

    def train() -> None:
        state = None
        for _ in range(2):
            out, state = rnn(torch.randn(4, 2, 3), state)
            out.sum().backward()

    cause, fix = explained(train)
    assert cause.startswith("state, which line ")
    assert fix.startswith("state = tuple(part.detach() for part in state)")
    with pytest.raises(RuntimeError) as caught:
        train()
    assert "autograd.grad(). Cause: state, which" in as_finding(caught.value).message  # and no half sentence


def test_a_loss_that_goes_backwards_twice() -> None:
    def train() -> None:
        loss = scores.exp().sum()
        loss.backward()
        loss.backward()

    assert "one loss goes twice" in explained(train).cause


def test_labels_beyond_the_classes() -> None:
    labels = torch.tensor([1, 2, 7])
    cause, fix = explained(lambda: F.cross_entropy(scores[:3], labels))
    assert "those of 3 classes, 0 to 2, and labels holds 1 to 7" in cause
    assert fix.startswith("8  # outputs")
    labels = torch.tensor([1, 2, 3])
    assert explained(lambda: F.cross_entropy(scores[:3], labels)).fix == "labels - 1"
    tokens, words = torch.tensor([0, 7]), nn.Embedding(5, 4)
    cause, fix = explained(lambda: words(tokens))
    assert "words has 5 entries, 0 to 4, and gets 0 to 7" in cause
    assert fix.startswith("nn.Embedding(8, 4)")


def test_channels_of_a_convolution() -> None:
    cause, fix = explained(lambda: Net(channels=1)(x))
    assert "self.conv takes 1 channels, and dimension 1 of its input (20×3×8×8) has 3" in cause
    assert fix.startswith("nn.Conv2d(3, 4, 3, …)")
    cause, fix = explained(lambda: Net()(x.permute(0, 2, 3, 1)))
    assert fix == "image.permute(0, 3, 1, 2)"
    cause, fix = explained(lambda: Net(channels=1)(x[:, 0]))
    assert fix == "image.unsqueeze(1)"


def test_sizes_of_a_view() -> None:
    cause, fix = explained(lambda: x.view(32, 192))
    assert "x (20×3×8×8) has 3840 numbers" in cause
    assert cause.endswith("a batch of 20 where 32 is written")
    assert fix.startswith("x.view(-1, 192)")
    assert explained(lambda: x.view(-1, 100)).fix.startswith("x.flatten(1)")
    assert "in this order in memory" in explained(lambda: x.permute(0, 2, 3, 1).view(20, -1)).cause


def test_more_labels_than_classes() -> None:
    labels = torch.tensor([0, 1, 2, 5])
    cause, fix = explained(lambda: F.one_hot(labels, 3))
    assert cause == "one_hot makes 3 classes, and labels holds 5, which needs 6 classes"
    assert fix.startswith("num_classes=6")
    metric = MulticlassAccuracy(3)
    assert "num_classes=3" in explained(lambda: metric(torch.randn(4, 3), torch.tensor([0, 1, 2, 5]))).cause


def test_a_norm_of_one_sample() -> None:
    net = Net(features=144)
    cause, fix = explained(lambda: net(x[:1]))
    assert cause.startswith("self.net[2] takes the mean and variance of the batch")
    assert fix.startswith("DataLoader(…, drop_last=True)")


def test_other_errors_are_not_explained() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / 0)
    assert explain(caught.value) is None
    assert as_finding(caught.value).message == "ZeroDivisionError: division by zero"


@needs_fork
@pytest.mark.slow
def test_the_report_of_a_module_says_it() -> None:
    class Wide(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.net[2] = nn.Linear(64, 3)

    [finding] = review_module(lambda: (Wide(), Blobs()), ids=select_ids("crash")).findings
    assert (
        "mat1 and mat2 shapes cannot be multiplied (20x32 and 64x3). Cause: self.net[2] takes 64" in finding["message"]
    )
    assert finding["fix"].startswith("nn.Linear(32, 3)  # test_explanation.py:")


@needs_fork
@pytest.mark.slow
def test_the_report_of_a_script_says_it(tmp_path: Path) -> None:
    script = written(tmp_path, changed(("nn.Linear(32, 3)", "nn.Linear(64, 3)")))
    [finding] = review_script(script, [], select_ids("crash")).findings
    assert "Cause: self.second takes 64 features" in finding["message"]
    assert finding["fix"] == "nn.Linear(32, 3)  # line 20"
