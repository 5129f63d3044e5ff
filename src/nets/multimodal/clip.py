"""Two encoders with a common space of features, one for images and one for texts (Radford et al. 2021)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from playbook import nearest
from src.ops.pretrained_towers import PretrainedTower
from src.ops.text_pooling import pool_text

EPS = 1e-5  # of the layer norms
IMAGE_TOWERS, TEXT_TOWERS = ("resnet", "vit"), ("transformer",)  # of our own


class CLIP(nn.Module):
    """Encodes images by a residual network or a Vision Transformer, and captions by a Transformer.

    The residual network (He et al. 2015) halves the resolution at its stem and before each stage of two blocks but the
    first. Its mean over all positions then attends to each of them, with learned positions, as in CLIP: a mean alone
    would lose what is left of what. The Transformers have layer norms before attention and MLP and learned positions;
    their mean over patches, and over the tokens of a caption, is projected to the common features and normalised.

    Either tower may be a pretrained model of Hugging Face's transformers instead (`--extra huggingface`). Two towers of
    one model of images and texts, such as openai/clip-vit-base-patch32, keep its projections, so their features agree
    before any training.

    Args:
        image_tower: resnet, vit, or directory or name of a Hugging Face model.
        text_tower: transformer, or directory or name of a Hugging Face model, as for --data.vocabulary_of.
        image_size: height and width of an image in pixels, S; for vit a multiple of patch_size.
        in_channels: 1 for grey images, 3 for RGB.
        vocab_size: number of tokens V.
        context_length: largest number of tokens of a caption, T.
        embed_dim: common features of images and captions, D; those of the model if it has projections.
        image_width: channels of the first stage of resnet; features of a patch for vit; a multiple of num_heads.
        image_depth: stages of resnet, each with twice the channels of the one before; blocks of vit.
        patch_size: side of a patch of vit in pixels.
        text_width: features of a token, a multiple of num_heads.
        text_depth: blocks of the text encoder.
        num_heads: attention heads of the Transformers.
        dropout: probability of dropping a feature after attention and MLP of the Transformers, in [0, 1).

    Shapes:
        image (B, in_channels, S, S), tokens (B, T) and mask (B, T), True for tokens and False for padding → features of
        the images and of the captions, (B, D) each, of length 1.

    Raises:
        ValueError: an argument is out of range, or a caption has more than context_length tokens.
    """

    def __init__(
        self,
        image_tower: str = "resnet",
        text_tower: str = "transformer",
        image_size: int = 128,
        in_channels: int = 3,
        vocab_size: int = 20_000,
        context_length: int = 64,
        embed_dim: int = 128,
        image_width: int = 32,
        image_depth: int = 4,
        patch_size: int = 16,
        text_width: int = 128,
        text_depth: int = 2,
        num_heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        counts = {
            "image_size": image_size,
            "in_channels": in_channels,
            "vocab_size": vocab_size,
            "context_length": context_length,
            "embed_dim": embed_dim,
            "image_width": image_width,
            "image_depth": image_depth,
            "patch_size": patch_size,
            "text_width": text_width,
            "text_depth": text_depth,
            "num_heads": num_heads,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        for name, width in {"image_width": image_width, "text_width": text_width}.items():
            if width % num_heads:
                raise ValueError(f"{name}: expected a multiple of {num_heads} for {num_heads} heads, got {width}")
        if image_tower == "vit" and image_size % patch_size:
            raise ValueError(f"patch_size: expected a divisor of image_size {image_size}, got {patch_size}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.image_shape = (in_channels, image_size, image_size)
        if image_tower == "vit":
            self.image: nn.Module = _VisionTransformer(
                self.image_shape, patch_size, image_width, image_depth, num_heads, dropout
            )
            image_dim = image_width
        elif image_tower == "resnet":
            self.image = _ResNet(self.image_shape, image_width, image_depth, num_heads)
            image_dim = image_width * 2 ** (image_depth - 1)
        else:
            self.image = self._pretrained_image(image_tower)
            image_dim = self.image.width
        if text_tower == "transformer":
            self.text: nn.Module = _TextTransformer(
                vocab_size, context_length, text_width, text_depth, num_heads, dropout
            )
            text_dim = text_width
        else:
            self.text = self._pretrained_text(text_tower)
            text_dim = self.text.width
        is_aligned = image_tower == text_tower and getattr(self.image, "is_aligned", False)
        self.image_projection = nn.Identity() if is_aligned else nn.Linear(image_dim, embed_dim, bias=False)
        self.text_projection = nn.Identity() if is_aligned else nn.Linear(text_dim, embed_dim, bias=False)
        self._initialise()

    def _pretrained_image(self, name: str) -> PretrainedTower:
        if near := nearest(name, IMAGE_TOWERS):
            raise ValueError(f"image_tower: expected resnet, vit or a Hugging Face model, got {name}{near}")
        tower = PretrainedTower(name, "image")
        shape = (tower.in_channels, tower.size, tower.size)
        if self.image_shape != shape:
            raise ValueError(f"image_size, in_channels: expected {shape} an image for {name}, got {self.image_shape}")
        return tower

    def _pretrained_text(self, name: str) -> PretrainedTower:
        if near := nearest(name, TEXT_TOWERS):
            raise ValueError(f"text_tower: expected transformer or a Hugging Face model, got {name}{near}")
        tower = PretrainedTower(name, "text")
        if self.vocab_size > tower.size:
            raise ValueError(
                f"vocab_size: {name} has {tower.size:,} tokens, the data {self.vocab_size:,}; "
                f"expected --data.vocabulary_of {name}"
            )
        self.vocab_size = tower.size
        self.context_length = tower.context_length or self.context_length
        return tower

    def _initialise(self) -> None:
        """Linear layers: Glorot & Bengio 2010, projections D^-1/2 as in CLIP; convolutions: He et al. 2015."""
        towers = [tower for tower in (self.image, self.text) if not isinstance(tower, PretrainedTower)]
        for module in (module for tower in towers for module in tower.modules()):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, _Residual):
                nn.init.zeros_(module.last_norm.weight)  # Goyal et al. 2017: a block begins as its shortcut
        if isinstance(self.image, _ResNet):
            position = self.image.pool.position
            nn.init.normal_(position.weight, std=position.embedding_dim**-0.5)  # as in CLIP
        for projection in (self.image_projection, self.text_projection):
            if isinstance(projection, nn.Linear):
                nn.init.normal_(projection.weight, std=projection.in_features**-0.5)

    def forward(self, image: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_image(image), self.encode_text(tokens, mask)

    def encode_image(self, image: Tensor) -> Tensor:
        """Features (B, D) of images (B, C, S, S), of length 1."""
        if image.shape[1:] != self.image_shape:
            expected, actual = self.image_shape, tuple(image.shape[1:])
            raise ValueError(f"image_size, in_channels: expected {expected} an image, got {actual}")
        return normalize(self.image_projection(self.image(image)), dim=1)

    def encode_text(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Features (B, D) of captions, tokens and mask (B, T), of length 1."""
        if tokens.shape[1] > self.context_length:
            raise ValueError(f"context_length: expected at most {self.context_length} tokens, got {tokens.shape[1]}")
        return normalize(self.text_projection(self.text(tokens, mask)), dim=1)


