"""Models and their versions: which are served, and how one takes over from another without a lost request."""

import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playbook.deploy.runtime.artefact import MANIFEST
from playbook.deploy.served import Served, class_names
from playbook.deploy.server.examples import example_of
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.metrics import Metrics
from playbook.deploy.server.openapi import row_schema
from playbook.deploy.server.queue import BatchQueue
from playbook.errors import UserError, nearest
from playbook.runs.colours import class_colour

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
AUDIO = ("sample_rate", "seconds", "overlap")  # of a recording, for clients that divide longer ones
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where a version comes from.

    Args:
        name: of the model.
        version: its number, from 1.
        folder: of the artefact; None for a run, which is never reloaded.
        stamp: changes where the artefact is replaced.
    """

    name: str
    version: int
    folder: Path | None = None
    stamp: tuple[int, ...] = ()


class Model:
    """One version of a model that is being served.

    Args:
        place: where it comes from.
        served: what answers.
        limits: of the queue.
        metrics: which it reports to.
    """

    def __init__(self, place: Place, served: Served, limits: Limits, metrics: Metrics) -> None:
        self.place = place
        self.name, self.version = place.name, place.version
        self.served = served
        self.example = example_of(served.manifest, place.folder)
        sizes = metrics.batches.labels(self.name, str(self.version))
        self.queue = BatchQueue(
            served.answer_samples, limits.batch_size, limits.max_queue, sizes.observe, f"{self.name}-{self.version}"
        )
        metrics.queue.labels(self.name, str(self.version)).set_function(lambda: len(self.queue))
        self._num_users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keeps the model as long as a request needs it; call it in the event loop."""
        self._num_users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._num_users -= 1
            if not self._num_users:
                self._unused.set()

    async def drain(self, timeout_s: float | None = None) -> None:
        """Finishes all requests that have begun, then ends the model's thread; waits no longer than that for it."""
        await self._unused.wait()
        await asyncio.get_running_loop().run_in_executor(None, self.queue.close, timeout_s)

    @property
    def row(self) -> dict[str, Any] | None:
        """The schema of an input, if it is a row of a table."""
        return row_schema(self.served.manifest["preprocessing"]) if self.served.kind == "row" else None

    def describe(self, versions: list[int]) -> dict[str, Any]:
        """What a client may know about the model."""
        manifest = self.served.manifest
        reading, answering = (manifest.get(key) or {} for key in ("preprocessing", "postprocessing"))
        classes, answers, example = class_names(manifest), answering.get("kind"), self.example
        first = 0 if answers == "mask" else 1  # of a box, 0 would be black
        defaults = {name: name for name in self.served.options}
        if answers == "labels":
            defaults["score"] = "threshold"
        known = {key: manifest.get(key) for key in ("task", "net", "format", "quantization", "inputs", "outputs")}
        return {
            "name": self.name,
            "version": self.version,
            "versions": versions,
            "kind": self.served.kind,
            **known,
            "answers": answers,
            "row": self.row,
            "channels": reading.get("channels"),
            "audio": {key: reading.get(key) for key in AUDIO} if self.served.kind == "audio" else None,
            "target": (manifest.get("facts") or {}).get("target_name"),
            "example": None if example is None else {"type": example.media_type, "is_sample": example.is_sample},
            "classes": classes,
            "colours": [f"#{bytes(class_colour(first + number)).hex()}" for number in range(len(classes))],
            "options": {name: kind.__name__ for name, kind in self.served.options.items()},
            "defaults": {name: answering[key] for name, key in defaults.items() if answering.get(key) is not None},
            "streams": "max_new_tokens" in self.served.options,
        }


