"""serve: answers requests over HTTP."""

import argparse
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from playbook.command.verb import ModelVerb
from playbook.errors import UserError

if TYPE_CHECKING:
    from playbook.command.session import Session
    from playbook.deploy.server.limits import Limits

PACKAGES = ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "numpy")
OPTIONS: dict[str, type] = {
    "port": int,
    "host": str,
    "token_env": str,
    "batch_size": int,
    "max_queue": int,
    "max_body_mib": float,
    "timeout_s": float,
    "body_timeout_s": float,
    "max_connections": int,
    "max_pixels": int,
    "threads": int,
    "cors": str,
}


class Serve(ModelVerb):
    """Serves exported artefacts without torch, unless their format needs it, and runs with their own code."""

    name = "serve"
    summary = "Serve models over HTTP: exported artefacts, folders NAME/VERSION/ of them, or a run."
    examples = ("cnn-onnx", "models/ --port 8080", "--ckpt_path best")

    def first(self, args: list[str]) -> int | list[str]:
        """Serves artefacts; of a run, returns the arguments that name it by --ckpt_path."""
        paths, options = split(args)
        if not paths:
            return args
        missing = [path for path in paths if not Path(path).exists()]
        if missing:
            raise UserError(f"serve {missing[0]}: no such artefact, folder or run")
        runs = [path for path in paths if is_run(Path(path))]
        if not runs:
            return serve_artefacts(paths, options)
        if len(paths) > 1:
            raise UserError(f"serve {' '.join(paths)}: expected one run alone; export it to serve it beside others")
        return ["--ckpt_path", runs[0], *options]

    def before_build(self, session: "Session") -> None:
        values = session.options
        require_packages()
        checked_limits({name: values[name] for name in OPTIONS})

    def run(
        self,
        session: "Session",
        port: int = 8000,
        host: str = "127.0.0.1",
        token_env: str | None = None,
        batch_size: int = 32,
        max_queue: int = 256,
        max_body_mib: float = 16.0,
        timeout_s: float = 30.0,
        body_timeout_s: float = 10.0,
        max_connections: int = 512,
        max_pixels: int = 2**24,
        threads: int | None = None,
        cors: str | None = None,
    ) -> int | None:
        """Serves.

        Args:
            session: the model that the checkpoint is of, and its data.
            port: of the server; 0 finds a free one.
            host: address to bind; 127.0.0.1 is this machine alone.
            token_env: name of an environment variable with a token that clients send.
            batch_size: most samples that the model gets at a time.
            max_queue: most samples that wait for a model; further requests get 429.
            max_body_mib: largest body of a request in MiB.
            timeout_s: seconds from the last byte of a request to its answer, with the wait for the model, or from one
                piece of a stream to the next; then 504.
            body_timeout_s: seconds in which the headers of a request must arrive, and then its body; then 408.
            max_connections: most connections at a time; further ones get 503.
            max_pixels: most pixels of a picture that are decoded, one large picture at a time. Larger files of JPEG and
                JPEG 2000 are decoded at a half, a quarter or an eighth of their sides; others get 413.
            threads: of the CPU, for each model. Defaults to the choice of its runtime.
            cors: origins of web pages that may ask for answers, separated by commas, such as https://shop.example; *
                for all. /v1/rescan is for pages of the server alone.
        """
        import torch

        from playbook.deploy.served_run import ServedRun
        from playbook.deploy.server.catalogue import Catalogue, Place, safe_name
        from playbook.deploy.server.origins import parsed_origins
        from playbook.deploy.server.run import bind, serve

        limits = checked_limits(
            {
                "port": port, "batch_size": batch_size, "max_queue": max_queue, "max_body_mib": max_body_mib,
                "timeout_s": timeout_s, "body_timeout_s": body_timeout_s, "max_connections": max_connections,
                "max_pixels": max_pixels, "threads": threads,
            }
        )  # fmt: skip
        token, origins = token_of(token_env), parsed_origins(cors)
        if threads is not None:
            torch.set_num_threads(threads)
        own = bind(host, port)
        with own:
            catalogue = Catalogue(limits)
            catalogue.add(Place(safe_name(session.run.title), 1), ServedRun.of(session, max_pixels))
            return serve(catalogue, own, host, token, origins)


