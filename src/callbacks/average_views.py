"""Test-time augmentation: predictions averaged over views of each image."""

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import pad

from playbook import UserError


class AverageViews(Callback):
    """Averages the net's outputs over views of each image, in test, prediction, export and serving.

    airbench-fashion: test/accuracy 0.9409 with one view, 0.9454 with six (3 seeds); airbench-cifar10-jpeg: 0.8858 with
    one, 0.8976 with two, 0.9000 with six (1 seed). A prediction takes as many times as long as there are views.

    Args:
        num_views: 2, the image (B, C, H, W) and its mirror image (Page 2018); 6, both also shifted by a pixel down and
            right, and up and left, where the two unshifted views weigh as much as the four others (Jordan 2024).

    Raises:
        ValueError: num_views is another number.
    """

    def __init__(self, num_views: int = 2) -> None:
        if num_views not in (2, 6):
            raise ValueError(f"num_views: expected 2 or 6, got {num_views}")
        self.num_views = num_views

    def evaluation_net(self, net: nn.Module) -> nn.Module:
        """What takes the net's place where a trained model is used; `export` and `serve` ask for it, too."""
        return _Views(net, self.num_views)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.net = self.evaluation_net(pl_module.net)  # type: ignore[arg-type]  # of a task

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.net = pl_module.net.net  # type: ignore[union-attr]  # set above

    on_predict_start, on_predict_end = on_test_start, on_test_end


class _Views(nn.Module):
    """A net whose outputs are averaged over views of each image; outputs (B, K, H, W) are mirrored back.

    Shapes:
        image (B, C, H, W) → as the net's: (B, K), or (B, K, H, W) with 2 views.
    """

    def __init__(self, net: nn.Module, num_views: int) -> None:
        super().__init__()
        self.net = net
        self.num_views = num_views

    def forward(self, image: Tensor) -> Tensor:
        if not isinstance(image, Tensor) or image.ndim != 4:
            raise UserError("num_views: expected images (B, C, H, W); AverageViews is for no other inputs")
        if self.num_views == 2:
            return self._both(image)
        padded = pad(image, (1, 1, 1, 1), mode="reflect")  # (B, C, H + 2, W + 2)
        shifted = self._both(padded[..., :-2, :-2]) + self._both(padded[..., 2:, 2:])
        if shifted.ndim == 4:
            raise UserError("num_views: expected 2 for outputs (B, K, H, W), whose pixels would be shifted, got 6")
        return self._both(image) / 2 + shifted / 4

    def _both(self, image: Tensor) -> Tensor:
        plain, mirrored = self.net(image), self.net(image.flip(-1))
        return (plain + (mirrored.flip(-1) if mirrored.ndim == 4 else mirrored)) / 2