@dataclass
class Changes:
    """What a look at the folders changed, as names with versions, and what could not be loaded."""

    loaded: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Catalogue:
    """All models of a server.

    Args:
        limits: of the queues.
        load: makes what answers from the folder of an artefact.
        folders: each an artefact, or a folder of NAME/VERSION/ folders.
        metrics: of the server.
    """

    def __init__(
        self, limits: Limits, load: Callable[[Path], Served] | None = None, folders: tuple[Path, ...] = ()
    ) -> None:
        self.limits = limits
        self.load = load
        self.folders = folders
        self.metrics = Metrics(limits)
        self.models: dict[str, dict[int, Model]] = {}
        self.is_closing = False
        self._first: list[tuple[Place, Served]] = []  # loaded before there is an event loop
        self._scanning: asyncio.Lock | None = None
        self._draining: set[asyncio.Task] = set()

    def add(self, place: Place, served: Served) -> None:
        """Has a model served from the start."""
        self._first.append((place, served))

    def places(self) -> list[Place]:
        """Where the models come from that are served from the start."""
        return [place for place, _ in self._first]

    def load_all(self) -> None:
        """Loads what the folders hold, before the server starts.

        Raises:
            UserError: one of them cannot be served.
        """
        assert self.load is not None, "folders are loaded by a function"
        for place in find_places(self.folders):
            assert place.folder is not None, "a place in a folder"
            self.add(place, self.load(place.folder))

    async def open(self) -> None:
        """Begins to serve, in the event loop."""
        self._scanning = asyncio.Lock()
        for place, served in self._first:
            self._put(Model(place, served, self.limits, self.metrics))
        self._first = []

    async def close(self) -> None:
        """Finishes all that was accepted."""
        self.is_closing = True
        models = [model for versions in self.models.values() for model in versions.values()]
        self.models = {}
        await asyncio.gather(*(model.drain(self.limits.timeout_s) for model in models), *self._draining)

    def find(self, name: str, version: int | None = None) -> Model:
        """The model of a name, in its newest version if none is named.

        Raises:
            RefusalError: there is none.
        """
        versions = self.models.get(name)
        if not versions and self.is_closing:
            raise RefusalError(503, "the server is closing", 1)
        if not versions:
            names = ", ".join(sorted(self.models)) or "none"
            close = nearest(name[:100], self.models)
            raise RefusalError(404, f"model {name[:100]}: not served here, expected one of {names}{close}")
        if version is None:
            return versions[max(versions)]
        if version not in versions:
            known = ", ".join(map(str, sorted(versions)))
            raise RefusalError(404, f"model {name}: has no version {version:.20g}, expected one of {known}")
        return versions[version]

    def describe(self, model: Model) -> dict[str, Any]:
        """What a client may know about a model."""
        return model.describe(sorted(self.models.get(model.name, {model.version: model})))

    async def rescan(self) -> Changes:
        """Looks at the folders again: loads what is new, has it take over, then lets go of what is no longer there.

        A version that cannot be loaded changes nothing: the former one goes on.
        """
        assert self._scanning is not None, "open the catalogue first"
        async with self._scanning:
            changes = Changes()
            try:
                places = {(place.name, place.version): place for place in find_places(self.folders)}
            except (UserError, OSError) as error:  # a folder may go while it is looked at
                log.warning("rescan: %s", error)
                changes.failed.append("folders")
                return changes
            for place in places.values():
                former = self.models.get(place.name, {}).get(place.version)
                if former is None or former.place != place:
                    await self._load_place(place, changes)
            for versions in list(self.models.values()):
                for model in list(versions.values()):
                    if model.place.folder is not None and (model.name, model.version) not in places:
                        self._remove(model)
                        changes.removed.append(f"{model.name}/{model.version}")
            return changes

    async def _load_place(self, place: Place, changes: Changes) -> None:
        assert self.load is not None, "folders are loaded by a function"
        assert place.folder is not None, "a place in a folder"
        title = f"{place.name}/{place.version}"
        try:
            served = await asyncio.get_running_loop().run_in_executor(None, self.load, place.folder)
        except Exception:  # of any kind: the server lives on
            log.exception("rescan: %s cannot be loaded", title)
            changes.failed.append(title)
            return
        if self.is_closing:
            return
        self._put(Model(place, served, self.limits, self.metrics))
        changes.loaded.append(title)

    def _put(self, model: Model) -> None:
        former = self.models.setdefault(model.name, {}).get(model.version)
        self.models[model.name][model.version] = model
        if former is not None:
            self._let_go(former)
        self._count()

    def _remove(self, model: Model) -> None:
        del self.models[model.name][model.version]
        if not self.models[model.name]:
            del self.models[model.name]
        self.metrics.forget(model.name, model.version)
        self._let_go(model)
        self._count()

    def _let_go(self, model: Model) -> None:
        task = asyncio.get_running_loop().create_task(model.drain())
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def _count(self) -> None:
        self.metrics.loaded.set(sum(map(len, self.models.values())))


def find_places(folders: tuple[Path, ...]) -> list[Place]:
    """Versions of models in folders.

    Raises:
        UserError: a folder holds none, or two have the same name and version.
    """
    places: dict[tuple[str, int], Place] = {}
    for folder in folders:
        own = _places_in(folder)
        if not own:
            raise UserError(
                f"serve {folder.as_posix()}: expected an artefact, which has a file {MANIFEST}, or a folder of "
                "NAME/VERSION/ folders, such as digits/1/"
            )
        for place in own:
            former = places.setdefault((place.name, place.version), place)
            if former is not place:
                raise UserError(
                    f"serve {folder.as_posix()}: model {place.name}, version {place.version} is also in "
                    f"{(former.folder or folder).as_posix()}; use folders NAME/VERSION/ to serve several versions"
                )
    return list(places.values())


def _places_in(folder: Path) -> list[Place]:
    if (folder / MANIFEST).is_file():
        return [Place(_name_in(folder), 1, folder, _stamp(folder))]
    manifests = sorted(folder.glob(f"*/*/{MANIFEST}"))
    inner = [manifest.parent for manifest in manifests if manifest.parent.name.isdecimal()]
    return [
        Place(path.parent.name, int(path.name), path, _stamp(path))
        for path in inner
        if NAME.fullmatch(path.parent.name)
    ]


def _name_in(folder: Path) -> str:
    manifest = read_manifest(folder)
    return safe_name(str(manifest.get("name") or folder.resolve().name))


def safe_name(text: str) -> str:
    """A name that may stand in an address."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]
    return name or "model"


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """The manifest of an artefact.

    Raises:
        UserError: it is damaged.
    """
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"serve {folder.as_posix()}: {MANIFEST} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise UserError(f"serve {folder.as_posix()}: {MANIFEST} is not an object")
    return manifest


def _stamp(folder: Path) -> tuple[int, ...]:
    state = (folder / MANIFEST).stat()
    return (state.st_mtime_ns, state.st_size, state.st_ino if sys.platform != "win32" else 0)