def split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Paths, and options with their values."""
    paths, options, takes_value = [], [], False
    for arg in args:
        if arg.startswith("-") and not takes_value:
            options.append(arg)
            takes_value = "=" not in arg
        elif takes_value:
            options.append(arg)
            takes_value = False
        else:
            paths.append(arg)
    return paths, options


def is_run(path: Path) -> bool:
    """Whether a path is a checkpoint or a run directory."""
    return path.is_file() or (path / "checkpoints").is_dir()


def serve_artefacts(paths: Sequence[str], options: Sequence[str]) -> int:
    """Serves artefacts; returns the exit code."""
    values = parsed(options)
    require_packages()
    limits, token = checked_limits(values), token_of(values["token_env"])
    from playbook.deploy.served import ServedArtefact
    from playbook.deploy.server.catalogue import Catalogue
    from playbook.deploy.server.origins import parsed_origins
    from playbook.deploy.server.run import bind, serve

    origins = parsed_origins(values["cors"])
    load = functools.partial(ServedArtefact, num_threads=values["threads"], max_pixels=limits.max_pixels)
    with bind(values["host"], values["port"]) as own:
        catalogue = Catalogue(limits, load, tuple(map(Path, paths)))
        catalogue.load_all()
        return serve(catalogue, own, values["host"], token, origins)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"serve: {message}")


def parsed(options: Sequence[str]) -> dict[str, Any]:
    """Values of the options of artefacts.

    Raises:
        UserError: one is unknown, or not of its type.
    """
    import inspect

    parser = _Parser(add_help=False, allow_abbrev=False)
    for name, kind in OPTIONS.items():
        default = inspect.signature(Serve.run).parameters[name].default
        parser.add_argument(f"--{name}", type=kind, default=default)
    known, unknown = parser.parse_known_args([_underscored(option) for option in options])
    if unknown:
        from playbook.errors import nearest

        name = unknown[0].partition("=")[0].removeprefix("--")
        raise UserError(f"{unknown[0]}: expected one of --{', --'.join(OPTIONS)}{nearest(name, OPTIONS)}")
    return vars(known)


def _underscored(option: str) -> str:
    name, sign, value = option.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + sign + value if option.startswith("--") else option


def checked_limits(values: dict[str, Any]) -> "Limits":
    """Bounds of the server.

    Raises:
        UserError: an option is out of range.
    """
    from playbook.deploy.server.limits import Limits

    if not 0 <= values["port"] < 2**16:
        raise UserError(f"--port {values['port']}: expected a number in [0, 65535]")
    for name in ("batch_size", "max_queue", "max_connections", "max_pixels", "threads"):
        if values[name] is not None and values[name] < 1:
            raise UserError(f"--{name} {values[name]}: expected at least 1")
    for name in ("max_body_mib", "timeout_s", "body_timeout_s"):
        if not 0 < values[name] < 2**20:
            raise UserError(f"--{name} {values[name]}: expected a positive number")
    return Limits(**{name: values[name] for name in values.keys() & Limits.__annotations__})


def token_of(variable: str | None) -> str | None:
    """The token in an environment variable.

    Raises:
        UserError: the variable is not set, or empty.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise UserError(f"--token_env {variable}: this environment variable is not set, expected it to contain a token")
    return token


def require_packages() -> None:
    """Names what is missing.

    Raises:
        UserError: something is.
    """
    from importlib.util import find_spec

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(f"serve: needs {missing[0]}, which is not installed; `uv sync --extra serve` adds it")


VERB = Serve()
ORDER = 9
