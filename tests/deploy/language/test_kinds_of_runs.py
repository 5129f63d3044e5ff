"""Adapters, averaged weights, sharded checkpoints and compiled runs export to the same plain artefact."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from playbook import load_run
from playbook.checkpoints.io import load
from playbook.deploy.runtime import Artefact
from playbook.testing.command import Cli, sampled
from tests.conftest import ROOT, SHRUNK
from tests.nets.language.test_huggingface import save_model, save_tokenizer

GPT = ["--config", str(ROOT / "configs/language/gpt-shakespeare.yaml"), *SHRUNK, "--trainer.max_epochs", "1"]
EXPORT = ["--format", "onnx", "--output", "artefact", "--speed", "false"]


def difference(run: str, **inputs: np.ndarray) -> float:
    """Largest difference between the artefact, read from disk, and the module that the checkpoint holds."""
    module = load_run(run).module
    with torch.inference_mode():
        expected = module.net(**{name: torch.from_numpy(value) for name, value in inputs.items()})  # type: ignore[operator]  # any net
    [output] = Artefact("artefact").run(inputs).values()
    return float(np.abs(output - expected.numpy()).max())


@pytest.mark.parametrize("dora", sampled([False, True], [False]))
@pytest.mark.usefixtures("published")
@pytest.mark.slow
def test_adapters_of_tied_weights(cli: Cli, dora: bool) -> None:
    """The embedding is the head as well, and both are trained beside the adapters."""
    assert cli("fit", *GPT, "--model.net.num_layers", "2", "--model.net.dim", "48", "--run_dir", "base").code == 0
    net = ["--model.net", "LoRA", "--model.net.net", "GPT", "--model.net.base", "base", "--model.net.rank", "2"]
    net += ["--model.net.dora", str(dora).lower(), "--model.net.modules_to_save", "[embedding]"]
    values = load(Path("base/checkpoints/best.ckpt"), "meta")["hyper_parameters"]["net"]["init_args"]
    for name, value in values.items():
        net += [] if value is None else [f"--model.net.net.{name}", json.dumps(value).strip('"')]
    fitted = cli("fit", *GPT, *net, "--model.optimizer.lr", "0.01", "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", *EXPORT)
    assert (done.code, done.err) == (0, "")
    tokens = np.arange(10)[None].repeat(3, 0)
    inputs = {"tokens": tokens, "documents": np.zeros_like(tokens), "positions": tokens}
    assert difference("run", **inputs) < 1e-4
    assert json.loads(Path("artefact/artefact.json").read_text())["net"] == "GPT"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "torch_export"])
@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_pretrained_classifiers_of_padded_texts(cli: Cli, workdir: Path, kind: str, name: str) -> None:
    """Models of transformers make their masks in ways of their own; texts differ in length."""
    pretrained = workdir / "pretrained"
    save_model(kind, pretrained, vocab_size=save_tokenizer(pretrained))
    rows = [("the world", "a"), ("hello world what is the end of the hello", "b"), ("what", "a")] * 8
    Path("texts.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    net = {"class_path": "HuggingFace", "init_args": {"name": "pretrained", "head": "sequence_classification"}}
    net["init_args"] |= {"num_classes": 2}
    Path("net.yaml").write_text(json.dumps(net))
    model = ["--model", "Classification", "--model.net", "net.yaml", "--model.num_classes", "2"]
    data = ["--data", "LabelledText", "--data.root", "texts.csv", "--data.vocabulary_of", "pretrained"]
    data += ["--data.max_length", "64"]
    fitted = cli("fit", *model, *data, "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", "--format", name, "--output", "artefact", "--speed", "false")
    assert done.code == 0, done.err
    tokens = np.arange(3, 15)[None].repeat(2, 0)
    mask = np.array([[True] * 12, [True] * 5 + [False] * 7])
    assert difference("run", tokens=tokens, mask=mask) < 1e-5
    assert Artefact("artefact").manifest["dims"]["T"] == [1, 64]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "torch_export"])
def test_pretrained_language_model_with_adapters(cli: Cli, workdir: Path, name: str) -> None:
    pretrained = workdir / "pretrained"
    save_model("Llama", pretrained, vocab_size=save_tokenizer(pretrained), num_key_value_heads=2)
    Path("text.txt").write_text("hello world what is the world " * 60)
    inner = {"class_path": "HuggingFace", "init_args": {"name": "pretrained"}}
    Path("net.yaml").write_text(json.dumps({"class_path": "LoRA", "init_args": {"net": inner, "rank": 4}}))
    model = ["--model", "LanguageModelling", "--model.net", "net.yaml", "--model.temperature", "0"]
    data = ["--data", "Text", "--data.root", "text.txt", "--data.vocabulary_of", "pretrained"]
    data += ["--data.context_length", "16", "--trainer.max_epochs", "1", "--trainer.accelerator", "cpu"]
    fitted = cli("fit", *model, *data, "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", "--format", name, "--output", "artefact", "--speed", "false")
    assert done.code == 0, done.err
    tokens = np.arange(3, 15)[None].repeat(2, 0)
    inputs = {"tokens": tokens, "documents": np.array([[0] * 12, [0] * 5 + [1] * 7])}
    inputs["positions"] = np.array([range(12), [*range(5), *range(7)]])
    assert difference("run", **inputs) < 1e-5
