"""Folders of several processes: continued in any layout, whole after any kill, read without running what is in them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from playbook.checkpoints import folders
from playbook.checkpoints.io import damage, load
from playbook.checkpoints.sharded import ShardedStrategy
from playbook.errors import UserError
from running import python_path
from sharded_jobs import train

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable.*"),  # it is a range
    pytest.mark.slow,  # test_distributed.py has a mesh of processes by default
]

CLOSE = 1e-6  # another order of sums; 6e-8 was seen


def run_jobs(folder: Path, *jobs: dict[str, Any], timeout_s: float = 300) -> list[list[Any]]:
    """What `train` returned, by process and job; several processes are started by Lightning."""
    environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "sharded_jobs", json.dumps(jobs)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env=environment, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor and plain value of a checkpoint, with where it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for key, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{key}")
    else:
        yield path, value


def assert_same(found: dict[str, Any], expected: dict[str, Any], atol: float = 0.0) -> None:
    # not how many epochs: Lightning counts one as over where max_steps ended the training
    found, expected = (
        dict(leaves({key: value for key, value in checkpoint.items() if key not in ("loops", "epoch")}))
        for checkpoint in (found, expected)
    )
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        if isinstance(value, Tensor):
            assert found[name].dtype == value.dtype, name
            torch.testing.assert_close(found[name], value, rtol=0, atol=atol, msg=lambda text, n=name: f"{n}: {text}")
        else:
            assert found[name] == value, name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of two processes and of one, of the same training: starting processes takes most of the time."""
    folder = tmp_path_factory.mktemp("sharded")
    train(str(folder / "plain5.ckpt"), 5)
    train(str(folder / "plain8.ckpt"), 8, ckpt=str(folder / "plain5.ckpt"))
    jobs: list[dict[str, Any]] = [
        {"out": "five.ckpt", "steps": 5, "data": 2},
        {"out": "eight.ckpt", "steps": 8, "data": 2},
        {"out": "continued.ckpt", "steps": 8, "data": 2, "ckpt": "five.ckpt"},
        {"out": "tensor.ckpt", "steps": 8, "data": 1, "tensor": 2, "ckpt": "five.ckpt"},
        {"out": "from_plain.ckpt", "steps": 8, "data": 2, "ckpt": "plain5.ckpt"},
        {"out": "stock.ckpt", "steps": 5, "data": 2, "kind": "lightning"},
        {"out": "from_stock.ckpt", "steps": 8, "data": 2, "ckpt": "stock.ckpt"},
        {"out": "wide.ckpt", "steps": 8, "data": 2, "width": 12, "ckpt": "five.ckpt"},
        {"out": "wide.ckpt", "steps": 8, "data": 2, "width": 12, "ckpt": "plain5.ckpt"},
        {"out": "fails.ckpt", "steps": 1, "data": 2},
        *({"out": "fails.ckpt", "steps": 2, "data": 2, "fails": how} for how in ("shards", "rest", "flip")),
    ]
    found = run_jobs(folder, *jobs)
    left = [[job["out"], *results] for job, *results in zip(jobs, *found, strict=True)]
    (folder / "left.json").write_text(json.dumps(left))
    return folder


def left_by(runs: Path, name: str) -> list[list[Any]]:
    """What the jobs of that name left on the first process and on the second."""
    return [results for out, *results in json.loads((runs / "left.json").read_text()) if out == name]


def test_folder_is_complete_and_nothing_is_left_beside_it(runs: Path) -> None:
    listed = json.loads((runs / "five.ckpt" / "checksums.json").read_text())
    assert sorted(listed) == [".metadata", "__0_0.distcp", "__1_0.distcp", "meta.pt"]
    assert sorted([*listed, "checksums.json"]) == sorted(file.name for file in (runs / "five.ckpt").iterdir())
    assert damage(runs / "five.ckpt") is None
    assert not list(runs.glob(".*"))


def test_continues_bitwise_in_the_same_layout(runs: Path) -> None:
    assert_same(load(runs / "continued.ckpt"), load(runs / "eight.ckpt"))


@pytest.mark.parametrize("name", ["eight", "tensor", "from_plain", "from_stock"])
def test_every_layout_trains_the_same(runs: Path, name: str) -> None:
    """A folder reads as what a single process saves, and both go on in any layout with their optimizers."""
    assert_same(load(runs / f"{name}.ckpt"), load(runs / "plain8.ckpt"), atol=CLOSE)


def test_one_process_continues_a_folder(runs: Path, tmp_path: Path) -> None:
    losses = train(str(tmp_path / "x.ckpt"), 8, ckpt=str(runs / "five.ckpt"))
    assert len(losses) == 3
    assert_same(load(tmp_path / "x.ckpt"), load(runs / "plain8.ckpt"), atol=CLOSE)


