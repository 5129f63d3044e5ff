"""Tiles give what the whole image gives, away from the reach of their edges."""

import torch

from src.nets.vision.unet import UNet
from src.ops.tiles import tiled_logits, tiles_of


def test_a_unet_gives_the_whole_images_classes_away_from_the_border() -> None:
    """In float64, with all of its poolings: tiles start where the whole image's grid does."""
    torch.manual_seed(0)
    net = UNet(num_classes=3, in_channels=3, widths=[4, 4, 8]).double().eval()
    image = torch.randn(1, 3, 288, 288, dtype=torch.float64)
    with torch.no_grad():
        whole, tiled = net(image), tiled_logits(net, image, 256)
    assert len(tiles_of(288, 288, 256)) == 4
    torch.testing.assert_close(tiled[..., 40:-40, 40:-40], whole[..., 40:-40, 40:-40])
