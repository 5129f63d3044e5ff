"""The thread of a queue outlives what its requests do."""

import threading
from typing import Any

from playbook.deploy.server.queue import BatchQueue


def test_a_cancelled_request_of_several_samples_does_not_end_the_thread() -> None:
    gate = threading.Event()

    def answer(samples: list[Any]) -> list[dict[str, Any]]:
        gate.wait(10)
        return [{"seen": sample} for sample in samples]

    queue = BatchQueue(answer, batch_size=1)
    first = queue.submit(["a"])
    abandoned = queue.submit(["b", "c", "d"])
    last = queue.submit(["e"])
    assert abandoned.cancel()
    gate.set()
    assert (first.result(5), last.result(5)) == ([{"seen": "a"}], [{"seen": "e"}])
    queue.close()
