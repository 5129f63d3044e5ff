"""What every net must satisfy is in test_nets.py; here, what is particular to the Vision Transformer."""

from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn

from playbook.optim.groups import parameter_groups
from src.nets.vision.vit import ViT, _rotate, _rotation


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 8, 8), {"dim": 16, "depth": 2, "patch_size": 4, "num_heads": 2}


def from_torchvision(weights: dict[str, Tensor], num_heads: int) -> dict[str, Tensor]:
    """Weights of torchvision's VisionTransformer, or their gradients, under our names."""
    names = {"ln_1": "attention_norm", "self_attention.out_proj": "out", "ln_2": "mlp_norm"}
    names |= {"self_attention.in_proj_": "qkv.", "encoder.layers.encoder_layer_": "blocks.", "encoder.ln": "norm"}
    names |= {"encoder.pos_embedding": "patches.position", "class_token": "patches.token"}
    names |= {"conv_proj": "patches.projection", "heads.head": "head"}
    ours = {}
    for theirs, value in weights.items():
        name = theirs
        for old, new in names.items():
            name = name.replace(old, new)
        ours[name] = value.flatten(1) if value.ndim == 4 else value
        if "qkv" in name:  # q, k, v, each by heads → by heads, each q, k, v
            ours[name] = value.unflatten(0, (3, num_heads, -1)).transpose(0, 1).flatten(0, 2)
    return ours


