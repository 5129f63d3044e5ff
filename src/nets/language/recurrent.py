"""LSTM (Hochreiter & Schmidhuber 1997) and GRU (Cho et al. 2014), for texts."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from src.ops.text_pooling import drop_words, pool_text

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}
POOLINGS = ("max", "mean", "last")


class Recurrent(nn.Module):
    """Reads a text token by token, in one or both directions, pools the states and classifies the text.

    Args:
        num_classes: number of classes K, at least 1.
        vocab_size: number of tokens V.
        kind: lstm or gru.
        dim: features of an embedding.
        hidden: features of a state, in each direction.
        num_layers: number of layers, at least 1.
        bidirectional: whether each layer also reads from the end to the beginning.
        dropout: probability of dropping a feature between layers and before the classifier, in [0, 1).
        embedding_dropout: probability of dropping a feature of an embedding, in [0, 1).
        word_dropout: probability of dropping the whole embedding of a token, in [0, 1) (Iyyer et al. 2015).
        pooling: max or mean over the states of all tokens, or last, the final state of each direction.

    Shapes:
        tokens (B, T) and mask (B, T), True for tokens and False for padding after them → logits (B, K). Padding has no
        effect; a row of padding only is pooled to zeros.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        num_classes: int = 2,
        vocab_size: int = 20_000,
        kind: Literal["lstm", "gru"] = "lstm",
        dim: int = 128,
        hidden: int = 128,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.1,
        embedding_dropout: float = 0.0,
        word_dropout: float = 0.0,
        pooling: Literal["max", "mean", "last"] = "max",
    ) -> None:
        super().__init__()
        counts = {
            "num_classes": num_classes,
            "vocab_size": vocab_size,
            "dim": dim,
            "hidden": hidden,
            "num_layers": num_layers,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        for name, choice, choices in (("kind", kind, KINDS), ("pooling", pooling, POOLINGS)):
            if choice not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {choice}")
        shares = {"dropout": dropout, "embedding_dropout": embedding_dropout, "word_dropout": word_dropout}
        for name, share in shares.items():
            if not 0 <= share < 1:
                raise ValueError(f"{name}: expected a probability in [0, 1), got {share}")
        self.vocab_size = vocab_size
        self.word_dropout = word_dropout
        self.pooling = pooling
        self.embedding = nn.Embedding(vocab_size, dim)
        self.embedding_dropout = nn.Dropout(embedding_dropout)
        self.layers = KINDS[kind](
            dim,
            hidden,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.num_directions = 2 if bidirectional else 1
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.num_directions * hidden, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        """Orthogonal recurrent weights (Saxe et al. 2014), Glorot & Bengio 2010 elsewhere, zero biases.

        The forget gate's bias is 1, so that an LSTM remembers at first (Jozefowicz et al. 2015).
        """
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        hidden = self.layers.hidden_size
        for name, parameter in self.layers.named_parameters():
            if name.startswith("weight"):
                scheme = nn.init.orthogonal_ if "_hh_" in name else nn.init.xavier_uniform_
                for gate in parameter.detach().split(hidden):
                    scheme(gate)
            else:
                nn.init.zeros_(parameter)
                if isinstance(self.layers, nn.LSTM) and "_ih_" in name:
                    nn.init.ones_(parameter.detach()[hidden : 2 * hidden])  # gates are input, forget, cell, output

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens)  # (B, T, D)
        if self.training and self.word_dropout:
            x = drop_words(x, mask, self.word_dropout)
        x = self.embedding_dropout(x)
        lengths = mask.sum(dim=1).clamp(min=1).cpu()  # an empty row reads one token of padding, and is pooled to zeros
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.layers(packed)
        if self.pooling == "last":
            last = last[0] if isinstance(last, tuple) else last  # (layers directions, B, hidden)
            x = torch.cat(last[-self.num_directions :].unbind(), dim=1)  # (B, directions hidden)
            x = x.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)
        else:
            # as long as the mask, also where a batch is padded beyond its longest text
            x, _ = pad_packed_sequence(states, batch_first=True, total_length=mask.shape[1])  # (B, T, …)
            x = pool_text(x, mask, "max" if self.pooling == "max" else "mean")
        return self.head(self.dropout(x))  # (B, K)
