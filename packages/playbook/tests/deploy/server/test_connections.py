"""Clients that are slow, many, or send no HTTP cannot hold the server."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.server.running import Running, answer_of, request, running, seconds_until_closed
from playbook.deploy.server.limits import Limits
from playbook.testing.serving import Fake

LIMITS = Limits(timeout_s=5.0, body_timeout_s=0.5, max_connections=4)
SIZE = 3_000_000
HELLO = request("/v1/models/m0", b'{"input": "a"}', "Content-Type: application/json")


class Large(Fake):
    """Answers with more than a connection holds."""

    def answer_samples(self, samples: Any, **options: Any) -> list[dict[str, Any]]:
        return [{"large": "x" * SIZE} for _ in samples]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(Fake("text"), Large("text"), limits=LIMITS) as server:
        yield server


@pytest.fixture(autouse=True)
def lives_on(server: Running) -> Iterator[None]:
    """Each test leaves a server that answers, and no connection in it."""
    yield
    assert server.ask(HELLO)[0] == 200
    for _ in range(50):
        if not server.server.server_state.connections:
            return
        time.sleep(0.1)
    raise AssertionError("a connection lives on")


def test_a_silent_client_is_cut_off(server: Running) -> None:
    with server.connect() as client:
        assert 0.3 < seconds_until_closed(client) < 3


def drip(client: socket.socket, piece: bytes) -> float:
    """Seconds until a client is answered or cut off that sends a piece every 0.1 s."""
    start = time.monotonic()
    client.settimeout(0.1)
    while time.monotonic() - start < 5:
        try:
            client.sendall(piece)
            client.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            continue
        except ConnectionError:
            break
        break
    client.settimeout(10)
    return time.monotonic() - start


def test_slow_headers(server: Running) -> None:
    with server.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nX: ")
        assert drip(client, b"x") < 3
        status, headers, content = answer_of(client)
        assert (status, headers["connection"]) == (408, "close")
        assert content == {"error": "the headers did not arrive within 0.5 s"}


def test_slow_headers_of_a_second_request(server: Running) -> None:
    with server.connect() as client:
        client.sendall(HELLO)
        assert answer_of(client)[0] == 200
        client.sendall(b"GET /health HTTP/1.1\r\nX: ")
        assert drip(client, b"x") < 3
        assert answer_of(client)[0] == 408


def test_slow_body(server: Running) -> None:
    with server.connect() as client:
        client.sendall(request("/v1/models/m0", b"").replace(b"Length: 0", b"Length: 1000"))
        assert drip(client, b"x") < 3
        status, _, content = answer_of(client)
        assert (status, content) == (408, {"error": "the body did not arrive within 0.5 s"})


def test_a_body_that_goes_on_after_its_refusal(server: Running) -> None:
    with server.connect() as client:
        client.sendall(request("/v1/models/m0", b"").replace(b"Length: 0", b"Length: 99999999"))
        assert answer_of(client)[0] == 413
        start = time.monotonic()
        with pytest.raises(ConnectionError):  # noqa: PT012  # whichever of the two notices
            while time.monotonic() - start < 5:
                client.sendall(b"x")
                time.sleep(0.05)


@pytest.mark.slow
def test_a_client_that_does_not_read(server: Running) -> None:
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(HELLO.replace(b"m0", b"m1"))
        time.sleep(2.5)
        assert not server.server.server_state.connections


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_it_all(server: Running) -> None:
    with server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        client.sendall(HELLO.replace(b"m0", b"m1"))
        num_read, start = 0, time.monotonic()
        while num_read < SIZE and (more := client.recv(2**16)):
            num_read += len(more)
            time.sleep(0.04)
        assert num_read > SIZE
        assert time.monotonic() - start > 2 * LIMITS.body_timeout_s


def test_too_many_connections(server: Running) -> None:
    with ExitStack() as stack:
        for _ in range(LIMITS.max_connections):
            stack.enter_context(server.connect())
        time.sleep(0.1)
        status, headers, content = server.ask(HELLO)
        assert (status, content) == (503, {"error": "too many connections"})
        assert (headers["retry-after"], headers["connection"]) == ("1", "close")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"\0" * 100_000,
        b"\r\n" * 100_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        HELLO.replace(b"Length: 14", b"Length: -1"),
        HELLO.replace(b"Length: 14", b"Length: 1e3"),
        HELLO.replace(b"Length: 14", b"Length: 14\r\nContent-Length: 15"),
        HELLO.replace(b"Content-Length: 14", b"Transfer-Encoding: chunked"),
        HELLO.replace(b"Content-Length: 14", b"Transfer-Encoding: chunked").replace(b"{", b"ffffffffffffffffff\r\n{"),
        HELLO.replace(b"Content-Length: 14", b"Transfer-Encoding: gzip"),
        HELLO.replace(b"Content-Length: 14", b"Transfer-Encoding: chunked\r\nContent-Length: 14"),
        HELLO.replace(b"Length: 14", b"Length: 9") + b"rest of it",
    ],
)
def test_no_http(server: Running, garbage: bytes) -> None:
    status, _, content = server.ask(garbage)
    assert 400 <= status < 500 or status == 0, content
    assert status == 0 or list(content) == ["error"]


def test_a_body_that_breaks_off(server: Running) -> None:
    with server.connect() as client:
        client.sendall(HELLO[:-3])
        client.shutdown(socket.SHUT_WR)
        assert answer_of(client)[0] in (0, 400)


def test_two_requests_at_once(server: Running) -> None:
    with server.connect() as client:
        client.sendall(HELLO + HELLO)
        assert answer_of(client)[0] == 200
