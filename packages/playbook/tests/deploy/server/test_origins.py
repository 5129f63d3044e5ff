"""Pages of other sites: who may ask, and what a browser is told."""

import pytest

from deploy.test_server import client_of
from playbook.deploy.server.origins import parsed_origins
from playbook.errors import UserError
from playbook.testing.serving import Fake

SHOP, EVIL = "https://shop.example", "https://evil.example"
PREFLIGHT = {"access-control-request-method": "POST"}


def test_pages_of_other_sites_are_refused_unless_they_are_named() -> None:
    cases: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
        ((), ()), ((SHOP,), (SHOP,)), (("*",), (SHOP, EVIL, "null")),
    ]  # fmt: skip
    for origins, allowed in cases:
        with client_of(Fake("text"), origins=origins) as client:
            for origin in (SHOP, EVIL, "null"):
                response = client.post("/v1/models/m", json={"input": "a"}, headers={"origin": origin})
                assert response.status_code == (200 if origin in allowed else 403)
                shown = response.headers.get("access-control-allow-origin")
                assert shown == (None if origin not in allowed else origins[0])
            refused = client.post("/v1/rescan", headers={"origin": SHOP})
            assert refused.status_code == 403
            assert SHOP in refused.json()["error"]


def test_pages_of_the_server_and_other_clients_may_ask() -> None:
    with client_of(Fake("text"), origins=(SHOP,)) as client:
        own = ({}, {"origin": "http://localhost"}, {"origin": EVIL, "sec-fetch-site": "same-origin"})
        for headers in own:
            assert client.post("/v1/models/m", json={"input": "a"}, headers=headers).status_code == 200
            assert client.post("/v1/rescan", headers=headers).status_code == 200
        assert client.post("/v1/rescan", headers={"sec-fetch-site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("token", [None, "secret"])
def test_what_a_browser_asks_first(token: str | None) -> None:
    with client_of(Fake("text"), origins=(SHOP,), token=token) as client:
        answer = client.options("/v1/models/m", headers={"origin": SHOP, **PREFLIGHT})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, SHOP)
        assert answer.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
        assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
        assert answer.headers["vary"] == "origin"
        for path, origin in (("/v1/models/m", EVIL), ("/v1/rescan", SHOP)):
            answer = client.options(path, headers={"origin": origin, **PREFLIGHT})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


def test_methods_of_an_address() -> None:
    with client_of(Fake("text")) as client:
        for path, methods in (("/v1/models/m", "GET, POST, OPTIONS"), ("/v1/rescan", "POST, OPTIONS")):
            answer = client.options(path)
            assert (answer.status_code, answer.headers["allow"]) == (204, methods)
            answer = client.put(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)
        assert client.options("/nowhere").status_code == 404


def test_origins_of_the_option() -> None:
    assert parsed_origins(None) == parsed_origins("") == ()
    assert parsed_origins(f"{SHOP}:8080, http://localhost:3000 ,") == (f"{SHOP}:8080", "http://localhost:3000")
    assert parsed_origins("*") == ("*",)
    for text in ("shop.example", f"{SHOP}/", "ftp://a", "https://a b"):
        with pytest.raises(UserError, match=r"--cors .*: expected an origin such as"):
            parsed_origins(text)
