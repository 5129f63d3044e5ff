"""Nets spread over real processes compute what one process does: outputs, gradients, norms, a step, keys."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.nets.cnn import CNN
from src.nets.gpt import GPT
from src.nets.mlp import MLP
from src.nets.resnet import ResNet
from src.nets.resnet9 import ResNet9
from src.nets.unet import UNet
from src.nets.vit import ViT

VIT: dict[str, Any] = {"dim": 16, "depth": 2}
GPT_SIZES: dict[str, Any] = {"vocab_size": 10, "num_layers": 2, "dim": 16, "num_heads": 4, "num_kv_heads": 2}
NETS: dict[str, Any] = {
    "vit": lambda: ViT(**VIT),
    "vit recomputed": lambda: ViT(**VIT),  # with activation checkpointing
    "vit rope": lambda: ViT(**VIT, position="rope"),
    "vit sincos": lambda: ViT(**VIT, position="sincos"),
    "gpt": lambda: GPT(**GPT_SIZES),
    "gpt recomputed": lambda: GPT(**GPT_SIZES),
    "gpt untied": lambda: GPT(**GPT_SIZES, tie_weights=False, activation="relu2", window=3),
    "gpt by features": lambda: GPT(**GPT_SIZES),  # as a loss in chunks calls it
    "mlp": lambda: MLP(widths=[7, 5]),  # do not divide by the number of processes
    "cnn": lambda: CNN(widths=[3, 4]),
    "resnet": lambda: ResNet(depth=20, in_channels=1),
    "resnet9": lambda: ResNet9(in_channels=1, width=3),
    "unet": lambda: UNet(10, widths=[3, 4], in_channels=1),
}
SPLIT_BY_LAYER = [name for name in NETS if name.startswith(("vit", "gpt")) and "sincos" not in name]
LAYOUTS = {"fsdp2": (2, 1), "tensor parallel": (1, 2), "both": (2, 2)}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    net = NETS[name]().eval()  # batch norms take the statistics of their own rank in training
    with torch.no_grad():
        for parameter in net.parameters():  # nothing at zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def batch(net: nn.Module) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    if isinstance(net, GPT):
        return torch.randint(10, (8, 6), generator=generator), torch.randint(10, (8, 6), generator=generator)
    return torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator)


def train_a_step(net: Any, rank: int = 0, ranks: int = 1, *, by_features: bool = False) -> dict[str, Any]:
    """Forward, backward and a clipped step on this rank's share of the batch; everything gathered."""
    inputs, target = (x.chunk(ranks)[rank] for x in batch(net))
    if by_features:
        features, weight = net.features(inputs), net.head.weight
        logits = features @ (weight.to_local() if isinstance(weight, DTensor) else weight).T
    else:
        logits = net(inputs)
    logits = logits.mean((2, 3)) if logits.ndim == 4 else logits
    cross_entropy(logits.flatten(0, -2), target.flatten()).backward()
    gradients = {name: full(parameter.grad) for name, parameter in net.named_parameters()}
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    weights = {name: full(value) for name, value in net.state_dict().items()}
    return {"logits": logits.detach(), "gradients": gradients, "norm": full(norm), "weights": weights}


def full(value: Tensor | None) -> Tensor:
    assert value is not None
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def work(rank: int, folder: str, sizes: tuple[int, int], names: list[str]) -> None:
    """What one process does: every net, one after the other, then its results in a file."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=sizes[0] * sizes[1])
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data_parallel", "tensor_parallel"))
    results: dict[str, Any] = {}
    for name in names:
        net: Any = build(name)
        net.parallelize(mesh)
        if "recomputed" in name:
            ActivationCheckpointing().on_fit_start(None, nn.ModuleDict({"net": net}))  # type: ignore[arg-type]
        share = mesh["data_parallel"].get_local_rank()
        results[name] = {**train_a_step(net, share, sizes[0], by_features="features" in name), "share": share}
        split = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in net.parameters())
        results[name]["numel"] = split
    if sizes[1] > 1:
        for message, net in {
            "heads": ViT(num_heads=3, dim=12),
            "dropout": ViT(dropout=0.1),
            "kv heads": GPT(num_heads=3, dim=12),
            "hidden": GPT(num_heads=2, dim=12, mlp_dim=7),
            "cnn": CNN(),
            "mlp": MLP(),
        }.items():
            with pytest.raises(ValueError, match="expected") as caught:
                net.parallelize(mesh)
            results[message] = str(caught.value)
    torch.save(results, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()
    os._exit(0)  # the interpreter's own end aborts now and then, where a thread of gloo's still runs (torch 2.15)


def run(folder: Path, layout: str, names: list[str]) -> list[dict[str, Any]]:
    """Results of every rank."""
    sizes = LAYOUTS[layout]
    mp.spawn(work, args=(str(folder), sizes, names), nprocs=sizes[0] * sizes[1])
    return [torch.load(folder / f"{rank}.pt") for rank in range(sizes[0] * sizes[1])]


def assert_like_one_process(ranks: list[dict[str, Any]], names: list[str], ways: int) -> None:
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
    for name in names:
        net = build(name)
        whole = sum(parameter.numel() for parameter in net.parameters())
        expected = train_a_step(net)
        logits = expected["logits"].chunk(ways)
        for rank in ranks:
            result = rank[name]
            torch.testing.assert_close(result["logits"], logits[result["share"]], **close)
            torch.testing.assert_close(result["norm"], expected["norm"], **close)
            assert result["norm"] > 0.1, "nothing was clipped"
            assert result["numel"] < 0.75 * whole, f"{name}: {result['numel']} of {whole} parameters on one rank"
            for part in ("gradients", "weights"):
                assert list(result[part]) == list(expected[part]), f"{name}: other names"
                for key, value in expected[part].items():
                    message = f"{part} of {name}, {key}"
                    torch.testing.assert_close(result[part][key], value, **close, msg=lambda m, w=message: f"{w}: {m}")


@pytest.mark.slow
def test_fsdp2_equals_one_process(tmp_path: Path) -> None:
    assert_like_one_process(run(tmp_path, "fsdp2", list(NETS)), list(NETS), ways=2)


@pytest.mark.slow
def test_tensor_parallel_equals_one_process(tmp_path: Path) -> None:
    names = SPLIT_BY_LAYER
    ranks = run(tmp_path, "tensor parallel", names)
    assert_like_one_process(ranks, names, ways=1)
    for rank in ranks:
        assert rank["heads"] == "num_heads: expected a multiple of tensor_parallel_size 2, got 3"
        assert rank["kv heads"] == "num_kv_heads: expected a multiple of tensor_parallel_size 2, got 3"
        assert rank["hidden"] == "mlp_dim: expected a multiple of tensor_parallel_size 2, got 7"
        assert rank["dropout"] == "dropout: expected 0 with tensor_parallel_size 2, got 0.1"
        for name in ("CNN", "MLP"):
            assert rank[name.lower()].startswith(f"tensor_parallel_size: {name} has no plan")


@pytest.mark.slow
def test_fsdp2_and_tensor_parallel_equal_one_process(tmp_path: Path) -> None:
    names = SPLIT_BY_LAYER
    assert_like_one_process(run(tmp_path, "both", names), names, ways=2)
