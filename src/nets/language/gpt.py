"""A GPT: a decoder-only Transformer in the style of Llama (Touvron et al. 2023)."""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, rms_norm, silu

from src.ops.attention import Cache, attend, rotate, rotation, visible, visible_blocks


class GPT(nn.Module):
    """Predicts the next token at every position, from the tokens up to it.

    RMSNorm before attention and MLP (Zhang & Sennrich 2019), rotary positions (Su et al. 2021), gated MLPs (Shazeer
    2020), grouped-query attention (Ainslie et al. 2023), no biases. With the defaults, logits equal those of Hugging
    Face's Llama with the same weights.

    Args:
        vocab_size: number of tokens V, at least 2.
        context_length: largest number of tokens T.
        num_layers: number of blocks, at least 1.
        dim: features of a token, D; a multiple of 2 num_heads.
        num_heads: attention heads H.
        num_kv_heads: heads of keys and values; a divisor of num_heads. Defaults to num_heads.
        mlp_dim: hidden units of a block's MLP. Defaults to 8/3 D for swiglu and 4 D otherwise, in multiples of 64.
        activation: swiglu, a projection gated by the SiLU of another; relu2, the square of ReLU (So et al. 2021); gelu.
        dropout: probability of dropping a feature after the embedding, attention and MLP, in [0, 1).
        tie_weights: whether head and embedding share one weight (Press & Wolf 2017).
        window: number of tokens that a token attends to, itself included, as in Mistral (Jiang et al. 2023); all
            previous ones if None.
        rope_theta: longest wavelength of the rotary positions, in tokens / 2π.
        norm_eps: term added to the mean square before its root is taken.
        qk_norm: root mean square to which the queries and keys of each head are normalised, which bounds the attention
            scores (Henry et al. 2020); 1.4 allows sharper attention than 1. None does not normalise them.

    Shapes:
        tokens (B, T) → logits (B, T, V). With packed documents also documents (B, T), their numbers, -1 for padding,
        and positions (B, T), which begin at 0 in each document.

    Raises:
        ValueError: an argument is out of range, or there are more than context_length tokens.
    """

    tensor_parallel: ClassVar[dict[str, str]] = {
        "blocks.*.query": "colwise",
        "blocks.*.key": "colwise",
        "blocks.*.value": "colwise",
        "blocks.*.out": "rowwise",
        "blocks.*.gate": "colwise",
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
    }

    def __init__(
        self,
        vocab_size: int = 65,
        context_length: int = 256,
        num_layers: int = 6,
        dim: int = 384,
        num_heads: int = 6,
        num_kv_heads: int | None = None,
        mlp_dim: int | None = None,
        activation: Literal["swiglu", "relu2", "gelu"] = "swiglu",
        dropout: float = 0.0,
        tie_weights: bool = True,
        window: int | None = None,
        rope_theta: float = 10_000.0,
        norm_eps: float = 1e-5,
        qk_norm: float | None = None,
    ) -> None:
        super().__init__()
        counts = {
            "vocab_size": (vocab_size, 2),
            "context_length": (context_length, 1),
            "num_layers": (num_layers, 1),
            "dim": (dim, 1),
            "num_heads": (num_heads, 1),
            "num_kv_heads": (num_heads if num_kv_heads is None else num_kv_heads, 1),
            "mlp_dim": (1 if mlp_dim is None else mlp_dim, 1),
            "window": (1 if window is None else window, 1),
        }
        for name, (count, least) in counts.items():
            if count < least:
                raise ValueError(f"{name}: expected at least {least}, got {count}")
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if dim % (2 * num_heads):
            raise ValueError(f"dim: expected a multiple of 2 num_heads = {2 * num_heads}, got {dim}")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads: expected a divisor of num_heads {num_heads}, got {num_kv_heads}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {activation}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        if not rope_theta > 0:
            raise ValueError(f"rope_theta: expected more than 0, got {rope_theta}")
        if not norm_eps >= 0:
            raise ValueError(f"norm_eps: expected at least 0, got {norm_eps}")
        if qk_norm is not None and not qk_norm > 0:
            raise ValueError(f"qk_norm: expected more than 0, or null, got {qk_norm}")
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.num_kv_heads = num_kv_heads  # divisible by the devices that split them
        self.head_dim = dim // num_heads
        self.window = window
        self.rope_theta = rope_theta
        self.mlp_dim = mlp_dim or math.ceil((8 * dim / 3 if activation == "swiglu" else 4 * dim) / 64) * 64
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            _Block(dim, num_heads, num_kv_heads, self.mlp_dim, activation, dropout, norm_eps, qk_norm)
            for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(dim, norm_eps)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        self._initialise()
        if tie_weights:
            self.head.weight = self.embedding.weight

    def _initialise(self) -> None:
        """As GPT-2 (Radford et al. 2019): deviation 0.02, divided by √(2 L) in the last layers of the 2 L branches."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                ends_branch = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * len(self.blocks)) if ends_branch else 0.02)

    def forward(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        return self.head(self.features(tokens, documents, positions, cache))  # (B, T, V)

    def features(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Inputs of the head, (B, T, D); arguments as for `forward`."""
        start = 0 if cache is None else cache.filled
        num_new, num_places, device = tokens.shape[1], start + tokens.shape[1], tokens.device
        if num_places > self.context_length:
            raise ValueError(f"context_length: expected at most {self.context_length} tokens, got {num_places}")
        if cache is not None:
            documents = cache.documents(documents, num_new, device)
        if positions is None:
            positions = torch.arange(start, num_places, device=device)[None]  # (1, T)
        x = self.embedding(tokens)  # (B, T, D)
        precision = torch.promote_types(x.dtype, torch.float32)
        cos, sin = rotation(positions[:, None], self.head_dim, self.rope_theta, precision)  # (B, 1, T, D / 2 H) each
        # a block mask is compiled for a length: in generation, every step has another
        if device.type == "cuda" and cache is None and not (self.window is None and documents is None):
            mask = visible_blocks(num_new, self.window, documents, device)
        else:
            mask = visible(num_new, num_places, self.window, documents, device)
        x = self.dropout(x)
        for layer, block in enumerate(self.blocks):
            x = block(x, cos, sin, mask, cache, layer)
        if cache is not None:
            cache.filled = num_places
        return self.norm(x)

    def make_cache(self, batch_size: int, length: int) -> Cache:
        """Makes a cache for generation: `forward(new tokens, cache=cache)` continues after the tokens of the last call.

        Args:
            batch_size: rows B.
            length: largest number of tokens, padding included, at most context_length.
        """
        if length > self.context_length:
            raise ValueError(f"length: expected at most context_length {self.context_length}, got {length}")
        return Cache(batch_size, length, len(self.blocks))


