"""Servers on a port of this machine, and clients that write bytes of their own."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playbook.deploy.server.catalogue import Catalogue, Place
from playbook.deploy.server.limits import Limits
from playbook.deploy.server.run import Server, bind, make_server


@dataclass
class Running:
    """A server in a thread."""

    server: Server
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def ask(self, *pieces: bytes) -> tuple[int, dict[str, str], Any]:
        """Sends pieces on a connection of its own; returns what `answer_of` does."""
        with self.connect() as client:
            for piece in pieces:
                client.sendall(piece)
            return answer_of(client)


@contextlib.contextmanager
def running(*models: Any, limits: Limits) -> Iterator[Running]:
    """Serves models m0, m1, …"""
    catalogue = Catalogue(limits)
    for number, model in enumerate(models):
        catalogue.add(Place(f"m{number}", 1), model)
    with bind("127.0.0.1", 0) as own:
        server, port = make_server(catalogue, own, "127.0.0.1"), own.getsockname()[1]
        server.say = lambda: None
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield Running(server, port)
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive(), "the server does not end"


def request(path: str, body: bytes = b"", *headers: str) -> bytes:
    """A POST in HTTP/1.1."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer_of(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of an answer; status 0 where the connection was closed without one."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < _length_in(received):
            if not (more := client.recv(65536)):
                break
            received += more
            if received.startswith(b"HTTP/1.1 100 "):  # go on
                received = received.partition(b"\r\n\r\n")[2]
    head, _, body = received.partition(b"\r\n\r\n")
    if not head:
        return 0, {}, None
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status.split()[1]), headers, json.loads(body[: _length_in(received)])


def _length_in(received: bytes) -> int:
    head = received.partition(b"\r\n\r\n")[0].lower()
    return int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)


def seconds_until_closed(client: socket.socket) -> float:
    """How long a connection lives that nothing more is sent on."""
    start = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while client.recv(65536):
            pass
    return time.monotonic() - start
