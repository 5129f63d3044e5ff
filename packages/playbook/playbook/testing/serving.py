"""A model for the server that answers with what it has read, and a question to a server in its own process."""

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from playbook.deploy.runtime.artefact import Kind
from playbook.deploy.runtime.errors import InputError
from playbook.deploy.served import OPTIONS


class Fake:
    """Answers with what it has read."""

    may_reduce = True

    def __init__(self, kind: Kind, answering: str | None = None, inputs: Sequence[dict[str, Any]] = ()) -> None:
        self.kind: Kind = kind
        self.options: Mapping[str, type] = OPTIONS.get(answering, {})
        names = [{"name": "x", "dtype": "float32", "shape": ["B", 2]}]
        self.manifest: dict[str, Any] = {"inputs": list(inputs) or names, "facts": {"classes": ["cat", "dog"]}}
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def read(self, source: Any) -> Any:
        if isinstance(source, str) and source == "bad":
            raise InputError("is bad")
        if isinstance(source, str) and source == "bug":
            raise RuntimeError("secret in /etc/passwd")
        return source

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        self.gate.wait(10)
        self.sizes.append(len(samples))
        if any(isinstance(sample, str) and sample == "crash" for sample in samples):
            raise RuntimeError("secret in the model")
        shown = [np.asarray(s).tolist() if isinstance(s, list | np.ndarray) else str(s)[:40] for s in samples]
        return [{"seen": value, **options} for value in shown]

    def stream(self, sample: Any, **options: Any) -> Iterator[str]:
        if sample == "crash":
            raise RuntimeError("secret in the model")
        yield from ("one ", "two")

    def draw(self, source: Any, answer: dict[str, Any]) -> bytes | None:
        return None


def ask(process: Any, path: Path, media_type: str) -> dict[str, Any]:
    """The answer of a server that has just been started; a signal then ends it."""
    line = process.stdout.readline()
    assert line.startswith("serving run on http://127.0.0.1:"), line
    address = f"{line.split()[-1]}/v1/models/run"
    assert address.startswith("http://127.0.0.1:")
    request = urllib.request.Request(address, path.read_bytes(), {"content-type": media_type})
    with urllib.request.urlopen(request, timeout=20) as response:
        [answer] = json.loads(response.read())["answers"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, "")
    return answer
