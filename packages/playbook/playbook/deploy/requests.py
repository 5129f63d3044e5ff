"""From the options of the verb `export` to artefacts and files, and what it prints."""

from pathlib import Path
from typing import Any

from playbook.deploy import hub
from playbook.deploy.artefact import describe_data, require_empty
from playbook.deploy.card import write_weights_card
from playbook.deploy.export import Inexact, Request, export, load_into, program_of
from playbook.deploy.formats import FORMATS
from playbook.deploy.opsets import require_opset
from playbook.deploy.parity import Tolerance
from playbook.deploy.program import Program
from playbook.deploy.quantize import require_kind
from playbook.deploy.weights import FORMATS as FILES
from playbook.deploy.weights import export_weights, net_of
from playbook.errors import UserError, nearest
from playbook.training.measure import direction, own_measure
from playbook.training.stages import attach

WEIGHTS = "safetensors"
NUM_JUDGED = 128  # validation samples that judge a quantization


def check_options(options: Any) -> None:
    """Looks at the options before a model is built.

    Raises:
        UserError: one is unknown, out of range, or does not go with another.
    """
    known = [*FORMATS, WEIGHTS, "all"]
    name = options.format
    if name is not None and name not in known:
        raise UserError(f"--format {name}: expected one of {', '.join(known)}{nearest(name, known)}")
    output = options.output or ""
    is_for_hub = hub.repository_of(options.output) is not None
    if is_for_hub and name == "all":
        raise UserError(f"--output {output}: a model of the hub has one card; expected one --format, got all")
    if name is None and options.quantize != "none":
        raise UserError(f"--quantize {options.quantize}: needs --format onnx")
    if name is not None and not is_for_hub and Path(output).suffix in FILES:
        raise UserError(f"--output {output}: --format {name} writes a folder, expected its name")
    if name not in (None, "all"):
        require_kind(options.quantize, name)
    require_opset(options.opset, name, options.quantize)
    for option, highest in (("tolerance", None), ("min_agreement", 1.0), ("max_drop", None)):
        value = options[option]
        if value is not None and not (value >= 0 and (highest is None or value <= highest)):
            limits = "at least 0" if highest is None else "a share in [0, 1]"
            raise UserError(f"--{option} {value}: expected {limits}")


def export_file(session: Any, output: str | None) -> int:
    """Writes the weights as one file."""
    file = Path(output) if output else session.run.path / "exports" / f"{session.checkpoint.stem}.safetensors"
    export_weights(session.model, session.checkpoint, file)
    print(f"exported  {file.as_posix()} ({file.stat().st_size / 2**20:.1f} MiB)")
    return 0


class Exporter:
    """Writes folders of one checkpoint, and prints what it has written; the program is built once.

    Args:
        session: the model that the checkpoint is of, and its data.
        limits: of tolerance, min_agreement and max_drop.
        speed: whether to measure latency and throughput.
        name: of the model. Defaults to the title of the run.
        opset: version of the operators of ONNX. Defaults to the exporter's choice.
    """

    def __init__(
        self,
        session: Any,
        limits: dict[str, float | None],
        speed: bool = True,
        name: str | None = None,
        opset: int | None = None,
    ) -> None:
        self.session = session
        self.name = name or session.run.title
        self.limits = limits
        self.speed = speed
        self.opset = opset
        self.facts: dict[str, Any] = session.trainer.keep_facts.facts
        self._program: Program | None = None

    def write(self, name: str, quantization: str, folder: Path) -> dict[str, Any]:
        """Writes one format, and returns its manifest.

        Raises:
            UserError: the format cannot be exported, or differs too much from the model.
        """
        if name == WEIGHTS:
            return self._write_weights(folder)
        FORMATS[name].require(name)
        kind = quantization if name == "onnx" else "none"
        tolerance = _tolerance(kind, self.limits)
        opset = self.opset if name == "onnx" else None
        request = Request(name, kind, folder, tolerance, self.speed, self.name, opset=opset, **_context(self.session))
        manifest = export(self._build_program(quantization != "none"), self.session.datamodule, self.facts, request)
        print("\n".join(report(manifest, folder)))
        return manifest

    def _build_program(self, is_quantized: bool) -> Program:
        if self._program is None:
            attach(self.session.trainer, self.session.model, self.session.datamodule)
            load_into(self.session.model, self.session.checkpoint)
            callbacks = self.session.trainer.callbacks
            num_samples = NUM_JUDGED if is_quantized else 0
            data = self.session.datamodule
            self._program = program_of(self.session.model, data, self.facts, callbacks, num_samples)
        return self._program

    def _write_weights(self, folder: Path) -> dict[str, Any]:
        model = self.session.model
        folder.mkdir(parents=True, exist_ok=True)
        export_file(self.session, (folder / "model.safetensors").as_posix())
        manifest = {
            "name": self.name,
            "task": type(model).__name__,
            "net": type(getattr(model, "net", model)).__name__,
            "format": WEIGHTS,
            "quantization": "none",
            "outputs": [],
            **describe_data(self.session.datamodule, model, self.facts),
            "metrics": _context(self.session)["metrics"],
            "parity": {"metrics": {}},
            "weights": net_of(model, model.state_dict()),
        }
        write_weights_card(folder, manifest)
        return manifest


