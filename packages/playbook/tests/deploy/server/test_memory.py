"""Memory comes back, and large pictures wait for each other."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deploy.test_server import client_of, png
from playbook.deploy.server import answering, memory
from playbook.deploy.server.limits import Limits
from playbook.testing.serving import Fake


class Counting(Fake):
    """Notes how many pictures are read at a time."""

    def __init__(self) -> None:
        super().__init__("image")
        self.num_reading, self.most = 0, 0
        self.lock = threading.Lock()

    def read(self, source: Any) -> Any:
        with self.lock:
            self.num_reading += 1
            self.most = max(self.most, self.num_reading)
        time.sleep(0.05)
        with self.lock:
            self.num_reading -= 1
        return source


@pytest.mark.parametrize("is_large", [True, False])
def test_large_pictures_are_read_one_at_a_time(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[None] = []
    monkeypatch.setattr(answering, "release", lambda: released.append(None))
    monkeypatch.setattr(answering, "LARGE", 100)
    picture, fake = png(10, 10 if is_large else 9), Counting()
    with client_of(fake, limits=Limits()) as client, ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.post("/v1/models/m", content=picture).status_code, range(4)))
    assert answers == [200] * 4
    assert (fake.most == 1) == is_large
    assert len(released) == (4 if is_large else 0)


def test_release_where_the_library_has_no_such_function(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.release()
    memory._malloc_trim.cache_clear()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.release()
    memory._malloc_trim.cache_clear()
