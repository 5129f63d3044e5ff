"""A step of a ResNet-18 for small images in each precision and layout, through Playbook's Trainer.

512 random images of 3 × 32 × 32, resident on the device; the options are those of configs/trainer. fp32 turns TF32 off
for products and convolutions; `tf32` is torch's default for convolutions, and turned on for products. CUDA graphs are
those of torch.compile's reduce-overhead, in bf16 and channels last. Exports are quantized to int8 for ONNX Runtime on a
CPU alone, so there is no int8 to measure here.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback

from gpu_parts.images import RandomImages
from gpu_parts.measuring import Setting, compared, ratio
from gpu_parts.windows import Steps
from src.callbacks.channels_last import ChannelsLast
from src.callbacks.compile import Compile
from src.callbacks.matmul import MatmulPrecision
from src.nets.vision.resnet import ResNet
from src.tasks.classification import Classification


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    data = RandomImages(setting.pick(20_480, 16), setting.pick(512, 4))
    data.setup("fit")
    run = partial(_run, setting, Steps(*setting.pick((5, 20), (1, 2))), data)
    variants: dict[str, Callable[[], float]] = {
        "fp32": run("32-true", is_exact=True),
        "tf32": run("32-true", lambda: [MatmulPrecision("high")]),
        "bf16": run("bf16-mixed"),
        "bf16, channels last": run("bf16-mixed", lambda: [ChannelsLast()]),
    }
    if setting.is_gpu:  # Lightning has no fp16 on a CPU
        variants["fp16"] = run("16-mixed")
    seconds = setting.alternate(variants, rounds=setting.pick(3, 1))
    yield from compared(seconds, "ms", 1e3, "fp32")
    yield "int8", "skipped: exports in int8 are for ONNX Runtime on a CPU"

    def graphs() -> list[Callback]:
        return [ChannelsLast(), Compile(mode="reduce-overhead", backend=setting.backend)]

    variants = {
        "bf16, channels last": variants["bf16, channels last"],
        "with CUDA graphs": run("bf16-mixed", graphs),
    }
    seconds = setting.alternate(variants, rounds=setting.pick(3, 1))
    yield "with CUDA graphs / bf16, channels last", ratio(seconds, "with CUDA graphs", "bf16, channels last")


def _run(
    setting: Setting,
    steps: Steps,
    data: RandomImages,
    precision: str,
    make_callbacks: Callable[[], list[Callback]] = list,
    is_exact: bool = False,
) -> Callable[[], float]:
    """A training whose net stays from round to round, so that it is compiled once."""
    net = setting.pick(partial(ResNet, depth=18, stem="cifar"), partial(ResNet, depth=20, width=4))()

    def train() -> float:
        torch.backends.cudnn.allow_tf32 = not is_exact
        options = {"precision": precision, "callbacks": make_callbacks(), "enable_checkpointing": False}
        return steps.playbook(setting, Classification(net), data, benchmark=True, **options)

    return train