@pytest.mark.slow
def test_mesh_of_one_process(runs: Path, tmp_path: Path) -> None:
    [[losses]] = run_jobs(runs, {"out": str(tmp_path / "x"), "steps": 8, "data": 1, "ckpt": "five.ckpt"})
    assert len(losses) == 3
    assert_same(load(tmp_path / "x"), load(runs / "plain8.ckpt"), atol=CLOSE)


@pytest.mark.slow
def test_two_and_four_processes(runs: Path, tmp_path: Path) -> None:
    four = [
        {"out": str(tmp_path / "data"), "steps": 8, "data": 4, "ckpt": "five.ckpt"},
        {"out": str(tmp_path / "both"), "steps": 8, "data": 2, "tensor": 2, "ckpt": "five.ckpt"},
        {"out": str(tmp_path / "plain"), "steps": 8, "data": 2, "tensor": 2, "ckpt": "plain5.ckpt"},
        {"out": str(tmp_path / "five"), "steps": 5, "data": 2, "tensor": 2},
    ]
    run_jobs(runs, *four)
    two = [
        {"out": str(tmp_path / "less"), "steps": 8, "data": 2, "ckpt": str(tmp_path / "five")},
        {"out": str(tmp_path / "tensor"), "steps": 8, "data": 1, "tensor": 2, "ckpt": str(tmp_path / "five")},
    ]
    run_jobs(runs, *two)
    for name in ("data", "both", "plain", "less", "tensor"):
        assert_same(load(tmp_path / name), load(runs / "plain8.ckpt"), atol=CLOSE)


def test_a_module_that_knows_nothing_of_devices(tmp_path: Path) -> None:
    """Trained, saved and continued in several splits, each process on its share of the samples."""
    train(str(tmp_path / "plain5.ckpt"), 5, module="Plain")
    train(str(tmp_path / "plain8.ckpt"), 8, ckpt=str(tmp_path / "plain5.ckpt"), module="Plain")
    jobs: list[dict[str, Any]] = [
        {"out": "five.ckpt", "steps": 5, "data": 2},
        {"out": "data.ckpt", "steps": 8, "data": 2, "ckpt": "five.ckpt", "predicts": True},
        {"out": "tensor.ckpt", "steps": 8, "data": 1, "tensor": 2, "ckpt": "five.ckpt", "predicts": True},
        {"out": "from_plain.ckpt", "steps": 8, "data": 1, "tensor": 2, "ckpt": "plain5.ckpt"},
        {"out": "from_tensor.ckpt", "steps": 8, "data": 2, "ckpt": "five_tensor.ckpt"},
    ]
    jobs.insert(4, {"out": "five_tensor.ckpt", "steps": 5, "data": 1, "tensor": 2})
    run_jobs(tmp_path, *({**job, "module": "Plain"} for job in jobs))
    run_jobs(tmp_path, {"out": "both.ckpt", "steps": 8, "data": 2, "tensor": 2, "ckpt": "five.ckpt", "module": "Plain"})
    train(str(tmp_path / "one.ckpt"), 8, ckpt=str(tmp_path / "five.ckpt"), module="Plain")
    for name in ("data", "tensor", "from_plain", "from_tensor", "both", "one"):
        assert_same(load(tmp_path / f"{name}.ckpt"), load(tmp_path / "plain8.ckpt"), atol=CLOSE)


def test_names_and_shapes_alone(runs: Path) -> None:
    full, names = load(runs / "five.ckpt"), load(runs / "five.ckpt", map_location="meta")
    assert {name: value.shape for name, value in full["state_dict"].items()} == {
        name: value.shape for name, value in names["state_dict"].items()
    }
    assert {value.device.type for value in names["state_dict"].values()} == {"meta"}
    assert names["optimizer_states"] == []


def test_checkpoint_of_another_model(runs: Path) -> None:
    for result, name in zip(left_by(runs, "wide.ckpt"), ("five", "plain5"), strict=True):
        for text in result:
            assert text.startswith(f"UserError: --ckpt_path {name}.ckpt: does not fit this model: mismatched 3: ")
            assert "net.0.weight (10, 7) in the file, (12, 7) in the model" in text
    assert not (runs / "wide.ckpt").exists()


def test_failure_on_one_process_is_told_to_all_and_loses_nothing(runs: Path) -> None:
    first, *failed = left_by(runs, "fails.ckpt")
    assert len(first[0]) == 1
    for how, result in zip(("No space left", "No space left", "does not read back"), failed, strict=True):
        assert all(how in str(text) for text in result), result
    assert damage(runs / "fails.ckpt") is None
    assert load(runs / "fails.ckpt")["global_step"] == 1


