"""A run behind the server: its streams and options are those of the model, and what a client learns of its errors."""

import logging
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from PIL import UnidentifiedImageError
from torch import nn

from playbook import UserError
from playbook.data.base import Data
from playbook.deploy.runtime import InputError
from playbook.deploy.served_run import ServedRun
from src.data.text import Text
from src.nets.gpt import GPT
from src.ops.vocabularies import vocabulary_from
from src.tasks.language_modelling import LanguageModelling


@pytest.fixture
def parts(tmp_path: Path) -> tuple[LanguageModelling, Text]:
    """A language model of characters with random weights, and its data."""
    (tmp_path / "text.txt").write_text("First Citizen: hear me speak.\n" * 40)
    data = Text(str(tmp_path / "text.txt"), context_length=16)
    data.setup("fit")
    pl.seed_everything(0)
    net = GPT(
        len(vocabulary_from(data.facts["tokenizer"]).num_bytes), context_length=16, dim=16, num_layers=1, num_heads=2
    )
    model = LanguageModelling(net, max_new_tokens=40, temperature=0.8, stop=["zz"])
    model.facts = data.facts
    model.setup("predict")
    return model, data


def test_streams_and_options_of_a_language_model(parts: tuple[Any, Any]) -> None:
    """The prompt and its answer are longer than the context."""
    model, data = parts
    served = ServedRun(model, data, data.facts)
    samples = [served.read(text) for text in ("First", "Citizen: hear")]
    answers = served.answer_samples(samples)
    assert [answer["prompt"] for answer in answers] == ["First", "Citizen: hear"]
    assert all(len(answer["text"]) > 16 for answer in answers)
    for sample, answer in zip(samples, answers, strict=True):
        parts_of = served.stream(sample)
        assert parts_of is not None
        assert "".join(parts_of) == answer["text"]
    [short] = served.answer_samples(samples[:1], max_new_tokens=3, temperature=0.0)
    greedy = model.net(samples[0][0]["tokens"][None])[0, -1].argmax()
    assert len(short["text"]) == 3
    assert short["text"][0] == model.vocabulary.decode([int(greedy)])


def test_a_model_without_words_takes_no_options(parts: tuple[Any, Any]) -> None:
    model, data = parts
    facts = {name: value for name, value in data.facts.items() if name != "tokenizer"}
    served = ServedRun(model, data, facts)
    assert served.options == {}
    assert served.stream(served.read("First")) is None


def test_data_that_cannot_read(parts: tuple[Any, Any]) -> None:
    with pytest.raises(UserError, match="LanguageModelling cannot read a raw input"):
        ServedRun(parts[0], None, {})


def test_samples_of_different_sizes_are_answered_one_by_one() -> None:
    class Shapes(pl.LightningModule):
        net = torch.nn.Identity()

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return batch[0]

        def answer(self, outputs: Any, facts: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"shape": list(output.shape), "batch": len(outputs)} for output in outputs]

    class Files(pl.LightningDataModule):
        def read(self, source: Any) -> torch.Tensor:
            return torch.zeros(source)

    served = ServedRun(Shapes(), Files(), {})
    answers = served.answer_samples([served.read(size) for size in (2, 3)])
    assert answers == [{"shape": [2], "batch": 1}, {"shape": [3], "batch": 1}]


class Reading(Data):
    """Raises what it is given."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    def read(self, source: Any) -> Any:
        if self.error is not None:
            raise self.error
        return torch.zeros(1)


class Model(nn.Module):
    """Refuses its options."""

    def predict_step(self, batch: Any, index: int) -> Any:
        return batch

    def answer(self, outputs: Any, facts: Any, **options: Any) -> list[dict[str, Any]]:
        if options:
            raise UserError("top: expected at least 1, got 0")
        return [{} for _ in outputs[0]]


def test_checks_meant_for_users_are_shown() -> None:
    served = ServedRun(Model(), Reading(UserError("expected 3 channels,\n got 4")), {})
    with pytest.raises(InputError, match=r"^expected 3 channels, got 4$"):
        served.read(b"")


@pytest.mark.parametrize(
    "error",
    [
        UnidentifiedImageError("cannot identify image file <_io.BytesIO object at 0x7f>"),
        FileNotFoundError(2, "No such file or directory", "/etc/secret"),
        ValueError("cannot reshape secret array"),
        RuntimeError("secret in /etc"),
        KeyError("secret"),
    ],
)
def test_other_errors_are_only_in_the_log(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(InputError) as refusal:
        ServedRun(Model(), Reading(error), {}).read(b"")
    assert str(refusal.value) == "cannot be read"
    assert str(error) in caplog.text
    assert "Traceback" in caplog.text


def test_options_that_the_task_refuses() -> None:
    served = ServedRun(Model(), Reading(), {})
    sample = served.read(b"")
    assert served.answer_samples([sample]) == [{}]
    with pytest.raises(InputError, match="top: expected at least 1, got 0"):
        served.answer_samples([sample], top=0)