SIZES: list[dict[str, Any]] = [
    {"image_size": 8, "patch_size": 2, "dim": 16, "depth": 3, "num_heads": 4, "mlp_ratio": 2},
    {"image_size": 48, "patch_size": 16, "dim": 96, "depth": 2, "num_heads": 3, "mlp_ratio": 4},
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size['image_size']} pixels")
def test_outputs_and_gradients_are_torchvisions(size: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.VisionTransformer(
        size["image_size"],
        size["patch_size"],
        size["depth"],
        size["num_heads"],
        hidden_dim=size["dim"],
        mlp_dim=size["mlp_ratio"] * size["dim"],
        num_classes=7,
    )
    for parameter in theirs.parameters():  # biases, norms, token and head begin at 0 or 1
        nn.init.normal_(parameter, std=0.1) if parameter.ndim != 2 else nn.init.xavier_normal_(parameter)
    ours = ViT(7, in_channels=3, **size)
    ours.load_state_dict(from_torchvision(theirs.state_dict(), size["num_heads"]))
    image = torch.randn(4, 3, size["image_size"], size["image_size"], requires_grad=True)
    outputs, gradients = [], []
    for net in (ours, theirs):
        image.grad = None
        outputs.append(net(image))
        outputs[-1].square().mean().backward()
        assert image.grad is not None
        gradients.append(image.grad)
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-5)
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    expected = from_torchvision(expected, size["num_heads"])
    for name, parameter in ours.named_parameters():
        assert expected[name].abs().max() > 1e-4, f"{name}: no gradient to compare"
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_sincos_positions_are_those_of_the_formula() -> None:
    """Chen et al. 2021: the row's sines and cosines, then the column's, one wave at a time."""
    grid, dim = 3, 8
    table = ViT(image_size=12, patch_size=4, dim=dim, num_heads=2, position="sincos").patches.position
    expected = torch.zeros(1 + grid * grid, dim, dtype=torch.float64)
    for row in range(grid):
        for column in range(grid):
            for wave in range(dim // 4):
                frequency = 10_000 ** (-wave / (dim // 4))
                token = expected[1 + row * grid + column]
                for part, value in enumerate((row, column)):
                    angle = torch.tensor(value * frequency, dtype=torch.float64)
                    token[part * dim // 2 + wave] = angle.sin()
                    token[part * dim // 2 + dim // 4 + wave] = angle.cos()
    torch.testing.assert_close(table[0].double(), expected, rtol=0, atol=1e-6)


def test_rope_is_a_product_of_complex_numbers() -> None:
    """Heo et al. 2024, equation 12: features are complex, frequencies 100^(-t / (head_dim / 4))."""
    torch.manual_seed(0)
    grid, head_dim = 3, 16
    x = torch.randn(2, 5, 1 + grid * grid, head_dim, dtype=torch.float64)
    rotated = _rotate(x, _rotation(grid, head_dim).double())
    half, quarter = head_dim // 2, head_dim // 4
    z = torch.complex(x[..., :half], x[..., half:])
    for token in range(grid * grid):
        row, column = divmod(token, grid)
        for wave in range(half):
            angle = (row if wave < quarter else column) * 100 ** (-(wave % quarter) / quarter)
            z[:, :, 1 + token, wave] *= torch.exp(torch.tensor(1j * angle))
    torch.testing.assert_close(rotated, torch.cat([z.real, z.imag], dim=-1), rtol=0, atol=1e-6)


def test_rope_scores_depend_on_distances_alone() -> None:
    torch.manual_seed(0)
    grid = 5
    rotation = _rotation(grid, 16)
    q, k = (torch.randn(16).expand(1 + grid * grid, 16) for _ in range(2))  # the same content everywhere
    scores = (_rotate(q, rotation) @ _rotate(k, rotation).T)[1:, 1:].view(grid, grid, grid, grid)
    torch.testing.assert_close(scores[:-1, :, :-1], scores[1:, :, 1:], rtol=0, atol=1e-4)  # both a row further
    torch.testing.assert_close(scores[:, :-1, :, :-1], scores[:, 1:, :, 1:], rtol=0, atol=1e-4)
    assert (scores[0, 0] - scores[0, 0, 0, 0]).abs().max() > 0.1, "no position, no difference"


@pytest.mark.parametrize("position", ["learned", "sincos", "rope"])
def test_positions_are_seen(position: Any) -> None:
    """Without them, attention could not tell an image from one with its patches in another order."""
    torch.manual_seed(0)
    net = ViT(dim=32, depth=1, position=position).eval()
    nn.init.normal_(net.patches.token)
    image = torch.randn(2, 1, 8, 8)
    moved = image.roll(2, dims=3)  # by a patch
    assert (net(image) - net(moved)).abs().max() > 1e-3
    if isinstance(net.patches.position, Tensor):
        net.patches.position.data.zero_()
    if isinstance(net.rotation, Tensor):
        net.rotation.copy_(torch.tensor([1.0, 0.0])[:, None, None])  # cosines and sines of no angle
    torch.testing.assert_close(net(image), net(moved), rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", ["learned", "sincos", "rope"])
def test_only_learned_positions_are_saved(position: Any) -> None:
    assert ("patches.position" in ViT(position=position).state_dict()) == (position == "learned")
    assert "rotation" not in ViT(position=position).state_dict()


def test_positions_and_token_do_not_decay() -> None:
    net = ViT()
    _, undecayed = parameter_groups(net)
    free = {id(parameter) for parameter in undecayed["params"]}
    assert {id(net.patches.position), id(net.patches.token)} <= free
    assert not free & {id(module.weight) for module in net.modules() if isinstance(module, nn.Linear)}


def test_initial_variance_is_that_of_glorot() -> None:
    """2 / (in + out), for queries, keys and values each on its own."""
    torch.manual_seed(0)
    net = ViT(dim=256, depth=1, num_classes=300)
    q, k, v = net.get_parameter("blocks.0.qkv.weight").unflatten(0, (4, 3, -1)).unbind(1)
    for weight in (q, k, v):
        assert weight.var().item() == pytest.approx(2 / (256 + 256), rel=0.05)
    assert net.get_parameter("blocks.0.mlp.0.weight").var().item() == pytest.approx(2 / (256 + 1024), rel=0.05)
    assert net.head.weight.var().item() == pytest.approx(2 / (256 + 300), rel=0.05)
    for parameter in (net.patches.position, net.patches.token):
        assert isinstance(parameter, nn.Parameter)
        assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
    assert not any(module.bias.any() for module in net.modules() if isinstance(module, nn.Linear))


def test_dropout_acts_where_torchvision_drops() -> None:
    def count(net: nn.Module) -> list[float]:
        return [module.p for module in net.modules() if isinstance(module, nn.Dropout)]

    theirs = torchvision.models.VisionTransformer(8, 2, 3, 2, 16, 32, dropout=0.25)
    assert count(ViT(depth=3, dim=16, dropout=0.25)) == count(theirs) == [0.25] * 10


def test_rope_keeps_the_precision_of_autocast() -> None:
    net = ViT(position="rope", depth=1)
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(torch.randn(2, 1, 8, 8))
    assert logits.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"mlp_ratio": 0}, "mlp_ratio: expected at least 1, got 0"),
        ({"image_size": 9}, "image_size: expected a multiple of patch_size 2, got 9"),
        ({"dim": 66}, "dim: expected a multiple of num_heads 4, got 66"),
        ({"dim": 6, "num_heads": 3, "position": "sincos"}, "dim: expected a multiple of 4 for position sincos, got 6"),
        ({"dim": 24, "position": "rope"}, "dim: expected a multiple of 16 for position rope, got 24"),
        ({"position": "alibi"}, "position: expected one of learned, sincos, rope, got alibi"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ViT(**arguments)


@pytest.mark.parametrize("shape", [(2, 1, 10, 8), (2, 3, 8, 8)])
def test_image_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^image_size, in_channels: expected \(1, 8, 8\) an image, got"):
        ViT()(torch.randn(shape))