def test_any_changed_byte_is_found(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "changed.ckpt"
    shutil.copytree(runs / "five.ckpt", folder)
    missed = []
    for file in folder.iterdir():
        whole = file.read_bytes()
        for position in {*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1}:
            file.write_bytes(whole[:position] + bytes([whole[position] ^ 255]) + whole[position + 1 :])
            if damage(folder) is None:
                missed.append((file.name, position))
        file.write_bytes(whole)
    assert not missed
    assert damage(folder) is None


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "__1_0.distcp", "meta.pt"])
@pytest.mark.parametrize("source", ["five", "stock"])
def test_missing_or_truncated_file(runs: Path, tmp_path: Path, name: str, source: str) -> None:
    folder = tmp_path / "cut.ckpt"
    shutil.copytree(runs / f"{source}.ckpt", folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"cut\.ckpt: (corrupted|incomplete|a folder, but|truncated)|meta\.pt: trunc"
        ):
            load(folder)
        (folder / name).unlink(missing_ok=True)


def test_folder_of_lightning_itself(runs: Path, tmp_path: Path) -> None:
    """It has no checksums.json; each shard has a checksum of its own."""
    assert damage(runs / "stock.ckpt") is None
    assert_same(load(runs / "stock.ckpt"), load(runs / "five.ckpt"))
    folder = tmp_path / "changed.ckpt"
    shutil.copytree(runs / "stock.ckpt", folder)
    places = folders.Shards(folder).metadata.storage_data
    place = next(place for index, place in places.items() if index.fqn == "state_dict.net.0.weight")
    content = bytearray((folder / place.relative_path).read_bytes())
    rows = load(folder)["state_dict"]["net.0.weight"][:1].numpy().tobytes()
    content[content.index(rows, place.offset)] ^= 1
    (folder / place.relative_path).write_bytes(content)
    assert damage(folder) == f"corrupted ({place.relative_path})"


def test_place_of_a_shard_outside_the_folder(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "outside.ckpt"
    shutil.copytree(runs / "stock.ckpt", folder)
    content = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(content.replace(b"__0_0.distcp", b"../../secret"))
    with pytest.raises(UserError, match="a folder, but not a checkpoint"):
        folders.Shards(folder)


KILLED = """
import os, shutil, sys, warnings, torch
from pathlib import Path
from playbook.checkpoints.io import first_valid, load
from playbook.checkpoints.files import replace
from playbook.runs.directory import Run, checkpoint_candidates, remove
from playbook.checkpoints.sharded import ShardedStrategy

warnings.simplefilter("ignore")  # that this is one process
base, run = (Run(Path(sys.argv[1]) / name) for name in ("base", "run"))


def save(run, name, n):
    "As the Checkpoint callback does."
    target, new = run.checkpoints / f"{name}.ckpt", run.checkpoints / f"{name}.new"
    state = {"state": {"w": {"step": torch.ones(()) * n}}, "param_groups": [{"params": ["w"]}]}
    content = {"n": n, "state_dict": {"w": torch.full((100,), float(n))}, "optimizer_states": [state]}
    ShardedStrategy().save_checkpoint(content, new)
    replace(new, target, run.checkpoints / "previous.ckpt" if name == "last" else None)


def killed(name, n, num_steps):
    "Saves in a child that is killed after so many changes of the file system; whether it was."
    child = os.fork()
    if child == 0:
        def count(event, arguments):
            nonlocal num_steps
            writes = event == "open" and "w" in (arguments[1] or "")
            num_steps -= writes or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
            if num_steps < 0:
                os._exit(9)
        sys.addaudithook(count)
        save(run, name, n)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def number(name):
    path = first_valid(checkpoint_candidates(name, run, None, ""), "")
    content = load(path)
    step = content["optimizer_states"][0]["state"][0]["step"]
    assert content["n"] == int(content["state_dict"]["w"][0]) == int(step)
    return content["n"]


base.checkpoints.mkdir(parents=True)
for name in ("best", "last"):
    save(base, name, 1)
    save(base, name, 2)
count = 0
for name in ("best", "last"):
    first = 0
    going = True
    while going:
        for second in range(0, 24, int(sys.argv[2])):  # another kill, on what the first one left
            remove(run.path)
            shutil.copytree(base.path, run.path)
            going = killed(name, 3, first)
            found = number(name)
            assert found in (2, 3), (name, first, found)
            killed(name, 4, second)
            again = number(name)
            assert again in (found, 4), (name, first, second, found, again)
            count += 1
        run.create()
        save(run, name, 5)
        assert number(name) == 5
        left = sorted(path.name for path in run.checkpoints.iterdir())
        assert left == ["best.ckpt", "last.ckpt", "previous.ckpt"], left
        first += 1
print(count)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the process that is killed")
@pytest.mark.parametrize("every", [48, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_former_or_the_new_one_is_whole(tmp_path: Path, every: int) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(every)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 400 / every, f"only {done.stdout.strip()} kills"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_parallel_size": 0}, "data_parallel_size: expected at least 1, got 0"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size: expected at least 1, got 0"),
        ({"timeout_minutes": 0}, "timeout_minutes: expected more than 0, got 0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardedStrategy(**arguments)
