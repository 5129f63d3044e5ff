"""Peaks of common GPUs, by their data sheets: dense, without sparsity."""

from typing import Any

import torch

# TFLOP/s of bf16 and fp16 with float32 accumulation (tensor cores), and of float32 outside of them. Data sheets of
# NVIDIA: H200, H100 Tensor Core GPU, A100 80GB, L40S, L4, A10, T4, V100; white papers of the RTX 4090 and RTX 3090
PEAKS = {  # the first name that the device's contains
    "H200": (989.0, 67.0),
    "H100 PCIe": (756.0, 51.0),
    "H100 NVL": (835.0, 60.0),
    "H100": (989.0, 67.0),
    "A100": (312.0, 19.5),
    "L40S": (362.0, 91.6),
    "L4": (121.0, 30.3),
    "A10": (125.0, 31.2),
    "T4": (65.0, 8.1),
    "V100": (125.0, 15.7),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
}


def peak(trainer: Any) -> float | None:
    """Operations a second of the training's device at its precision; None where they are not known.

    float32 is that without TF32; where matrix products may use TF32, no number is honest for all operations.

    Args:
        trainer: that trains.
    """
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return None
    is_half = "16" in str(trainer.precision)
    if "64" in str(trainer.precision) or (not is_half and torch.get_float32_matmul_precision() != "highest"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((1e12 * values[0 if is_half else 1] for key, values in PEAKS.items() if _names(key, name)), None)


def _names(key: str, name: str) -> bool:
    """Whether a device's name holds these words in this order, as A10 is no A100."""
    words, wanted = name.replace("-", " ").split(), key.split()
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words)))
