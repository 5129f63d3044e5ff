"""Against a linear layer and F.cross_entropy; the Triton kernel in Triton's interpreter, in a process of its own."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from src.ops.chunked_cross_entropy import HAS_TRITON, chunked_cross_entropy
from tests.conftest import ROOT

N, V, D = 13, 37, 6


def example(dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, weight and a target of which places 2 and 5 do not count."""
    generator = torch.Generator().manual_seed(0)
    features = scale * torch.randn(N, D, generator=generator, dtype=dtype)
    weight = torch.randn(V, D, generator=generator, dtype=dtype)
    target = torch.randint(V, (N,), generator=generator)
    target[[2, 5]] = -100
    return features.requires_grad_(), weight.requires_grad_(), target


def whole(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(linear(features, weight).float(), target, reduction="sum")


def gradients(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("chunk", [1, 4, N, 100])
def test_equals_linear_and_cross_entropy(chunk: int) -> None:
    features, weight, target = example()
    loss = chunked_cross_entropy(features, weight, target, chunk)
    reference = cross_entropy(features @ weight.T, target, reduction="sum")
    torch.testing.assert_close(loss, reference)
    # the mean over those that count, as tasks take it: gradients are scaled
    torch.testing.assert_close(
        gradients(loss / 11, features, weight), gradients(reference / 11, features, weight), rtol=1e-12, atol=1e-14
    )


def test_gradcheck() -> None:
    features, weight, target = example()
    assert torch.autograd.gradcheck(lambda x, w: chunked_cross_entropy(x, w, target, 5), (features, weight))


def test_only_what_needs_a_gradient_gets_one() -> None:
    features, weight, target = example()
    chunked_cross_entropy(features, weight.detach(), target, 4).backward()
    torch.testing.assert_close(
        features.grad, gradients(cross_entropy(features @ weight.T, target, reduction="sum"), features)[0]
    )
    with torch.no_grad():
        loss = chunked_cross_entropy(features, weight, target, 4)
    assert loss.grad_fn is None
    torch.testing.assert_close(loss, cross_entropy(features @ weight.T, target, reduction="sum"))


def test_autocast_computes_as_a_linear_layer_does() -> None:
    """Products in bf16, softmax in float32: as far from float64 as F.linear and F.cross_entropy are."""
    features, weight, target = example(torch.float32, scale=4.0)
    with torch.autocast("cpu", torch.bfloat16):
        loss, reference = chunked_cross_entropy(features, weight, target, 4), whole(features, weight, target)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference, rtol=1e-6, atol=0)
    ours, theirs = gradients(loss, features, weight), gradients(reference, features, weight)
    assert [grad.dtype for grad in ours] == [torch.float32, torch.float32]
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)
    double, exact_weight = (leaf.detach().double().requires_grad_() for leaf in (features, weight))
    exact = gradients(cross_entropy(double @ exact_weight.T, target, reduction="sum"), double, exact_weight)
    for grad, other, truth in zip(ours, theirs, exact, strict=True):
        error, reference_error = ((value - truth).norm() / truth.norm() for value in (grad, other))
        assert error < 1.2 * reference_error, (error, reference_error)


