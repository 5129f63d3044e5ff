"""A GPT of 124 million parameters in Playbook's Trainer, and in nanoGPT's loop written plainly.

The GPT of src with the sizes of GPT-2 (12 layers, width 768, 12 heads, 1,024 tokens, a vocabulary of 50,304), random
tokens, bf16 autocast, torch.compile, AdamW and gradients clipped to 1. Both loops train the same compiled net, so that
the ratio is that of the loops; the loss is outside of it. nanoGPT compiles the loss with the net: the last variant does
so. nanoGPT's AdamW is fused. Lightning refuses to clip the gradients of a fused one under autocast, so that Playbook's
has torch's kernels for many tensors at once.

MFU counts the operations of matrix products and attention, forward and backward, by FlopCounterMode on one sequence; it
takes attention for not causal, as nanoGPT's estimate does. It is given against a product of bf16 matrices of 8192³ that
is measured here, and against the data sheet.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from gpu_parts.measuring import Setting, compared, ratio
from gpu_parts.windows import Steps
from playbook.training.peaks import peak
from playbook.training.trainer import Trainer
from src.nets.language.gpt import GPT
from src.tasks.language_modelling import LanguageModelling

ADAMW = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
SMALL_GPU_GIB = 40  # below, batches are smaller


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    sizes: dict[str, Any] = setting.pick(
        {"num_layers": 12, "dim": 768, "num_heads": 12, "context_length": 1024, "vocab_size": 50_304},
        {"num_layers": 2, "dim": 32, "num_heads": 2, "context_length": 16, "vocab_size": 64},
    )
    batch_size, length = _batch_size(setting), sizes["context_length"]
    net = GPT(**sizes)
    yield "parameters, millions", sum(parameter.numel() for parameter in net.parameters()) / 1e6
    yield "batch size", batch_size
    operations = _operations(setting, net, length)  # before it is compiled
    yield "operations a token, millions", operations / 1e6
    ceiling = _matmul_speed(setting)
    yield "measured matmul, TFLOP/s", ceiling / 1e12
    sheet = peak(Trainer(run_dir=False, precision="bf16-mixed", **setting.trainer_options))
    yield "data sheet, TFLOP/s", None if sheet is None else sheet / 1e12

    net.compile(backend=setting.backend)
    steps = Steps(*setting.pick((5, 20), (1, 3)))
    tokens = torch.randint(sizes["vocab_size"], (1_000_000,), generator=torch.Generator().manual_seed(0))
    make_loader = partial(DataLoader, _Windows(tokens, length), batch_size, pin_memory=setting.is_gpu, drop_last=True)
    separate: Callable[..., Tensor] = partial(_loss, net)
    plain = partial(_plain, setting, steps, net, separate, make_loader)
    variants = {"nanoGPT's loop": plain, "Playbook": partial(_playbook, setting, steps, net, make_loader)}
    seconds = setting.alternate(variants, rounds=setting.pick(5, 1))
    for name, values in seconds.items():
        tokens_per_second = batch_size * length / statistics.median(values)
        yield f"{name}, tokens/s", tokens_per_second
        yield f"{name}, MFU of the measured matmul", operations * tokens_per_second / ceiling
        yield f"{name}, MFU of the data sheet", None if sheet is None else operations * tokens_per_second / sheet
    yield from compared(seconds, "ms", 1e3, "nanoGPT's loop")

    together = torch.compile(partial(_loss, fused_net := GPT(**sizes)), backend=setting.backend)
    variants = {
        "nanoGPT's loop": plain,
        "nanoGPT's loop, loss compiled too": partial(_plain, setting, steps, fused_net, together, make_loader),
    }
    seconds = setting.alternate(variants, rounds=setting.pick(3, 1))
    yield "loss compiled too / nanoGPT's loop", ratio(seconds, "nanoGPT's loop, loss compiled too", "nanoGPT's loop")


class _Windows(Dataset):
    """Sequences of a text one after another, each with the tokens that follow."""

    def __init__(self, tokens: Tensor, length: int) -> None:
        self.tokens, self.length = tokens, length

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        window = self.tokens[index * self.length :][: self.length + 1]
        return {"tokens": window[:-1]}, window[1:]


def _batch_size(setting: Setting) -> int:
    is_large = setting.is_gpu and torch.cuda.get_device_properties(setting.device).total_memory >= SMALL_GPU_GIB * 2**30
    return setting.pick(16 if is_large else 4, 2)


def _loss(net: nn.Module, tokens: Tensor, target: Tensor) -> Tensor:
    # by name, as the task calls it: torch.compile would compile another graph for a positional argument
    return cross_entropy(net(tokens=tokens).float().flatten(0, 1), target.flatten())


def _operations(setting: Setting, net: nn.Module, length: int) -> float:
    """Floating-point operations a token, forward and backward."""
    net.to(setting.device)
    tokens = torch.zeros(1, length, dtype=torch.long, device=setting.device)
    with FlopCounterMode(display=False) as counter:
        with torch.autocast(setting.device.type, torch.bfloat16):
            loss = _loss(net, tokens, tokens)
        loss.backward()
    net.zero_grad()
    return counter.get_total_flops() / length


def _matmul_speed(setting: Setting) -> float:
    """Operations a second of a product of square bf16 matrices: the median of 20."""
    side = setting.pick(8192, 128)
    a, b = (torch.randn(side, side, device=setting.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = setting.alternate({"matmul": lambda: setting.seconds(lambda: a @ b)}, rounds=20)["matmul"]
    return 2 * side**3 / statistics.median(seconds)


def _playbook(setting: Setting, steps: Steps, net: nn.Module, make_loader: Callable[[], DataLoader]) -> float:
    model = LanguageModelling(net, optimizer=partial(torch.optim.AdamW, **ADAMW, foreach=True))
    options = {"precision": "bf16-mixed", "gradient_clip_val": 1.0, "enable_checkpointing": False}
    return steps.playbook(setting, model, make_loader(), **options)


def _plain(
    setting: Setting,
    steps: Steps,
    net: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    make_loader: Callable[[], DataLoader],
) -> float:
    net.to(setting.device).train()  # Lightning leaves it on the CPU
    factory = partial(torch.optim.AdamW, **ADAMW, fused=True)
    optimizer = LanguageModelling(net, optimizer=factory).configure_optimizers()

    def step(batch: tuple[dict[str, Tensor], Tensor]) -> None:
        inputs, target = batch
        tokens, target = (tensor.to(setting.device, non_blocking=True) for tensor in (inputs["tokens"], target))
        with torch.autocast(setting.device.type, torch.bfloat16):
            loss = loss_of(tokens, target)
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return steps.plain(setting, make_loader(), step)
