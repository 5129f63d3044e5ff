"""Masked language modelling: predicts masked words of a text from those on both sides (Devlin et al. 2019)."""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torchmetrics import MeanMetric, MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, require_room
from src.ops.losses import precise
from src.ops.result_charts import loss_report
from src.ops.vocabularies import MASK, standalone, vocabulary_from

NUM_CHOICES = 5  # words in an answer for each gap
IGNORED = -100  # as a target: not masked
EXPECTED = "expected one with a mask token, as UnlabelledText makes"
Inputs = dict[str, Tensor]


class MaskedLanguageModelling(Task):
    """Mean cross-entropy of masked tokens; pretrains a text encoder without labels.

    A share of the tokens of each text is masked, at least one: 80 % become the mask token, 10 % another token, 10 %
    stay as they are. Training chooses them anew in every epoch. In validation, they depend only on the text, so that
    losses are comparable between epochs and runs. Unknown words are never masked.

    The head is one layer followed by the encoder's transposed embedding. `--init_from` loads the encoder and its
    vocabulary into a classifier with the same net. `predict` fills in each <mask> of a text; in a text without any, it
    masks words as in validation.

    Args:
        net: encoder with `features(tokens, mask)` of shape (B, T, D) and an `embedding` (V, D), such as TextEncoder.
        mask_share: share of the tokens of a text that are masked, in (0, 1).
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.blocks.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: transform, lr_factor: 2}].

    Raises:
        ValueError: mask_share is out of range, or the net is not such an encoder.
        UserError: the vocabulary has no mask token or is larger than the net's, or a text has no token to mask.
    """

    loss_name = "cross-entropy"

    program_outputs = ("logits",)
    program_dims = MappingProxyType({1: "T"})

    def __init__(
        self,
        net: nn.Module,
        mask_share: float = 0.15,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        if not 0 < mask_share < 1:
            raise ValueError(f"mask_share: expected a share in (0, 1), got {mask_share}")
        embedding = getattr(net, "embedding", None)
        if not isinstance(embedding, nn.Embedding) or not hasattr(net, "features"):
            raise ValueError(f"net: {type(net).__name__} has no features and embedding; expected a TextEncoder")
        metrics = MetricCollection({"accuracy": _Accuracy(), "perplexity": _Perplexity()})
        super().__init__(net, optimizer, schedule, metrics, parameter_groups)
        self.mask_share = mask_share
        num_tokens, dim = embedding.weight.shape
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(num_tokens))
        self.vocabulary: Any = None  # once the facts are known
        self.mask_token = -1
        self.exported: nn.Module | None = None  # evaluates in place of the net
        self.register_buffer("is_ordinary", torch.zeros(0, dtype=torch.bool), persistent=False)  # (V,), no special one
        self.register_buffer("ordinary", torch.zeros(0, dtype=torch.int64), persistent=False)  # those tokens

    def setup(self, stage: str) -> None:
        if self.vocabulary is not None or "tokenizer" not in self.facts:
            return
        require_room(self.net, self.facts)
        vocabulary = vocabulary_from(self.facts["tokenizer"])
        special = vocabulary.special
        if MASK not in special:
            raise UserError(f"--data: the vocabulary has no token {MASK}; {EXPECTED}")
        self.vocabulary = vocabulary
        self.mask_token = special[MASK]
        is_ordinary = torch.ones(vocabulary.size, dtype=torch.bool)
        is_ordinary[list(special.values())] = False
        self.is_ordinary = is_ordinary.to(self.device)
        self.ordinary = is_ordinary.nonzero().flatten().to(self.device)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits of every token, (B, T, V)."""
        return self._logits(self.net.features(**inputs))  # type: ignore[operator]  # checked above

    def weight(self, batch: Inputs) -> Tensor:
        """Number of masked tokens in a batch; it does not depend on which ones they are."""
        return self._counts(self._can_be_hidden(batch)).sum()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Refuses a first batch without targets; later ones change nothing, and checking takes time."""
        if batch_idx == 0 and not self.weight(batch):
            raise UserError("--data: no text of a training batch has a known word to mask")

    def training_step(self, batch: Inputs, batch_idx: int) -> Tensor:
        tokens = batch["tokens"]
        loss, _ = self._step("train", batch, torch.rand(3, *tokens.shape, device=tokens.device))
        return loss

    def validation_step(self, batch: Inputs, batch_idx: int) -> None:
        self._step("val", batch, draws_of(**batch))

    def test_step(self, batch: Inputs, batch_idx: int) -> dict[str, Tensor]:
        """Returns for each text `nats`, the sum of the loss over its masked tokens, and their number, (B,)."""
        _, outputs = self._step("test", batch, draws_of(**batch))
        return outputs

    def predict_step(self, batch: Inputs, batch_idx: int) -> dict[str, list[list[Any]]]:
        """Fills gaps.

        Returns:
            for each text its `tokens` with gaps, the most likely `choices` for each gap, and the `probability` of each
            choice.
        """
        tokens, mask = batch["tokens"], batch["mask"]
        is_gap = tokens == self.mask_token
        hidden = self._hidden(batch, draws_of(tokens, mask)[0]) & ~is_gap.any(dim=1, keepdim=True)
        tokens = tokens.masked_fill(hidden, self.mask_token)
        likeliest = (
            self({"tokens": tokens, "mask": mask})
            .softmax(dim=-1)[..., self.ordinary]
            .topk(min(NUM_CHOICES, len(self.ordinary)), dim=-1)
        )
        choices, shares = self.ordinary[likeliest.indices], likeliest.values
        gaps = tokens == self.mask_token
        return {
            "tokens": [row[is_token].tolist() for row, is_token in zip(tokens, mask, strict=True)],
            "choices": [row[gap].tolist() for row, gap in zip(choices, gaps, strict=True)],
            "probability": [row[gap].tolist() for row, gap in zip(shares, gaps, strict=True)],
        }

    def answer(self, outputs: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Decodes the text with its gaps filled, and names the most likely words for each gap.

        Args:
            outputs: returned by predict_step.
            facts: with the `tokenizer`.
        """
        vocabulary = self.vocabulary or vocabulary_from(facts["tokenizer"])
        answers = []
        columns = [outputs[name] for name in ("tokens", "choices", "probability")]
        for tokens, choices, shares in zip(*columns, strict=True):
            likeliest = iter(choices)
            filled = [next(likeliest)[0] if token == self.mask_token else token for token in tokens]
            words = [
                ", ".join(f"{vocabulary.decode([c]).strip()} {share:.2f}" for c, share in zip(*gap, strict=True))
                for gap in zip(choices, shares, strict=True)
            ]
            answers.append({"text": vocabulary.decode(filled), "choices": " | ".join(words)})
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How the loss differs between texts, and which have the largest.

        Args:
            outputs: of test_step, for all test samples.
            facts: learnt from the training data.
        """
        return loss_report(outputs["nats"], outputs["num_tokens"])

    def program(self) -> nn.Module:
        """Tokens and mask (B, T) → logits (B, T, V)."""
        return _Logits(self)

    def use_program(self, program: nn.Module) -> None:
        self.exported = program

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        if "tokenizer" not in facts:
            return None
        mask_token = vocabulary_from(facts["tokenizer"]).special[MASK]
        options = {"mask_token": mask_token, "mask_share": self.mask_share, "num_choices": NUM_CHOICES}
        return {"kind": "gaps", "tokenizer": standalone(facts["tokenizer"]), **options}

    def _step(self, stage: str, batch: Inputs, draws: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss; of each text, its sum over masked tokens and their number."""
        tokens, mask = batch["tokens"], batch["mask"]
        places, is_hidden = self._chosen(batch, draws[0])
        shown = self._corrupted(tokens, self._hidden(batch, draws[0]), draws[1:])
        if self.exported is None:
            features = self.net.features(shown, mask)  # type: ignore[operator]  # (B, T, D)
            logits = self._logits(_at(features, places))  # not of the tokens that are shown, to save memory
        else:
            logits = _at(self.exported(tokens=shown, mask=mask), places)
        logits = precise(logits)  # (B, N, V)
        target = tokens.gather(1, places).masked_fill(~is_hidden, IGNORED)  # (B, N)
        losses = cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none", ignore_index=IGNORED)
        nats = losses.view(target.shape).sum(dim=1)  # (B,)
        weight = is_hidden.sum()
        loss = nats.sum() / weight.clamp(min=1)
        self.log_step(stage, loss, weight, hits=logits.detach().argmax(dim=-1) == target, is_hidden=is_hidden)
        return loss, {"nats": nats.detach(), "num_tokens": is_hidden.sum(dim=1)}

    def _logits(self, features: Tensor) -> Tensor:
        return linear(self.transform(features), self.net.embedding.weight, self.bias)  # type: ignore[union-attr]

    def _can_be_hidden(self, batch: Inputs) -> Tensor:
        """Ordinary tokens, (B, T)."""
        if self.vocabulary is None:
            raise UserError(f"--data: has no vocabulary; {EXPECTED}")
        return self.is_ordinary[batch["tokens"]] & batch["mask"]

    def _counts(self, can_be_hidden: Tensor) -> Tensor:
        """Number of masked tokens in each text, (B,); as in BERT, it is not random."""
        number = can_be_hidden.sum(dim=1)
        return (self.mask_share * number).round().long().clamp(min=1).minimum(number)

    def _chosen(self, batch: Inputs, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Positions in each text, and whether they are masked, (B, N): those with the lowest random numbers.

        N depends only on T, which avoids synchronising with an accelerator.
        """
        can_be_hidden = self._can_be_hidden(batch)
        length = draws.shape[1]
        most = min(length, int(self.mask_share * length) + 1)
        places = draws.masked_fill(~can_be_hidden, 2.0).argsort(dim=1)[:, :most]
        return places, torch.arange(most, device=draws.device) < self._counts(can_be_hidden)[:, None]

    def _hidden(self, batch: Inputs, draws: Tensor) -> Tensor:
        """Whether each token is masked, (B, T)."""
        places, is_hidden = self._chosen(batch, draws)
        return torch.zeros_like(batch["mask"]).scatter(1, places, is_hidden)

    def _corrupted(self, tokens: Tensor, hidden: Tensor, draws: Tensor) -> Tensor:
        """Replaces masked tokens: 80 % by the mask token, 10 % by a random ordinary one, 10 % not at all."""
        kind, other = draws
        others = self.ordinary[(other * len(self.ordinary)).long()]
        shown = torch.where(hidden & (kind < 0.9), others, tokens)
        return shown.masked_fill(hidden & (kind < 0.8), self.mask_token)


class _Logits(nn.Module):
    """The task's net with the layers that predict tokens."""

    def __init__(self, task: MaskedLanguageModelling) -> None:
        super().__init__()
        self.net = task.net
        self.transform = task.transform
        self.bias = task.bias

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        features = self.transform(self.net.features(tokens, mask))  # type: ignore[operator]  # (B, T, D)
        return linear(features, self.net.embedding.weight, self.bias)  # type: ignore[union-attr]  # (B, T, V)


def _at(x: Tensor, places: Tensor) -> Tensor:
    """Vectors of x (B, T, D) at places (B, N), (B, N, D)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def draws_of(tokens: Tensor, mask: Tensor) -> Tensor:
    """Three numbers in [0, 1) per token, (3, B, T), as a function of its text and position, whatever the padding."""
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    texts = _mixed(tokens * 0x9E3779B1 + places).masked_fill(~mask, 0).sum(dim=1, keepdim=True)  # (B, 1)
    kinds = torch.arange(3, device=tokens.device)[:, None, None] * 0x85EBCA6B
    return (_mixed(_mixed(texts) + places * 0xC2B2AE35 + kinds) >> 8).float() / 2**24


def _mixed(x: Tensor) -> Tensor:
    """Scrambles the lower 32 bits of each number (Mueller 2012)."""
    for _ in range(2):
        x = x & 0xFFFFFFFF
        x = (x ^ (x >> 16)) * 0x45D9F3B
    x = x & 0xFFFFFFFF
    return x ^ (x >> 16)


class _Accuracy(MeanMetric):
    """Share of masked tokens that are predicted correctly."""

    def update(self, hits: Tensor, is_hidden: Tensor) -> None:
        super().update(hits.float(), is_hidden.float())


class _Perplexity(MeanMetric):
    """The exponential of the mean loss."""

    def compute(self) -> Tensor:
        return super().compute().exp()
