"""Connections that clients cannot hold for ever: deadlines, a bound on their number, and refusals in JSON."""

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from playbook.deploy.server.limits import Limits

RETRY = ((b"retry-after", b"1"),)
LINGER_S = 1.0  # in which a client closes its side after ours
LAST_REQUEST_S = 0.5  # in which a client that is between two requests may still send one to a server that is closing


class Lingering:
    """A transport that `close` ends in two steps: what is written goes out, then the client closes its side.

    A socket that is closed while data in it is unread resets the connection, and the client loses its last answer.

    Args:
        transport: of asyncio.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self.lingers:
            self._transport.write(data)

    def close(self) -> None:
        if self.is_closing():
            return
        self.lingers = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()  # until there is nothing more


class Connection(H11Protocol):
    """uvicorn's connection, with the deadlines that it lacks.

    The headers of a request must be complete `body_timeout_s` after the connection was made or the last answer was
    sent. A client that reads none of its answer for as long is cut off.

    Args:
        limits: of the server.
        is_closing: tells whether the server accepts nothing more. Whoever has connected, or is between two requests,
            then has `LAST_REQUEST_S` to send one, which is refused in words.
        options: of uvicorn.
    """

    def __init__(self, limits: Limits, is_closing: Callable[[], bool] = lambda: False, **options: Any) -> None:
        super().__init__(**options)
        self.limits = limits
        self.is_closing = is_closing
        self._deadline: asyncio.TimerHandle | None = None
        self._num_unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(Lingering(transport))  # type: ignore[arg-type]  # it has all methods
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "too many connections", RETRY)
        else:
            self._watch(self._patience_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self._is_answering and not self.transport.is_closing():
            self._unwatch()  # the body and the answer have deadlines of their own

    def on_response_complete(self) -> None:
        self._watch(self._patience_s)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.limits.body_timeout_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_answering:
            self._unwatch()

    def shutdown(self) -> None:
        if self._is_answering:  # Guard says `connection: close`
            return
        if self.conn.trailing_data[0]:
            self._refuse(503, "the server is closing", RETRY)
        else:
            self._watch(self._patience_s)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "the request is not valid HTTP/1.1")

    @property
    def _patience_s(self) -> float:
        """Seconds until the headers of the next request must be complete, or the client must have closed its side."""
        if self.transport.is_closing():
            return self.limits.body_timeout_s if self.transport.get_write_buffer_size() else LINGER_S
        return LAST_REQUEST_S if self.is_closing() else self.limits.body_timeout_s

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self, seconds: float) -> None:
        self._unwatch()
        self._num_unsent = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(seconds, self._on_deadline)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _on_deadline(self) -> None:
        num_unsent = self.transport.get_write_buffer_size()
        if 0 < num_unsent < self._num_unsent:  # slow, but it reads
            self._watch(self.limits.body_timeout_s)
        elif num_unsent or self.transport.is_closing():
            self.transport.abort()
        elif self.conn.our_state is h11.IDLE and self.conn.trailing_data[0] and self.is_closing():
            self._refuse(503, "the server is closing", RETRY)
        elif self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"the headers did not arrive within {self.limits.body_timeout_s:g} s")
        else:
            self.transport.close()
            self._watch(LINGER_S)

    def _refuse(self, status: int, text: str, further: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Answers in place of the application, and closes the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun
            self.transport.close()
            self._watch(LINGER_S)
            return
        self._unset_keepalive_if_required()
        body = json.dumps({"error": text}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *further,
        ]
        reason = HTTPStatus(status).phrase.encode()
        response = h11.Response(status_code=status, headers=headers, reason=reason)
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._watch(LINGER_S)
