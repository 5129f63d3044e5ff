"""Runs the server: its socket, its signals, and its one line of output."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from playbook.deploy.server.app import make_app
from playbook.deploy.server.catalogue import Catalogue
from playbook.errors import UserError

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


def bind(host: str, port: int) -> socket.socket:
    """A socket of an address, before the models are loaded.

    Raises:
        UserError: the address is taken, or there is no such host.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"--host {host}: {error.strerror or error}") from error
    own = socket.socket(family, kind, protocol)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(address)
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
        self.force_exit = self.should_exit and number == signal.SIGINT  # the second one does not wait
        self.should_exit = True

    def _rescan(self) -> None:
        task = asyncio.get_running_loop().create_task(self.catalogue.rescan())
        self._rescans.add(task)
        task.add_done_callback(self._rescans.discard)


def serve(catalogue: Catalogue, own: socket.socket, host: str, token: str | None = None) -> int:
    """Serves until a signal comes.

    Args:
        catalogue: its models, loaded.
        own: returned by `bind`.
        host: as the user named it.
        token: that clients send.

    Returns:
        The exit code.
    """
    limits = catalogue.limits
    port = own.getsockname()[1]
    names = ", ".join(sorted({place.name for place in catalogue.places()}))
    address = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        make_app(catalogue, token, host in LOCAL_HOSTS),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        limit_concurrency=limits.max_connections,
        timeout_graceful_shutdown=int(limits.timeout_s + limits.body_timeout_s) + 1,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = Server(config, catalogue, lambda: print(f"serving {names} on http://{address}:{port}", flush=True))
    server.run(sockets=[own])
    return server.code
