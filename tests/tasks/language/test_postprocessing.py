"""An exported model answers as the task does: the same classes, masks, boxes and texts from the same outputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from playbook import Task
from playbook.deploy.runtime import Artefact, InputError, Sample
from playbook.testing.artefacts import artefact_of
from src.data.language.prompts import collate
from src.data.language.text import Text
from src.data.language.unlabelled_text import UnlabelledText
from src.data.language.unlabelled_text import collate as collate_texts
from src.nets.language.gpt import GPT
from src.nets.language.text_encoder import TextEncoder
from src.ops.vocabularies import MASK, Bytes, Characters, Words, learn_vocabulary
from src.tasks.language_modelling import LanguageModelling
from src.tasks.masked_language_modelling import MaskedLanguageModelling

Arrays = Mapping[str, np.ndarray]


def plan_of(task: Task, facts: dict[str, Any]) -> dict[str, Any]:
    plan = task.postprocessing(facts)
    assert plan is not None
    return json.loads(json.dumps(plan))


def tensors(inputs: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}


# generated text

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.7},
    {"temperature": 1.0, "min_p": 0.2, "top_k": 8, "top_p": 0.9},
    {"temperature": 1e-3},
]
PROMPTS = ["a", "bcd efg", "hello there, who", "xy"]


def small_gpt(vocab_size: int, context_length: int = 24) -> GPT:
    torch.manual_seed(3)
    net = GPT(vocab_size, context_length=context_length, num_layers=2, dim=16, num_heads=2)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)  # so that tokens are neither equally likely nor always the same
    return net.eval()


VOCABULARIES = {
    "characters": Characters("abcdefghijklmnopqrstuvwxyz ,"),
    "bytes": Bytes(),
    "bpe": learn_vocabulary("bpe", ["hello there, who is it? größe 東京 " * 3], 300),
}


def language_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, batch: Any = "B", **options: Any
) -> tuple[LanguageModelling, Any, Artefact, dict[str, Any]]:
    vocabulary = VOCABULARIES[kind]
    net = small_gpt(vocabulary.size)
    task = LanguageModelling(net, **options)
    facts: dict[str, Any] = {"tokenizer": vocabulary.plain(), "context_length": 24}
    if kind == "characters":
        facts["stop_tokens"] = [vocabulary.encode("q"), vocabulary.encode("zz")]
    task.facts = facts
    task.setup("predict")
    data = Text("texts.txt", context_length=24)
    data.facts = facts

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            return {"logits": net(**tensors(inputs)).numpy()}

    names = ("tokens", "documents", "positions")
    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {name: ("int64", [batch, "T"]) for name in names},
        ["logits"],
        {"B": [1, None], "T": [2, 24]},
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    return task, data, model, facts


def predicted(task: LanguageModelling, data: Any, facts: dict[str, Any], prompts: list[str]) -> list[dict[str, Any]]:
    batch = collate([data.unlabelled(prompt) for prompt in prompts])
    return task.answer(task.predict_step(batch, 0), facts)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("kind", list(VOCABULARIES))
def test_texts_equal_beyond_the_context(
    kind: str, sampling: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(17)
    task, data, model, facts = language_model(tmp_path, monkeypatch, kind, max_new_tokens=60, **sampling)
    torch.manual_seed(17)
    expected = predicted(task, data, facts, PROMPTS)
    plan = model.manifest["postprocessing"]
    plan["seed"] = 17
    assert model.predict(PROMPTS) == expected
    assert max(len(answer["text"]) for answer in expected) > 24 or kind == "bpe"


@pytest.mark.parametrize("kind", list(VOCABULARIES))
def test_stop_texts_and_streams(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task, data, model, facts = language_model(tmp_path, monkeypatch, kind, max_new_tokens=40, temperature=1.0)
    torch.manual_seed(5)
    [free] = predicted(task, data, facts, ["hello"])
    stops = [free["text"][7:9], free["text"][20:23], "unlikely text"]
    task.stop, task.stream = [stop for stop in stops if stop], True
    model.manifest["postprocessing"] |= {"seed": 5, "stop": task.stop}
    capsys.readouterr()
    expected = predicted(task, data, facts, ["hello"])
    printed = capsys.readouterr().out
    assert model.predict(["hello"]) == expected
    parts = list(model.stream(model.read("hello")))
    assert "".join(parts) == expected[0]["text"] == printed.removesuffix("\n")
    assert len(parts) > 1 or len(expected[0]["text"]) < 3
    assert model.predict(["hello"], stop=[])[0]["text"] == free["text"]
    [start] = model.predict(["hello"], stop=free["text"][4:6])
    assert start["text"] == free["text"][: free["text"].index(free["text"][4:6])]


def test_an_answer_does_not_depend_on_the_rest_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, model, _ = language_model(tmp_path / "any", monkeypatch, "bytes", max_new_tokens=30)
    _, _, pairs, _ = language_model(tmp_path / "two", monkeypatch, "bytes", batch=2, max_new_tokens=30)
    alone = [model.predict([prompt], seed=1)[0] for prompt in PROMPTS]
    assert model.predict(PROMPTS, seed=1) == alone
    assert pairs.predict(PROMPTS[:3], seed=1) == alone[:3]
    assert model.predict(PROMPTS, seed=2) != alone


def test_a_program_without_documents_takes_one_prompt_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data, model, _ = language_model(tmp_path / "all", monkeypatch, "bytes", max_new_tokens=9)
    net = small_gpt(Bytes.size)

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            return {"logits": net(**tensors(inputs)).numpy()}

    plan = model.manifest["postprocessing"]
    tokens = artefact_of(
        monkeypatch,
        tmp_path / "one",
        engine,
        {"tokens": ("int64", ["B", "T"])},
        ["logits"],
        preprocessing=data.preprocessing(),
        postprocessing=plan,
    )
    assert tokens.predict(PROMPTS) == model.predict(PROMPTS)


def test_without_a_vocabulary_tokens_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = LanguageModelling(small_gpt(9), max_new_tokens=5, temperature=0.0)
    net = task.net

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            return {"logits": net(**tensors(inputs)).numpy()}

    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {"tokens": ("int64", ["B", "T"])},
        ["logits"],
        postprocessing=plan_of(task, {}),
    )
    expected = task.answer(task.predict_step(({"tokens": torch.tensor([[1, 2, 3]])}, torch.zeros(1)), 0), {})
    assert model.predict([[1, 2, 3]]) == expected
    with pytest.raises(InputError, match="no vocabulary, so it cannot stream"):
        model.stream(model.read([1, 2]))
    with pytest.raises(InputError, match="the prompt is empty"):
        model.answer_samples([Sample({"tokens": np.zeros(0, np.int64)})])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: expected a whole number of at least 1, got 0"),
        ({"max_new_tokens": 1.5}, "max_new_tokens: expected a whole number"),
        ({"temperature": -1}, "temperature: expected a number of at least 0"),
        ({"temperature": float("nan")}, "temperature: expected a number of at least 0"),
        ({"top_k": True}, "top_k: expected a whole number"),
        ({"top_p": 0}, r"top_p: expected a share in \(0, 1\]"),
        ({"min_p": 1}, r"min_p: expected a share in \[0, 1\)"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"stop": [""]}, "stop: expected texts"),
        ({"stop": [3]}, "stop: expected texts"),
        ({"stop": 3}, "stop: expected texts"),
        ({"tempreature": 1}, "tempreature: unknown option; expected max_new_tokens, "),
    ],
)
def test_options_out_of_range(
    options: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, model, _ = language_model(tmp_path, monkeypatch, "bytes")
    with pytest.raises(InputError, match=sentence):
        model.predict(["a"], **options)
    with pytest.raises(InputError, match=sentence):
        model.stream(model.read("a"), **options)


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}], ids=str)
def test_prompts_longer_than_the_context(
    sampling: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last half of the context is read, whatever else is in the batch, and the rest is counted."""
    task, data, model, facts = language_model(tmp_path, monkeypatch, "bytes", max_new_tokens=30, **sampling)
    prompts = ["x" * 13 + "hello there, who", "short", "a" * 24, "b" * 25]
    answers = predicted(task, data, facts, prompts)
    assert model.predict(prompts) == answers
    assert [answer.get("left_out_tokens") for answer in answers] == [17, None, None, 13]
    if not sampling["temperature"]:  # draws depend on the whole prompt
        assert answers[0]["text"] == predicted(task, data, facts, [prompts[0][-12:]])[0]["text"]
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("warning: a prompt of 29 tokens, which begins with 'xxxxxxxxxxxxxhello t', is longer")
    assert told[0].endswith("the context of 24: left out its first 17 tokens")
    task.on_predict_end()
    assert capsys.readouterr().err == "warning: 2 prompts were longer than the context\n"
    task.on_predict_end()
    assert not capsys.readouterr().err


