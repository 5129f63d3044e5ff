"""Runs the server: its socket, its signals, and its one line of output."""

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from playbook.deploy.server.app import make_app
from playbook.deploy.server.catalogue import Catalogue
from playbook.deploy.server.connections import Connection
from playbook.deploy.server.guard import is_loopback
from playbook.errors import UserError

BACKLOG = 2048  # connections that the system holds until they are accepted
SEND_BUFFER = 2**18  # bytes of an answer that the system holds
HANDSHAKE_S = 0.1  # in which a connection that has begun is made
SO_ATTACH_FILTER = 26  # of Linux; Python has no name for it
KEEP_ALIVE_S = 5  # in which a connection may be silent between two requests


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens, before the models are loaded; who connects before then waits for them.

    Raises:
        UserError: the address is taken, or there is no such host.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"--host {host}: {error.strerror or error}") from error
    own = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # Windows would let two servers have one port
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # small enough that connections.py sees a slow client read
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        own.bind(address)
        own.listen(BACKLOG)  # two sockets can be bound to one port, but only one listens
    except OSError as error:
        own.close()
        raise UserError(
            f"--port {port}: cannot be bound on {host}: {error.strerror}; --port 0 finds a free one"
        ) from error
    return own


class Server(uvicorn.Server):
    """A server that says when it is ready, and ends like other verbs.

    Args:
        config: of uvicorn.
        catalogue: its models.
        say: called once it answers.
    """

    def __init__(self, config: uvicorn.Config, catalogue: Catalogue, say: Callable[[], None]) -> None:
        super().__init__(config)
        self.catalogue = catalogue
        self.say = say
        self.code = 0
        self._rescans: set[asyncio.Task] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.say()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts who has connected until now, since to close the socket would reset them; they are answered 503."""
        if all(map(_ignore_newcomers, sockets or [])):
            await asyncio.sleep(HANDSHAKE_S)
        clients = [client for own in sockets or [] for client in _waiting(own)]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        protocol: Any = self.config.http_protocol_class
        options = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        for client in clients:
            with contextlib.suppress(OSError):  # it has left
                await loop.connect_accepted_socket(lambda: protocol(**options), client)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._rescan)
        try:
            yield
        finally:
            if hasattr(signal, "SIGHUP"):
                loop.remove_signal_handler(signal.SIGHUP)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        self.code = 128 + number
        self.catalogue.is_closing = True
        self.force_exit = self.should_exit and number == signal.SIGINT  # the second one does not wait
        self.should_exit = True

    def _rescan(self) -> None:
        task = asyncio.get_running_loop().create_task(self.catalogue.rescan())
        self._rescans.add(task)
        task.add_done_callback(self._rescans.discard)


def _ignore_newcomers(own: socket.socket) -> bool:
    """Has the system drop the first packet of a connection, so that none is made while the socket is closed."""
    if not sys.platform.startswith("linux"):
        return False
    steps = [(0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 2**32 - 1)]
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *step) for step in steps)
    )  # of TCP's SYN without ACK
    try:
        own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(steps), ctypes.addressof(code)))
    except OSError:  # not allowed here: a connection that is made within microseconds may be reset
        return False
    return True


def _waiting(own: socket.socket) -> Iterator[socket.socket]:
    """Clients whom the system has connected, but nobody has accepted."""
    with contextlib.suppress(OSError):  # there are no more
        while True:
            client, _ = own.accept()
            client.setblocking(False)
            yield client


def make_server(
    catalogue: Catalogue, own: socket.socket, host: str, token: str | None = None, origins: Sequence[str] = ()
) -> Server:
    """A server that has not begun.

    Args:
        catalogue: its models, loaded.
        own: returned by `bind`.
        host: as the user named it.
        token: that clients send.
        origins: of pages of other sites that may ask.
    """
    limits = catalogue.limits
    port = own.getsockname()[1]
    names = ", ".join(sorted({place.name for place in catalogue.places()}))
    address = f"[{host}]" if ":" in host else host
    connection_type: Any = functools.partial(Connection, limits, lambda: catalogue.is_closing)
    config = uvicorn.Config(
        make_app(catalogue, token, is_loopback(host), origins),
        http=connection_type,
        ws="none",
        log_level="error",  # clients could fill the log with warnings
        access_log=False,
        server_header=False,
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(limits.timeout_s + limits.body_timeout_s) + 1,
        h11_max_incomplete_event_size=64 * 1024,
    )
    return Server(config, catalogue, lambda: print(f"serving {names} on http://{address}:{port}", flush=True))


def serve(
    catalogue: Catalogue, own: socket.socket, host: str, token: str | None = None, origins: Sequence[str] = ()
) -> int:
    """Serves until a signal comes; takes what `make_server` takes.

    Returns:
        The exit code.
    """
    if token is None and not is_loopback(own.getsockname()[0]):
        print(f"warning: --host {host} without --token_env: everyone who reaches it can use it", file=sys.stderr)
    server = make_server(catalogue, own, host, token, origins)
    server.run(sockets=[own])
    return server.code
