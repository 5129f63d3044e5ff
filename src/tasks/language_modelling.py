"""Language modelling: predicts the next token at every position, and generates text from prompts."""

import math
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric, Metric, MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, require_room
from src.ops.chunked_cross_entropy import chunked_cross_entropy
from src.ops.generation import check_sampling, generate, num_left_out
from src.ops.losses import precise
from src.ops.result_charts import loss_report
from src.ops.vocabularies import standalone, vocabulary_from

IGNORED = -100  # as a target: does not count in the loss
EXAMPLE_TOKENS = 64  # of a prompt and of an answer in the report of a run
Batch = tuple[dict[str, Tensor], Tensor]


class LanguageModelling(Task):
    """Cross-entropy of the next token, for pretraining and chat tuning, as the mean over supervised tokens.

    A step's loss is the mean over all its supervised tokens, whatever their number in each batch, micro-batch and
    process. Also logged are perplexity, its exponential, and bits per byte: the bits that the model needs to encode the
    text (log₂ of 1 / probability) per byte of its UTF-8, which allows comparing vocabularies and compressors.

    `predict` generates text after each prompt. Random draws depend only on the seed and the prompt. Of a prompt that is
    longer than the context, only the last half of a context is read; `left_out_tokens` of its answer counts the rest.

    Args:
        net: maps tokens (B, T) to logits (B, T, V); with packed documents, it also takes `documents` and `positions`
            (B, T).
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.blocks.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].
        loss_chunk: number of tokens whose logits are computed at a time, to save memory if V is large; the loss is the
            same (Wijmans et al. 2024). 0 computes those of the whole batch. Needs a net with `features` and `head`.
        exact_match: whether the test also answers each prompt greedily, and logs the share of answers that equal the
            reference, token by token, as `test/exact_match`.
        max_new_tokens: largest number of tokens to generate, at least 1.
        temperature: divides the logits before sampling; 0 always takes the most likely token.
        top_k: number of most likely tokens to sample from; 0 for all.
        top_p: sample from the most likely tokens whose probabilities add up to this share, in (0, 1] (Holtzman et al.
            2020).
        min_p: exclude tokens whose probability is below this share of the most likely one's, in [0, 1).
        stop: texts that end an answer; they are not part of it. The end of a document always ends it.
        stream: whether to print an answer while it is generated, if a batch has a single prompt.

    Raises:
        ValueError: an argument is out of range.
        UserError: a batch has no supervised token, or a token is not among the net's.
    """

    loss_name = "cross-entropy"
    program_outputs = ("logits",)
    program_dims = MappingProxyType({1: "T"})

    def __init__(
        self,
        net: nn.Module,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        loss_chunk: int = 0,
        exact_match: bool = False,
        max_new_tokens: int = 200,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        stop: Sequence[str] = (),
        stream: bool = False,
    ) -> None:
        if loss_chunk < 0:
            raise ValueError(f"loss_chunk: expected at least 0 tokens, got {loss_chunk}")
        if loss_chunk and not (hasattr(net, "features") and hasattr(net, "head")):
            raise ValueError(f"loss_chunk: expected 0, as {type(net).__name__} has no features and head")
        if any(not text for text in stop):
            raise ValueError("stop: expected texts, got an empty one")
        self.sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        check_sampling(max_new_tokens, **self.sampling)
        super().__init__(net, optimizer, schedule, MetricCollection({"perplexity": _Perplexity()}), parameter_groups)
        self.loss_chunk = loss_chunk
        self.max_new_tokens = max_new_tokens
        self.stop = list(stop)
        self.stream = stream
        self.vocabulary: Any = None  # once the facts are known
        self._num_long = 0  # prompts that exceed the context, of this `predict`
        self.register_buffer("token_bytes", None, persistent=False)  # (V,), once the vocabulary is known
        if exact_match:
            self.test_metrics.add_metrics({"exact_match": _Matches()})
        self.exact_match = exact_match

    def setup(self, stage: str) -> None:
        if self.vocabulary is not None or "tokenizer" not in self.facts:
            return
        self.vocabulary = vocabulary_from(self.facts["tokenizer"])
        require_room(self.net, self.facts)
        if any(self.vocabulary.num_bytes):
            self.token_bytes = torch.tensor(self.vocabulary.num_bytes, device=self.device)
            for metrics in (self.train_metrics, self.val_metrics, self.test_metrics):
                metrics.add_metrics({"bits_per_byte": _BitsPerByte().to(self.device)})

    def weight(self, batch: Batch) -> Tensor:
        """Supervised tokens of a batch."""
        _, target = batch
        return (target != IGNORED).sum()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Refuses batches without targets; on an accelerator only the first one, as checking synchronises with it."""
        target = batch[1]
        looks = batch_idx == 0 or target.device.type == "cpu"
        if looks and not (target != IGNORED).any():  # doctor: ignore[host-sync] of all steps on the CPU alone
            raise UserError(
                f"--data: a training batch of shape {tuple(target.shape)} has no supervised token: every target is "
                f"{IGNORED}. Prompts may fill the context (--data.context_length), or a chat template may lack "
                "generation marks"
            )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _ = self._step("train", batch, batch_idx)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns for each sequence `nats`, the sum of the loss over its supervised tokens, and their number, (B,)."""
        measured = {"matches": self._matches(*batch)} if self.exact_match else {}
        _, nats = self._step("test", batch, batch_idx, **measured)
        return {"nats": nats, "num_tokens": (batch[1] != IGNORED).sum(dim=1)}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, list[list[int]]]:
        """Generates an answer to each prompt.

        Args:
            batch: `tokens` (B, T), the prompts; with `documents` (B, T), tokens of document -1 are padding.
            batch_idx: its number.

        Returns:
            `prompt` and `tokens`, one list of tokens per sample.
        """
        prompts = _unpadded(batch[0])
        self._warn_of_long(prompts)
        return {"prompt": prompts, "tokens": self._generate(prompts, self.max_new_tokens, **self.sampling)}

    def example_step(self, batch: Any) -> dict[str, list[list[int]]]:
        """Continues test sequences for the report of a run, by few tokens; also returns the `target` of each.

        Args:
            batch: prompts as of predict_step, or sequences as of test_step, whose first half at most is the prompt.
        """
        inputs, target = batch
        outputs = {"prompt": _unpadded(inputs)}
        if target.ndim > 1:  # sequences of the test
            starts = [max(1, min(len(tokens) // 2, EXAMPLE_TOKENS)) for tokens in outputs["prompt"]]
            pairs = list(zip(outputs["prompt"], starts, strict=True))
            outputs["prompt"] = [tokens[:start] for tokens, start in pairs]
            outputs["target"] = [tokens[start : start + EXAMPLE_TOKENS] for tokens, start in pairs]
        number = min(self.max_new_tokens, EXAMPLE_TOKENS)
        return outputs | {"tokens": self._generate(outputs["prompt"], number, **self.sampling)}

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How the loss differs between sequences, and which have the largest.

        Args:
            outputs: of test_step, for all test samples.
            facts: learnt from the training data.
        """
        return loss_report(outputs["nats"], outputs["num_tokens"])

    def on_predict_end(self) -> None:
        if self._num_long > 1:
            print(f"warning: {self._num_long:,} prompts were longer than the context", file=sys.stderr)
        self._num_long = 0

    def answer(self, outputs: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Decodes each prompt and its answer.

        Args:
            outputs: returned by predict_step or example_step.
            facts: with the `tokenizer`.
        """
        answers: list[dict[str, Any]] = [{"tokens": tokens} for tokens in outputs["tokens"]]
        if "tokenizer" in facts:
            vocabulary = self.vocabulary or vocabulary_from(facts["tokenizer"])
            texts = [self._cut(vocabulary.decode(tokens)) for tokens in outputs["tokens"]]
            prompts = [vocabulary.decode(prompt) for prompt in outputs["prompt"]]
            answers = [{"prompt": prompt, "text": text} for prompt, text in zip(prompts, texts, strict=True)]
            for answer, tokens in zip(answers, outputs.get("target", ()), strict=False):
                answer["target"] = vocabulary.decode(tokens)
        for answer, prompt in zip(answers, outputs["prompt"], strict=True):
            if number := num_left_out(len(prompt), getattr(self.net, "context_length", None)):
                answer["left_out_tokens"] = number
        return answers

    def program(self) -> nn.Module:
        """Tokens, documents and positions (B, T) → logits (B, T, V)."""
        return _Logits(self.net)

    def program_inputs(self, batch: Batch) -> dict[str, Tensor]:
        inputs, _ = batch
        return filled(**inputs)

    def use_program(self, program: nn.Module) -> None:
        self.net = _Filled(program)
        self.loss_chunk = 0  # it has no features

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        vocabulary = vocabulary_from(facts["tokenizer"]) if "tokenizer" in facts else None
        return {
            "kind": "generate",
            "tokenizer": None if vocabulary is None else standalone(facts["tokenizer"]),
            "max_new_tokens": self.max_new_tokens,
            **self.sampling,
            "stop": self.stop if vocabulary is not None else [],
            "stop_tokens": facts.get("stop_tokens", []),
            "context_length": getattr(self.net, "context_length", None),
            "seed": torch.initial_seed(),
        }

    def _warn_of_long(self, prompts: list[list[int]]) -> None:
        """Counts prompts that exceed the context, and describes the first one."""
        context = getattr(self.net, "context_length", None)
        for prompt in prompts:
            number = num_left_out(len(prompt), context)
            self._num_long += number > 0
            if number and self._num_long == 1:
                start = f", which begins with {self._text(prompt[:20])!r}" if self.vocabulary is not None else ""
                text = f"a prompt of {len(prompt):,} tokens{start}, is longer than the context of {context:,}"
                print(f"warning: {text}: left out its first {number:,} tokens", file=sys.stderr)

    def _generate(self, prompts: list[list[int]], max_new_tokens: int, **sampling: Any) -> list[list[int]]:
        streams = self.stream and len(prompts) == 1 and self.vocabulary is not None
        rows: list[list[int]] = [[] for _ in prompts]
        shown = ""

        def follow(row: int, new: list[int]) -> bool:
            """Prints new text, and returns whether a stop text has been generated."""
            nonlocal shown
            rows[row] += new
            text = self._text(rows[row])
            if streams and not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a character waits for its rest
                certain = self._cut(text)
                certain = certain[: len(certain) - self._num_held(certain)]
                print(certain[len(shown) :], end="", flush=True)
                shown = certain
            return any(stop in text for stop in self.stop)

        results = generate(
            self.net,
            prompts,
            max_new_tokens,
            **sampling,
            stop=self._ends(),
            seed=torch.initial_seed(),
            streamer=follow if streams or (self.stop and self.vocabulary) else None,
        )
        if streams:
            print(self._cut(self._text(results[0]))[len(shown) :], flush=True)
        return results

    def _text(self, tokens: list[int]) -> str:
        assert self.vocabulary is not None, "an option that needs a vocabulary"
        return self.vocabulary.decode(tokens)

    def _num_held(self, text: str) -> int:
        """Number of characters at the end that may begin a stop text."""
        lengths = [n for stop in self.stop for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return max(lengths, default=0)

    def _ends(self) -> list[int]:
        """Tokens that end an answer: the one between documents, and those of the data."""
        end = getattr(self.vocabulary, "end", None)
        return [*self.facts.get("stop_tokens", []), *([] if end is None else [end])]

    def _cut(self, text: str) -> str:
        """The text before the first stop text."""
        return text[: min([text.index(stop) for stop in self.stop if stop in text], default=len(text))]

    def _matches(self, inputs: dict[str, Tensor], target: Tensor) -> Tensor:
        """Whether the answer to each prompt of a batch equals its first span of supervised tokens, (number,)."""
        documents = inputs.get("documents", torch.zeros_like(target))
        prompts, references = [], []
        for tokens, numbers, targets in zip(inputs["tokens"], documents, target, strict=True):
            for number in numbers[numbers >= 0].unique():
                own = numbers == number
                supervised = (targets[own] != IGNORED).int()  # (T,), of this document
                if not supervised.any():
                    continue
                start = int(supervised.argmax())
                length = int(supervised[start:].cumprod(0).sum())
                prompts.append(tokens[own][: start + 1].tolist())
                references.append(targets[own][start : start + length].tolist())
        longest = max(map(len, references), default=1)
        answers = self._generate(prompts, longest, temperature=0.0)  # without prompts too: others may have some
        ends = self._ends()
        pairs = zip(answers, references, strict=True)
        hits = [answer == (reference[:-1] if reference[-1] in ends else reference) for answer, reference in pairs]
        return torch.tensor(hits, dtype=torch.float32, device=target.device)

    def _step(self, stage: str, batch: Batch, batch_idx: int, **measured: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss, and its sum over all tokens; in the test, over those of each sequence (B,)."""
        inputs, target = batch
        if batch_idx == 0 or target.device.type == "cpu":  # elsewhere, looking at every token would wait for the device
            self._check(inputs["tokens"])
        weight = self.weight(batch)
        if self.loss_chunk:
            features = self.net.features(**inputs)  # type: ignore[operator]  # (B, T, D)
            head: Any = self.net.head
            weights = getattr(head.weight, "to_local", lambda: head.weight)()  # replicated where it is split
            size = 1 if stage == "test" else len(target)  # sequences whose loss is summed
            parts = zip(features.split(size), target.split(size), strict=True)
            sums = [chunked_cross_entropy(x.flatten(0, 1), weights, y.flatten(), self.loss_chunk) for x, y in parts]
            nats = torch.stack(sums)
        else:
            logits = precise(self(inputs).flatten(0, 1))  # (B T, V)
            reduction = "none" if stage == "test" else "sum"
            nats = cross_entropy(logits, target.flatten(), reduction=reduction, ignore_index=IGNORED)
            nats = nats.view(len(target), -1).sum(dim=1) if stage == "test" else nats
        total = nats.sum()
        loss = total / weight.clamp(min=1)
        if self.token_bytes is not None:
            num_bytes = self.token_bytes[target.clamp(min=0)]  # (B, T)
            measured |= {"nats": total.detach(), "num_bytes": num_bytes.masked_fill(target == IGNORED, 0).sum()}
        self.log_step(stage, loss, weight, **measured)
        return loss, nats.detach()

    def _check(self, tokens: Tensor) -> None:
        size = getattr(self.net, "vocab_size", None)
        if size is not None and (largest := int(tokens.max())) >= size:
            raise UserError(f"vocab_size: the data contains the token {largest}, but the net has {size} tokens")


def _unpadded(inputs: dict[str, Tensor]) -> list[list[int]]:
    """The tokens of each sample, without padding, which has document -1."""
    tokens = inputs["tokens"]
    shown = inputs["documents"] >= 0 if "documents" in inputs else torch.ones_like(tokens, dtype=torch.bool)
    return [row[is_shown].tolist() for row, is_shown in zip(tokens, shown, strict=True)]


def filled(tokens: Tensor, documents: Tensor | None = None, positions: Tensor | None = None) -> dict[str, Tensor]:
    """The same inputs with one document and its positions, (B, T), where they are missing."""
    if positions is None:
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens).contiguous()
    return {
        "tokens": tokens,
        "documents": torch.zeros_like(tokens) if documents is None else documents,
        "positions": positions,
    }


class _Logits(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens: Tensor, documents: Tensor, positions: Tensor) -> Tensor:
        return self.net(tokens, documents=documents, positions=positions)  # (B, T, V)


class _Filled(nn.Module):
    """An exported program, which takes documents and positions always."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, tokens: Tensor, documents: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self.program(**filled(tokens, documents, positions))


class _Perplexity(MeanMetric):
    """The exponential of the mean loss."""

    def compute(self) -> Tensor:
        return super().compute().exp()


class _BitsPerByte(Metric):
    """Bits of all tokens divided by bytes of all tokens, (); nan if there are only special tokens."""

    nats: Tensor
    num_bytes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("nats", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("num_bytes", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nats: Tensor, num_bytes: Tensor) -> None:
        self.nats += nats
        self.num_bytes += num_bytes

    def compute(self) -> Tensor:
        return self.nats / self.num_bytes / math.log(2)


class _Matches(MeanMetric):
    def update(self, matches: Tensor) -> None:
        super().update(matches)
