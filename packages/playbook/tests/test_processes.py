"""What a process knows of itself before it can ask the others, and how it ends with them."""

import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from playbook import processes as ranks
from playbook.testing.command import Cli
from running import MLP_DIGITS, ROOT

NAMES = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "WORLD_SIZE")
HOSTS = ("GROUP_WORLD_SIZE", "SLURM_NNODES", "MASTER_ADDR")
FIRST = {
    "alone": {},
    "of torchrun": {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"},
    "of torchrun, on SLURM's second host": {"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "1"},
    "of Lightning's launcher": {"LOCAL_RANK": "0", "NODE_RANK": "0"},
    "of srun": {"SLURM_PROCID": "0"},
}
FURTHER = {
    "of torchrun": {"RANK": "1", "LOCAL_RANK": "1"},
    "of torchrun, on the second host": {"RANK": "1", "LOCAL_RANK": "0"},
    "of Lightning's launcher": {"LOCAL_RANK": "1", "NODE_RANK": "0"},
    "of Lightning's launcher, on the second host": {"NODE_RANK": "1"},
    "of srun": {"SLURM_PROCID": "1"},
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *HOSTS):
        monkeypatch.delenv(name, raising=False)


def told(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("process", FIRST)
def test_first_process(monkeypatch: pytest.MonkeyPatch, process: str) -> None:
    told(monkeypatch, FIRST[process])
    assert ranks.is_first_process()
    assert not ranks.is_started_by_lightning()


@pytest.mark.parametrize("process", FURTHER)
def test_further_process(monkeypatch: pytest.MonkeyPatch, process: str) -> None:
    told(monkeypatch, FURTHER[process])
    assert not ranks.is_first_process()
    assert ranks.is_started_by_lightning() == (process == "of Lightning's launcher")


def test_the_first_of_several_does_not_train_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, FIRST["of torchrun"])
    done = cli("fit", "--config", MLP_DIGITS, "--run_dir", "run")
    assert done.code == 2
    assert done.err.startswith("error: --trainer.devices: several processes were started")
    assert done.err.count("\n") == 1


def test_processes_that_hang_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "EXIT_TIMEOUT_S", 0.2)
    commands = ("pass", "import time; time.sleep(60)")
    started = [subprocess.Popen([sys.executable, "-c", command]) for command in commands]
    launcher = SimpleNamespace(procs=list(started))
    started[0].wait()
    began = time.monotonic()
    ranks.join(SimpleNamespace(strategy=SimpleNamespace(launcher=launcher)))
    assert time.monotonic() - began < 30
    assert [process.returncode for process in started] == [0, -9]
    assert launcher.procs == [], "Lightning's watch would end this process as well"


def test_others_are_ended_and_no_longer_watched() -> None:
    """Lightning's watch holds the same list, and kills this process once one of them has ended with an error."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    watched = list(started)
    launcher = SimpleNamespace(procs=watched)
    ranks.end_others(SimpleNamespace(strategy=SimpleNamespace(launcher=launcher)))
    assert watched == []
    assert launcher.procs is watched
    assert [process.returncode for process in started] == [-9, -9]


def test_torch_is_not_imported_for_an_early_mistake() -> None:
    code = "import sys; import playbook.processes, playbook.runs.directory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("env", "is_calm"),
    [
        ({}, True),
        ({"MASTER_ADDR": "127.0.0.1"}, True),
        ({"GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "name-of-this-host"}, True),
        ({"SLURM_NNODES": "1"}, True),
        ({"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, False),
        ({"SLURM_NNODES": "2"}, False),
        ({"NODE_RANK": "0"}, False),
        ({"MASTER_ADDR": "10.0.0.1"}, False),
    ],
)
def test_torch_warns_over_several_hosts_alone(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], is_calm: bool
) -> None:
    monkeypatch.setattr(os, "environ", env.copy())
    ranks.calm_torch()
    assert os.environ == env | ({"TORCH_CPP_LOG_LEVEL": "ERROR"} if is_calm else {})


def test_a_level_that_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    ranks.calm_torch()
    assert os.environ["TORCH_CPP_LOG_LEVEL"] == "INFO"


STORE = """
import sys
from playbook.processes import calm_torch
if sys.argv[1] == "calm":
    calm_torch()
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, 1, is_master=True)
store.set("key", "value")
print(store.get("key").decode())
"""


def run_without_names(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a network namespace with the loopback device alone."""
    script = 'ip link set lo up && exec "$0" "$@"'
    env = {name: value for name, value in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    return subprocess.run(
        ["unshare", "--map-root-user", "--net", "sh", "-c", script, *args],
        check=False,
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("unshare") is None or run_without_names("true").returncode != 0,
    reason="needs the right to make a network namespace",
)
def test_processes_meet_calmly_where_no_name_can_be_looked_up() -> None:
    loud, calm = [run_without_names(sys.executable, "-c", STORE, kind) for kind in ("loud", "calm")]
    assert loud.stdout == calm.stdout == "value\n", loud.stderr + calm.stderr
    if "hostname" not in loud.stderr:
        pytest.skip("torch does not warn on this machine")
    assert calm.stderr == ""
