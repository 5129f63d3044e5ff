"""The HTTP API: its routes."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from playbook.deploy.server.answering import Answering
from playbook.deploy.server.answers import encode
from playbook.deploy.server.catalogue import Catalogue, Model
from playbook.deploy.server.guard import Guard
from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.openapi import (
    ANSWERS,
    CHANGES,
    MODEL,
    MODELS,
    REFUSALS,
    STATUS,
    TEXT,
    answered,
    requested,
)

PAGE = Path(__file__).parent / "page"


def make_app(catalogue: Catalogue, token: str | None = None, is_local: bool = False) -> Guard:
    """The application of a server.

    Args:
        catalogue: its models, not opened yet.
        token: that clients send; None asks for none.
        is_local: whether the server is bound to this machine alone.
    """
    answering = Answering(catalogue.limits)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await catalogue.open()
        yield
        await catalogue.close()
        answering.readers.shutdown(wait=False)

    app = FastAPI(title="Playbook", docs_url=None, redoc_url=None, lifespan=lifespan, responses=REFUSALS)
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    _add_pages(app, catalogue)
    declared = [] if token is None else [Security(HTTPBearer(auto_error=False))]  # for OpenAPI alone: Guard asks for it
    guarded = APIRouter(dependencies=declared)
    _add_metrics(guarded, catalogue)
    _add_models(guarded, catalogue, answering)
    app.include_router(guarded)
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

    @app.get("/health", summary="Whether the process lives", responses=answered("It does.", STATUS))
    async def health() -> Response:
        return reply({"status": "ok"})

    @app.get("/ready", summary="Whether models are served", responses=answered("They are.", STATUS))
    async def ready() -> Response:
        if not catalogue.models:
            raise RefusalError(503, "no model is served", 1)
        return reply({"status": "ready"})


def _add_metrics(router: APIRouter, catalogue: Catalogue) -> None:
    text = answered("Counters, gauges and histograms.", TEXT, "text/plain")

    @router.get("/metrics", summary="Metrics in Prometheus' format", responses=text)
    async def metrics() -> Response:
        return Response(catalogue.metrics.text(), media_type=catalogue.metrics.media_type)


def _add_models(router: APIRouter, catalogue: Catalogue, answering: Answering) -> None:
    one, version_of = "/v1/models/{name}", "/v1/models/{name}/versions/{version}"

    def find(request: Request) -> Model:
        name, version = request.path_params["name"], request.path_params.get("version")
        if version is not None and not (version.isascii() and version.isdecimal() and len(version) < 19):
            raise RefusalError(404, f"version {version[:40]}: expected a whole number")
        model = catalogue.find(name, None if version is None else int(version))
        request.scope["playbook.model"] = (model.name, str(model.version))
        return model

    @router.get("/v1/models", summary="All models", responses=answered("Their newest versions.", MODELS))
    async def models() -> Response:
        newest = [catalogue.find(name) for name in sorted(catalogue.models)]
        return reply({"models": [catalogue.describe(model) for model in newest]})

    async def describe(request: Request) -> Response:
        return reply(catalogue.describe(find(request)))

    async def answer(request: Request) -> Response:
        model = find(request)
        with model.used():
            answers = await answering.answer(request, model)
        return reply({"model": model.name, "version": model.version, "answers": answers})

    async def stream(request: Request) -> Response:
        model = find(request)
        with model.used():
            return await answering.stream(request, model)

    described = answered("What a client may know of it.", MODEL)
    answers = answered("One answer for each input.", ANSWERS)
    events = answered("Server-sent events.", TEXT, "text/event-stream")
    for path, which in ((one, "newest version"), (version_of, "one version")):
        extra = requested(path)
        router.get(path, summary=f"A model, {which}", responses=described, openapi_extra=requested(path, False))(
            describe
        )
        router.post(path, summary=f"Answer inputs, {which}", responses=answers, openapi_extra=extra)(answer)
        summary = f"Generate text piece by piece, {which}"
        router.post(f"{path}/stream", summary=summary, responses=events, openapi_extra=extra)(stream)

    @router.post("/v1/rescan", summary="Look at the folders of models again", responses=answered("Changes.", CHANGES))
    async def rescan() -> Response:
        return reply(vars(await catalogue.rescan()))


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