def test_weights_in_bf16_sum_their_gradient_in_float32() -> None:
    """1000 chunks of equal gradients: a sum in bf16 stops growing at 256."""
    features = torch.ones(1000, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    chunked_cross_entropy(features, weight, torch.zeros(1000, dtype=torch.long), 1).backward()
    torch.testing.assert_close(weight.grad, torch.tensor([[-500.0], [500.0]]).bfloat16(), rtol=0.005, atol=0)


def test_nothing_that_counts_gives_zero() -> None:
    features, weight, target = example()
    loss = chunked_cross_entropy(features, weight, torch.full_like(target, -100), 4)
    assert loss == 0
    assert all(not grad.any() for grad in gradients(loss, features, weight))
    assert chunked_cross_entropy(features[:0], weight, target[:0], 4) == 0


@pytest.mark.parametrize("logit", [1e4, 3e38])
def test_large_logits_stay_finite(logit: float) -> None:
    features, weight = torch.tensor([[logit]]), torch.tensor([[1.0], [-1.0], [0.0]])
    assert chunked_cross_entropy(features, weight, torch.tensor([0]), 1) == 0
    assert chunked_cross_entropy(features, weight, torch.tensor([2]), 1) == logit


def test_two_backward_passes_give_the_same() -> None:
    features, weight, target = example()
    loss = chunked_cross_entropy(features, weight, target, 4)
    loss.backward(retain_graph=True)
    assert weight.grad is not None
    once = weight.grad.clone()
    (3 * loss).backward()
    torch.testing.assert_close(weight.grad, 4 * once)


def test_second_derivatives_are_refused() -> None:
    features, weight, target = example()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(chunked_cross_entropy(features, weight, target, 4), features, create_graph=True)


@pytest.mark.slow
def test_compiles_without_a_break() -> None:
    features, weight, target = example(torch.float32)
    compiled: Callable[..., Tensor] = torch.compile(chunked_cross_entropy, backend="aot_eager", fullgraph=True)
    loss, reference = compiled(features, weight, target, 4), chunked_cross_entropy(features, weight, target, 4)
    torch.testing.assert_close(loss, reference)
    torch.testing.assert_close(gradients(loss, features, weight), gradients(reference, features, weight))


def test_mistakes() -> None:
    features, weight, target = example()
    with pytest.raises(ValueError, match="chunk: expected at least 1 row, got 0"):
        chunked_cross_entropy(features, weight, target, 0)
    for wrong in (V, -1):
        target[0] = wrong
        with pytest.raises((IndexError, RuntimeError), match=f"index {wrong} is out of bounds"):
            chunked_cross_entropy(features, weight, target, 4)


KERNEL = """
import torch
from torch.nn.functional import cross_entropy
from src.ops import cross_entropy_kernel
from src.ops.chunked_cross_entropy import chunked_cross_entropy
from src.ops.cross_entropy_kernel import fused_cross_entropy

cross_entropy_kernel.LARGEST_BLOCK = 64  # several blocks a row
for dtype, rtol in ((torch.float32, 2e-6), (torch.bfloat16, 0.008), (torch.float16, 0.001)):
    for num_classes in (9, 64, 150):  # less than a block, one, and no multiple of it
        torch.manual_seed(num_classes)
        logits = (20 * torch.randn(4, num_classes)).to(dtype)
        logits[0, :-1] = -float("inf")
        logits[1] = 3e4
        target = torch.tensor([num_classes - 1, 0, 7, 8])  # 7: ignored
        leaf = logits.detach().double().requires_grad_()
        reference = cross_entropy(leaf, target, reduction="none", ignore_index=7)
        reference.sum().backward()
        losses = fused_cross_entropy(logits, target, 7)
        torch.testing.assert_close(losses.double(), reference.detach(), rtol=2e-6, atol=1e-5)
        torch.testing.assert_close(logits.double(), leaf.grad, rtol=rtol, atol=1e-6)
assert fused_cross_entropy(torch.zeros(1, 5), torch.tensor([5]), -100).isnan().all()

torch.manual_seed(0)
features, weight = torch.randn(5, 6, requires_grad=True), torch.randn(70, 6, requires_grad=True)
target = torch.tensor([0, 69, -100, 3, 3])
function = chunked_cross_entropy
"""
EQUAL = """
for enabled in (False, True):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        loss = function(features, weight, target, 2)
        reference = cross_entropy((features @ weight.T).float(), target, reduction="sum")
    torch.testing.assert_close(loss, reference)
    actual, expected = (torch.autograd.grad(value, (features, weight)) for value in (loss, reference))
    torch.testing.assert_close(actual, expected, rtol=0.02 if enabled else 1e-5, atol=0.02 if enabled else 1e-6)
print("equal")
"""
COMPILED = """
torch.library.opcheck(fused_cross_entropy, (torch.randn(3, 5), torch.tensor([0, 4, -100]), -100))
function = torch.compile(chunked_cross_entropy, backend="aot_eager", fullgraph=True)
"""


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is published for Linux")
@pytest.mark.slow
@pytest.mark.parametrize("middle", ["", COMPILED], ids=["eager", "compiled"])
def test_kernel_equals_cross_entropy_in_the_interpreter(monkeypatch: pytest.MonkeyPatch, middle: str) -> None:
    """In a process of its own, as Triton reads the variable when it is imported."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    script = KERNEL + middle + EQUAL
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
