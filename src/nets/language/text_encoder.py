"""The encoder of the Transformer (Vaswani et al. 2017), for texts."""

from typing import Literal

import torch
from torch import Tensor, nn

from src.ops.attention import attend, rotate, rotation
from src.ops.text_pooling import POOLINGS, drop_words, pool_text

EPS = 1e-5  # of the layer norms
THETA = 10_000.0  # slowest wavelength of rotary positions, in places / 2π


class TextEncoder(nn.Module):
    """Bidirectional attention over the tokens of a text, then pools them and classifies the text.

    Layer norms come before attention and MLP, and after the last block. Without dropout and positions, features equal
    those of torch's TransformerEncoder with `norm_first`.

    Args:
        num_classes: number of classes K; 0 for no classifier, for tasks that use only `features`.
        vocab_size: number of tokens V.
        max_length: largest number of tokens T, with learned positions.
        num_layers: number of blocks, at least 1.
        dim: features of a token, D; a multiple of num_heads, and of twice that for rope.
        num_heads: attention heads H; a head has D / H features.
        mlp_dim: hidden units of a block's MLP. Defaults to 4 D.
        dropout: probability of dropping a feature after attention, in the MLP and before the classifier, in [0, 1).
        embedding_dropout: probability of dropping a feature of an embedding, in [0, 1).
        word_dropout: probability of dropping the whole embedding of a token, in [0, 1) (Iyyer et al. 2015).
        position: learned, a trained vector for each position; rope, queries and keys rotated by position (Su et al.
            2021); none, which ignores the order of tokens.
        pooling: mean or max over the tokens of a text, or first, the first token's vector.

    Shapes:
        tokens (B, T) and mask (B, T), True for tokens and False for padding → logits (B, K), or (B, D) for K = 0.
        Padding has no effect; a row of padding only is pooled to zeros.

    Raises:
        ValueError: an argument is out of range, or there are more than max_length tokens with learned positions.
    """

    def __init__(
        self,
        num_classes: int = 2,
        vocab_size: int = 20_000,
        max_length: int = 256,
        num_layers: int = 2,
        dim: int = 128,
        num_heads: int = 4,
        mlp_dim: int | None = None,
        dropout: float = 0.1,
        embedding_dropout: float = 0.0,
        word_dropout: float = 0.0,
        position: Literal["learned", "rope", "none"] = "rope",
        pooling: Literal["mean", "max", "first"] = "mean",
    ) -> None:
        super().__init__()
        counts = {
            "vocab_size": vocab_size,
            "max_length": max_length,
            "num_layers": num_layers,
            "dim": dim,
            "num_heads": num_heads,
            "mlp_dim": 4 * dim if mlp_dim is None else mlp_dim,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if num_classes < 0:
            raise ValueError(f"num_classes: expected at least 0, got {num_classes}")
        if position not in ("learned", "rope", "none"):
            raise ValueError(f"position: expected one of learned, rope, none, got {position}")
        heads = num_heads * (2 if position == "rope" else 1)
        if dim % heads:
            raise ValueError(f"dim: expected a multiple of {heads} for {num_heads} heads, got {dim}")
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling}")
        shares = {"dropout": dropout, "embedding_dropout": embedding_dropout, "word_dropout": word_dropout}
        for name, share in shares.items():
            if not 0 <= share < 1:
                raise ValueError(f"{name}: expected a probability in [0, 1), got {share}")
        self.vocab_size = vocab_size
        self.context_length = None if position == "none" else max_length
        self.word_dropout = word_dropout
        self.pooling: Literal["mean", "max", "first"] = pooling
        self.embedding = nn.Embedding(vocab_size, dim)
        self.position = nn.Embedding(max_length, dim) if position == "learned" else None
        self.embedding_dropout = nn.Dropout(embedding_dropout)
        mlp_dim = mlp_dim or 4 * dim
        self.blocks = nn.ModuleList(_Block(dim, num_heads, mlp_dim, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim, EPS)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, num_classes) if num_classes else nn.Identity()
        self.rotary_dim = dim // num_heads if position == "rope" else 0
        self._initialise()

    def _initialise(self) -> None:
        """Glorot & Bengio 2010 with zero biases, deviation D^-1/2 for embeddings, 0.02 for the head (BERT)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        if isinstance(self.head, nn.Linear):
            nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = pool_text(self.features(tokens, mask), mask, self.pooling)  # (B, D)
        return self.head(self.dropout(x))  # (B, K)

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """A vector for each token, (B, T, D); those of padding are meaningless."""
        length = tokens.shape[1]
        if self.context_length is not None and length > self.context_length:
            raise ValueError(f"max_length: expected at most {self.context_length} tokens, got {length}")
        x = self.embedding(tokens)  # (B, T, D)
        if self.training and self.word_dropout:
            x = drop_words(x, mask, self.word_dropout)
        if self.position is not None:
            x = x + self.position.weight[:length]
        x = self.embedding_dropout(x)
        key_mask = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None]  # (B, 1, 1, T); no row is masked entirely
        turns = None
        if self.rotary_dim:
            places = torch.arange(length, device=x.device)
            precision = torch.promote_types(x.dtype, torch.float32)
            turns = rotation(places, self.rotary_dim, THETA, precision)  # (T, D / 2 H) each
        for block in self.blocks:
            x = block(x, key_mask, turns)
        return self.norm(x)


class _Block(nn.Module):
    """Attention among the tokens, then an MLP on each of them, both with a shortcut."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.attention_norm = nn.LayerNorm(dim, EPS)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim, EPS)
        self.up = nn.Linear(dim, mlp_dim)
        self.down = nn.Linear(mlp_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, turns: Tensor | None) -> Tensor:
        x = x + self.dropout(self._attention(self.attention_norm(x), mask, turns))
        hidden = self.dropout(nn.functional.gelu(self.up(self.mlp_norm(x))))  # (B, T, hidden units)
        return x + self.dropout(self.down(hidden))

    def _attention(self, x: Tensor, mask: Tensor, turns: Tensor | None) -> Tensor:
        linears = (self.query, self.key, self.value)
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for linear in linears)  # (B, H, T, D/H)
        if turns is not None:
            cos, sin = turns
            q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        x = attend(q, k, v, mask)
        return self.out(x.transpose(1, 2).flatten(2))  # (B, T, D)
