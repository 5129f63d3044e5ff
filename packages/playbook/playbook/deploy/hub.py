"""`--output hub:NAME`: a folder for the Hugging Face hub, uploaded where the user is logged in."""

import math
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playbook.errors import UserError
from playbook.runs.directory import write_atomically

PREFIX = "hub:"
PIPELINES = {  # kind of answers → task of the hub
    "mask": "image-segmentation",
    "boxes": "object-detection",
    "generate": "text-generation",
    "gaps": "fill-mask",
}
CLASSIFIED = {  # kind of inputs, where answers are classes
    "image": "image-classification",
    "audio": "audio-classification",
    "text": "text-classification",
    "table": "tabular-classification",
}
LONGEST = 400  # characters of an error
SPLITS = {"val": "validation", "test": "test"}
REFUSALS = {
    401: "the hub does not accept your token; `hf auth login` stores a new one",
    403: "your token may not write there",
    404: "the hub knows no such repository, or hides it from you",
    409: "the repository was changed at the same time",
}


def repository_of(output: str | None) -> str | None:
    """NAME or USER/NAME of an option `--output hub:NAME`; None if it names a file or folder.

    Raises:
        UserError: the hub would not accept the name, or its package is not installed.
    """
    if output is None or not output.startswith(PREFIX):
        return None
    try:
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError as error:
        raise UserError(
            f"--output {output}: needs huggingface_hub, which is not installed; `uv sync --extra huggingface` adds it"
        ) from error
    repository = output.removeprefix(PREFIX)
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"--output {output}: expected hub:NAME or hub:USER/NAME: {one_line(error)}") from error
    return repository


def add_front_matter(folder: Path, manifest: Mapping[str, Any], dataset: str) -> None:
    """Puts what the hub reads of a model before its README.

    Other artefacts have none: they need no huggingface_hub, and most viewers show it as text.

    Args:
        folder: with the README.
        manifest: what the artefact is.
        dataset: name of the data that its metrics were measured on.
    """
    file = folder / "README.md"
    text = file.read_text(encoding="utf-8")
    write_atomically(file, f"---\n{front_matter(manifest, dataset)}\n---\n\n{text}")


def front_matter(manifest: Mapping[str, Any], dataset: str) -> Any:
    """The hub's ModelCardData. The license is the user's to choose, so it is left out.

    Args:
        manifest: what the artefact is.
        dataset: name of the data that its metrics were measured on.
    """
    from huggingface_hub import EvalResult, ModelCardData

    pipeline = pipeline_of(manifest)
    quantization = [] if manifest["quantization"] == "none" else [manifest["quantization"]]
    identifier = re.sub(r"[^\w.-]+", "-", dataset.lower(), flags=re.ASCII).strip("-")  # the hub takes nothing else
    results = [
        EvalResult(
            task_type=pipeline or "other",
            dataset_type=identifier,
            dataset_name=dataset,
            dataset_split=SPLITS[stage],
            metric_type=metric,
            metric_value=value,
        )
        for (stage, metric), value in measured_metrics(manifest).items()
    ]
    metrics = {result.metric_type: None for result in results if result.metric_type != "loss"}  # ordered, once each
    return ModelCardData(
        library_name="playbook",
        pipeline_tag=pipeline,
        tags=["playbook", "pytorch-lightning", manifest["net"], manifest["format"], *quantization],
        metrics=list(metrics) or None,
        model_name=manifest["name"] if results else None,
        eval_results=results or None,
    )


def pipeline_of(manifest: Mapping[str, Any]) -> str | None:
    """The hub's name of the task, or None if it has none."""
    inputs = (manifest["preprocessing"] or {}).get("kind", "")
    answers = (manifest["postprocessing"] or {}).get("kind", "")
    if answers in ("classes", "labels"):
        return CLASSIFIED.get(inputs)
    if (inputs, answers) == ("table", "values"):
        return "tabular-regression"
    if not answers and any(spec["name"] == "boxes" for spec in manifest["outputs"]):  # torchvision's detectors
        return PIPELINES["boxes"]
    return PIPELINES.get(answers)


def measured_metrics(manifest: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Values by stage and metric: those of the checkpoint, or where the exported program was measured, its own."""
    quantized = manifest["quantization"] != "none"
    values = {} if quantized else dict(manifest["metrics"])  # a quantized program has other metrics than its model
    values |= {name: exported for name, (_, exported) in manifest["parity"]["metrics"].items()}
    split = {re.fullmatch(r"(val|test)[/_](.+)", name): value for name, value in values.items()}
    return {(name[1], name[2]): value for name, value in split.items() if name is not None and math.isfinite(value)}


def push(folder: Path, repository: str) -> None:
    """Uploads a folder into a repository, which is created, private, if there is none.

    Without a login, or offline, prints the command that uploads the folder later.

    Raises:
        UserError: the hub cannot be reached, or refuses. The folder stays.
    """
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.utils import disable_progress_bars

    later = shlex.join(["hf", "upload", repository, folder.as_posix(), "--private"])
    token = get_token()
    if constants.HF_HUB_OFFLINE or token is None:
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "you are not logged in (hf auth login)"
        print(f"hub       not uploaded, as {reason}; later: {later}")
        return
    if not sys.stderr.isatty():
        disable_progress_bars()
    api = HfApi()
    try:
        if "/" not in repository:
            repository = f"{api.whoami()['name']}/{repository}"
        url = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload an export of Playbook")
    except Exception as error:  # of HTTP, of the upload of large files, of the hub's own checks: dozens of kinds
        reason = explain(error, api.endpoint)
        for written in (token, repr(token)[1:-1]):  # an answer may repeat it, and HTTP shows a header that it refuses
            reason = reason.replace(written, "…")
        reason = reason[:LONGEST]
        raise UserError(f"--output {PREFIX}{repository}: {reason}; {folder} is written, later: {later}") from error
    print(f"uploaded  {url}")


def explain(error: Exception, endpoint: str) -> str:
    """Why an upload failed, in one line."""
    from huggingface_hub.errors import HTTPError

    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # around that of a large file
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        told = one_line(getattr(error, "server_message", None) or "")
        return REFUSALS.get(status, f"the hub answers {status}") + (f" ({told})" if told else "")
    if isinstance(error, HTTPError):
        return f"cannot reach {endpoint}: {one_line(error) or type(error).__name__}"
    return f"the upload failed: {one_line(error) or type(error).__name__}"


def one_line(text: Any) -> str:
    """A text as one line."""
    return " ".join(str(text).split())
