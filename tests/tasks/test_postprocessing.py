"""An exported model answers as the task does: the same classes, masks, boxes and texts from the same outputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from playbook import Task, UserError
from playbook.deploy.runtime import Artefact, InputError, Sample
from src.data.masks import MaskFolder
from src.data.prompts import collate
from src.data.text import Text
from src.data.unlabelled_text import UnlabelledText
from src.data.unlabelled_text import collate as collate_texts
from src.data.yolo_detection import YOLODetection
from src.nets.gpt import GPT
from src.nets.text_encoder import TextEncoder
from src.nets.yolo import YOLO
from src.ops.vocabularies import MASK, Bytes, Characters, Words, learn_vocabulary
from src.tasks.classification import Classification
from src.tasks.detection import Detection
from src.tasks.language_modelling import LanguageModelling
from src.tasks.masked_language_modelling import MaskedLanguageModelling
from src.tasks.segmentation import Segmentation
from tests.playbook.deploy.artefacts import artefact_of

Arrays = Mapping[str, np.ndarray]


def plan_of(task: Task, facts: dict[str, Any]) -> dict[str, Any]:
    plan = task.postprocessing(facts)
    assert plan is not None
    return json.loads(json.dumps(plan))


def tensors(inputs: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}


# classes


@pytest.mark.parametrize("top", [1, 3, 5, 99])
@pytest.mark.parametrize("classes", [[], [f"class {k}" for k in range(7)]])
def test_classes(top: int, classes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Classification(nn.Identity(), num_classes=7)
    facts = {"classes": classes} if classes else {}
    logits = np.random.default_rng(0).normal(0, 4, (20, 7)).astype(np.float32)
    logits[0], logits[1, :3] = 0, 1e4
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["x"]},
        {"x": ("float32", ["B", 7])},
        ["logits"],
        postprocessing=plan_of(task, facts),
    )
    outputs = task.predict_step((torch.from_numpy(logits[2:]), torch.full((18,), -1)), 0)
    expected = task.answer(outputs, facts, top)
    answers = model.predict(list(logits[2:]), top=top)
    for answer, own in zip(answers, expected, strict=True):
        assert list(answer) == list(own)
        assert [v for v in answer.values() if isinstance(v, str)] == [v for v in own.values() if isinstance(v, str)]
        np.testing.assert_allclose(
            [v for v in answer.values() if isinstance(v, float)],
            [v for v in own.values() if isinstance(v, float)],
            rtol=3e-6,
        )
    assert sum(v for v in model.predict([logits[0]], top=7)[0].values() if isinstance(v, float)) == pytest.approx(1)
    assert model.predict([logits[1]], top=1)[0]["probability"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("top", [0, -1, 1.5, "3", True, None])
def test_top_out_of_range(top: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"kind": "classes", "names": ["a", "b"], "top": 5}
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["x"]},
        {"x": ("float32", ["B", 2])},
        ["logits"],
        postprocessing=plan,
    )
    with pytest.raises(InputError, match="top: expected at least 1 class"):
        model.predict([[0.5, 0.5]], top=top)


# masks


@pytest.mark.parametrize("num_classes", [2, 5, 300])
def test_masks_in_the_size_of_the_file(num_classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to one pixel in 100,000, where two classes are equally likely to the last bit."""
    torch.manual_seed(0)
    net = nn.Conv2d(3, num_classes, 5, padding=2)
    task = Segmentation(net, num_classes).eval()
    facts = {"classes": [f"class {k}" for k in range(num_classes)]}
    data = MaskFolder("images", image_size=[40, 56], num_classes=num_classes)

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        return {"logits": net(tensors(inputs)["image"]).detach().numpy()}

    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {"image": ("float32", ["B", 3, 40, 56])},
        ["logits"],
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    rng = np.random.default_rng(1)
    files = []
    for number, (width, height) in enumerate([(56, 40), (93, 131), (20, 17), (56, 41), (300, 2)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(files[-1])
    num_pixels = num_different = 0
    for answer, file in zip(model.predict(files), files, strict=True):
        image, target = data.unlabelled(file)
        batch = image[None], {"file_size": target["file_size"][None]}
        with torch.no_grad():
            [expected] = task.answer(task.predict_step(batch, 0), facts)
        mask = expected["mask"].numpy()
        assert answer["mask"].dtype == mask.dtype
        assert answer["mask"].shape == mask.shape
        num_pixels += mask.size
        num_different += int((answer["mask"] != mask).sum())
        assert list(answer["area"]) == list(expected["area"])
        np.testing.assert_allclose(list(answer["area"].values()), list(expected["area"].values()), atol=1e-4)
    assert num_different <= num_pixels * 1e-5, (num_different, num_pixels)


def test_arrays_have_masks_of_their_own_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = artefact_of(
        monkeypatch,
        tmp_path,
        lambda inputs: {"logits": inputs["image"]},
        {"image": ("float32", ["B", 2, "H", "W"])},
        ["logits"],
        {"B": [1, 8], "H": [1, None], "W": [1, None]},
        postprocessing={"kind": "mask", "names": ["ground", "pet"]},
    )
    image = np.zeros((2, 3, 5), np.float32)
    image[1, 0] = 1
    [answer, wide] = model.predict([image, np.zeros((2, 1, 9), np.float32)])
    assert answer["mask"].tolist() == [[1] * 5, [0] * 5, [0] * 5]
    assert answer["area"] == {"ground": 2 / 3, "pet": 1 / 3}
    assert wide["mask"].shape == (1, 9)


# boxes


@pytest.mark.parametrize("image_size", [None, [64, 96]])
def test_boxes_in_pixels_of_the_file(image_size: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = YOLO(3, strides=[8, 16], score_threshold=0.2, max_detections=20)
    for head in net.head:
        nn.init.normal_(head.labels.weight, std=0.2)  # type: ignore[union-attr, arg-type]  # a _Head
        nn.init.normal_(head.sides.weight, std=0.2)  # type: ignore[union-attr, arg-type]  # a _Head
        nn.init.zeros_(head.labels.bias)  # type: ignore[union-attr, arg-type]  # a _Head
    task = Detection(net, 3, class_names=["cat", "dog", "owl"]).eval()
    facts = {"classes": ["a", "b", "c"]}
    data = YOLODetection("images", image_size=image_size)

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        with torch.no_grad():
            boxes, scores = net.candidates(tensors(inputs)["image"])
        return {"boxes": boxes.numpy(), "scores": scores.numpy()}

    model = artefact_of(
        monkeypatch,
        tmp_path,
        engine,
        {"image": ("float32", ["B", 3, "H", "W"])},
        ["boxes", "scores"],
        preprocessing=data.preprocessing(),
        postprocessing=plan_of(task, facts),
    )
    rng = np.random.default_rng(0)
    files = []
    for number, (width, height) in enumerate([(100, 70), (64, 64), (131, 57)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(files[-1])
    num_boxes = 0
    for score in (0.25, 0.0, 0.5):
        answers = model.predict(files, score=score)
        for answer, file in zip(answers, files, strict=True):
            image, target = data.unlabelled(file)
            with torch.no_grad():
                [expected] = task.answer(task.predict_step(([image], [target]), 0), facts, score)
            assert [box["class"] for box in answer["boxes"]] == [box["class"] for box in expected["boxes"]]
            for box, own in zip(answer["boxes"], expected["boxes"], strict=True):
                assert list(box) == list(own)
                assert [box[key] for key in list(box)[1:]] == pytest.approx(
                    [own[key] for key in list(own)[1:]], rel=1e-6
                )
            num_boxes += len(answer["boxes"])
    assert num_boxes > 25, num_boxes
    with pytest.raises(InputError, match=r"score: expected a number in \[0, 1\], got 2"):
        model.predict(files, score=2)


def test_detectors_that_select_boxes_themselves_are_not_described() -> None:
    assert Detection(nn.Identity(), 3).postprocessing({}) is None


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


def test_prompts_longer_than_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, data, model, facts = language_model(tmp_path, monkeypatch, "bytes")
    with pytest.raises(InputError, match="the prompt has 25 tokens, expected at most the context's 24"):
        model.read("a" * 25)
    with pytest.raises(UserError, match="the prompt has 25 tokens"):
        predicted(task, data, facts, ["a" * 25])
    sample = model.read("a" * 24)
    model.manifest["postprocessing"]["context_length"] = 8
    with pytest.raises(InputError, match="the prompt has 24 tokens, expected at most the context's 8"):
        model.answer_samples([sample])


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
