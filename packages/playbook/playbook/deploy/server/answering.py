"""What a request to a model goes through: its body, the inputs in it, and the queue of the model."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from playbook.deploy.runtime import InputError
from playbook.deploy.server.answers import encode
from playbook.deploy.server.catalogue import Model
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.memory import release
from playbook.deploy.server.payloads import Body, Payload, parse
from playbook.deploy.server.queue import QueueClosed, QueueFull

NUM_READERS = 4  # threads that parse bodies and read inputs
LARGE = 2**22  # pixels of a picture from which on it is decoded alone, as each takes tens of megabytes
NUM_BODIES = 64  # of the largest size, whose memory all bodies may take together
log = logging.getLogger(__name__)


class Bodies:
    """Bounds the memory of all bodies together, from when they arrive until the inputs in them were read.

    Args:
        limits: of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.max_bytes = NUM_BODIES * limits.max_body
        self.num_bytes = 0

    @contextlib.asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[Body]:
        """Holds the body of a request.

        Raises:
            RefusalError: it is too large or too slow, or there are too many of them.
        """
        content = bytearray()
        try:
            await self._receive(request, content)
            yield Body(bytes(content), *media_type_of(request.headers.get("content-type", "")))
        finally:
            self.num_bytes -= len(content)

    async def _receive(self, request: Request, content: bytearray) -> None:
        limits, declared = self.limits, request.headers.get("content-length", "")
        too_large = f"the body is larger than {limits.max_body_mib:g} MiB"
        if declared.isdecimal() and (len(declared) > 15 or int(declared) > limits.max_body):
            raise RefusalError(413, too_large)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusalError(415, "Content-Encoding: expected none, as the server unpacks no bodies")
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                async for chunk in request.stream():
                    content += chunk
                    self.num_bytes += len(chunk)
                    if len(content) > limits.max_body:
                        raise RefusalError(413, too_large)
                    if self.num_bytes > self.max_bytes:
                        raise RefusalError(503, "too many large requests at a time", 1)
        except TimeoutError as error:
            raise RefusalError(408, f"the body did not arrive within {limits.body_timeout_s:g} s") from error
        except ClientDisconnect as error:
            raise RefusalError(400, "the client has left") from error


def media_type_of(header: str) -> tuple[str, dict[str, str]]:
    """Splits a Content-Type into the media type and its parameters."""
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(header)
    parameters = {name.decode("latin-1"): value.decode("latin-1") for name, value in options.items()}
    return kind.decode("latin-1").strip().lower(), parameters


