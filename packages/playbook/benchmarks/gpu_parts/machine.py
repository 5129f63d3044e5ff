"""The device and the versions that all figures are of; no figure itself."""

import os
import platform
import time
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch

from gpu_parts.measuring import Setting


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    yield "date", time.strftime("%Y-%m-%d %H:%M")
    yield "torch", torch.__version__
    yield "lightning", pl.__version__
    yield "python", platform.python_version()
    yield "cuda", torch.version.cuda
    yield "num_cpus", os.cpu_count()
    if setting.is_gpu:
        torch.zeros(1, device=setting.device)  # fails here if it cannot be used
        properties = torch.cuda.get_device_properties(setting.device)
        yield "device", properties.name
        yield "device_memory_gib", round(properties.total_memory / 2**30, 1)
        yield "compute_capability", f"{properties.major}.{properties.minor}"
        yield "cudnn", torch.backends.cudnn.version()
    else:
        yield "device", "CPU"
