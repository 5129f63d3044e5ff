"""Exports the program of a checkpoint as artefacts, each proven equal to the model before it is written."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import nn

from playbook.checkpoints.io import load, weights_of
from playbook.data.base import Data
from playbook.data.inputs import Inputs
from playbook.data.sources import Sources
from playbook.deploy import artefact
from playbook.deploy.calibration import calibration_of, warn_of_few
from playbook.deploy.card import write_card
from playbook.deploy.formats import FORMATS, write_onnx
from playbook.deploy.opsets import finish, runtime_of_torch
from playbook.deploy.parity import Engineered, Inexact, Parity, Tolerance, compare, measure
from playbook.deploy.program import Program, attached_trainer, build_program
from playbook.deploy.quantize import quantize, require_kind
from playbook.deploy.runtime import Artefact, load_engine
from playbook.deploy.runtime.artefact import VERSION
from playbook.deploy.served import class_names
from playbook.deploy.speed import measure_speed, processor
from playbook.errors import UserError
from playbook.network import evaluation_net
from playbook.training.stages import reachable_loaders

NUM_ANSWERS = 8  # raw inputs whose answers are compared
CLOSE = 1e-2  # difference of numbers in answers: probabilities, scores, pixels


@dataclass
class Request:
    """What to export.

    Args:
        format: name of the format.
        quantization: none, int8-dynamic, int8-static or int8-weight.
        output: folder of the artefact.
        tolerance: how far the program may differ.
        speed: whether to measure latency and throughput.
        name: name of the model.
        metrics: of the checkpoint.
        monitor: metric that selects the best checkpoint, and min or max.
        limit: number or share of validation batches for metrics.
        opset: version of the operators of ONNX. Defaults to the exporter's choice.
    """

    format: str
    quantization: str
    output: Path
    tolerance: Tolerance
    speed: bool = True
    name: str = "model"
    metrics: Mapping[str, Any] = field(default_factory=dict)
    monitor: tuple[str | None, str] = (None, "min")
    limit: int | float | None = None
    opset: int | None = None


def load_into(model: pl.LightningModule, checkpoint: Path) -> None:
    """Loads the weights of a checkpoint into a model, whatever processes wrote it."""
    content = load(checkpoint)
    model.configure_model()
    model.on_load_checkpoint(content)
    model.load_state_dict(weights_of(content, checkpoint), strict=model.strict_loading)


def program_of(
    model: pl.LightningModule,
    datamodule: Any,
    facts: Mapping[str, Any],
    callbacks: Sequence[pl.Callback] = (),
    num_samples: int = 0,
) -> Program:
    """The program of a model, with inputs of its validation set.

    Args:
        model: with its weights.
        datamodule: its data; None if the model has its own.
        facts: values learnt from the training data.
        callbacks: of the run, which may put something around the net.
        num_samples: of the validation set to compare at least, if there are as many.

    Raises:
        UserError: the data is missing, or the model cannot be exported.
    """
    loader = validation_loader(model, datamodule)
    read = datamodule.preprocessing() if isinstance(datamodule, Data) else None
    has_lengths = read is not None and ("tokenizer" in read or read["kind"] == "audio")
    program = build_program(model, loader, facts, has_lengths, callbacks, num_samples)
    program.task.setup("predict")
    net = getattr(program.task, "net", None)  # its answers are compared with the program's
    if isinstance(net, nn.Module):
        program.task.net = evaluation_net(net, callbacks)
    return program


def validation_loader(model: pl.LightningModule, datamodule: Any) -> Any:
    """The batches of the validation set, of the data or else of the model.

    Raises:
        UserError: there are none.
    """
    trainer = attached_trainer(model)
    source = model if datamodule is None else datamodule
    if not is_overridden("val_dataloader", source):
        raise UserError(
            f"--data: {type(source).__name__} has no val_dataloader, whose batches show the inputs to export"
        )
    with nullcontext() if trainer is None else reachable_loaders(trainer, model, datamodule, "validate"):
        if datamodule is not None:
            datamodule.prepare_data()
            datamodule.setup("validate")
        loaders = source.val_dataloader()
    return loaders[0] if isinstance(loaders, list | tuple) else loaders


def export(program: Program, datamodule: Any, facts: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Writes an artefact, after its program has been compared with the model.

    Args:
        program: returned by `program_of`.
        datamodule: data of the checkpoint; None if the model has its own.
        facts: values learnt from the training data.
        request: what to write, and where.

    Returns:
        The manifest.

    Raises:
        UserError: the pair of model and format is impossible. Nothing is written then.
        Inexact: the program differs too much. Nothing is written then.
    """
    kind = FORMATS[request.format]
    require_kind(request.quantization, request.format)
    kind.require(request.format)
    artefact.require_empty(request.output)
    program = kind.limited(program)
    before = deepcopy(program.module.state_dict())
    description = artefact.describe(program, datamodule, facts)
    with artefact.Draft(request.output) as draft:
        file = draft.folder / kind.file
        kind.write(program, file) if request.opset is None else write_onnx(program, file, request.opset)
        calibration = None
        if request.quantization == "int8-static":
            calibration = calibration_of(program, program.task, datamodule)
        if request.quantization != "none":
            warn_of_few(program, request.quantization, calibration)
            quantize(calibration.batches if calibration else (), file, request.quantization)
        runtime = runtime_of_torch()
        if request.format == "onnx":
            runtime = finish(file, class_names(description), request.opset)
        engine = load_engine(request.format, file, None, program.outputs)
        parity = compare(program, engine)
        _measure(parity, program, datamodule, engine, request)
        _require_unchanged(before, program)
        if (fault := parity.fault(request.tolerance)) is not None:
            raise Inexact(f"export of {request.format}: {fault}; nothing was written")
        label = request.format if request.quantization == "none" else f"{request.format} {request.quantization}"
        rows = measure_speed(program, engine, label) if request.speed else []
        manifest = {
            "version": VERSION,
            "name": request.name,
            "task": type(program.task).__name__,
            "net": type(getattr(program.module, "net", program.module)).__name__,
            "format": request.format,
            "quantization": request.quantization,
            "calibration": calibration and {"split": calibration.split, "samples": calibration.num_samples},
            "file": kind.file,
            "runtime": runtime,
            **description,
            "metrics": dict(request.metrics),
            "versions": artefact.versions(),
            "machine": {"processor": processor(), "threads": torch.get_num_threads()},
            "parity": parity.plain(),
            "speed": rows,
            "eager_bytes": _eager_bytes(program),
        }
        manifest = _add_example(draft, manifest, program, datamodule, facts, request)
        draft.finish()
    return manifest


