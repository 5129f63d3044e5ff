"""Nothing that a file holds is run, whichever verb reads it: real payloads through the real command line."""

import io
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.distributed.checkpoint import save as save_shards

from playbook.checkpoints import folders
from playbook.checkpoints.files import write_archive
from playbook.checkpoints.io import damage, load
from playbook.command.main import run
from playbook.command.verb import ModelVerb, verbs
from playbook.testing.command import Cli
from running import MLP_DIGITS, cli_process

VERBS = [name for name, verb in verbs().items() if isinstance(verb, ModelVerb)]
READS = [(verb, "--ckpt_path") for verb in VERBS] + [("fit", "--init_from")]
SHORT = ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
SHORT += ["--trainer.limit_test_batches=1", "--trainer.logger=false"]


class Payload:
    """Makes a file when it is unpickled without care."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that every verb takes."""
    folder = tmp_path_factory.mktemp("run")
    assert run(["fit", "--config", MLP_DIGITS, "--run_dir", str(folder), *SHORT], "example") == 0
    return folder / "checkpoints" / "last.ckpt"


@pytest.fixture
def mark(workdir: Path) -> Iterator[Path]:
    """Is there once something ran; commands work in a folder of their own."""
    yield workdir / "ran"
    assert not (workdir / "ran").exists(), "a payload ran"