class _Block(nn.Module):
    """Causal attention, then an MLP on each token, both with a shortcut."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        num_kv_heads: int,
        mlp_dim: int,
        activation: str,
        dropout: float,
        norm_eps: float,
        qk_norm: float | None,
    ) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.qk_norm = qk_norm
        self.norm_eps = norm_eps
        self.activation = ACTIVATIONS[activation]
        self.attention_norm = nn.RMSNorm(dim, norm_eps)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, num_kv_heads * self.head_dim, bias=False)
        self.value = nn.Linear(dim, num_kv_heads * self.head_dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp_norm = nn.RMSNorm(dim, norm_eps)
        self.gate = nn.Linear(dim, mlp_dim, bias=False) if activation == "swiglu" else None
        self.up = nn.Linear(dim, mlp_dim, bias=False)
        self.down = nn.Linear(mlp_dim, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Any, cache: Cache | None = None, layer: int = 0
    ) -> Tensor:
        x = x + self.dropout(self._attention(self.attention_norm(x), cos, sin, mask, cache, layer))
        return x + self.dropout(self._mlp(self.mlp_norm(x)))

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Any, cache: Cache | None, layer: int) -> Tensor:
        linears = (self.query, self.key, self.value)
        # heads of this rank: (B, H, T, D / H), for keys and values (B, G, T, D / H)
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for linear in linears)
        if self.qk_norm is not None:
            q, k = (self.qk_norm * rms_norm(heads, heads.shape[-1:], eps=self.norm_eps) for heads in (q, k))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)  # in float32
        if v.device.type != "cpu":
            q, k = q.to(v.dtype), k.to(v.dtype)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        x = attend(q, k, v, mask)  # (B, H, T, D / H)
        return self.out(x.transpose(1, 2).flatten(2))  # (B, T, D)

    def _mlp(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        hidden = self.activation(hidden) if self.gate is None else silu(self.gate(x)) * hidden  # (B, T, hidden units)
        return self.down(hidden)


def _relu2(x: Tensor) -> Tensor:
    return relu(x).square()


ACTIVATIONS = {"swiglu": silu, "relu2": _relu2, "gelu": gelu}
