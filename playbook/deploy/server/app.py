"""The HTTP API: routes, and what a request goes through."""

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any, NoReturn

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from playbook.deploy.runtime import InputError
from playbook.deploy.server.answers import encode
from playbook.deploy.server.catalogue import Catalogue, Model
from playbook.deploy.server.guard import Guard
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads import Body, parse
from playbook.deploy.server.queue import QueueClosed, QueueFull

PAGE = Path(__file__).parent / "page"
NUM_READERS = 4  # threads that parse bodies and read inputs
ANY_BODY = {"schema": {"type": "string", "format": "binary"}}
JSON_BODY = {
    "schema": {
        "type": "object",
        "properties": {"input": {}, "inputs": {"type": "array"}, "options": {"type": "object"}},
        "additionalProperties": False,
    }
}
MEDIA_TYPES = ("application/octet-stream", "multipart/form-data", "text/plain", "text/csv", "image/png", "image/jpeg")
REQUEST = {
    "requestBody": {
        "required": True,
        "content": {"application/json": JSON_BODY, **dict.fromkeys(MEDIA_TYPES, ANY_BODY)},
    }
}
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
STATUSES = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503, 504)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "refused", "content": {"application/json": {"schema": ERROR}}} for status in STATUSES
}
log = logging.getLogger(__name__)


def make_app(catalogue: Catalogue, token: str | None = None, is_local: bool = False) -> Guard:
    """The application of a server.

    Args:
        catalogue: its models, not opened yet.
        token: that clients send; None asks for none.
        is_local: whether the server is bound to this machine alone.
    """
    readers = ThreadPoolExecutor(NUM_READERS, "reader")

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await catalogue.open()
        yield
        await catalogue.close()
        readers.shutdown()

    app = FastAPI(title="Playbook", docs_url=None, redoc_url=None, lifespan=lifespan, responses=ERRORS)
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    _add_pages(app, catalogue)
    _add_models(app, catalogue, readers)
    app.mount("/page", StaticFiles(directory=PAGE))
    return Guard(app, catalogue.metrics, token, is_local, lambda: catalogue.is_closing)


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return reply({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))
    assert isinstance(error, RefusalError), f"{type(error)} has no handler"
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return reply({"error": error.text}, error.status, headers)


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(encode(content), status, headers, "application/json")