def make_folder(path: Path, content: dict[str, Any], metadata: bytes | None = None, **shards: Any) -> Path:
    """A checkpoint folder as the sharded strategy writes it, with valid checksums whatever is in it."""
    rest = {key: value for key, value in content.items() if key not in ("state_dict", "optimizer_states")}
    optimizer = content["optimizer_states"][0]
    groups = [{**group, "params": list(map(str, group["params"]))} for group in optimizer["param_groups"]]
    state = {str(place): value for place, value in optimizer["state"].items()}
    parts = {"state_dict": content["state_dict"], "optimizer_0": {"state": state, "param_groups": groups}, **shards}
    writer = folders.Writer(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process
        save_shards(parts, storage_writer=writer, no_dist=True)
    write_archive(rest, path / folders.REST)
    if metadata is not None:
        (path / folders.METADATA).write_bytes(metadata)
    folders.close_folder(path, {file.name: folders.entry_of(file) for file in path.iterdir()})
    return path


def archive(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    torch.save({**content, "x": payload}, path)
    return path


def signed(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    write_archive({**content, "state_dict": {"w": payload}}, path)
    return path


def legacy(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    torch.save({**content, "x": payload}, path, _use_new_zipfile_serialization=False)
    return path


def bare_pickle(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    path.write_bytes(pickle.dumps(payload))
    return path


def renamed_archive(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return archive(path.with_suffix(".safetensors"), content, payload)


def renamed_pickle(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return bare_pickle(path.with_suffix(".safetensors"), content, payload)


def folder_metadata(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return make_folder(path, content, metadata=pickle.dumps(payload))


def folder_metadata_without_checksums(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    make_folder(path, content, metadata=pickle.dumps(payload))
    (path / folders.CHECKSUMS).unlink()
    return path


def folder_value(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return make_folder(path, content, optimizer_0={"state": {}, "param_groups": [{"params": [], "lr": payload}]})


def folder_shard(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return make_folder(path, content, state_dict={**content["state_dict"], "x": payload})


def folder_rest(path: Path, content: dict[str, Any], payload: Payload) -> Path:
    return make_folder(path, {**content, "x": payload})


FILES = [archive, signed, legacy, bare_pickle, renamed_archive, renamed_pickle]
FILES += [folder_metadata, folder_metadata_without_checksums, folder_value, folder_shard, folder_rest]


def assert_refused(result: Any) -> None:
    assert result.code == 2, result
    assert result.err.startswith("error: "), result.err
    assert len(result.err.splitlines()) == 1, result.err
    assert "Traceback" not in result.err + result.out


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_code_in_a_file(cli: Cli, honest: Path, mark: Path, make: Callable[..., Path]) -> None:
    evil = make(mark.parent / "evil.ckpt", load(honest), Payload(mark))
    for verb, option in READS:
        recipe = ["--config", MLP_DIGITS] if option == "--init_from" else []
        result = cli(verb, *recipe, option, evil)
        assert_refused(result)
        assert str(evil) in result.err, (verb, result.err)


@pytest.mark.parametrize("make", [archive, folder_value, folder_shard], ids=lambda make: make.__name__)
def test_payloads_would_run_elsewhere(honest: Path, workdir: Path, make: Callable[..., Path]) -> None:
    """Otherwise the tests above would show nothing."""
    evil = make(workdir / "evil.ckpt", load(honest), Payload(workdir / "ran"))
    if evil.is_file():
        torch.load(evil, weights_only=False)
    else:
        shards = folders.Shards(evil)
        for place in shards.metadata.storage_data.values():
            torch.load(io.BytesIO(shards._bytes(place)), weights_only=False)
    assert (workdir / "ran").exists()


def test_honest_folder_is_taken(cli: Cli, honest: Path, workdir: Path) -> None:
    folder = make_folder(workdir / "folder.ckpt", load(honest))
    assert damage(folder) is None
    assert cli("test", "--ckpt_path", folder).out == cli("test", "--ckpt_path", honest).out


RUNS_COMMAND = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "ran"]}}
SYSTEM = {"class_path": "os.system", "init_args": {"command": "touch ran"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "model": {"model": RUNS_COMMAND},
    "function": {"model": SYSTEM},
    "net": {"model": {"class_path": "Classification", "init_args": {"net": RUNS_COMMAND}}},
    "optimizer": {"model": {"init_args": {"optimizer": RUNS_COMMAND}}},
    "optimizer function": {"model": {"init_args": {"optimizer": SYSTEM}}},
    "optimizer name": {"model": {"init_args": {"optimizer": "os.system"}}},
    "schedule": {"model": {"init_args": {"schedule": RUNS_COMMAND}}},
    "data": {"data": RUNS_COMMAND},
    "callbacks": {"trainer": {"callbacks": [RUNS_COMMAND]}},
    "hook": {"trainer": {"callbacks": [{"class_path": "LambdaCallback", "init_args": {"setup": SYSTEM}}]}},
    "logger": {"trainer": {"logger": RUNS_COMMAND}},
    "strategy": {"trainer": {"strategy": RUNS_COMMAND}},
    "plugins": {"trainer": {"plugins": [RUNS_COMMAND]}},
    "profiler": {"trainer": {"profiler": SYSTEM}},
}
TAG = "model: !!python/object/apply:os.system ['touch ran']\n"


def merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict) or "class_path" in changes:
        return changes
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("verb", ["test", *(pytest.param(v, marks=pytest.mark.slow) for v in VERBS if v != "test")])
def test_class_of_another_kind_in_a_checkpoint(cli: Cli, honest: Path, mark: Path, verb: str, name: str) -> None:
    content = load(honest)
    config = merged(yaml.safe_load(content["config"]), CONFIGS[name])
    write_archive({**content, "config": yaml.safe_dump(config)}, mark.parent / "evil.ckpt")
    assert_refused(cli(verb, "--ckpt_path", "evil.ckpt"))


def test_class_of_another_kind_in_hyper_parameters(cli: Cli, honest: Path, mark: Path) -> None:
    content = load(honest)
    del content["config"]
    content["hyper_parameters"] = {"_class_path": "os.system", "_instantiator": "os.system", "command": "touch ran"}
    write_archive(content, mark.parent / "evil.ckpt")
    for verb in VERBS:
        assert_refused(cli(verb, "--ckpt_path", "evil.ckpt"))


@pytest.mark.parametrize("config", [TAG, "- model", "model: [", "just text"])
def test_tags_and_nonsense_in_the_configuration_of_a_checkpoint(
    cli: Cli, honest: Path, mark: Path, config: str
) -> None:
    write_archive({**load(honest), "config": config}, mark.parent / "evil.ckpt")
    for verb in VERBS:
        result = cli(verb, "--ckpt_path", "evil.ckpt")
        assert_refused(result)
        assert "evil.ckpt: its configuration is" in result.err


@pytest.mark.parametrize("verb", VERBS)
def test_tags_in_a_recipe(cli: Cli, honest: Path, mark: Path, verb: str) -> None:
    (mark.parent / "evil.yaml").write_text(TAG)
    result = cli(verb, "--ckpt_path", honest, "--config", "evil.yaml")
    assert_refused(result)
    assert "evil.yaml:1: not valid YAML: could not determine a constructor" in result.err
    assert_refused(cli(verb, "--ckpt_path", honest, "--model", TAG.removeprefix("model: ").strip()))


@pytest.mark.slow
def test_in_a_process_of_its_own(honest: Path, mark: Path) -> None:
    """As a user starts it: other tests may have imported what this one must refuse."""
    evil = folder_metadata(mark.parent / "evil.ckpt", load(honest), Payload(mark))
    process = cli_process("test", "--ckpt_path", str(evil), cwd=mark.parent)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err == (
        f"error: {evil}: refused, it contains {os.system.__module__}.system, which could run code; "
        "expected only tensors and plain values\n"
    )
