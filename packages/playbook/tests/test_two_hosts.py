"""Two hosts, as two network namespaces of this one: torchrun starts a process on each, and again after a kill."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import OWN, RICH, on
from playbook.testing.processes import assert_same_run, steps
from running import PROJECT, python_path

pytestmark = pytest.mark.slow
TIMEOUT_S = 600.0  # of a busy machine; each start imports torch on both hosts
TWO_HOSTS = str(PROJECT / "configs/trainer/torchrun.yaml")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--max-restarts", "2")
# on its own, an agent that starts its processes again hands them the store of the former ones
ENV = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces, joined by a pair of virtual interfaces that carry the namespaces' names."""
    names = [f"pb{secrets.token_hex(3)}{side}" for side in "ab"]
    if shutil.which("ip") is None or os.geteuid():
        pytest.skip("network namespaces need root and the command ip")
    try:
        try:
            for name in names:
                ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
        ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("link", "set", name, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def start(own: Path, command: list[str], log: str, **env: str) -> subprocess.Popen[bytes]:
    variables = {**os.environ, "PYTHONPATH": f"{python_path()}:{own}", **ENV, **env}
    with (own / log).open("ab") as file:
        return subprocess.Popen(command, cwd=own, env=variables, stdout=file, stderr=file, start_new_session=True)


def on_two_hosts(own: Path, hosts: list[str], run: str) -> list[subprocess.Popen[bytes]]:
    """The same command on both, but for what is the host's own."""
    fit = (*RICH, *on(2), "--config", TWO_HOSTS, "--trainer.devices", "1", "--run_dir", run)
    started = []
    for name, address in zip(hosts, ADDRESSES, strict=True):
        meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES[0]}:29400", "--rdzv-id", run)
        host = ("--rdzv-conf", f"is_host={str(address == ADDRESSES[0]).lower()}", "--local-addr", address)
        nodes = ("--nnodes", "2", "--nproc-per-node", "1")
        command = ["ip", "netns", "exec", name, *TORCHRUN, *nodes, *meeting, *host, "-m", "example", *fit]
        started.append(start(own, command, f"{run}.log", GLOO_SOCKET_IFNAME=name))
    return started


def workers(agent: int) -> list[int]:
    """The processes that torchrun has started."""
    return [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]


def kill_one_at(own: Path, run: str, step: int, agents: list[subprocess.Popen[bytes]]) -> None:
    """Kills a process of the last agent as soon as the run has come to a step."""
    until = time.monotonic() + TIMEOUT_S
    while steps(own / run) < step:
        assert all(agent.poll() is None for agent in agents), (own / f"{run}.log").read_text()
        assert time.monotonic() < until, (own / f"{run}.log").read_text()
        time.sleep(0.01)
    os.kill(workers(agents[-1].pid)[-1], signal.SIGKILL)


def finish(own: Path, run: str, agents: list[subprocess.Popen[bytes]]) -> None:
    try:
        codes = [agent.wait(TIMEOUT_S) for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
    assert set(codes) == {0}, (own / f"{run}.log").read_text()


def test_a_process_killed_on_one_host_comes_back(own: Path, hosts: list[str]) -> None:
    finish(own, "whole", on_two_hosts(own, hosts, "whole"))
    agents = on_two_hosts(own, hosts, "killed")
    kill_one_at(own, "killed", 9, agents)
    finish(own, "killed", agents)
    assert (own / "killed.log").read_text().count("CNN, 438 parameters") == 1  # the card, of one process
    assert_same_run(own / "killed", own / "whole")


@pytest.mark.weekly
def test_a_process_killed_on_one_machine_comes_back(own: Path) -> None:
    for run in ("whole", "killed"):
        fit = (*RICH, *on(2), "--run_dir", run)
        agent = start(own, [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "example", *fit], f"{run}.log")
        if run == "killed":
            kill_one_at(own, run, 9, [agent])
        finish(own, run, [agent])
    assert_same_run(own / "killed", own / "whole")
