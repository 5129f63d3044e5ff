"""Which pages of other sites may ask the server (CORS)."""

import re
from collections.abc import Iterable, Mapping

from playbook.errors import UserError

ORIGIN = re.compile(r"https?://[^\s/,?#]+")
OWN = ("/v1/rescan",)  # for pages of the server alone
Headers = list[tuple[bytes, bytes]]


def parsed_origins(text: str | None) -> tuple[str, ...]:
    """The origins in the option --cors.

    Raises:
        UserError: one is no origin.
    """
    origins = tuple(origin.strip() for origin in (text or "").split(",") if origin.strip())
    for origin in origins:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise UserError(f"--cors {origin}: expected an origin such as https://shop.example:8080, or *")
    return tuple(origin.lower() for origin in origins)


class Origins:
    """The origins of pages that may ask, beside the server's own.

    Args:
        allowed: as scheme, host and port; `*` for all.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = frozenset(allowed)

    def foreign(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The origin of a page of another site that asks, `null` where it has none; None for all other clients."""
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        site = headers.get(b"sec-fetch-site", b"")  # not sent to http:// of other machines
        if site in (b"cross-site", b"same-site"):
            return origin or "null"
        is_own = site in (b"same-origin", b"none") or origin.partition("://")[2].encode() == headers.get(b"host")
        return None if is_own or not origin else origin

    def admits(self, origin: str, path: str) -> bool:
        """Whether a page of another site may have an answer."""
        return path not in OWN and bool({"*", origin} & self.allowed)

    def headers(self, origin: str | None, path: str) -> Headers:
        """What lets a browser show an answer to a page, or keeps caches from showing it to another."""
        if not self.allowed:
            return []
        if origin is None or not self.admits(origin, path):
            return [(b"vary", b"origin")]
        shown = b"*" if "*" in self.allowed else origin.encode("latin-1")
        return [
            (b"access-control-allow-origin", shown),
            (b"access-control-expose-headers", b"retry-after"),
            (b"vary", b"origin"),
        ]

    def preflight(self, methods: Iterable[str]) -> Headers:
        """What a browser asks before a request of another site."""
        return [
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"600"),
        ]
