"""A language model behind the server: its streams and options are those of the model."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest

from playbook import UserError
from playbook.deploy.served_run import ServedRun
from src.data.language.text import Text
from src.nets.language.gpt import GPT
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


def test_a_prompt_longer_than_the_context(parts: tuple[Any, Any]) -> None:
    """It is answered from the last half of the context, with and without options of the request."""
    model, data = parts
    served = ServedRun(model, data, data.facts)
    prompt = "First Citizen: hear me"
    for options in ({}, {"temperature": 0.0}):
        [answer] = served.answer_samples([served.read(prompt)], **options)
        assert answer["left_out_tokens"] == len(prompt) - 8
    [short] = served.answer_samples([served.read(prompt[-8:])], temperature=0.0)
    assert answer["text"] == short["text"]
    assert "left_out_tokens" not in short


def test_a_model_without_words_takes_no_options(parts: tuple[Any, Any]) -> None:
    model, data = parts
    facts = {name: value for name, value in data.facts.items() if name != "tokenizer"}
    served = ServedRun(model, data, facts)
    assert served.options == {}
    assert served.stream(served.read("First")) is None


def test_data_that_cannot_read(parts: tuple[Any, Any]) -> None:
    with pytest.raises(UserError, match="LanguageModelling cannot read a raw input"):
        ServedRun(parts[0], None, {})
