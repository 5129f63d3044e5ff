"""Dynamic batching: one thread runs the model on all that was queued while it was busy."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from playbook.deploy.runtime import InputError

Answer = dict[str, Any]


class QueueFull(Exception):  # noqa: N818  # no error: the client tries again
    """There is no room for the samples."""


class QueueClosed(Exception):  # noqa: N818  # no error: another version has taken over
    """The queue accepts nothing more."""


@dataclass(eq=False)
class _Job:
    """The samples of one request."""

    samples: Sequence[Any]
    options: Mapping[str, Any]
    future: Future
    answers: list[Answer | None] = field(init=False)
    errors: dict[int, Exception] = field(default_factory=dict)
    num_left: int = field(init=False)
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.samples)
        self.num_left = len(self.samples)

    def begin(self) -> bool:
        """Whether somebody still waits for the answers."""
        if not self.has_begun and not self.future.cancelled():  # asked again for each sample, a future would raise
            self.has_begun = self.future.set_running_or_notify_cancel()
        return self.has_begun

    def finish(self, index: int, result: Answer | Exception) -> None:
        if isinstance(result, Exception):
            self.errors[index] = result
        else:
            self.answers[index] = result
        self.num_left -= 1
        if self.num_left:
            return
        if not self.errors:
            self.future.set_result(self.answers)
            return
        index, error = min(self.errors.items(), key=lambda entry: entry[0])
        if isinstance(error, InputError) and len(self.samples) > 1:
            error = InputError(f"input {index}: {error}")
        self.future.set_exception(error)


@dataclass(eq=False)
class _Stream:
    """A generation that is passed on piece by piece."""

    start: Callable[[], Iterator[str]]
    show: Callable[[str], bool]
    future: Future

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            pieces = self.start()
            for piece in pieces:
                if not self.show(piece):  # nobody listens any more
                    getattr(pieces, "close", lambda: None)()
                    break
        except Exception as error:  # whatever it is, it belongs to this request
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class BatchQueue:
    """A bounded queue in front of a model, and the thread that empties it.

    There is no window of waiting: the thread takes what is there, at most `batch_size` samples with the same options. A
    window of 2 ms was slower for one client and no faster for 64.

    Args:
        answer: the model: samples and options to one answer for each.
        batch_size: most samples at a time.
        capacity: most samples that wait.
        observe: called with the number of samples of every batch that was run.
        name: of the thread.
    """

    def __init__(
        self,
        answer: Callable[..., list[Answer]],
        batch_size: int = 32,
        capacity: int = 256,
        observe: Callable[[int], None] = lambda num_samples: None,
        name: str = "model",
    ) -> None:
        self.answer = answer
        self.batch_size = batch_size
        self.capacity = capacity
        self.observe = observe
        self._waiting: deque[tuple[_Job, int] | _Stream] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, samples: Sequence[Any], options: Mapping[str, Any] | None = None) -> "Future[list[Answer]]":
        """Queues the samples of one request.

        Args:
            samples: at least one.
            options: of the answers.

        Raises:
            QueueFull: there is no room for all of them.
            QueueClosed: the queue accepts nothing more.
        """
        assert samples, "a request without samples has no answer"
        job = _Job(samples, options or {}, Future())
        self._append([(job, index) for index in range(len(samples))])
        return job.future

    def submit_stream(self, start: Callable[[], Iterator[str]], show: Callable[[str], bool]) -> "Future[None]":
        """Queues a generation, which the model's thread runs alone.

        Args:
            start: begins it.
            show: gets each piece; returns whether anybody still listens.

        Raises:
            QueueFull: there is no room.
            QueueClosed: the queue accepts nothing more.
        """
        stream = _Stream(start, show, Future())
        self._append([stream])
        return stream.future

    def close(self, timeout_s: float | None = None) -> None:
        """Finishes what was accepted, then ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _append(self, entries: list[Any]) -> None:
        with self._changed:
            if self._is_closed:
                raise QueueClosed
            if len(self._waiting) + len(entries) > self.capacity:
                raise QueueFull
            self._waiting.extend(entries)
            self._changed.notify()

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            if isinstance(batch, _Stream):
                batch.run()
            elif batch:
                self._run(batch)

    def _take(self) -> "list[tuple[_Job, int]] | _Stream | None":
        """The next samples that have the options of the first one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return None
            if isinstance(self._waiting[0], _Stream):
                return self._waiting.popleft()  # type: ignore[return-value]  # just asked
            batch: list[tuple[_Job, int]] = []
            others: list[Any] = []
            while self._waiting and len(batch) < self.batch_size:
                entry = self._waiting.popleft()
                if isinstance(entry, _Stream) or (batch and entry[0].options != batch[0][0].options):
                    others.append(entry)
                elif entry[0].begin():
                    batch.append(entry)
            self._waiting.extendleft(reversed(others))
            return batch

    def _run(self, batch: list[tuple[_Job, int]]) -> None:
        self.observe(len(batch))
        samples = [job.samples[index] for job, index in batch]
        try:
            answers: Sequence[Answer | Exception] = self._answers(samples, batch[0][0].options)
        except Exception as error:  # whatever it is, it may be the fault of one sample
            answers = [error] if len(batch) == 1 else [self._answer_alone(*entry) for entry in batch]
        for (job, index), answer in zip(batch, answers, strict=True):
            job.finish(index, answer)

    def _answer_alone(self, job: _Job, index: int) -> Answer | Exception:
        try:
            return self._answers([job.samples[index]], job.options)[0]
        except Exception as error:  # the request of this sample gets it
            return error

    def _answers(self, samples: Sequence[Any], options: Mapping[str, Any]) -> list[Answer]:
        answers = self.answer(samples, **options)
        if len(answers) != len(samples):
            raise RuntimeError(f"expected {len(samples)} answers, the model returned {len(answers)}")
        return answers
