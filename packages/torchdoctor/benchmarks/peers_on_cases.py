"""The review beside torch-audit 0.3.0 and Lightning's own checks, on programs that have one known defect or none.

    cd packages/torchdoctor
    uv run --with torch-audit==0.3.0 python benchmarks/peers_on_cases.py DIR [torch-audit lightning doctor]

DIR holds programs with `Model` and `Data`, and manifest.json: a list of {"file", "defect", "lines"}, with null for a
program without a defect. Each program runs in a process of its own, imports not counted. What the others say
is mapped to our ids as generously as it can be: an exception counts as whatever the defect is, at the program's
innermost line; torch-audit names no lines. As shown by default: torch-audit from WARN on, Lightning without its advice
on the number of workers, ours from warning on.
"""

import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

SLACK = 3  # lines
STEPS = 20
AUDIT = {  # torch-audit's rules, and the defects that each may mean
    "TA100": ["non-finite", "non-finite-data", "exploding-gradient", "learning-rate-too-high"],
    "TA102": ["exploding-gradient", "learning-rate-too-high", "unnormalized-input"],
    "TA103": ["dead-units", "unused-parameter", "vanishing-gradient", "detached-graph", "parameter-not-optimized"],
    "TA104": ["detached-graph", "unused-parameter", "loss-not-decreasing"],
    "TA105": ["dead-units", "vanishing-gradient"],
    "TA301": ["unnormalized-input", "non-finite-data"],
    "TA302": ["constant-labels", "input-independent"],
    "TA303": ["channel-order"],
    "TA304": ["norm-batch-size-one"],
    "TA305": ["non-finite-data", "label-out-of-range"],
    "TA400": ["bias-before-norm"],
    "TA401": ["adam-l2"],
    "TA405": ["dead-units"],
    "TA500": ["unused-parameter"],
    "TA501": ["batch-mixing"],
}
LIGHTNING = {  # words of warnings, and the defects that each may mean
    r"lr_scheduler\.step\(\)": ["scheduler-cadence"],
    r"[Uu]sing a target size|broadcast": ["bad-broadcast"],
    r"eval mode": ["stuck-in-eval"],
    r"non-?finite|nan": ["non-finite", "non-finite-data"],
    r"shuffl": ["train-not-shuffled", "eval-drops-data"],
    r"weights_only": ["unsafe-load"],
    r"batch_size": ["metric-misuse"],
}
QUIET = r"does not have many workers|logging interval|LeafSpec|No device id|fast_dev_run|GPU available|isinstance"


def audited(model: Any, data: Any) -> list[dict[str, Any]]:
    """Findings of torch-audit over a training of 20 steps, every step looked at."""
    import lightning.pytorch as pl

    torch_audit = importlib.import_module("torch_audit")

    class Watch(pl.Callback):
        auditor: Any = None

        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            self.auditor = torch_audit.autopatch(pl_module, optimizer=optimizer, every_n_steps=1, fail_level="FATAL")

        def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, _: int) -> None:
            self.auditor.audit_data(batch)

    watch = Watch()
    options: dict[str, Any] = {"max_steps": STEPS, "limit_val_batches": 2, "num_sanity_val_steps": 0}
    found = ran(lambda: trainer(callbacks=[watch], **options).fit(model, data))
    for item in watch.auditor.finish().findings if watch.auditor else ():
        if item.severity.value != "INFO":
            found.append({"ids": AUDIT.get(item.rule_id, []), "message": f"{item.rule_id} {item.message}"})
    return found


def checked(model: Any, data: Any) -> list[dict[str, Any]]:
    """What Lightning says in a fast_dev_run with anomaly detection."""
    return ran(lambda: trainer(fast_dev_run=True, detect_anomaly=True).fit(model, data))


def trainer(**options: Any) -> Any:
    import lightning.pytorch as pl

    plain = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(**plain, enable_model_summary=False, **options)


def ran(run: Any) -> list[dict[str, Any]]:
    """The exception and the warnings of a run."""
    found = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            run()
        except Exception as error:  # whatever the program raises
            found.append(raised(error))
    for item in said:
        if not re.search(QUIET, str(item.message)):
            ids = [id_ for words, ids in LIGHTNING.items() if re.search(words, str(item.message)) for id_ in ids]
            found.append({"ids": ids, "message": str(item.message)[:200], "stack": [(item.filename, item.lineno)]})
    return found


def raised(error: Exception) -> dict[str, Any]:
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return {"ids": ["*"], "message": f"{type(error).__name__}: {error}", "stack": lines}


def look(way: str, folder: Path, name: str) -> None:
    """One program, in this process; prints what is said of it, and the seconds."""
    sys.path.insert(0, str(folder))
    for imported in ("lightning.pytorch", "torch_audit")[: 2 if way == "torch-audit" else 1]:
        importlib.import_module(imported)
    start = time.monotonic()
    found = []
    try:
        module = importlib.import_module(name)
        model, data = module.Model(), module.Data()
        found = (audited if way == "torch-audit" else checked)(model, data)
    except Exception as error:  # it does not even start
        found = [raised(error)]
    for item in found:
        own = [line for file, line in item.pop("stack", []) if Path(file).stem == name]
        item["line"] = own[-1] if own else None
    print(json.dumps({"findings": found, "seconds": time.monotonic() - start}))


def ours(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(names))
        file.flush()
        command = [sys.executable, str(Path(__file__).with_name("batch.py")), file.name]
        done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, check=False)
    answers = {}
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        loud = [item for item in answer["findings"] if item["severity"] != "advice"]
        found = [{"ids": [item["id"]], "line": item["line"], "message": item["message"]} for item in answer["findings"]]
        answers[answer["module"]] = {"findings": found, "seconds": answer["seconds"], "loud": len(loud)}
    return answers


def others(way: str, folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    answers = {}
    for name in names:
        command = [sys.executable, __file__, "--look", way, str(folder), name]
        done = subprocess.run(
            command, env=environment(folder), capture_output=True, text=True, timeout=300, check=False
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"findings"')]
        answers[name] = json.loads(lines[-1]) if lines else {"findings": [], "seconds": 0.0}
    return answers


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def main(folder: Path, ways: list[str]) -> None:
    """Prints a line for each way."""
    programs = json.loads((folder / "manifest.json").read_text())
    names = [program["file"].removesuffix(".py") for program in programs]
    print(f"{'':12} recall   right line   clean programs with an alarm   median s   longest s   found")
    for way in ways:
        answers = ours(folder, names) if way == "doctor" else others(way, folder, names)
        found, placed, alarms = [], 0, 0
        for program, name in zip(programs, names, strict=True):
            answer = answers[name]
            if program["defect"] is None:
                alarms += bool(answer.get("loud", len(answer["findings"])))
                continue
            hits = [item for item in answer["findings"] if {program["defect"], "*"} & set(item["ids"])]
            near = [abs(item["line"] - line) <= SLACK for item in hits if item.get("line") for line in program["lines"]]
            found += [program["defect"]] if hits else []
            placed += any(near)
        defective = sum(program["defect"] is not None for program in programs)
        seconds = [answer["seconds"] for answer in answers.values()]
        counts = f"{len(found):2}/{defective:<4}  {placed:2}/{len(found):<8}  {alarms:2}/{len(names) - defective:<25}"
        spent = f"{statistics.median(seconds):8.2f}   {max(seconds):9.2f}"
        which = "all" if len(found) == defective else " ".join(found)
        print(f"{way:12} {counts}   {spent}   {which}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        look(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main(Path(sys.argv[1]).absolute(), sys.argv[2:] or ["torch-audit", "lightning", "doctor"])
