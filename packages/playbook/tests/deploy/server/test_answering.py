"""Bounds of time and memory of a request, from its body to its answer."""

import json
import time
from typing import Any

import pytest

from deploy.server.running import answer_of, request, running
from deploy.test_server import client_of
from playbook.deploy.server.limits import Limits
from playbook.testing.serving import Fake

PATH, PLAIN = "/v1/models/m0", "Content-Type: text/plain"


class SlowReader(Fake):
    """Takes half a second to read an input."""

    def read(self, source: Any) -> Any:
        time.sleep(0.5)
        return source


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.deploy.server.answering.NUM_BODIES", 1)
    limits = Limits(max_body_mib=0.01, body_timeout_s=5.0)
    with running(Fake("text"), limits=limits) as server, server.connect() as large:
        large.sendall(request(PATH, b"x" * 9000, PLAIN)[:-1])
        time.sleep(0.2)
        status, headers, content = server.ask(request(PATH, b"y" * 2000, PLAIN))
        assert (status, headers["retry-after"]) == (503, "1")
        assert content == {"error": "too many large requests at a time"}
        large.sendall(b"x")
        assert answer_of(large)[0] == 200
        assert server.ask(request(PATH, b"y" * 2000, PLAIN))[0] == 200


@pytest.mark.parametrize("suffix", ["", "/stream"])
def test_reading_counts_towards_the_timeout(suffix: str) -> None:
    with client_of(SlowReader("prompt", "generate"), limits=Limits(timeout_s=0.1)) as client:
        response = client.post(f"/v1/models/m{suffix}", json={"input": "a"})
        assert (response.status_code, response.json()) == (504, {"error": "no answer within 0.1 s"})


def test_compressed_bodies_are_refused() -> None:
    with client_of(Fake("text")) as client:
        content = json.dumps({"input": "a"}).encode()
        for coding, status in (("gzip", 415), ("br, gzip", 415), ("identity", 200)):
            headers = {"content-type": "application/json", "content-encoding": coding}
            assert client.post("/v1/models/m", content=content, headers=headers).status_code == status
