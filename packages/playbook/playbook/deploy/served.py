"""What the server serves: the interface, and an exported artefact behind it. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from playbook.deploy.runtime import Artefact
from playbook.deploy.runtime.artefact import Kind
from playbook.errors import UserError

GENERATION: dict[str, type] = {
    "max_new_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
}
OPTIONS: dict[str | None, dict[str, type]] = {  # of postprocessing
    "classes": {"top": int},
    "labels": {"top": int, "score": float},
    "boxes": {"score": float},
    "generate": GENERATION,
}


class Served(Protocol):
    """A model behind the server.

    Attributes:
        manifest: as in artefact.json; of a run, with the format `eager`.
        kind: the natural payload.
        options: options of a request and their types.
        may_reduce: whether it can read a large picture at a reduced scale.
    """

    manifest: dict[str, Any]
    kind: Kind
    options: Mapping[str, type]
    may_reduce: bool

    def read(self, source: Any) -> Any:
        """Prepares one input, in any thread.

        Args:
            source: bytes of a file, a text, a row as a dict, an array, or nested lists; never a path.

        Raises:
            InputError: the model cannot take it.
        """
        ...

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """Answers what `read` returned, one dict each; called from one thread."""
        ...

    def stream(self, sample: Any, **options: Any) -> Iterator[str] | None:
        """Generates the answer to one sample piece by piece; None if the model generates no text."""
        ...

    def draw(self, source: Any, answer: dict[str, Any]) -> bytes | None:
        """A PNG of one answer; None if there is nothing to draw."""
        ...


class ServedArtefact:
    """An exported model.

    Args:
        folder: of the artefact.
        num_threads: threads of the model. Defaults to those of its runtime.
        max_pixels: most pixels of a picture that are decoded.

    Raises:
        UserError: it is damaged, or a later version wrote it.
    """

    may_reduce = True

    def __init__(self, folder: Path, num_threads: int | None = None, max_pixels: int | None = None) -> None:
        try:
            self.artefact = Artefact(folder, num_threads, max_pixels)
        except (OSError, ValueError) as error:
            raise UserError(f"serve {folder.as_posix()}: {error}") from error
        except ImportError as error:
            package = (error.name or "a package").partition(".")[0]
            raise UserError(
                f"serve {folder.as_posix()}: needs {package}, which is not installed; `uv sync --extra deploy` adds it"
            ) from error
        self.manifest: dict[str, Any] = self.artefact.manifest
        self.kind: Kind = self.artefact.kind
        after = (self.manifest.get("postprocessing") or {}).get("kind")
        self.options: Mapping[str, type] = OPTIONS.get(after, {})
        self.streams = after == "generate"

    def read(self, source: Any) -> Any:
        return self.artefact.read(source)

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        return self.artefact.answer_samples(samples, **options)

    def stream(self, sample: Any, **options: Any) -> Iterator[str] | None:
        return self.artefact.stream(sample, **options) if self.streams else None

    def draw(self, source: Any, answer: dict[str, Any]) -> bytes | None:
        return None  # the page draws boxes and masks itself


def class_names(manifest: Mapping[str, Any]) -> list[str]:
    """Names of the classes that a manifest knows."""
    after = manifest.get("postprocessing") or {}
    names = after.get("names") or (manifest.get("facts") or {}).get("classes") or []
    return [str(name) for name in names]
