"""Random recordings for the nets of audio."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

RATE = 2000


def recordings(batch_size: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Noise of different lengths and loudness."""
    length = torch.linspace(1500, 900, batch_size).long()
    level = torch.linspace(0.05, 2, batch_size, dtype=dtype)[:, None]
    return {"audio": level * torch.randn(batch_size, 1500, dtype=dtype), "length": length}


def assert_padding_has_no_effect(net: nn.Module, build_batch: Callable[[int, torch.dtype], dict[str, Tensor]]) -> None:
    """Compares each recording alone with the same one in front of noise, in float64, in both modes of the norms."""
    net = net.double()
    batch = build_batch(4, torch.float64)
    longer = {**batch, "audio": torch.cat([batch["audio"], torch.randn(4, 777, dtype=torch.float64)], dim=1)}
    for is_training in (True, False):
        net.train(is_training)
        torch.manual_seed(1)
        expected = net(**batch)
        torch.manual_seed(1)
        torch.testing.assert_close(net(**longer), expected, rtol=0, atol=1e-10)
    for length in (*range(1200, 1225), 1, 19, 20, 21):
        alone = net(batch["audio"][:1, :length], torch.tensor([length]))
        padded = net(longer["audio"][:1], torch.tensor([length]))
        torch.testing.assert_close(padded, alone, rtol=0, atol=1e-10, msg=lambda text, n=length: f"length {n}: {text}")