def _measure(parity: Parity, program: Program, datamodule: Any, engine: Any, request: Request) -> None:
    """Adds the metrics of the validation set by the model and by the program."""
    if not hasattr(program.task, "use_program"):  # a LightningModule that is no Task
        return
    module = Engineered(engine, list(program.shapes), program.outputs)
    model_metrics = measure(program, datamodule, request.limit, None)
    program_metrics = measure(program, datamodule, request.limit, module)
    parity.metrics = {name: (value, program_metrics[name]) for name, value in model_metrics.items()}
    monitor, parity.mode = request.monitor
    parity.monitor = monitor if monitor in parity.metrics else None


def _require_unchanged(before: Mapping[str, Any], program: Program) -> None:
    """Looks whether an exporter has written into the model's weights, as some have been seen to."""
    changed = [name for name, value in program.module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"export has changed {changed[0]} of the model"


def _eager_bytes(program: Program) -> int:
    tensors = {id(value): value for value in program.module.state_dict(keep_vars=True).values()}
    return sum(value.numel() * value.element_size() for value in tensors.values())


def _add_example(
    draft: artefact.Draft,
    manifest: dict[str, Any],
    program: Program,
    datamodule: Any,
    facts: Mapping[str, Any],
    request: Request,
) -> dict[str, Any]:
    """Adds runtime, manifest, README and an example whose answer is the model's own; returns the manifest."""
    draft.add_runtime()
    draft.write_manifest(manifest)
    loaded = Artefact(draft.folder)
    sources = artefact.example_sources(manifest, program, NUM_ANSWERS)
    answers = loaded.predict(sources)
    manifest["parity"]["answers"] = _compare_answers(answers, sources, manifest, program, datamodule, facts, request)
    example = draft.folder / "example"
    columns = [name for name in (manifest["preprocessing"] or {}).get("columns", ()) if name != "messages"]
    manifest["example"] = {"input": artefact.save_source(sources[0], example, columns), "answer": "example/answer.json"}
    text = json.dumps(answers[0], indent=2, ensure_ascii=False, default=lambda array: array.tolist())
    (example / "answer.json").write_text(text + "\n", encoding="utf-8")
    manifest = draft.write_manifest(manifest)
    write_card(draft.folder, manifest)
    return manifest


def _compare_answers(
    answers: list[dict[str, Any]],
    sources: list[Any],
    manifest: Mapping[str, Any],
    program: Program,
    datamodule: Any,
    facts: Mapping[str, Any],
    request: Request,
) -> dict[str, int] | None:
    """Counts answers that equal those of `predict --input`; None where raw inputs are only tensors.

    Raises:
        Inexact: an answer differs, though the program was not quantized.
    """
    if manifest["preprocessing"] is None or manifest["postprocessing"] is None:
        return None
    expected = model_answers(program.task, datamodule, sources, facts)
    num_equal = sum(_is_close(answer, wanted) for answer, wanted in zip(answers, expected, strict=True))
    if num_equal < len(answers) and request.quantization == "none" and manifest["postprocessing"]["kind"] != "generate":
        pair = next(pair for pair in zip(answers, expected, strict=True) if not _is_close(*pair))
        raise Inexact(
            f"export of {request.format}: answers {_short(pair[0])}, predict answers {_short(pair[1])} for the same "
            "input; nothing was written"
        )
    return {"equal": num_equal, "compared": len(answers)}


def model_answers(task: Any, datamodule: Any, sources: list[Any], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `predict --input` answers for raw inputs."""
    inputs = Inputs(datamodule, Sources([str(number) for number in range(len(sources))], sources))
    inputs.setup("predict")
    answers: list[dict[str, Any]] = []
    with torch.inference_mode():
        for number, batch in enumerate(inputs.predict_dataloader()):
            answers += task.answer(task.predict_step(batch, number), dict(facts))
    return answers


def _is_close(answer: Any, wanted: Any) -> bool:
    """Whether two answers are the same, but for rounding of their numbers."""
    if isinstance(wanted, Mapping):
        return answer.keys() >= wanted.keys() and all(_is_close(answer[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list | tuple):
        return len(answer) == len(wanted) and all(map(_is_close, answer, wanted))
    if isinstance(wanted, float):
        return abs(answer - wanted) <= CLOSE * max(1.0, abs(wanted))
    if isinstance(wanted, torch.Tensor):
        return bool((torch.as_tensor(answer) == wanted).float().mean() > 1 - CLOSE)
    return answer == wanted


def _short(answer: Mapping[str, Any]) -> str:
    text = str(dict(answer))
    return text if len(text) < 160 else f"{text[:160]}…"