def test_a_stream_after_a_long_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, model, _ = language_model(tmp_path, monkeypatch, "bytes", max_new_tokens=30, temperature=0.0)
    prompt = "z" * 9 + "hello there, who"
    text = "".join(model.stream(model.read(prompt)))
    assert text == model.predict([prompt])[0]["text"] == model.predict([prompt[-12:]])[0]["text"]
    assert "the prompt has 25 tokens, the context 24: the first 13 are left out" in caplog.text


# gaps


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_filled_gaps(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a good film that does not work, is it not? we will see the other one"
    words: dict[str, Any] = {
        "words": Words(sorted(set(text.replace(",", " ,").replace("?", " ?").split())), [MASK]),
        "bpe": learn_vocabulary("bpe", [text] * 3, 300, special=[MASK]),
    }
    vocabulary = words[kind]
    torch.manual_seed(0)
    net = TextEncoder(num_classes=0, vocab_size=vocabulary.size + 3, num_layers=1, dim=8, num_heads=2)
    task = MaskedLanguageModelling(net, mask_share=0.3).eval()
    facts = {"tokenizer": vocabulary.plain()}
    task.facts = facts
    task.setup("predict")
    data = UnlabelledText(["texts"], max_length=20)
    data.facts = facts

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            return {"logits": task(tensors(inputs)).numpy()}

    inputs = {"tokens": ("int64", ["B", "T"]), "mask": ("bool", ["B", "T"])}
    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        inputs,
        ["logits"],
        {"B": [1, 3], "T": [4, 32]},
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    texts = [f"a {MASK} film that {MASK}", "a good film", text, text[20:50], f"{MASK}", "unknown words alone", "film"]
    answers = model.predict(texts)
    for answer, one in zip(answers, texts, strict=True):
        with torch.no_grad():
            [expected] = task.answer(task.predict_step(collate_texts([data.unlabelled(one)]), 0), facts)
        assert answer == expected
    with pytest.raises(InputError, match="top: unknown option; expected none, this model has none"):
        model.predict(texts, top=3)


def test_without_a_vocabulary_gaps_are_not_described() -> None:
    net = TextEncoder(num_classes=0, vocab_size=9, num_layers=1, dim=8, num_heads=2)
    assert MaskedLanguageModelling(net).postprocessing({}) is None
