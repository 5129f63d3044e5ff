"""Random changes of colour, for images of any number of channels."""

from typing import Any

from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2


def recolour(channels: int, share: float) -> Any:
    """Varies brightness, contrast and, in RGB, saturation by up to a share of them."""
    if channels in (1, 3):
        return v2.ColorJitter(share, share, share)
    return _EveryChannel(v2.ColorJitter(share, share))


class _EveryChannel:
    """Changes all channels alike, each as a grey image; torchvision's changes take one or three channels."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def __call__(self, sample: Any) -> Any:
        image, *others = sample if isinstance(sample, tuple) else (sample,)
        changed = self.change(image.as_subclass(Tensor)[:, None])[:, 0]  # as C images (1, H, W) of one batch
        changed = tv_tensors.Image(changed) if isinstance(image, tv_tensors.Image) else changed
        return (changed, *others) if others else changed
