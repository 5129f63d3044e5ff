"""CLIP: towers against torch.nn, padding, and its errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.multimodal.clip import CLIP, _AttentionPool
from src.ops.pretrained_towers import PretrainedTower

SMALL: dict[str, Any] = {
    "image_size": 16,
    "in_channels": 1,
    "vocab_size": 30,
    "context_length": 8,
    "embed_dim": 12,
    "image_width": 8,
    "image_depth": 2,
    "patch_size": 8,
    "text_width": 8,
    "text_depth": 1,
    "num_heads": 2,
}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tokens = torch.randint(30, (batch_size, 7))
    lengths = torch.tensor([5, 2, 7, 1])[:batch_size, None]
    return {"image": torch.randn(batch_size, 1, 16, 16), "tokens": tokens, "mask": torch.arange(7) < lengths}, SMALL


@pytest.mark.parametrize("tower", ["resnet", "vit"])
def test_features_have_the_length_1(tower: str) -> None:
    inputs, _ = example(4)
    net = CLIP(image_tower=tower, **SMALL).eval()
    for features in net(**inputs):
        assert features.shape == (4, 12)
        torch.testing.assert_close(features.norm(dim=1), torch.ones(4))


def test_padding_has_no_effect() -> None:
    inputs, _ = example(4)
    net = CLIP(**SMALL).double().eval()
    together = net.encode_text(inputs["tokens"], inputs["mask"])
    for row, length in enumerate((5, 2, 7, 1)):
        tokens = inputs["tokens"][row : row + 1, :length]
        alone = net.encode_text(tokens, torch.ones_like(tokens, dtype=torch.bool))
        torch.testing.assert_close(together[row : row + 1], alone)


def test_the_order_of_words_and_of_places_matters() -> None:
    inputs, _ = example(1)
    for tower in ("resnet", "vit"):
        torch.manual_seed(0)
        net = CLIP(image_tower=tower, **SMALL).double().eval()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        tokens, mask = inputs["tokens"][:, :5], inputs["mask"][:, :5]
        reverse = net.encode_text(tokens.flip(1), mask)
        assert (net.encode_text(tokens, mask) - reverse).abs().max() > 1e-3
        image = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
        image[..., :8, :8] = 1
        assert (net.encode_image(image) - net.encode_image(image.roll(8, dims=3))).abs().max() > 1e-3


def test_attention_pool_equals_torch() -> None:
    torch.manual_seed(0)
    pool, reference = _AttentionPool(6, 8, 2).double(), nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([pool.query.weight, pool.key_value.weight]))
        reference.in_proj_bias.copy_(torch.cat([pool.query.bias, pool.key_value.bias]))
        reference.out_proj.weight.copy_(torch.eye(8))
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    tokens = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + pool.position.weight
    expected, _ = reference(tokens[:, :1], tokens, tokens)
    torch.testing.assert_close(pool(x), expected[:, 0])


def test_text_block_equals_torch() -> None:
    text: Any = CLIP(**SMALL).double().eval().text
    layer = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double()
    [block] = text.blocks
    with torch.no_grad():
        for parameter in text.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for own, theirs in (
            (block.qkv.weight, layer.self_attn.in_proj_weight),
            (block.qkv.bias, layer.self_attn.in_proj_bias),
        ):
            theirs.copy_(own)
        layer.self_attn.out_proj.load_state_dict(block.out.state_dict())
        for own, theirs in (
            (block.attention_norm, layer.norm1),
            (block.mlp_norm, layer.norm2),
            (block.up, layer.linear1),
            (block.down, layer.linear2),
        ):
            theirs.load_state_dict(own.state_dict())
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x, None), layer(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"image_tower": "resnets"},
            r"image_tower: expected resnet, vit or a Hugging Face model, got resnets\. Nearest",
        ),
        ({"text_tower": "transformers"}, "text_tower: expected transformer or a Hugging Face model, got transformers"),
        ({"embed_dim": 0}, "embed_dim: expected at least 1, got 0"),
        ({"text_width": 9}, "text_width: expected a multiple of 2 for 2 heads, got 9"),
        ({"image_tower": "vit", "patch_size": 5}, "patch_size: expected a divisor of image_size 16, got 5"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CLIP(**{**SMALL, **options})


def save_pretrained(folder: Path) -> str:
    """A small model of both images and texts, with random weights."""
    transformers = pytest.importorskip("transformers")
    common = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**common, "vocab_size": 30, "max_position_embeddings": 9, "eos_token_id": 29, "bos_token_id": 28}
    vision = {**common, "image_size": 16, "patch_size": 8, "num_channels": 3}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    transformers.CLIPModel(config).save_pretrained(folder)
    return str(folder)


def test_towers_of_one_pretrained_model_are_its_features(tmp_path: Path) -> None:
    name = save_pretrained(tmp_path / "model")
    net = CLIP(image_tower=name, text_tower=name, image_size=16, vocab_size=20, context_length=8).eval()
    assert (net.vocab_size, net.context_length) == (30, 9)
    from transformers import CLIPModel

    reference = CLIPModel.from_pretrained(name).eval()
    image, tokens = torch.randn(3, 3, 16, 16), torch.randint(28, (3, 5))
    tokens[:, -1] = 29
    with torch.no_grad():
        found = net(image, tokens, tokens >= 0)
        expected = reference(pixel_values=image, input_ids=tokens)
    torch.testing.assert_close(found[0], expected.image_embeds)
    torch.testing.assert_close(found[1], expected.text_embeds)
    untrained = [key for key, parameter in net.named_parameters() if not parameter.requires_grad]
    assert [key.rpartition(".")[2] for key in untrained] == ["logit_scale", "logit_scale"]
    names = {key.split(".")[2] for key in net.state_dict() if key.startswith("image.")}
    assert names == {"vision_model", "visual_projection", "logit_scale"}, "half of the model is dropped"


def test_a_pretrained_text_encoder_ignores_padding(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertModel(transformers.BertConfig(vocab_size=30, **sizes)).save_pretrained(tmp_path / "bert")
    net = CLIP(**{**SMALL, "text_tower": str(tmp_path / "bert")}).eval()
    inputs, _ = example(4)
    together = net.encode_text(inputs["tokens"], inputs["mask"])
    assert together.shape == (4, 12)
    alone = net.encode_text(inputs["tokens"][1:2, :2], inputs["mask"][1:2, :2])
    torch.testing.assert_close(together[1:2], alone)
    with pytest.raises(ValueError, match=r"image_tower: .*bert encodes no images, its configuration has no image_size"):
        CLIP(image_tower=str(tmp_path / "bert"))


def test_a_pretrained_image_encoder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(image_size=16, patch_size=8, num_channels=1, **sizes)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    net = CLIP(**{**SMALL, "image_tower": str(tmp_path / "vit")}).eval()
    reference = transformers.ViTModel.from_pretrained(tmp_path / "vit", add_pooling_layer=False).eval()
    image = torch.randn(2, 1, 16, 16)
    assert isinstance(net.image, PretrainedTower)
    if net.image.model.pooler is None:
        torch.testing.assert_close(net.image(image), reference(image).last_hidden_state.mean(dim=1))
    assert net.encode_image(image).shape == (2, 12)


def test_pretrained_towers_that_do_not_fit(tmp_path: Path) -> None:
    name = save_pretrained(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"image_size, in_channels: expected \(3, 16, 16\) an image for .*, got \(3, 32"
    ):
        CLIP(image_tower=name, image_size=32)
    with pytest.raises(ValueError, match=r"vocab_size: .* has 30 tokens, the data 31; expected --data\.vocabulary_of"):
        CLIP(text_tower=name, vocab_size=31)
    (tmp_path / "model/model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"text_tower: .* cannot be loaded"):
        CLIP(text_tower=name)


def test_inputs_of_another_size() -> None:
    net = CLIP(**SMALL)
    with pytest.raises(ValueError, match=r"expected \(1, 16, 16\) an image, got \(3, 16, 16\)"):
        net.encode_image(torch.zeros(1, 3, 16, 16))
    tokens = torch.zeros(1, 9, dtype=torch.int64)
    with pytest.raises(ValueError, match="context_length: expected at most 8 tokens, got 9"):
        net.encode_text(tokens, tokens == 0)
