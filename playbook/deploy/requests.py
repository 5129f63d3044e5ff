"""From the options of the verb `export` to artefacts and files, and what it prints."""

from pathlib import Path
from typing import Any

from playbook.deploy.artefact import require_empty
from playbook.deploy.export import Request, export, load_into, program_of
from playbook.deploy.formats import FORMATS
from playbook.deploy.parity import Tolerance
from playbook.deploy.quantize import require_kind
from playbook.deploy.weights import FORMATS as FILES
from playbook.deploy.weights import export_weights
from playbook.errors import UserError, nearest

WEIGHTS = "safetensors"


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
    if name is None and options.quantize != "none":
        raise UserError(f"--quantize {options.quantize}: needs --format onnx")
    if name is not None and Path(output).suffix in FILES:
        raise UserError(f"--output {output}: --format {name} writes a folder, expected its name")
    if name not in (None, "all"):
        require_kind(options.quantize, name)
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


def export_all(
    session: Any, name: str, quantization: str, output: str | None, limits: dict[str, float | None], speed: bool
) -> int:
    """Writes an artefact in one format, or in all of them that are possible.

    Returns:
        The exit code: 2 if none was written.

    Raises:
        UserError: the one format cannot be exported.
    """
    names = [*FORMATS, WEIGHTS] if name == "all" else [name]
    suffix = "" if quantization == "none" else f"-{quantization}"
    base = Path(output) if output else session.run.path / "exports" / f"{session.checkpoint.stem}-{name}{suffix}"
    require_empty(base)
    program = None
    num_written = 0
    for format_name in names:
        place = base / format_name if name == "all" else base
        try:
            if format_name == WEIGHTS:
                place.mkdir(parents=True, exist_ok=True)
                export_file(session, (place / "model.safetensors").as_posix())
                num_written += 1
                continue
            FORMATS[format_name].require(format_name)
            kind = quantization if format_name == "onnx" else "none"
            if program is None:
                load_into(session.model, session.checkpoint)
                facts = session.trainer.keep_facts.facts
                program = program_of(session.model, session.datamodule, facts)
            request = Request(format_name, kind, place, _tolerance(kind, limits), speed, **_context(session))
            manifest = export(program, session.datamodule, facts, request)
        except UserError as error:
            if name != "all":
                raise
            print(f"{format_name}: impossible: {error}")
            continue
        num_written += 1
        print("\n".join(report(manifest, place)))
    return 0 if num_written else 2


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
    known = session.run.read_metrics()
    values = {**(known.get("val") or {}), **(known.get("test") or {})}
    if (best := known.get("best")) and isinstance(best, dict) and "score" in best:
        values[best.get("monitor", "best")] = best["score"]
    options = session.options.checkpoint
    return {
        "name": session.run.title,
        "metrics": values,
        "monitor": (options.monitor, options.mode),
        "limit": session.options.trainer.limit_val_batches,
    }


def report(manifest: dict[str, Any], place: Path) -> list[str]:
    """The lines about an artefact: what was compared, how fast it is, and how to use it."""
    parity = manifest["parity"]
    size = sum(file["bytes"] for file in manifest["files"].values())
    lines = [f"exported  {place.as_posix()} ({size / 2**20:.1f} MiB, {size / manifest['eager_bytes']:.2f} of eager)"]
    agreement = "" if parity["agreement"] is None else f", {parity['agreement']:.2%} of the decisions agree"
    lines.append(
        f"parity    max error {parity['max_error']:.2g}, mean {parity['mean_error']:.2g}, largest output "
        f"{parity['scale']:.3g}, {len(parity['cases'])} batches{agreement}"
    )
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
