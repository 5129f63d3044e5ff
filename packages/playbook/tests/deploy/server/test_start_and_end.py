"""What the server does before its models are loaded, and after a signal came."""

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.server.running import answer_of, request, running, seconds_until_closed
from playbook.deploy.server.catalogue import Catalogue, Place
from playbook.deploy.server.guard import is_loopback
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.run import _ignore_newcomers, _waiting, bind, serve
from playbook.errors import UserError
from playbook.testing.artefacts import write_artefact
from playbook.testing.serving import Fake
from running import cli_process

LIMITS = Limits(timeout_s=5.0, body_timeout_s=2.0)
HELLO = request("/v1/models/m0", b'{"input": "a"}', "Content-Type: application/json")
needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a program that is never loaded is a named pipe")


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """An artefact whose loading never ends."""
    folder = write_artefact(tmp_path / "endless", {"x": ("float32", ["B", 2])}, ["y"])
    (folder / "model.bin").unlink()
    os.mkfifo(folder / "model.bin")
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_until_bound(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError("the port was not bound")


@needs_fifo
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_signal_while_models_load(endless: Path, tmp_path: Path, number: int, code: int) -> None:
    port = free_port()
    process = cli_process("serve", "endless", "--port", str(port), cwd=tmp_path)
    with wait_until_bound(port):
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err.strip() in ("", "stopped")


@needs_fifo
@pytest.mark.slow
def test_a_port_belongs_to_one_server_while_models_load(endless: Path, tmp_path: Path) -> None:
    port = free_port()
    first = cli_process("serve", "endless", "--port", str(port), cwd=tmp_path)
    try:
        with wait_until_bound(port):
            second = cli_process("serve", "endless", "--port", str(port), cwd=tmp_path)
            _, err = second.communicate(timeout=20)
            assert second.returncode == 2
            assert err.startswith(f"error: --port {port}: cannot be bound on 127.0.0.1: ")
            assert err.count("\n") == 1
    finally:
        first.kill()
        first.communicate()


def test_two_sockets_on_one_port() -> None:
    with bind("127.0.0.1", 0) as own, pytest.raises(UserError, match="cannot be bound"):
        bind("127.0.0.1", own.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "token", "warns"), [("0.0.0.0", None, True), ("0.0.0.0", "t", False), ("127.0.0.1", None, False)]
)
def test_warning_without_a_token(
    host: str, token: str | None, warns: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playbook.deploy.server.run.Server.run", lambda self, sockets: None)
    with bind(host, 0) as own:
        assert serve(Catalogue(LIMITS), own, host, token) == 0
    err = capfd.readouterr().err
    assert err == (f"warning: --host {host} without --token_env: everyone who reaches it can use it\n" if warns else "")


def test_loopback_names() -> None:
    names = ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1"]
    assert [is_loopback(name) for name in names] == [True] * len(names)
    assert not any(is_loopback(name) for name in ("", "0.0.0.0", "::", "evil.example", "127.0.0.1.evil.example"))


def test_what_was_accepted_is_answered_and_the_rest_refused() -> None:
    fake = Fake("text")
    with running(fake, limits=LIMITS) as server, ExitStack() as stack:
        begun, late, later = (stack.enter_context(server.connect()) for _ in range(3))
        fake.gate.clear()
        begun.sendall(HELLO)
        late.sendall(HELLO[:30])
        later.sendall(HELLO[:30])
        time.sleep(0.3)
        server.server.catalogue.is_closing = True
        late.sendall(HELLO[30:])
        for client in (late, later):
            status, headers, content = answer_of(client)
            assert (status, content) == (503, {"error": "the server is closing"})
            assert (headers["retry-after"], headers["connection"]) == ("1", "close")
            server.server._stop(signal.SIGTERM, None)
        fake.gate.set()
        status, headers, content = answer_of(begun)
        assert (status, content["answers"]) == (200, [{"seen": "a"}])
    assert server.server.code == 143


def test_a_client_between_two_requests_is_told_that_the_server_closes() -> None:
    with running(Fake("text"), limits=LIMITS) as server, server.connect() as client, server.connect() as silent:
        client.sendall(HELLO)
        assert answer_of(client)[0] == 200
        server.server._stop(signal.SIGTERM, None)
        time.sleep(0.2)
        client.sendall(HELLO)
        status, headers, content = answer_of(client)
        assert (status, content, headers["connection"]) == (503, {"error": "the server is closing"}, "close")
        assert seconds_until_closed(silent) < 2


def test_the_last_answer_closes_its_connection() -> None:
    fake = Fake("text")
    with running(fake, limits=LIMITS) as server, server.connect() as client:
        fake.gate.clear()
        client.sendall(HELLO)
        time.sleep(0.2)
        server.server._stop(signal.SIGTERM, None)
        fake.gate.set()
        status, headers, _ = answer_of(client)
        assert (status, headers["connection"]) == (200, "close")


def test_a_refusal_arrives_though_the_body_was_not_read() -> None:
    with running(Fake("text"), limits=LIMITS) as server, server.connect() as client:
        server.server.catalogue.is_closing = True
        client.sendall(request("/v1/models/m0", b"x" * 2**23))
        status, headers, content = answer_of(client)
        assert (status, content, headers["retry-after"]) == (503, {"error": "the server is closing"}, "1")


def test_clients_whom_nobody_has_accepted_are_found() -> None:
    with bind("127.0.0.1", 0) as own, ExitStack() as stack:
        own.setblocking(False)
        for _ in range(3):
            stack.enter_context(socket.create_connection(own.getsockname(), timeout=10)).sendall(b"x")
        waiting = [stack.enter_context(client) for client in _waiting(own)]
        assert len(waiting) == 3
        assert not list(_waiting(own))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a filter of Linux")
def test_nobody_connects_while_the_socket_is_closed() -> None:
    with bind("127.0.0.1", 0) as own:
        if not _ignore_newcomers(own):
            pytest.skip("the system attaches no filter")
        with pytest.raises(TimeoutError):
            socket.create_connection(own.getsockname(), timeout=0.2)


@pytest.mark.slow
def test_a_model_that_hangs_does_not_keep_the_process() -> None:
    fake = Fake("text")
    with running(fake, limits=Limits(timeout_s=0.5, body_timeout_s=0.5)) as server:
        fake.gate.clear()
        assert server.ask(HELLO)[0] == 504
        start = time.monotonic()
        server.server._stop(signal.SIGTERM, None)
    assert time.monotonic() - start < 4
    fake.gate.set()


def test_a_closed_catalogue_has_no_unknown_models() -> None:
    async def open_and_close(catalogue: Catalogue) -> list[RefusalError]:
        catalogue.add(Place("m", 1), Fake("text"))
        await catalogue.open()
        with pytest.raises(RefusalError) as unknown:
            catalogue.find("n")
        await catalogue.close()
        with pytest.raises(RefusalError) as closed:
            catalogue.find("m")
        return [unknown.value, closed.value]

    unknown, closed = asyncio.run(open_and_close(Catalogue(LIMITS)))
    assert (unknown.status, closed.status, closed.retry_after_s) == (404, 503, 1)
