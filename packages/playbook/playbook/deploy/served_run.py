"""A run behind the server: the model with its own code, which reads and answers as `predict --input` does."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate

from playbook.data.inputs import is_written
from playbook.deploy.artefact import describe_data
from playbook.deploy.export import load_into
from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.artefact import KINDS, Kind
from playbook.deploy.runtime.generation import Generator
from playbook.deploy.runtime.images import reduced_file
from playbook.deploy.runtime.tables import select_columns
from playbook.deploy.served import OPTIONS
from playbook.errors import UserError
from playbook.network import evaluation_net
from playbook.training.stages import attach

log = logging.getLogger(__name__)


class ServedRun:
    """The model of a run.

    Args:
        model: with its weights.
        data: reads inputs.
        facts: values learnt from the training data.
        max_pixels: most pixels of a picture that are decoded; larger ones are reduced before the data reads them, where
            answers name classes and no places.

    Raises:
        UserError: the data cannot read a raw input.
    """

    def __init__(self, model: Any, data: Any, facts: Mapping[str, Any], max_pixels: int | None = None) -> None:
        if data is None or not is_written(data, "read"):
            name = type(model if data is None else data).__name__
            raise UserError(
                f"serve: {name} cannot read a raw input, expected a method read; or serve an export of the run"
            )
        if is_written(data, "prepare_read"):
            data.prepare_read()
        self.model = model.eval()
        self.data = data
        self.facts = dict(facts)
        description = describe_data(data, model, self.facts)
        answering = description["postprocessing"] or {}
        reading = description["preprocessing"] or {}
        self.kind: Kind = KINDS.get(reading.get("kind"), "tensor")
        self._columns = [column["name"] for column in reading["columns"]] if self.kind == "row" else []
        if self.kind == "tensor":  # its own `read` takes files
            self.kind = "prompt" if getattr(data, "columns", ()) else "image"
        kind = answering.get("kind")
        self.max_pixels = max_pixels
        self.may_reduce = self.kind == "image" and kind == "classes"
        has_words = answering.get("tokenizer") is not None
        self._generator = Generator(answering) if kind == "generate" and has_words else None
        self.options: Mapping[str, type] = {} if kind == "generate" and not has_words else OPTIONS.get(kind, {})
        self.manifest: dict[str, Any] = {
            "task": type(model).__name__,
            "net": type(getattr(model, "net", model)).__name__,
            "format": "eager",
            "quantization": "none",
            "inputs": [],
            "outputs": [],
            **description,
            "facts": {"classes": self.facts.get("classes", [])},
        }

    @classmethod
    def of(cls, session: Any, max_pixels: int | None = None) -> "ServedRun":
        """The model of a session, with the weights of its checkpoint."""
        assert session.checkpoint is not None, "a verb that requires one"
        attach(session.trainer, session.model, session.datamodule)
        load_into(session.model, session.checkpoint)
        session.model.setup("predict")
        served = cls(session.model, session.datamodule, session.trainer.keep_facts.facts, max_pixels)
        if isinstance(net := getattr(session.model, "net", None), nn.Module):
            session.model.net = evaluation_net(net, session.trainer.callbacks)
        return served

    def read(self, source: Any) -> Any:
        if self.max_pixels is not None and self.may_reduce and isinstance(source, bytes):
            source = reduced_file(source, self.max_pixels)
        if self.kind == "row":  # the data would tell of columns that training did not have, as it does in a command
            source = select_columns(source, self._columns)
        try:
            if is_written(self.data, "unlabelled"):
                return self.data.unlabelled(source)
            return self.data.read(source), -1
        except (UserError, InputError) as error:  # meant for users, also for those of the server
            raise InputError(" ".join(str(error).split())) from error
        except Exception as error:  # of any kind: a damaged file, or a mistake in the code that reads it
            log.warning("an input cannot be read", exc_info=error)
            raise InputError("cannot be read") from error

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        if self._generator is not None and options:  # `predict_step` has its own, and a cache, which is faster
            return self._generator.answers(self._logits, [_prompt(sample) for sample in samples], options)
        collate = getattr(self.data, "collate", None) or default_collate
        answers: list[dict[str, Any]] = []
        with torch.inference_mode():
            for group in self._groups(samples):
                outputs = self.model.predict_step(collate(group), 0)
                try:
                    answers += [dict(answer) for answer in self.model.answer(outputs, self.facts, **options)]
                except UserError as error:
                    raise InputError(" ".join(str(error).split())) from error
        return answers

    def stream(self, sample: Any, **options: Any) -> Iterator[str] | None:
        if self._generator is None:
            return None
        return self._generator.stream(self._logits, _prompt(sample), options)

    def draw(self, source: Any, answer: dict[str, Any]) -> bytes | None:
        return None

    def _logits(self, rows: dict[str, np.ndarray]) -> np.ndarray:
        """Logits (B, T, V) of tokens (B, T)."""
        with torch.inference_mode():
            return self.model.program()(**{name: torch.from_numpy(value) for name, value in rows.items()}).numpy()

    def _groups(self, samples: Sequence[Any]) -> Iterator[list[Any]]:
        """All samples together where the data makes batches of any sizes, else one by one if their shapes differ."""
        shapes = {tuple(value.shape for value in tree_leaves(sample) if hasattr(value, "shape")) for sample in samples}
        pads = getattr(self.data, "collate", default_collate) not in (None, default_collate)
        yield from [list(samples)] if pads or len(shapes) == 1 else [[sample] for sample in samples]


def _prompt(sample: Any) -> list[int]:
    """Tokens of a sample without padding."""
    inputs, *_ = sample
    tokens = inputs["tokens"]
    return (tokens[inputs["documents"] >= 0] if "documents" in inputs else tokens).tolist()
