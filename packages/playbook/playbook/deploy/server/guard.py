"""What surrounds every request: who may ask, headers of the answer, metrics, and errors without internals."""

import asyncio
import hmac
import ipaddress
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.metrics import Metrics
from playbook.deploy.server.origins import OWN, Origins

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
RETRY = [(b"retry-after", b"1")]
CLOSE = (b"connection", b"close")
OPEN = ("/", "/page/", "/docs", "/openapi.json", "/health", "/ready")  # without a token; what ends in / is a prefix
log = logging.getLogger(__name__)


class Guard:
    """An ASGI application around another.

    Args:
        app: answers.
        metrics: counts requests.
        token: that clients send as `Authorization: Bearer TOKEN`; None asks for none.
        is_local: whether the server is bound to this machine alone; it then answers to no other name, so that a page
            of another site cannot reach it through a name of its own.
        is_closing: tells whether the server accepts nothing more.
        origins: of pages of other sites that may ask.
        methods_of: the methods that an address has.
    """

    def __init__(
        self,
        app: App,
        metrics: Metrics,
        token: str | None = None,
        is_local: bool = False,
        is_closing: Callable[[], bool] = lambda: False,
        origins: Iterable[str] = (),
        methods_of: Callable[[Scope], list[str]] = lambda scope: [],
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.token = None if token is None else token.encode()
        self.is_local = is_local
        self.is_closing = is_closing
        self.origins = Origins(origins)
        self.methods_of = methods_of

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0
        headers = dict(scope["headers"])
        origin = self.origins.foreign(headers)
        further = self.origins.headers(origin, scope["path"])

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                closing = [CLOSE] if self.is_closing() else []  # no further request comes here to be lost
                message["headers"] = [*message.get("headers", ()), *HEADERS, *further, *closing]
            await send(message)

        try:
            if self.is_closing():
                await _send_error(503, "the server is closing", send_with_headers, RETRY)
                return
            self._admit(scope, headers, origin)
            if scope["method"] == "OPTIONS":
                await self._tell_methods(scope, headers, send_with_headers)
            else:
                await self.app(scope, receive, send_with_headers)
        except RefusalError as refusal:
            await refused(refusal, send_with_headers)
        except asyncio.CancelledError:
            raise
        except Exception:  # of any kind: the client gets an id, the log the rest
            number = uuid.uuid4().hex[:12]
            log.exception("internal error %s", number)
            if status:  # the answer has begun
                raise
            await _send_error(500, f"internal error {number}", send_with_headers)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes], origin: str | None) -> None:
        if self.is_local and not is_loopback(_without_port(headers.get(b"host", b"").decode("latin-1"))):
            raise RefusalError(403, "Host: expected localhost, as the server is bound to this machine alone")
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS") or b"access-control-request-method" in headers
        if changes and origin is not None and not self.origins.admits(origin, scope["path"]):
            remedy = "" if scope["path"] in OWN else "; --cors names those that are"
            raise RefusalError(403, f"requests of pages of other sites ({origin[:100]}) are not answered{remedy}")
        if self.token is None or _is_open(scope["path"]) or scope["method"] == "OPTIONS":
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
            raise RefusalError(401, "Authorization: expected Bearer and the server's token")

    async def _tell_methods(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        methods = self.methods_of(scope)
        if not methods:
            raise RefusalError(404, "Not Found")
        further = [(b"allow", ", ".join(methods).encode())]
        if b"access-control-request-method" in headers:
            further += self.origins.preflight(methods)
        await send({"type": "http.response.start", "status": 204, "headers": further})
        await send({"type": "http.response.body", "body": b""})

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")  # the address as it is declared: what clients write would never end
        path = getattr(route, "path", "")
        name, version = scope.get("playbook.model", ("", ""))
        self.metrics.requests.labels(path, name, version, str(status)).inc()
        self.metrics.seconds.labels(path, name, version).observe(seconds)


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is reached from this machine alone."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_open(path: str) -> bool:
    return any(path == known or (len(known) > 1 and known.endswith("/") and path.startswith(known)) for known in OPEN)


async def refused(refusal: RefusalError, send: Send) -> None:
    """Sends a refusal."""
    further = []
    if refusal.retry_after_s is not None:
        further.append((b"retry-after", str(refusal.retry_after_s).encode()))
    if refusal.status == 401:
        further.append((b"www-authenticate", b"Bearer"))
    await _send_error(refusal.status, refusal.text, send, further)


async def _send_error(status: int, text: str, send: Send, further: list[tuple[bytes, bytes]] | None = None) -> None:
    body = json.dumps({"error": text}, ensure_ascii=False).encode("utf-8", "replace")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(further or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
