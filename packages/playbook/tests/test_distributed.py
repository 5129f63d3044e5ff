"""Several processes that train one model: the same numbers as one process, and nothing lost when one of them dies."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import PLAIN, SMALL, Group, on
from playbook.checkpoints.io import load
from playbook.testing.command import sampled
from playbook.testing.processes import TIMEOUT_S, assert_same_run, read, steps, values
from running import PROJECT, python_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def alone(own: Path) -> Path:
    """The run of a single process."""
    Group(1, *PLAIN, *on(1), "--run_dir", "alone", cwd=own).finish()
    return own / "alone"


def assert_same_metrics(run: Path, expected: Path) -> None:
    for stage in ("train", "val", "test"):
        assert values(run, f"{stage}/accuracy") == values(expected, f"{stage}/accuracy")
        assert_close(values(run, f"{stage}/loss"), values(expected, f"{stage}/loss"))


def assert_close(losses: list[float], expected: list[float]) -> None:
    for found, wanted in zip(losses, expected, strict=True):
        assert abs(found - wanted) < 1e-5, f"{losses}, one process has {expected}"


def assert_one_voice(out: str) -> None:
    """What a run says, said by one process."""
    lines = [line for line in out.splitlines() if line and not line.startswith("epoch")]
    assert len(lines) == len(set(lines)), out
    assert "arning" not in out, out


LAUNCHERS = {
    "lightning": ("-m", "example"),
    "torchrun": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "example"),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_train_what_one_process_trains(own: Path, alone: Path, launcher: str) -> None:
    folder = own / launcher
    folder.mkdir()
    command = [sys.executable, *LAUNCHERS[launcher], *PLAIN, *on(2)]
    env = {**os.environ, "PYTHONPATH": f"{python_path()}:{own}"}
    done = subprocess.run(command, check=False, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert_one_voice(done.stdout + done.stderr)
    [run] = folder.glob("runs/*/*")  # made once, by the first process
    assert run.parent.name == "mlp-digits"
    assert_same_metrics(run, alone)


@pytest.mark.slow
def test_four_processes(own: Path, alone: Path) -> None:
    Group(4, *PLAIN, *on(4), "--run_dir", "four", cwd=own).finish()
    assert_same_metrics(own / "four", alone)


@pytest.mark.slow
def test_sync_dist_is_wrong_where_ours_is_exact(own: Path, alone: Path) -> None:
    """The trap that Task.log_step avoids: Lightning cuts the mean number of samples over ranks to a whole one."""
    Group(2, *PLAIN, *on(2), "--run_dir", "averaged", cwd=own).finish()
    assert values(alone, "val/averaged") == pytest.approx(values(alone, "val/loss"), abs=1e-6)
    for averaged, ours, exact in zip(
        *(values(own / "averaged", f"val/{name}") for name in ("averaged", "loss")),
        values(alone, "val/loss"),
        strict=True,
    ):
        assert abs(ours - exact) < 1e-5
        assert abs(averaged - exact) > 1e-3


@pytest.fixture(scope="module")
def predicted(own: Path, alone: Path) -> list[dict[str, str]]:
    return predict(own, alone, 1)


def predict(own: Path, run: Path, world: int) -> list[dict[str, str]]:
    """The rows that so many processes write."""
    args = ("--ckpt_path", str(run), "--trainer.devices", str(world), "--data.batch_size", "8")
    args = (*args, "--trainer.strategy", "auto" if world == 1 else "ddp", "--run_dir", f"predicted-{world}")
    out = Group(world, "predict", *args, cwd=own).finish()
    assert out == f"predictions  predicted-{world}/predictions/predictions.csv\n"
    [file] = (own / f"predicted-{world}/predictions").glob("*.csv")  # the processes' own are merged
    return read(file)


@pytest.mark.parametrize("world", [2, 3])
def test_every_sample_is_predicted_once(own: Path, alone: Path, predicted: list[dict[str, str]], world: int) -> None:
    found = predict(own, alone, world)
    assert [row["id"] for row in found] == [str(i) for i in range(65)]
    assert [(row["label"], row["target"]) for row in found] == [(row["label"], row["target"]) for row in predicted]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on_in_the_same_order(own: Path, alone: Path, first: int, then: int) -> None:
    run = f"from-{first}-to-{then}"
    group = Group(first, *PLAIN, *on(first), "--run_dir", run, "--trainer.log_every_n_steps", "1", cwd=own)
    group.wait_until(lambda: steps(own / run) >= 3)  # of 7 in the first epoch
    group.send(signal.SIGTERM)
    assert set(group.wait()) == {143}, group.output()
    Group(then, *PLAIN, *on(then), "--run_dir", run, "--ckpt_path", "last", cwd=own).finish()
    assert_close(values(own / run, "val/loss"), values(alone, "val/loss"))
    assert values(own / run, "test/accuracy") == values(alone, "test/accuracy")


def test_a_mistake_is_told_once(own: Path) -> None:
    group = Group(2, *PLAIN, *on(2), "--data.batch_size", "-3", cwd=own)
    group.ranks[0].join(TIMEOUT_S)
    group.send(signal.SIGTERM, 1)  # as torchrun does
    assert group.wait()[0] == 2
    assert group.output() == "error: --data.batch_size: expected at least 1, got -3\n"


def test_processes_that_would_train_alone_are_refused(own: Path) -> None:
    group = Group(2, *PLAIN, *on(1), "--run_dir", "refused", cwd=own)
    group.ranks[0].join(TIMEOUT_S)
    group.send(signal.SIGTERM, 1)
    assert group.wait()[0] == 2
    assert re.fullmatch(r"error: --trainer.devices: several processes were started.*\n", group.output())


@pytest.mark.slow
def test_a_sample_that_fails_on_another_process_is_told(own: Path) -> None:
    group = Group(2, *PLAIN, *on(2), "--data", "own.Broken", "--run_dir", "broken", cwd=own)
    codes = group.wait()
    assert codes == [1, 2], group.output()
    lost, told = sorted(line for line in group.output().splitlines() if line.startswith("error"))[::-1]
    assert lost == "error: another process of this training has ended; see its message above"
    assert re.fullmatch(r"error: --data: train sample \d+: ValueError: a broken file", told)
    assert group.output().count("Traceback") == 1  # of the user's own data, on the process that read the sample


MESHES = {"fsdp2": 2, "tensor-parallel": 2, "fsdp2-tensor-parallel": 4}
VIT = ("fit", "--config", str(PROJECT / "configs/vision/transformer-digits.yaml"), *SMALL, "--trainer.max_epochs", "2")
VIT = (*VIT, "--model.net.dim", "16", "--model.net.depth", "2")


@pytest.fixture(scope="module")
def vit_alone(own: Path) -> Path:
    Group(1, *VIT, "--data.batch_size", "32", "--run_dir", "vit", cwd=own).finish()
    return own / "vit"


@pytest.mark.parametrize("mesh", sampled(MESHES, ["fsdp2"]))
def test_a_mesh_of_processes_trains_what_one_process_trains(own: Path, vit_alone: Path, mesh: str) -> None:
    shares = 1 if mesh == "tensor-parallel" else 2
    partial = ("--config", str(PROJECT / f"configs/trainer/{mesh}.yaml"), "--trainer.devices", str(MESHES[mesh]))
    args = (*VIT, *partial, "--data.batch_size", str(32 // shares), "--run_dir", mesh)
    assert_one_voice(Group(MESHES[mesh], *args, cwd=own).finish())
    assert_same_metrics(own / mesh, vit_alone)


@pytest.mark.slow
def test_a_third_party_module_is_sharded(own: Path) -> None:
    args = ("fit", "--model", "own.Foreign", *SMALL, "--trainer.max_epochs", "2", "--seed_everything", "1")
    Group(1, *args, "--data.batch_size", "32", "--run_dir", "foreign", cwd=own).finish()
    strategy = ("--trainer.strategy", "ShardedStrategy", "--trainer.devices", "2", "--data.batch_size", "16")
    assert_one_voice(Group(2, *args, *strategy, "--run_dir", "foreign-sharded", cwd=own).finish())
    assert (own / "foreign-sharded/checkpoints/last.ckpt").is_dir(), "it was not sharded"
    weights, expected = (
        load(own / run / "checkpoints/last.ckpt")["state_dict"] for run in ("foreign-sharded", "foreign")
    )
    assert list(weights) == list(expected)
    for name, value in expected.items():
        error = (weights[name] - value).abs().max()
        assert error < 1e-5, f"{name} differs by {error:.2g}"


@pytest.mark.slow
def test_sharded_training_goes_on_bitwise_after_a_kill(own: Path) -> None:
    partial = ("--config", str(PROJECT / "configs/trainer/fsdp2.yaml"), "--trainer.devices", "2")
    args = (*VIT, *partial, "--data.batch_size", "16", "--ckpt_path", "last", "--checkpoint.every_n_steps", "1")
    args = (*args, "--trainer.log_every_n_steps", "1")
    Group(2, *args, "--run_dir", "sharded", cwd=own).finish()
    group = Group(2, *args, "--run_dir", "sharded-killed", cwd=own)
    group.wait_until(lambda: steps(own / "sharded-killed") >= 5)
    group.send(signal.SIGKILL, 1)
    group.wait()
    Group(2, *args, "--run_dir", "sharded-killed", cwd=own).finish()
    assert_same_run(own / "sharded-killed", own / "sharded")
