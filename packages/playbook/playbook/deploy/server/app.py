"""The HTTP API: its routes."""

import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.routing import Match

from playbook.deploy.server.answering import Answering
from playbook.deploy.server.answers import encode
from playbook.deploy.server.catalogue import Catalogue, Model
from playbook.deploy.server.docs import address_of, docs_page
from playbook.deploy.server.guard import Guard
from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.openapi import (
    ANSWERS,
    CHANGES,
    FILE,
    MODEL,
    MODELS,
    REFUSALS,
    STATUS,
    TEXT,
    add_rows,
    answered,
    requested,
)
from playbook.pages import STYLE

METHODS = ("GET", "HEAD", "POST")
PAGE = Path(__file__).parent / "page"


def make_app(
    catalogue: Catalogue, token: str | None = None, is_local: bool = False, origins: Iterable[str] = ()
) -> Guard:
    """The application of a server.

    Args:
        catalogue: its models, not opened yet.
        token: that clients send; None asks for none.
        is_local: whether the server is bound to this machine alone.
        origins: of pages of other sites that may ask.
    """
    answering = Answering(catalogue.limits)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await catalogue.open()
        yield
        await catalogue.close()
        answering.close()

    app = FastAPI(title="Playbook", docs_url=None, redoc_url=None, lifespan=lifespan, responses=REFUSALS)
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    _add_pages(app, catalogue, token is not None)
    declared = [] if token is None else [Security(HTTPBearer(auto_error=False))]  # for OpenAPI alone: Guard asks for it
    guarded = APIRouter(dependencies=declared)
    _add_metrics(guarded, catalogue)
    _add_models(guarded, catalogue, answering)
    app.include_router(guarded)
    app.mount("/page", StaticFiles(directory=PAGE))
    describe_api = app.openapi

    def openapi() -> dict[str, Any]:
        newest = {name: catalogue.find(name).row for name in sorted(catalogue.models)}
        return add_rows(describe_api(), {name: row for name, row in newest.items() if row is not None})

    app.openapi = openapi  # as FastAPI documents it
    return Guard(
        app,
        catalogue.metrics,
        token,
        is_local,
        lambda: catalogue.is_closing,
        origins,
        functools.partial(methods_of, app),
    )


def methods_of(app: FastAPI, scope: Mapping[str, Any]) -> list[str]:
    """The methods that an address has; none where there is no such address."""
    known = [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]
    return [*known, "OPTIONS"] if known else []


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        if error.status_code == 405:  # Starlette names those of the first route that has the address
            headers = {"allow": ", ".join(methods_of(request.app, request.scope))}
        return reply({"error": str(error.detail)}, error.status_code, headers)
    assert isinstance(error, RefusalError), f"{type(error)} has no handler"
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return reply({"error": error.text}, error.status, headers)


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(encode(content), status, headers, "application/json")


def _add_pages(app: FastAPI, catalogue: Catalogue, has_token: bool) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        # the page needs no token, so it names no models where clients must send one
        models = [] if has_token else [catalogue.find(name) for name in sorted(catalogue.models)]
        return HTMLResponse(docs_page(models, address_of(request.scope), has_token))

    @app.get("/page/style.css", include_in_schema=False)
    async def style() -> Response:
        return FileResponse(STYLE, media_type="text/css")

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

    async def example(request: Request) -> Response:
        model = find(request)
        if model.example is None:
            raise RefusalError(404, f"model {model.name}: has no example")
        return Response(model.example.content, media_type=model.example.media_type)

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
        router.get(
            f"{path}/example",
            summary=f"The body of an example, {which}",
            responses=answered("As a POST takes it.", FILE, "*/*"),
            openapi_extra=requested(path, False),
        )(example)
        router.post(path, summary=f"Answer inputs, {which}", responses=answers, openapi_extra=extra)(answer)
        summary = f"Generate text piece by piece, {which}"
        router.post(f"{path}/stream", summary=summary, responses=events, openapi_extra=extra)(stream)

    @router.post("/v1/rescan", summary="Look at the folders of models again", responses=answered("Changes.", CHANGES))
    async def rescan() -> Response:
        return reply(vars(await catalogue.rescan()))