class Answering:
    """What a request to a model goes through: its body, its inputs, the queue of the model.

    Args:
        limits: of the server.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.readers = ThreadPoolExecutor(NUM_READERS, "reader")
        self.large_reader = ThreadPoolExecutor(1, "large-reader")
        self.bodies = Bodies(limits)

    def close(self) -> None:
        """Ends the threads."""
        self.readers.shutdown(wait=False)
        self.large_reader.shutdown(wait=False)

    async def answer(self, request: Request, model: Model) -> list[dict[str, Any]]:
        """The answers to a request.

        Raises:
            RefusalError: there are none.
        """
        samples, options, deadline = await self._read(request, model)
        try:
            async with asyncio.timeout_at(deadline):
                with _refusing():
                    future = model.queue.submit(samples, options)
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise self._late() from error
        except InputError as error:
            raise RefusalError(422, str(error)) from error
        except RefusalError:
            raise
        except Exception as error:  # of any kind, in the model
            fail(error)

    async def stream(self, request: Request, model: Model) -> Response:
        """The pieces of a generated text, as server-sent events.

        Raises:
            RefusalError: the model generates no text, or cannot take the input.
        """
        if "max_new_tokens" not in model.served.options:
            raise RefusalError(404, f"model {model.name}: generates no text, so there is nothing to stream")
        samples, options, _ = await self._read(request, model)
        if len(samples) != 1:
            raise RefusalError(422, f"inputs: a stream takes one, got {len(samples)}")
        with _refusing():
            events = Events(model, samples[0], options)
        return StreamingResponse(
            events.sent(self.limits.timeout_s), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def _read(self, request: Request, model: Model) -> tuple[list[Any], dict[str, Any], float]:
        """Samples and options of a request, and when its answer is due, by the clock of the event loop.

        Raises:
            RefusalError: the model cannot take it.
        """
        query, loop = dict(request.query_params), asyncio.get_running_loop()
        async with self.bodies.received(request) as body:
            deadline = loop.time() + self.limits.timeout_s
            try:
                async with asyncio.timeout_at(deadline):
                    payload = await loop.run_in_executor(self.readers, parse, body, query, model.served, self.limits)
                    reader = self.readers if payload.num_pixels < LARGE else self.large_reader
                    samples = await loop.run_in_executor(reader, read_inputs, payload, model)
                    return samples, payload.options, deadline
            except TimeoutError as error:
                raise self._late() from error
            except RefusalError:
                raise
            except Exception as error:  # of any kind, in the code that reads inputs
                fail(error)

    def _late(self) -> RefusalError:
        return RefusalError(504, f"no answer within {self.limits.timeout_s:g} s", 1)


def read_inputs(payload: Payload, model: Model) -> list[Any]:
    """Samples of what a request asks for.

    Raises:
        RefusalError: the model cannot take one.
    """
    samples = []
    for number, source in enumerate(payload.sources):
        try:
            samples.append(model.served.read(source))
        except InputError as error:
            is_named = len(payload.sources) > 1 or any(payload.files)
            raise RefusalError(422, f"{payload.name_of(number)}: {error}" if is_named else str(error)) from error
        finally:
            if payload.num_pixels >= LARGE:
                release()
    return samples


def fail(error: Exception) -> NoReturn:
    """Has the client get a number, and the log the rest.

    Raises:
        RefusalError: always.
    """
    number = uuid.uuid4().hex[:12]
    log.error("internal error %s", number, exc_info=error)
    raise RefusalError(500, f"internal error {number}") from error


@contextlib.contextmanager
def _refusing() -> Any:
    try:
        yield
    except QueueFull as error:
        raise RefusalError(429, "too many requests wait for the model", 1) from error
    except QueueClosed as error:
        raise RefusalError(503, "the server is closing", 1) from error


class Events:
    """A text that the model's thread generates, on its way to the client.

    Args:
        model: generates.
        sample: the prompt.
        options: of the request.

    Raises:
        QueueFull: there is no room.
        QueueClosed: the queue accepts nothing more.
    """

    def __init__(self, model: Model, sample: Any, options: Mapping[str, Any]) -> None:
        self.model = model
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.is_listened_to = True
        self._loop = asyncio.get_running_loop()
        self._future = model.queue.submit_stream(
            lambda: iter(model.served.stream(sample, **options) or ()), lambda piece: self._tell({"text": piece})
        )
        self._future.add_done_callback(self._end)

    async def sent(self, timeout_s: float) -> AsyncIterator[bytes]:
        """The body of the response."""
        try:
            while True:
                event = await asyncio.wait_for(self.events.get(), timeout_s)
                yield _line(event)
                if "text" not in event:
                    return
        except TimeoutError:
            yield _line({"error": f"no text within {timeout_s:g} s"})
        finally:
            self.is_listened_to = False
            self._future.cancel()

    def _tell(self, event: dict[str, Any]) -> bool:
        self._loop.call_soon_threadsafe(self.events.put_nowait, event)
        return self.is_listened_to

    def _end(self, future: "Future[None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, Exception) and not isinstance(error, InputError):
            log.error("a stream of %s failed", self.model.name, exc_info=error)
            self._tell({"error": "internal error"})
        else:
            self._tell({"done": True} if error is None else {"error": str(error)})


def _line(event: Mapping[str, Any]) -> bytes:
    return b"data: " + encode(event) + b"\n\n"
