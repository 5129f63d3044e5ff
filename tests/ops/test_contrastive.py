"""Contrastive losses against torch's own, and gathered features of two processes against one."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize

from playbook.testing.processes import run_in_processes
from src.ops.contrastive import are_pairs, gather_rows, info_nce_loss, row_counts, sigmoid_loss


def features(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(size, 6, generator=generator, dtype=torch.float64), dim=1)


def test_info_nce_of_different_captions_is_cross_entropy() -> None:
    similarity = 9 * features(5, 0) @ features(5, 1).T
    numbers = torch.arange(5)[:, None].expand(-1, 2)
    expected = cross_entropy(similarity, torch.arange(5))
    torch.testing.assert_close(info_nce_loss(similarity, are_pairs(numbers, numbers)), expected)


def test_equal_captions_and_images_are_targets_for_each_other() -> None:
    """Captions 0 and 2 are equal, and samples 3 and 4 have one image."""
    numbers = torch.tensor([[0, 7], [1, 8], [2, 7], [3, 9], [3, 10]])
    is_pair = are_pairs(numbers, numbers)
    target = torch.eye(5, dtype=torch.float64)
    target[0, 2] = target[2, 0] = target[3, 4] = target[4, 3] = 1
    assert torch.equal(is_pair, target.bool())
    similarity = 9 * features(5, 0) @ features(5, 1).T
    expected = cross_entropy(similarity, target / target.sum(dim=1, keepdim=True))
    torch.testing.assert_close(info_nce_loss(similarity, is_pair), expected)


def test_sigmoid_loss_sums_over_pairs_and_divides_by_the_batch() -> None:
    similarity = 9 * features(4, 0) @ features(4, 1).T - 10
    is_pair = torch.eye(4, dtype=torch.bool)
    expected = binary_cross_entropy_with_logits(similarity, is_pair.double(), reduction="sum") / 4
    torch.testing.assert_close(sigmoid_loss(similarity, is_pair), expected)


def test_equal_features_have_the_loss_of_chance() -> None:
    same = torch.ones(8, 8)
    assert info_nce_loss(same, torch.eye(8, dtype=torch.bool)).item() == pytest.approx(math.log(8))


def test_one_process_gathers_its_own_rows() -> None:
    x = features(3, 0)
    assert row_counts(x) == [3]
    assert gather_rows(x, [3]) is x


SIZES = ((4, 4), (3, 2))  # rows of each process; the last batch of an epoch may be uneven


def losses(kind: str, image: Tensor, text: Tensor, scale: Tensor, numbers: Tensor, sizes: list[int]) -> Tensor:
    is_pair = are_pairs(numbers, gather_rows(numbers, sizes))
    from_image = scale * image @ gather_rows(text, sizes).T
    if kind == "sigmoid":
        return sigmoid_loss(from_image, is_pair)
    from_text = scale * text @ gather_rows(image, sizes).T
    return (info_nce_loss(from_image, is_pair) + info_nce_loss(from_text, is_pair)) / 2


def inputs_of(total: int) -> tuple[list[Tensor], Tensor]:
    numbers = torch.stack([torch.arange(total), torch.arange(total) % (total - 1)], dim=1)  # two equal captions
    tensors = [features(total, 0), features(total, 1), torch.tensor(5.0, dtype=torch.float64)]
    return [x.requires_grad_() for x in tensors], numbers


def work(rank: int, folder: str) -> None:
    """Gradients of the weighted mean of both processes, as DDP and the weights of batches make it."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results: dict[Any, Any] = {}
    for kind in ("infonce", "sigmoid"):
        for sizes in SIZES:
            tensors, numbers = inputs_of(sum(sizes))
            start = sum(sizes[:rank])
            own = slice(start, start + sizes[rank])
            image, text, scale = tensors[0][own], tensors[1][own], tensors[2]
            counts = row_counts(image)
            assert counts == list(sizes)
            loss = losses(kind, image, text, scale, numbers[own], counts) * sizes[rank] / sum(sizes)
            gradients = torch.autograd.grad(loss, tensors)
            for gradient in (loss_value := loss.detach().clone(), *gradients):
                distributed.all_reduce(gradient)
            results[kind, sizes] = (loss_value, gradients)
    torch.save(results, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes")
def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    run_in_processes(work, (str(tmp_path),), 2, tmp_path / "store")
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for (kind, sizes), (loss, gradients) in ranks[0].items():
        tensors, numbers = inputs_of(sum(sizes))
        image, text, scale = tensors
        expected = losses(kind, image, text, scale, numbers, [sum(sizes)])
        torch.testing.assert_close(loss, expected.detach())
        for gradient, wanted in zip(gradients, torch.autograd.grad(expected, tensors), strict=True):
            torch.testing.assert_close(gradient, wanted)