class _ResNet(nn.Module):
    """Images (B, C, S, S) → (B, width · 2^(depth - 1))."""

    def __init__(self, shape: tuple[int, int, int], width: int, depth: int, num_heads: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages = []
        c_in = width
        for number in range(depth):
            c_out = width * 2**number
            stages.append(nn.Sequential(_Residual(c_in, c_out, 2 if number else 1), _Residual(c_out, c_out, 1)))
            c_in = c_out
        self.stages = nn.Sequential(*stages)
        side = -(-shape[1] // 2**depth)
        self.pool = _AttentionPool(side * side, c_in, num_heads)

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm(self.stem(image)).relu()  # (B, width, S / 2, S / 2)
        x = self.stages(x)  # (B, C, S / 2^depth, S / 2^depth)
        return self.pool(x.flatten(2).transpose(1, 2))


class _AttentionPool(nn.Module):
    """Vectors (B, N, C) → (B, C): their mean attends to itself and to each of them (Radford et al. 2021)."""

    def __init__(self, length: int, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.position = nn.Embedding(1 + length, width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.position.weight  # (B, 1 + N, C)
        query = self.query(x[:, :1]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, 1, C / H)
        pairs = self.key_value(x).unflatten(-1, (2, self.num_heads, -1))  # (B, 1 + N, 2, H, C / H)
        key, value = pairs.permute(2, 0, 3, 1, 4).unbind()  # (B, H, 1 + N, C / H) each
        attended = scaled_dot_product_attention(query, key, value)  # (B, H, 1, C / H)
        return attended.transpose(1, 2).flatten(1)  # (B, C); what follows is CLIP's projection


class _Residual(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)
        self.last = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(c_out)
        self.last_norm = nn.BatchNorm2d(c_out)
        same = c_in == c_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first_norm(self.first(x)).relu()
        return (self.last_norm(self.last(y)) + self.shortcut(x)).relu()


class _VisionTransformer(nn.Module):
    """Images (B, C, S, S) → the mean over patches (B, width)."""

    def __init__(
        self, shape: tuple[int, int, int], patch_size: int, width: int, depth: int, num_heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(shape[0] * patch_size**2, width)
        self.position = nn.Embedding((shape[1] // patch_size) ** 2, width)
        self.blocks = nn.ModuleList(_Block(width, num_heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width, EPS)

    def forward(self, image: Tensor) -> Tensor:
        p = self.patch_size
        x = image.unflatten(2, (-1, p)).unflatten(4, (-1, p))  # (B, C, S / P, P, S / P, P)
        x = x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, N, C P P)
        x = self.projection(x) + self.position.weight  # (B, N, width)
        for block in self.blocks:
            x = block(x, None)
        return self.norm(x).mean(dim=1)


class _TextTransformer(nn.Module):
    """Tokens and mask (B, T) → the mean over tokens (B, width), whatever padding is behind them."""

    def __init__(
        self, vocab_size: int, context_length: int, width: int, depth: int, num_heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.position = nn.Embedding(context_length, width)
        self.blocks = nn.ModuleList(_Block(width, num_heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width, EPS)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]  # (B, T, width)
        key_mask = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None]  # (B, 1, 1, T); no row is masked entirely
        for block in self.blocks:
            x = block(x, key_mask)
        return pool_text(self.norm(x), mask, "mean")


class _Block(nn.Module):
    """Attention among the tokens, then an MLP on each of them, both with a shortcut."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = width // num_heads
        self.attention_norm = nn.LayerNorm(width, EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width, EPS)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, -1, self.head_dim))  # (B, T, 3, H, D / H)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, T, D / H) each
        attended = scaled_dot_product_attention(query, key, value, key_mask)  # (B, H, T, D / H)
        x = x + self.dropout(self.out(attended.transpose(1, 2).flatten(2)))  # (B, T, D)
        hidden = torch.nn.functional.gelu(self.up(self.mlp_norm(x)))  # (B, T, 4 D)
        return x + self.dropout(self.down(hidden))
