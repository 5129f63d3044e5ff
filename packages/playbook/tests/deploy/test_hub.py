"""`export --output hub:NAME` against a stand-in of the hub: what is uploaded, and what is said where it cannot be."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from deploy.hub_server import TOKEN, contents, serving, settings
from deploy.test_export import EXPORT, run
from playbook.deploy.hub import add_front_matter, front_matter, pipeline_of, push
from playbook.errors import UserError
from playbook.testing.command import Cli, Result
from running import cli_process

__all__ = ["run"]


@pytest.fixture
def logged_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login, whatever this machine has."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def uploaded(endpoint: str, *options: str, **environment: str) -> Result:
    """Runs the command in a process of its own, as huggingface_hub reads its settings when it is imported."""
    env = {**settings(endpoint, Path.cwd() / "home"), **environment}
    process = cli_process(*EXPORT, *options, cwd=Path.cwd(), env=env)
    out, err = process.communicate(timeout=120)
    assert TOKEN not in out + err
    return Result(process.returncode, out, err)


def manifest_of(**entries: Any) -> dict[str, Any]:
    manifest = {
        "name": "model",
        "net": "CNN",
        "format": "onnx",
        "quantization": "none",
        "preprocessing": {"kind": "image"},
        "postprocessing": {"kind": "classes"},
        "outputs": [{"name": "logits"}],
        "metrics": {"val/accuracy": 0.5, "val/loss": 1.5, "test/accuracy": 0.25},
        "parity": {"metrics": {"val/accuracy": (0.5, 0.4375)}},
    }
    return {**manifest, **entries}


@pytest.mark.slow
def test_an_artefact_is_uploaded(run: Path) -> None:
    """Byte for byte, into a new private repository of the user."""
    with serving() as hub:
        done = uploaded(hub.endpoint, "--output", "hub:digits", "--format", "torchscript")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"uploaded  {hub.endpoint}/ann/digits"
    folder = run / "exports/digits"
    assert hub.repositories == {"ann/digits": contents(folder)}
    assert {"README.md", "artefact.json", "load.py", "model.ts", "runtime/__init__.py"} <= contents(folder).keys()
    [created] = hub.created
    assert created["visibility"] == "private"
    manifest = json.loads((folder / "artefact.json").read_text())
    card: Any = ModelCard.load(folder / "README.md").data
    assert (manifest["name"], card.model_name) == ("digits", "digits")
    values = {f"{result.dataset_split}/{result.metric_type}": result.metric_value for result in card.eval_results or []}
    assert values["validation/accuracy"] == manifest["parity"]["metrics"]["val/accuracy"][1]
    known = json.loads((run / "metrics.json").read_text())
    assert values["validation/accuracy"] == pytest.approx(known["best"]["metrics"]["val/accuracy"], abs=1e-6)
    assert values["test/accuracy"] == known["test"]["test/accuracy"]


@pytest.mark.slow
def test_weights_go_into_an_existing_repository(run: Path) -> None:
    """Files that were there stay, and README.md is replaced."""
    former = {".gitattributes": b"* text", "README.md": b"old"}
    with serving(repositories={"team/weights": dict(former)}) as hub:
        done = uploaded(hub.endpoint, "--output", "hub:team/weights")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"uploaded  {hub.endpoint}/team/weights"
    files = contents(run / "exports/weights")
    assert files.keys() == {"README.md", "model.safetensors"}
    assert hub.repositories["team/weights"] == former | files
    assert not hub.created
    assert "GET /api/whoami-v2" not in hub.requests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusals", "token", "text"),
    [
        ({}, "hf_otherSecret", "the hub does not accept your token; `hf auth login` stores a new one"),
        ({"create": 403}, TOKEN, "your token may not write there (no, by the stand-in)"),
        ({"main": 409}, TOKEN, "the repository was changed at the same time (no, by the stand-in)"),
        ({"batch": 418}, TOKEN, "the hub answers 418 (no, by the stand-in)"),
    ],
)
def test_refusals(run: Path, refusals: dict[str, int], token: str, text: str) -> None:
    """One line without the token, which the first answer repeats; the folder stays."""
    with serving(refusals=refusals) as hub:
        done = uploaded(hub.endpoint, "--output", "hub:ann/digits", HF_TOKEN=token)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert done.err.startswith("error: --output hub:ann/digits: ")
    assert text in done.err
    assert done.err.endswith("later: hf upload ann/digits run/exports/digits --private\n")
    assert token not in done.out + done.err
    assert "model.safetensors" in contents(run / "exports/digits")
    assert not any(hub.repositories.values())


@pytest.mark.usefixtures("logged_out")
@pytest.mark.parametrize("token", ["hf_otherSecret", "hf_other\x0cSecret"])
def test_a_token_is_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """Neither where the answer repeats it, nor where HTTP refuses to send it."""
    monkeypatch.setenv("HF_TOKEN", token)
    with serving() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
        with pytest.raises(UserError, match=r"--output hub:ann/net: .*…") as refused:
            push(tmp_path, "ann/net")
    assert "hf_other" not in str(refused.value)


@pytest.mark.slow
def test_a_hub_that_is_down(run: Path) -> None:
    with serving() as hub:
        endpoint = hub.endpoint
    done = uploaded(endpoint, "--output", "hub:digits")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert f"--output hub:digits: cannot reach {endpoint}: " in done.err
    assert "model.safetensors" in contents(run / "exports/digits")


@pytest.mark.slow
def test_offline(run: Path) -> None:
    with serving() as hub:
        done = uploaded(hub.endpoint, "--output", "hub:digits", HF_HUB_OFFLINE="1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == (
        "hub       not uploaded, as HF_HUB_OFFLINE is set; later: hf upload digits run/exports/digits --private"
    )
    assert not hub.requests


@pytest.mark.usefixtures("logged_out")
@pytest.mark.slow
def test_not_logged_in(cli: Cli, run: Path) -> None:
    done = cli(*EXPORT, "--output", "hub:ann/digits")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == (
        "hub       not uploaded, as you are not logged in (hf auth login); "
        "later: hf upload ann/digits run/exports/digits --private"
    )
    again = cli(*EXPORT, "--output", "hub:ann/digits")
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert "--output run/exports/digits: is not empty" in again.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--output", "hub:"], "--output hub:: expected hub:NAME or hub:USER/NAME: "),
        (["--output", "hub:a/b/c"], "--output hub:a/b/c: expected hub:NAME or hub:USER/NAME: "),
        (["--output", "hub:my net"], "--output hub:my net: expected hub:NAME or hub:USER/NAME: "),
        (["--output", "hub:../net"], "--output hub:../net: expected hub:NAME or hub:USER/NAME: "),
        (["--output", "hub:net.git"], "--output hub:net.git: expected hub:NAME or hub:USER/NAME: "),
        (["--output", "hub:net", "--format", "all"], "--output hub:net: a model of the hub has one card; expected one"),
    ],
)
def test_mistakes(cli: Cli, run: Path, options: list[str], text: str) -> None:
    done = cli(*EXPORT, *options)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert text in done.err
    assert not (run / "exports").exists()


def test_without_the_package(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", None)
    done = cli(*EXPORT, "--output", "hub:net")
    needed = "needs huggingface_hub, which is not installed; `uv sync --extra huggingface` adds it"
    assert (done.code, done.out, done.err) == (2, "", f"error: --output hub:net: {needed}\n")


@pytest.mark.parametrize(
    ("inputs", "answers", "outputs", "pipeline"),
    [
        ("image", "classes", "logits", "image-classification"),
        ("text", "classes", "logits", "text-classification"),
        ("table", "classes", "logits", "tabular-classification"),
        ("table", "values", "value", "tabular-regression"),
        ("image", "values", "value", None),
        (None, "classes", "logits", None),
        ("image", "mask", "logits", "image-segmentation"),
        ("image", "boxes", "scores", "object-detection"),
        ("image", None, "boxes", "object-detection"),
        ("prompt", "generate", "logits", "text-generation"),
        ("masked_text", "gaps", "logits", "fill-mask"),
        (None, None, "y", None),
    ],
)
def test_tasks_of_the_hub(inputs: str | None, answers: str | None, outputs: str, pipeline: str | None) -> None:
    manifest = manifest_of(
        preprocessing=inputs and {"kind": inputs},
        postprocessing=answers and {"kind": answers},
        outputs=[{"name": outputs}],
    )
    assert pipeline_of(manifest) == pipeline


def test_front_matter_is_read_back(tmp_path: Path) -> None:
    """The exported program's own values where it was measured, and nothing of its model where it was quantized."""
    text = "# model: `a` | b\n\n---\n\ntext\n"
    for quantization, expected in [
        ("none", {("validation", "accuracy"): 0.4375, ("validation", "loss"): 1.5, ("test", "accuracy"): 0.25}),
        ("int8-static", {("validation", "accuracy"): 0.4375}),
    ]:
        (tmp_path / "README.md").write_text(text)
        add_front_matter(tmp_path, manifest_of(quantization=quantization, name='a: "b" #c'), "Image folder: ü")
        card: Any = ModelCard.load(tmp_path / "README.md")
        assert card.text.lstrip("\n") == text
        results = card.data.eval_results or []
        assert {(str(row.dataset_split), row.metric_type): row.metric_value for row in results} == expected
        assert {(row.task_type, row.dataset_type, row.dataset_name) for row in results} == {
            ("image-classification", "image-folder", "Image folder: ü")
        }
        assert card.data.model_name == 'a: "b" #c'
        assert (card.data.library_name, card.data.pipeline_tag) == ("playbook", "image-classification")
        assert card.data.metrics == ["accuracy"]
        extra = [] if quantization == "none" else [quantization]
        assert card.data.tags == ["playbook", "pytorch-lightning", "CNN", "onnx", *extra]
        assert card.data.license is None


def test_metrics_that_are_no_numbers() -> None:
    metrics = {"val/accuracy": float("nan"), "epoch": 3.0, "val_loss": 2.0}
    data = front_matter(manifest_of(metrics=metrics, parity={"metrics": {}}), "Digits")
    assert [(row.metric_type, row.metric_value) for row in data.eval_results] == [("loss", 2.0)]
    assert data.metrics is None
