"""Reports a training step with a NaN or infinity: its origin, its samples, and a file to replay it."""

import sys
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer

from playbook.processes import gathered
from playbook.training.nonfinite.replay import Step, replay_command, samples_of_batch
from playbook.training.nonfinite.trace import Finding, Kind

MAX_SAMPLES = 8  # in a message


@dataclass(frozen=True)
class Report:
    """The origin of a NaN or infinity, the same on all processes.

    Args:
        kind: of the first tensor that was not finite.
        text: one line: epoch, batch, tensor, samples.
        command: the shell command that replays the step; empty where it cannot be replayed.
    """

    kind: Kind
    text: str
    command: str


def report_origin(trainer: Trainer, module: LightningModule, step: Step) -> Report:
    """Repeats a step to find the origin, and saves it on the process where there is one.

    Args:
        trainer: of the training; every process must call this at the same place.
        module: in the state before the step.
        step: the one that was not finite.
    """
    # manual optimization has moved the weights; FSDP2 has only a part of them here
    is_whole = module.automatic_optimization and not any(hasattr(p, "to_local") for p in module.parameters())
    finding = _find_origin(step, module) if is_whole else Finding("nothing", detail="it cannot be replayed here")
    # where samples are left out of batches, the order does not tell which row is which
    is_complete = not getattr(getattr(trainer, "datamodule", None), "skipped_samples", 0)
    samples = samples_of_batch(trainer.train_dataloader, step.epoch, step.batch_idx) if is_complete else None
    origins = gathered(trainer, (finding.kind, f"{finding}{_sample_text(finding, samples)}", step.batch_idx + 1))
    rank = next((rank for rank, (kind, *_) in enumerate(origins) if kind != "nothing"), 0)
    kind, text, batch = origins[rank]
    path = Path(trainer.default_root_dir, "nonfinite", f"epoch-{step.epoch + 1}-batch-{batch}.pt")
    if is_whole and trainer.global_rank == rank:
        _save(step, path, module, finding, samples)
    trainer.strategy.barrier()  # a process that ends takes the others with it
    on_rank = f" of rank {rank}" if trainer.world_size > 1 else ""
    line = f"not finite in epoch {step.epoch + 1}, batch {batch}{on_rank}: {text}"
    return Report(kind, line, replay_command(path, module) if is_whole else "")


def _find_origin(step: Step, module: LightningModule) -> Finding:
    try:
        return step.trace(module)
    except Exception as error:  # whatever a second run of the user's step may do, the first one was bad
        return Finding("nothing", detail=f"replaying it raised {type(error).__name__}: {error}")


def _sample_text(finding: Finding, samples: list[int] | None) -> str:
    """«; sample 17», or the samples of the whole batch where all of them may be meant."""
    if finding.rows and (samples is None or len(finding.rows) < len(samples)):
        numbers = finding.rows if samples is None else [samples[row] for row in finding.rows]
        noun = "row of the batch" if samples is None else "sample"
    elif samples:
        numbers, noun = samples, "one of the samples"
    else:
        return ""
    more = f" and {len(numbers) - MAX_SAMPLES} more" if len(numbers) > MAX_SAMPLES else ""
    return f"; {noun} {', '.join(map(str, numbers[:MAX_SAMPLES]))}{more}"


def _save(step: Step, path: Path, module: LightningModule, finding: Finding, samples: list[int] | None) -> None:
    try:
        step.save(path, module, finding, samples)
    except OSError as error:  # a full disk must not cost the training
        print(f"\nwarning: {path.as_posix()} was not saved: {error.strerror}", file=sys.stderr)