def export_one(exporter: Exporter, name: str, quantization: str, output: str | None) -> int:
    """Writes a folder in one format."""
    folder = _folder(exporter.session, name, quantization, output)
    require_empty(folder)
    exporter.write(name, quantization, folder)
    return 0


def export_all(exporter: Exporter, quantization: str, output: str | None) -> int:
    """Writes a folder with one in each format that is possible.

    Returns:
        The exit code: 2 if none was written.

    Raises:
        UserError: a format differs from the model by more than the limits; the others are written.
    """
    base = _folder(exporter.session, "all", quantization, output)
    require_empty(base)
    names, failed, num_written = [*FORMATS, WEIGHTS], [], 0
    for name in names:
        try:
            exporter.write(name, quantization, base / name)
            num_written += 1
        except Inexact as error:
            failed.append(name)
            print(f"{name}: failed: {error}")
        except UserError as error:
            print(f"{name}: impossible: {error}")
    if failed:
        raise UserError(f"--format all: {', '.join(failed)}: differs from the model by more than the limits allow")
    return 0 if num_written else 2


def export_to_hub(exporter: Exporter, name: str | None, quantization: str, repository: str) -> int:
    """Writes <run>/exports/NAME for the hub, the weights without a format, and uploads it if the user is logged in.

    Raises:
        UserError: the folder could not be written, or not be uploaded.
    """
    session = exporter.session
    folder = session.run.path / "exports" / repository.rpartition("/")[2]
    require_empty(folder)
    manifest = exporter.write(name or WEIGHTS, quantization, folder)
    source = session.model if session.datamodule is None else session.datamodule  # a model may have its own data
    hub.add_front_matter(folder, manifest, type(source).__name__)
    hub.push(folder, repository)
    return 0


def _folder(session: Any, name: str, quantization: str, output: str | None) -> Path:
    suffix = "" if quantization == "none" else f"-{quantization}"
    return Path(output) if output else session.run.path / "exports" / f"{session.checkpoint.stem}-{name}{suffix}"


def _tolerance(kind: str, limits: dict[str, float | None]) -> Tolerance:
    tolerance = Tolerance() if kind == "none" else Tolerance(error=None, agreement=0.98)
    if limits["tolerance"] is not None:
        tolerance.error = limits["tolerance"]
    if limits["min_agreement"] is not None:
        tolerance.agreement = limits["min_agreement"]
    assert limits["max_drop"] is not None
    tolerance.drop = limits["max_drop"]
    return tolerance


def _context(session: Any) -> dict[str, Any]:
    metrics = session.run.read_metrics()
    return {
        "metrics": checkpoint_metrics(metrics, session.checkpoint.stem),
        "monitor": _measure(session, metrics.get("best") or {}),
        "limit": session.options.trainer.limit_val_batches,
    }


def _measure(session: Any, best: dict[str, Any]) -> tuple[str | None, str]:
    """The metric that --max_drop bounds, and its direction: that of best.ckpt, or else the task's own."""
    options = session.options.checkpoint
    if options.monitor != "auto":
        return options.monitor, options.mode or direction(session.model, str(options.monitor)) or "min"
    if "monitor" in best:
        return best["monitor"], best["mode"]
    return own_measure(session.model) or (None, "min")


def checkpoint_metrics(known: dict[str, Any], name: str) -> dict[str, float]:
    """What metrics.json knows of a checkpoint: the validation of the best one, and the test at the end of `fit`.

    Args:
        known: content of metrics.json.
        name: of the checkpoint, such as best or last.
    """
    best = known.get("best") or {}
    if name != ("best" if best else "last"):  # of which neither is known
        return {}
    values = {name: value for name, value in best.get("metrics", {}).items() if not name.startswith("train")}
    if "score" in best:
        values[best["monitor"]] = best["score"]
    return {**values, **(known.get("test") or {})}


def report(manifest: dict[str, Any], place: Path) -> list[str]:
    """The lines about an artefact: what was compared, how fast it is, and how to use it."""
    parity = manifest["parity"]
    size = sum(file["bytes"] for file in manifest["files"].values())
    lines = [f"exported  {place.as_posix()} ({size / 2**20:.1f} MiB, {size / manifest['eager_bytes']:.2f} of eager)"]
    agreement = "" if parity["agreement"] is None else f", {parity['agreement']:.2%} of the decisions agree"
    lines.append(
        f"parity    max error {parity['max_error']:.2g}, mean {parity['mean_error']:.2g}, largest output "
        f"{parity['scale']:.3g}, {parity['samples']} validation samples{agreement}"
    )
    if calibration := manifest.get("calibration"):
        lines.append(f"ranges    of activations by {calibration['samples']} samples of {calibration['split']}")
    lines += [f"          {name} {before:.4g} → {after:.4g}" for name, (before, after) in parity["metrics"].items()]
    if parity.get("answers"):
        lines.append(
            f"answers   {parity['answers']['equal']} of {parity['answers']['compared']} equal to predict --input"
        )
    for row in manifest["speed"]:
        lines.append(
            f"speed     {row['way']:24} batch {row['batch']:<3} {row['milliseconds']:9.3f} ms "
            f"{row['samples_per_second']:10,.1f} samples/s"
        )
    lines.append(f"try       python {place.as_posix()}/load.py")
    return lines