def _add_pages(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    @app.get("/health", summary="Whether the process lives")
    async def health() -> Response:
        return reply({"status": "ok"})

    @app.get("/ready", summary="Whether models are served")
    async def ready() -> Response:
        is_ready = bool(catalogue.models)
        return reply({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    @app.get("/metrics", summary="Metrics in Prometheus' format")
    async def metrics() -> Response:
        return Response(catalogue.metrics.text(), media_type=catalogue.metrics.media_type)


def _add_models(app: FastAPI, catalogue: Catalogue, readers: ThreadPoolExecutor) -> None:
    one, version_of = "/v1/models/{name}", "/v1/models/{name}/versions/{version}"

    def find(request: Request) -> Model:
        name, version = request.path_params["name"], request.path_params.get("version")
        if version is not None and not (version.isascii() and version.isdecimal() and len(version) < 19):
            raise RefusalError(404, f"version {version[:40]}: expected a whole number")
        model = catalogue.find(name, None if version is None else int(version))
        request.scope["playbook.model"] = (model.name, str(model.version))
        return model

    @app.get("/v1/models", summary="All models")
    async def models() -> Response:
        newest = [catalogue.find(name) for name in sorted(catalogue.models)]
        return reply({"models": [catalogue.describe(model) for model in newest]})

    @app.get(one, summary="One model")
    @app.get(version_of, summary="One version of a model")
    async def describe(request: Request, name: str, version: str | None = None) -> Response:
        return reply(catalogue.describe(find(request)))

    @app.post(one, summary="Answer inputs", openapi_extra=REQUEST)
    @app.post(version_of, summary="Answer inputs with one version", openapi_extra=REQUEST)
    async def answer(request: Request, name: str, version: str | None = None) -> Response:
        model = find(request)
        with model.used():
            answers = await answered(request, model, catalogue.limits, readers)
        return reply({"model": model.name, "version": model.version, "answers": answers})

    @app.post(f"{one}/stream", summary="Generate text piece by piece", openapi_extra=REQUEST)
    @app.post(f"{version_of}/stream", summary="Generate with one version", openapi_extra=REQUEST)
    async def stream(request: Request, name: str, version: str | None = None) -> Response:
        model = find(request)
        with model.used():
            return await streamed(request, model, catalogue.limits, readers)

    @app.post("/v1/rescan", summary="Look at the folders of models again")
    async def rescan() -> Response:
        return reply(vars(await catalogue.rescan()))


async def receive_body(request: Request, limits: Limits) -> Body:
    """The body of a request, bounded in size and time.

    Raises:
        RefusalError: it is too large or too slow.
    """
    declared = request.headers.get("content-length", "")
    too_large = f"the body is larger than {limits.max_body_mib:g} MiB"
    if declared.isdecimal() and (len(declared) > 15 or int(declared) > limits.max_body):
        raise RefusalError(413, too_large)
    content = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            async for chunk in request.stream():
                content += chunk
                if len(content) > limits.max_body:
                    raise RefusalError(413, too_large)
    except TimeoutError as error:
        raise RefusalError(408, f"the body did not arrive within {limits.body_timeout_s:g} s") from error
    except ClientDisconnect as error:
        raise RefusalError(400, "the client has left") from error
    return Body(bytes(content), *media_type_of(request.headers.get("content-type", "")))


def media_type_of(header: str) -> tuple[str, dict[str, str]]:
    """Splits a Content-Type into the media type and its parameters."""
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(header)
    parameters = {name.decode("latin-1"): value.decode("latin-1") for name, value in options.items()}
    return kind.decode("latin-1").strip().lower(), parameters


async def prepared(
    request: Request, model: Model, limits: Limits, readers: ThreadPoolExecutor
) -> tuple[list[Any], dict[str, Any]]:
    """Samples and options of a request.

    Raises:
        RefusalError: the model cannot take it.
    """
    body = await receive_body(request, limits)
    query = dict(request.query_params)

    def read() -> tuple[list[Any], dict[str, Any]]:
        payload = parse(body, query, model.served, limits)
        samples = []
        for number, source in enumerate(payload.sources):
            try:
                samples.append(model.served.read(source))
            except InputError as error:
                place = f"input {number}: " if len(payload.sources) > 1 else ""
                raise RefusalError(422, f"{place}{error}") from error
        return samples, payload.options

    try:
        return await asyncio.get_running_loop().run_in_executor(readers, read)
    except RefusalError:
        raise
    except Exception as error:  # of any kind, in the code that reads inputs
        fail(error)


def fail(error: Exception) -> NoReturn:
    """Has the client get a number, and the log the rest.

    Raises:
        RefusalError: always.
    """
    number = uuid.uuid4().hex[:12]
    log.error("internal error %s", number, exc_info=error)
    raise RefusalError(500, f"internal error {number}") from error


async def answered(request: Request, model: Model, limits: Limits, readers: ThreadPoolExecutor) -> list[dict[str, Any]]:
    """The answers to a request.

    Raises:
        RefusalError: there are none.
    """
    try:
        async with asyncio.timeout(limits.timeout_s + limits.body_timeout_s):
            samples, options = await prepared(request, model, limits, readers)
            with _refusing():
                future = model.queue.submit(samples, options)
            return await asyncio.wait_for(asyncio.wrap_future(future), limits.timeout_s)
    except TimeoutError as error:
        raise RefusalError(504, f"no answer within {limits.timeout_s:g} s") from error
    except InputError as error:
        raise RefusalError(422, str(error)) from error
    except RefusalError:
        raise
    except Exception as error:  # of any kind, in the model
        fail(error)


@contextlib.contextmanager
def _refusing() -> Any:
    try:
        yield
    except QueueFull as error:
        raise RefusalError(429, "too many requests wait for the model", 1) from error
    except QueueClosed as error:
        raise RefusalError(503, "the server is closing", 1) from error


async def streamed(request: Request, model: Model, limits: Limits, readers: ThreadPoolExecutor) -> Response:
    """The pieces of a generated text, as server-sent events.

    Raises:
        RefusalError: the model generates no text, or cannot take the input.
    """
    if "max_new_tokens" not in model.served.options:
        raise RefusalError(404, f"model {model.name}: generates no text, so there is nothing to stream")
    samples, options = await prepared(request, model, limits, readers)
    if len(samples) != 1:
        raise RefusalError(422, f"inputs: a stream takes one, got {len(samples)}")
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state = {"listens": True}

    def tell(event: dict[str, Any]) -> bool:
        loop.call_soon_threadsafe(events.put_nowait, event)
        return state["listens"]

    def start() -> Any:
        return iter(model.served.stream(samples[0], **options) or ())

    def end(future: "Future[None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, Exception) and not isinstance(error, InputError):
            log.error("a stream of %s failed", model.name, exc_info=error)
            tell({"error": "internal error"})
        else:
            tell({"done": True} if error is None else {"error": str(error)})

    with _refusing():
        future = model.queue.submit_stream(start, lambda piece: tell({"text": piece}))
    future.add_done_callback(end)

    async def send() -> AsyncIterator[bytes]:
        try:
            while True:
                event = await asyncio.wait_for(events.get(), limits.timeout_s)
                yield b"data: " + encode(event) + b"\n\n"
                if "text" not in event:
                    return
        except TimeoutError:
            yield b"data: " + encode({"error": f"no text within {limits.timeout_s:g} s"}) + b"\n\n"
        finally:
            state["listens"] = False
            future.cancel()

    return StreamingResponse(send(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def docs_page(schema: Mapping[str, Any]) -> str:
    """The API as a page that needs no network."""
    rows = [
        f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>{escape(operation.get('summary', ''))}"
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    example = escape(json.dumps({"inputs": ["…"], "options": {"top": 3}}, ensure_ascii=False))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>API</title><h1>API</h1>'
        f"<table>{''.join(rows)}</table><p>A body is JSON, such as <code>{example}</code>, or the input itself: "
        'an image, a text, a table, or an array. <a href="/openapi.json">OpenAPI</a></html>'
    )
