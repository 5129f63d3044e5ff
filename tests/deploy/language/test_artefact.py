"""Real nets, exported to ONNX, answer raw files and texts as `predict` does."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook.deploy.runtime import Artefact
from playbook.testing.artefacts import write_artefact
from src.data.language.labelled_text import LabelledText
from src.data.language.labelled_text import collate as collate_texts
from src.data.language.prompts import collate as collate_prompts
from src.data.language.text import Text
from src.nets.language.gpt import GPT
from src.nets.language.text_encoder import TextEncoder
from src.ops.vocabularies import Bytes, learn_vocabulary
from src.tasks.classification import Classification
from src.tasks.language_modelling import LanguageModelling


def export(net: nn.Module, inputs: dict[str, Tensor], file: Path, **dims: tuple[int, int | None]) -> None:
    """Writes a net as ONNX, with dynamic dimensions by name, the first ones of every input."""
    axes = [torch.export.Dim(name, min=low, max=high) for name, (low, high) in dims.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net.eval(),
            kwargs=inputs,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_shapes={name: dict(enumerate(axes)) for name in inputs},
        )
    assert program is not None
    program.save(file)


def answers_of(task: Any, data: Any, sources: list[Any], collate: Any) -> list[dict[str, Any]]:
    with torch.no_grad():
        batch = collate([data.unlabelled(source) for source in sources])
        return task.answer(task.predict_step(batch, 0), data.facts)


def assert_same(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for answer, own in zip(answers, expected, strict=True):
        assert list(answer) == list(own)
        for key, value in own.items():
            assert answer[key] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)


@pytest.mark.parametrize("kind", ["words", "bpe"])
@pytest.mark.slow
def test_labelled_texts(kind: Any, tmp_path: Path) -> None:
    texts = ["A good film, isn't it?", "Bad: do not watch this!", "größe 東京", "a"]
    torch.manual_seed(0)
    vocabulary = learn_vocabulary(kind, texts, 300)
    net = TextEncoder(num_classes=2, vocab_size=vocabulary.size, max_length=16, num_layers=1, dim=16, num_heads=2)
    task, data = Classification(net, num_classes=2).eval(), LabelledText("texts", vocabulary=kind, max_length=16)
    data.facts = {"tokenizer": vocabulary.plain(), "classes": ["bad", "good"]}
    example = {"tokens": torch.ones(2, 5, dtype=torch.int64), "mask": torch.ones(2, 5, dtype=torch.bool)}
    export(net, example, tmp_path / "model.onnx", B=(1, 64), T=(1, 16))
    inputs = {"tokens": ("int64", ["B", "T"]), "mask": ("bool", ["B", "T"])}
    plans = {"preprocessing": data.preprocessing(), "postprocessing": task.postprocessing(data.facts)}
    dims = {"B": [1, 64], "T": [1, 16]}
    model = Artefact(write_artefact(tmp_path, inputs, ["logits"], dims, "model.onnx", **plans), 1)
    sources = [*texts, {"text": "good " * 30}, b"\xef\xbb\xbfgood"]
    assert_same(model.predict(sources), answers_of(task, data, sources, collate_texts))


@pytest.mark.slow
def test_generated_text(tmp_path: Path) -> None:
    torch.manual_seed(1)
    net = GPT(Bytes.size, context_length=32, num_layers=1, dim=16, num_heads=2)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    data, task = Text("texts.txt", context_length=32), LanguageModelling(net, max_new_tokens=50, top_p=0.9).eval()
    task.facts = data.facts = {"tokenizer": Bytes().plain(), "context_length": 32}
    task.setup("predict")
    tokens = torch.arange(12).view(2, 6)
    example = {"tokens": tokens, "documents": torch.zeros_like(tokens), "positions": tokens % 6}
    export(net, example, tmp_path / "model.onnx", B=(1, 64), T=(2, 32))
    inputs = {name: ("int64", ["B", "T"]) for name in example}
    plans = {"preprocessing": data.preprocessing(), "postprocessing": task.postprocessing(data.facts)}
    dims = {"B": [1, 64], "T": [2, 32]}
    model = Artefact(write_artefact(tmp_path, inputs, ["logits"], dims, "model.onnx", **plans), 1)
    prompts = ["a", "bcd efg", "hello there, who is"]
    expected = answers_of(task, data, prompts, collate_prompts)
    assert model.predict(prompts) == expected
    assert "".join(model.stream(model.read("bcd efg"))) == expected[1]["text"]
