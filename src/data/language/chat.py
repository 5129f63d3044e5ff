"""Conversations for tuning a language model; only the answers count in the loss."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from playbook import Data, UserError, nearest, split_indices
from src.data.language.conversations import (
    SUFFIXES,
    Messages,
    question,
    read_conversations,
    text_of_message,
    without_empty_answers,
)
from src.data.language.packing import pack
from src.data.language.prompts import IGNORED, as_prompt, collate, text_of
from src.data.language.questions import questions
from src.data.notices import name_some, refuse, warn_of_copies
from src.ops.vocabularies import (
    Bytes,
    Pretrained,
    Vocabulary,
    describe,
    found_again,
    standalone,
    vocabulary_from,
    vocabulary_of,
)

PARTS = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
PLAIN = "plain"  # the template of vocabularies without one of their own


class _Sample(NamedTuple):
    """One conversation as tokens.

    Args:
        tokens: the whole conversation.
        learns: whether each token counts in the loss: those of answers and their end marks.
        name: its file and line.
        messages: its messages.
    """

    tokens: list[int]
    learns: list[bool]
    name: str
    messages: Messages


class Chat(Data):
    """Conversations in JSON lines, for a net that predicts the next token; only the assistant's turns are targets.

    A line is `{"messages": [{"role": "user", "content": "…"}, …]}` with the roles system, user, assistant and tool, or
    `{"prompt": "…", "completion": "…"}`. Also read are the columns `conversations` with `from` and `value` (ShareGPT),
    and `instruction`, `input` and `output` (Alpaca); contents that are lists of parts with `text`; and JSON arrays of
    such rows, alone or in an object. Conversations longer than the context are truncated at the end; those without a
    target token are skipped, and so are empty answers and the turns before them. Messages give the number of each.

    With a Hugging Face tokenizer, its chat template is used. If the template has generation marks, they define the
    targets; otherwise the targets are the text that each answer adds. Other vocabularies use a plain template,
    `User: …`, `Assistant: …`, with the end-of-document token after each turn, or an empty line if there is none.

    Args:
        root: a file of JSON lines or a JSON array, split with a fixed seed, or a folder with train.jsonl and,
            optionally, val.jsonl and test.jsonl, or these as .json. Defaults to generated questions about names in
            Python and small sums.
        tokenizer: source of the vocabulary: directory or name of a Hugging Face model, or a run directory or checkpoint
            of a language model. Defaults to that of the checkpoint or of --init_from, or else to bytes.
        context_length: largest number of tokens of a conversation, T.
        template: file of a Jinja template that replaces the tokenizer's, or plain.
        packing: whether training rows hold several short conversations each, without attention between them.
        batch_size: rows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the training conversations used for validation if there is no file for it, in (0, 1).
        test_share: share used for testing if there is no file for it, in [0, 1); 0 for no test.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to rows that
            are no conversations.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        tokens (B, T); with packing also documents and positions (B, T); target (B, T), -100 for tokens without a loss.

    Raises:
        ValueError: a value is out of range.
        UserError: a line is not a conversation, the template is missing or marks no answers, no target tokens are left,
            or the vocabulary differs from the checkpoint's.
    """

    columns = ("messages", "conversations", "prompt", "instruction")
    collate = staticmethod(collate)

    def __init__(
        self,
        root: str | None = None,
        tokenizer: str | None = None,
        context_length: int = 256,
        template: str | None = None,
        packing: bool = True,
        batch_size: int = 16,
        num_workers: int = 0,
        val_share: float = 0.1,
        test_share: float = 0.1,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s)
        if context_length < 2:
            raise ValueError(f"context_length: expected at least 2 tokens, got {context_length}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        self.root = root
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.template = template
        self.packing = packing
        self.shares = [1 - val_share - test_share, val_share, test_share]
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        vocabulary = self._vocabulary()
        self._renderer = _Renderer(vocabulary, self._template(vocabulary))
        self.facts |= {"tokenizer": vocabulary.plain(), "vocab_size": vocabulary.size}
        self.facts["chat_template"] = self._renderer.template
        self.facts |= {"context_length": self.context_length, "ignore_index": IGNORED}
        rows_of_parts = self._rows()
        copies = {part: [(repr(messages), name) for name, messages in rows] for part, rows in rows_of_parts.items()}
        warn_of_copies(self, copies, "conversations")
        parts = {name: self._samples(name, rows) for name, rows in rows_of_parts.items()}
        for name in ("train", "val"):
            if not parts[name]:
                raise UserError(
                    f"--data.root {self.root}: no conversation of {name} has a target token; expected answers "
                    f"within the first {self.context_length} tokens"
                )
        self.facts["stop_tokens"] = self._renderer.stop_tokens(parts["train"])
        rows = _packed(parts["train"], self.context_length) if self.packing else [[sample] for sample in parts["train"]]
        self.train_set = _Rows(rows, self.packing)
        self.val_set = _Rows([[sample] for sample in parts["val"]], self.packing)
        self.test_set = _Rows([[sample] for sample in parts["test"]], self.packing) if parts["test"] else None
        self.predict_set = _Prompts(self._renderer, parts["test"] or parts["val"])

    def prepare_read(self) -> None:
        if "tokenizer" in self.facts:
            self.facts["tokenizer"] = found_again(self.facts["tokenizer"], self.tokenizer, "--data.tokenizer")

    def read(self, source: Any) -> dict[str, Tensor]:
        """Reads a prompt, up to where the assistant's turn begins.

        Args:
            source: a text, which is the user's turn; a row as in training, without its answer; or a file with such a
                text.

        Returns:
            `tokens` (T,).
        """
        if "tokenizer" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint has no vocabulary; expected one of a language model")
        if not hasattr(self, "_renderer"):
            vocabulary = vocabulary_from(self.facts["tokenizer"])
            self._renderer = _Renderer(vocabulary, self.facts.get("chat_template", PLAIN))
        messages = question(source) if isinstance(source, dict) else None
        if messages is None:
            messages = [{"role": "user", "content": text_of(source, self.columns)}]
        return as_prompt(self._renderer.prompt(messages))

    def preprocessing(self) -> dict[str, Any] | None:
        if "tokenizer" not in self.facts or self.facts.get("chat_template", PLAIN) != PLAIN:
            return None  # a Jinja template needs its tokenizer's own code
        tokenizer, length = standalone(self.facts["tokenizer"]), self.facts["context_length"]
        columns = ["prompt"]  # beside `messages`
        return {"kind": "chat", "columns": columns, "tokenizer": tokenizer, "context_length": length, "template": PLAIN}

    def ids(self, dataset: Any) -> list[str]:
        """File and line of each conversation, as in `train.jsonl:17`; for a packed row, of all conversations in it."""
        return dataset.names

    def _rows(self) -> dict[str, list[tuple[str, Messages]]]:
        """Conversations of each part, with file and line."""
        if self.root is None:
            rows = [(f"questions:{number}", row) for number, row in enumerate(questions(), start=1)]
            return self._cut(rows, list(PARTS))
        root = Path(self.root).expanduser()
        if root.is_file():
            return self._cut(self._read(root), list(PARTS))
        if not root.is_dir():
            siblings = [entry.as_posix() for entry in root.parent.iterdir()] if root.parent.is_dir() else []
            raise UserError(f"--data.root {self.root}: no such file or folder{nearest(root.as_posix(), siblings)}")
        files: dict[str, Path] = {}
        for part, names in PARTS.items():
            own = [file for name in names for suffix in SUFFIXES if (file := root / f"{name}{suffix}").is_file()]
            if len(own) > 1:
                both = " and ".join(file.name for file in own)
                raise UserError(f"--data.root: {root.as_posix()} holds {both}, expected one file for {part}")
            files |= {part: own[0]} if own else {}
        entries = sorted(entry.name for entry in root.iterdir())
        if "train" not in files:
            has = ", ".join(entries[:5]) or "nothing"
            raise UserError(f"--data.root {self.root}: expected train.jsonl in it, found {has}")
        read = {file.name for file in files.values()}
        others = [name for name in entries if name.endswith(SUFFIXES) and name not in read]
        if others:
            text = f"{name_some(others)} of {root.as_posix()}, not read for any split"
            self._left_out("files", len(others), text)
        missing = [part for part in PARTS if part not in files and (part == "val" or "val" not in files)]
        rows = self._cut(self._read(files["train"]), ["train", *missing])
        return rows | {part: self._read(file) for part, file in files.items() if part != "train"}

    def _read(self, file: Path) -> list[tuple[str, Messages]]:
        """Conversations of a file, without empty answers; other rows end the run, or are skipped."""
        rows: list[tuple[str, Messages]] = []
        problems: list[tuple[str, str]] = []
        empty: list[str] = []
        for name, messages in read_conversations(file):
            if isinstance(messages, str):
                problems.append((name, f"{name}: {messages}"))
                continue
            rest, num_empty = without_empty_answers(messages)
            empty += [name] * num_empty
            if not num_empty or any(message["role"] == "assistant" for message in rest):
                rows.append((name, rest))
        refuse(self, problems, len(rows))
        if empty:
            answers = "empty answers and the turns before them" if len(empty) > 1 else "empty answer and its question"
            text = f"{len(empty):,} {answers}, {'such as' if len(empty) > 1 else 'in'} {empty[0]}"
            if not rows:
                raise UserError(f"--data.root: {file.as_posix()}: has {text}, and no other answer")
            self._left_out("answers", len(empty), text)
        return rows

    def _cut(self, rows: list[tuple[str, Messages]], parts: Sequence[str]) -> dict[str, list[tuple[str, Messages]]]:
        """Splits the rows among the parts by their shares; other parts get none."""
        shares = [share if part in parts else 0.0 for part, share in zip(PARTS, self.shares, strict=True)]
        shares[0] = 1 - sum(shares[1:])
        indices = split_indices(len(rows), shares)
        for part, share, own in zip(PARTS, shares, indices, strict=True):
            if part in parts and part != "test" and not own:
                raise UserError(f"--data.val_share: {share:g} of {len(rows)} conversations leaves none for {part}")
        return {part: [rows[index] for index in sorted(own)] for part, own in zip(PARTS, indices, strict=True)}

    def _samples(self, part: str, rows: Iterable[tuple[str, Messages]]) -> list[_Sample]:
        samples, empty, cut = [], [], []
        limit = self.context_length + 1  # the last token is only predicted
        num_learnt = 0
        for name, messages in rows:
            tokens, learns = self._renderer.conversation(messages, name)
            num_learnt += any(learns[1:])
            if len(tokens) > limit:
                cut.append(name)
                tokens, learns = tokens[:limit], learns[:limit]
            if any(learns[1:]):
                samples.append(_Sample(tokens, learns, name, messages))
            else:
                empty.append(name)
        if empty and not num_learnt:
            raise UserError(
                f"--data.root {self.root}: none of the {len(empty)} conversations of {part} has a target token; "
                "expected answers of the assistant that the template includes"
            )
        if cut:
            name = f"cut_{part}"
            self.counts[name] = len(cut)
            if self.speaks:
                print(
                    f"truncated {len(cut)} conversations of {part} to {self.context_length} tokens, such as {cut[0]} "
                    "(--data.context_length)"
                )
        if empty:
            self._left_out(
                part, len(empty), f"{len(empty)} conversations of {part} without a target token, such as {empty[0]}"
            )
        return samples

    def _vocabulary(self) -> Vocabulary:
        """The vocabulary of the option, which must equal the checkpoint's if there is one."""
        own = None if self.tokenizer is None else vocabulary_of(self.tokenizer, "--data.tokenizer")
        if "tokenizer" not in self.facts:
            return own or Bytes()
        if own is None:
            return vocabulary_from(self.facts["tokenizer"])
        former = self.facts["tokenizer"]
        if {**own.plain(), "name": ""} != {**former, "name": ""}:  # the same tokenizer may lie elsewhere now
            is_pretrained = former["kind"] == "huggingface"
            known = f"huggingface ({former['digest']})" if is_pretrained else describe(vocabulary_from(former))
            raise UserError(
                f"--data.tokenizer {self.tokenizer}: has {describe(own)}, but the checkpoint has {known}; "
                "expected the same tokenizer"
            )
        return own

    def _template(self, vocabulary: Vocabulary) -> str:
        """Text of the Jinja template, or `plain`."""
        if self.template is None:
            if "chat_template" in self.facts:
                return self.facts["chat_template"]
            if not isinstance(vocabulary, Pretrained):
                return PLAIN
            template = vocabulary.tokenizer.chat_template
            if not isinstance(template, str):
                raise UserError(
                    f"--data.template: the tokenizer of {vocabulary.name} has no chat template; expected a template "
                    "file, or plain"
                )
            return template
        if self.template == PLAIN:
            return PLAIN
        if not isinstance(vocabulary, Pretrained):
            raise UserError(
                f"--data.template {self.template}: only Hugging Face tokenizers take a template file; expected plain "
                f"for {describe(vocabulary)}"
            )
        path = Path(self.template).expanduser()
        if not path.is_file():
            siblings = [entry.as_posix() for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            raise UserError(f"--data.template {self.template}: no such file{nearest(path.as_posix(), siblings)}")
        return path.read_text(encoding="utf-8")


class _Renderer:
    """Turns conversations into tokens.

    Args:
        vocabulary: of the tokens.
        template: text of a Jinja template, or `plain`.
    """

    def __init__(self, vocabulary: Vocabulary, template: str) -> None:
        self.vocabulary = vocabulary
        self.template = template
        self.end = [vocabulary.end] if vocabulary.end is not None else None

    def conversation(self, messages: Messages, place: str) -> tuple[list[int], list[bool]]:
        """Tokens, and whether each counts in the loss."""
        if self.template == PLAIN:
            try:
                return self._plain(messages)
            except UserError as error:  # a character has no token
                raise UserError(f"{place}: {error}") from error
        if "{% generation" in self.template or "{%- generation" in self.template:
            encoded = self._apply(messages, place, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            tokens, learns = list(encoded["input_ids"]), [bool(mark) for mark in encoded["assistant_masks"]]
            has_answer = any(message["role"] == "assistant" for message in messages)
            if has_answer and (all(learns) or not any(learns)):
                which = "every" if all(learns) else "no"
                raise UserError(
                    f"--data.template: its generation marks include {which} token of {place}; expected them around "
                    "the assistant's turns"
                )
            return tokens, learns
        return self._by_prefixes(messages, place)

    def prompt(self, messages: Messages) -> list[int]:
        """Tokens up to where the assistant's turn begins."""
        if self.template == PLAIN:
            return [*self._plain(messages)[0], *self.vocabulary.encode("Assistant:")]
        text = self._apply(messages, "the prompt", tokenize=False, add_generation_prompt=True)
        return self._tokenizer()(text, add_special_tokens=False)["input_ids"]

    def stop_tokens(self, samples: Sequence[_Sample]) -> list[int | list[int]]:
        """Special tokens that end answers."""
        if self.template == PLAIN:
            return [self._end()[0]] if self.end else [self._end()]
        ends = {
            token
            for sample in samples
            for place, token in enumerate(sample.tokens)
            if sample.learns[place] and not any(sample.learns[place + 1 : place + 2])
        }
        return sorted(ends & set(self.vocabulary.special.values()))

    def _plain(self, messages: Messages) -> tuple[list[int], list[bool]]:
        tokens: list[int] = []
        learns: list[bool] = []
        if tools := messages[0].get("tools"):
            text = json.dumps(tools, ensure_ascii=False)
            tokens = [*self.vocabulary.encode(f"Tools: {text}"), *self._end()]
            learns = [False] * len(tokens)
        for message in messages:
            head = self.vocabulary.encode(f"{message['role'].capitalize()}:")
            body = [*self.vocabulary.encode(f" {text_of_message(message)}"), *self._end()]
            tokens += [*head, *body]
            learns += [False] * len(head) + [message["role"] == "assistant"] * len(body)
        return tokens, learns

    def _end(self) -> list[int]:
        return self.end or self.vocabulary.encode("\n\n")

    def _by_prefixes(self, messages: Messages, place: str) -> tuple[list[int], list[bool]]:
        """The text that each answer adds counts in the loss, up to and including its end mark."""
        text = self._apply(messages, place, tokenize=False)
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._apply(messages[:number], place, tokenize=False, add_generation_prompt=True) if number else ""
            after = self._apply(messages[: number + 1], place, tokenize=False)
            if not (text.startswith(after) and after.startswith(before)):
                raise UserError(
                    f"--data.template: {place}: the text before the answer in message {number + 1} depends on later "
                    "messages, so the answer cannot be separated from the prompt; expected a template with generation "
                    "marks, {% generation %} … {% endgeneration %}"
                )
            shown = after.rstrip()
            ends_in_mark = any(shown.endswith(name) for name in self.vocabulary.special)
            spans.append((len(before), len(shown) if ends_in_mark and len(shown) > len(before) else len(after)))
        encoded = self._tokenizer()(text, add_special_tokens=False, return_offsets_mapping=True)
        learns = [
            any(start <= first and last <= end and first < last for start, end in spans)
            for first, last in encoded["offset_mapping"]
        ]
        return encoded["input_ids"], learns

    def _tokenizer(self) -> Any:
        assert isinstance(self.vocabulary, Pretrained), self.vocabulary
        return self.vocabulary.tokenizer

    def _apply(self, messages: Messages, place: str, **options: Any) -> Any:
        from jinja2.exceptions import TemplateError

        options |= {"tools": messages[0]["tools"]} if messages and "tools" in messages[0] else {}
        try:
            return self._tokenizer().apply_chat_template(messages, chat_template=self.template, **options)
        except TemplateError as error:
            raise UserError(f"--data.template: {place}: {error}") from error


def _packed(samples: Sequence[_Sample], context_length: int) -> list[list[_Sample]]:
    """Rows of several conversations each."""
    rows = pack([len(sample.tokens) - 1 for sample in samples], context_length)
    return [[samples[number] for number in row] for row in rows]


class _Rows(Dataset):
    """Rows of one or several conversations, without attention between them.

    Args:
        rows: the conversations of each row.
        packed: whether rows may hold several conversations, so that the inputs include document numbers.
    """

    def __init__(self, rows: Sequence[Sequence[_Sample]], packed: bool) -> None:
        self.rows = rows
        self.packed = packed
        self.names = [",".join(sample.name for sample in row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        tokens: list[int] = []
        documents: list[int] = []
        positions: list[int] = []
        target: list[int] = []
        for number, sample in enumerate(self.rows[index]):
            length = len(sample.tokens) - 1
            tokens += sample.tokens[:-1]
            documents += [number] * length
            positions += range(length)
            pairs = zip(sample.tokens[1:], sample.learns[1:], strict=True)
            target += [token if learns else IGNORED for token, learns in pairs]
        inputs = {"tokens": tokens}
        if self.packed:  # otherwise causal attention sees no padding behind a row
            inputs |= {"documents": documents, "positions": positions}
        return {name: torch.tensor(values) for name, values in inputs.items()}, torch.tensor(target)


class _Prompts(Dataset):
    """Conversations up to their last answer."""

    def __init__(self, renderer: _Renderer, samples: Sequence[_Sample]) -> None:
        self.prompts: list[list[int]] = []
        self.names: list[str] = []
        for sample in samples:
            last = max(number for number, message in enumerate(sample.messages) if message["role"] == "assistant")
            tokens = renderer.prompt(sample.messages[:last]) if last else []
            if tokens:
                self.prompts.append(tokens)
                self.names.append(sample.name)

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        return {"tokens": torch.tensor(self.prompts[index])}, -1
