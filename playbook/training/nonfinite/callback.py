"""A loss or a gradient that is NaN or infinite: where it comes from, and what becomes of the step."""

import sys
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from playbook.checkpoints.io import first_valid, load
from playbook.errors import UserError
from playbook.optim.schedules import scale_rates
from playbook.processes import gathered, highest
from playbook.runs.directory import is_checkpoint
from playbook.training.lightning import loss_of
from playbook.training.nonfinite.replay import Step, replay_command, samples_of_batch
from playbook.training.nonfinite.trace import Finding

MOST_SHOWN = 8  # samples in a message
SMALL = 65_536  # elements of a buffer


class NonFinite(Callback):
    """Names what made a loss or gradient NaN or infinite, keeps the batch, and keeps the weights from it.

    The batch runs once more under hooks, which name the first parameter, input, output, loss or gradient that is
    not finite, and its samples. `<run>/nonfinite/epoch-E-batch-B.pt` holds the batch, the random numbers and the
    weights before the step, and `playbook.replay` finds the same in it. Buffers such as BatchNorm's averages go
    back to before the step. With fp16, infinite gradients are the scaler's business, and only a loss counts; under
    manual optimization, only a loss that training_step returns, when its step is done. A healthy step comes out
    bitwise the same, waits for the device once, and takes 0.4 ms more: 2 % of the recipe cnn-digits' 18 ms (median
    of 3 runs, busy 2 CPU cores).

    Args:
        policy: `stop` ends the run; `skip` leaves the step out, with accumulation all its batches; `return` takes
            weights and moments from the newest checkpoint, and goes on from the present position at a lower rate.
        factor: what `return` multiplies every learning rate by, for good, in (0, 1].
        most: steps that `skip` and `return` let pass in all before they stop as well, at least 0.

    Raises:
        ValueError: a value out of its range.
    """

    def __init__(self, policy: Literal["stop", "skip", "return"] = "stop", factor: float = 0.5, most: int = 10) -> None:
        if policy not in ("stop", "skip", "return"):
            raise ValueError(f"policy: expected stop, skip or return, got {policy}")
        if not 0 < factor <= 1:
            raise ValueError(f"factor: expected a share in (0, 1], got {factor}")
        if most < 0:
            raise ValueError(f"most: expected at least 0 steps, got {most}")
        self.policy = policy
        self.factor = factor
        self.most = most
        self.skipped_steps = 0
        self._loss: Tensor | None = None
        self._step: Step | None = None  # at work, or the first bad one among those accumulated
        self._is_bad = False
        self._returns = False
        self._buffers: _Buffers

    def state_dict(self) -> dict[str, Any]:
        return {"skipped_steps": self.skipped_steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.skipped_steps = state_dict["skipped_steps"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.policy == "skip" and not pl_module.automatic_optimization:
            raise UserError("policy: expected stop or return, as manual optimization has stepped when the loss is seen")
        if self.policy != "stop" and any(isinstance(optimizer, LBFGS) for optimizer in trainer.optimizers):
            raise UserError(f"policy: expected stop, as LBFGS moves weights before the loss is seen, got {self.policy}")
        self._buffers = _Buffers(pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._is_bad = False
            self._buffers.keep()
        if not self._is_bad:
            self._step = Step(trainer, batch, batch_idx)
        self._loss = None

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()  # a batch may come in parts

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if pl_module.automatic_optimization and trainer.fit_loop._should_accumulate() and not self._is_bad:
            self._is_bad = bool(self._suspected(trainer)) and self._confirmed(trainer)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        if not pl_module.automatic_optimization:
            return
        # gradients are the same on every rank, the loss is not, and all ranks must do the same
        if not _on_any_rank(trainer, self._suspected(trainer) | self._is_bad):  # the one wait for the device
            return
        self._is_bad = self._is_bad or self._confirmed(trainer)
        if any(highest(trainer, int(self._is_bad))):
            self._buffers.restore()
            self._meet(trainer, pl_module)
            _leave_out(trainer, optimizer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = loss_of(outputs)
        if pl_module.automatic_optimization or not isinstance(loss, Tensor):
            pass
        elif _on_any_rank(trainer, ~loss.detach().isfinite().all()):
            self._meet(trainer, pl_module)
        if self._returns:
            self._returns = False
            _go_back(trainer, self.factor)
        if not self._is_bad:
            self._step = None  # lets go of the batch

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.skipped_steps:
            # not sync_dist, as every rank counts the same, and the first to read it would wait for the others
            pl_module.log("train/skipped_steps", float(self.skipped_steps))

    def _checked(self, trainer: Trainer) -> list[Tensor]:
        gradients = [] if _scaler(trainer) else [_plain(p.grad) for p in _trained(trainer) if p.grad is not None]
        return gradients if self._loss is None else [*gradients, self._loss]

    def _suspected(self, trainer: Trainer) -> Tensor:
        """Whether a sum of squares is not finite, as a tensor on the device."""
        device = trainer.strategy.root_device
        if not (tensors := self._checked(trainer)):
            return torch.zeros((), dtype=torch.bool, device=device)
        return ~torch.stack([norm.to(device) for norm in torch._foreach_norm(tensors)]).isfinite().all()

    def _confirmed(self, trainer: Trainer) -> bool:
        """Element by element, as squares of large finite gradients overflow."""
        return not all(tensor.isfinite().all() for tensor in self._checked(trainer))

    def _meet(self, trainer: Trainer, module: LightningModule) -> None:
        """Looks for the origin, writes and says it, and stops if the policy says so."""
        step = self._step
        assert step is not None
        # manual optimization has moved the weights; FSDP2 has only a part of them here
        whole = module.automatic_optimization and not any(hasattr(p, "to_local") for p in module.parameters())
        finding = _look(step, module) if whole else Finding("nothing", detail="it cannot be replayed here")
        # where samples are left out of batches, the order does not tell which row is which
        complete = not getattr(getattr(trainer, "datamodule", None), "skipped_samples", 0)
        samples = samples_of_batch(trainer.train_dataloader, step.epoch, step.batch_idx) if complete else None
        report = {"kind": finding.kind, "text": f"{finding}{_which(finding, samples)}", "batch": step.batch_idx + 1}
        reports = gathered(trainer, report)
        rank = next((i for i, other in enumerate(reports) if other["kind"] != "nothing"), 0)
        report = reports[rank]
        path = Path(trainer.default_root_dir, "nonfinite", f"epoch-{step.epoch + 1}-batch-{report['batch']}.pt")
        if whole and trainer.global_rank == rank:
            _save(step, path, module, finding, samples)
        trainer.strategy.barrier()  # a process that ends takes the others with it
        on_rank = f" of rank {rank}" if trainer.world_size > 1 else ""
        where = f"not finite in epoch {step.epoch + 1}, batch {report['batch']}{on_rank}: {report['text']}"
        if whole and trainer.is_global_zero and (self.policy == "stop" or self.skipped_steps == 0):
            print(f"\nreplay    {replay_command(path, module)}", flush=True)
        self.skipped_steps += 1
        if self.policy == "stop":
            raise UserError(where)
        if self.skipped_steps > self.most:
            raise UserError(f"{where}; this is more than the {self.most} steps that may be left out")
        if self.policy == "skip" and report["kind"] == "parameter":
            raise UserError(f"{where}; leaving out steps cannot mend that")
        if trainer.is_global_zero:
            print(f"\nwarning: {where}; {self.policy} {self.skipped_steps} of {self.most}", file=sys.stderr, flush=True)
        self._returns = self.policy == "return"


class _Buffers:
    """The buffers of a module as they were before a step: a NaN in BatchNorm's averages never goes away again.

    A large one, such as a mask or a queue, is copied only where its version says that it has changed since. Small ones
    always are: torch's batch norm changes its averages without counting a version.
    """

    def __init__(self, module: LightningModule) -> None:
        self._places = [(part._buffers, name) for part in module.modules() for name in part._buffers]
        self._kept: list[tuple[Tensor | None, int, Tensor | None]] = [(None, 0, None)] * len(self._places)

    def keep(self) -> None:
        changed: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for i, (holder, name) in enumerate(self._places):
            buffer = holder[name]
            former, version, copy = self._kept[i]
            if buffer is None or (buffer is former and buffer.numel() > SMALL and buffer._version == version):
                continue
            if copy is None or buffer is not former:
                copy = torch.empty_like(buffer)
            copies, buffers = changed.setdefault((buffer.device, buffer.dtype), ([], []))
            copies.append(copy)
            buffers.append(buffer.detach())
            self._kept[i] = buffer, buffer._version, copy
        for copies, buffers in changed.values():
            torch._foreach_copy_(copies, buffers)

    def restore(self) -> None:
        for (holder, name), (buffer, _, copy) in zip(self._places, self._kept, strict=True):
            holder[name] = buffer
            if buffer is not None and copy is not None:
                buffer.detach().copy_(copy)


def _on_any_rank(trainer: Trainer, flag: Tensor) -> bool:
    if trainer.world_size > 1:
        flag = trainer.strategy.reduce(flag.float(), reduce_op="max")
    return bool(flag)


def _scaler(trainer: Trainer) -> Any:
    return getattr(trainer.precision_plugin, "scaler", None)


def _trained(trainer: Trainer) -> list[Tensor]:
    return [p for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]]


def _plain(gradient: Any) -> Tensor:
    if hasattr(gradient, "to_local"):  # a DTensor
        gradient = gradient.to_local()
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _look(step: Step, module: LightningModule) -> Finding:
    try:
        return step.trace(module)
    except Exception as error:  # whatever a second run of the user's step may do, the first one was bad
        return Finding("nothing", detail=f"replaying it raised {type(error).__name__}: {error}")


def _which(finding: Finding, samples: list[int] | None) -> str:
    """«; sample 17», or the samples of the whole batch where all of them may be meant."""
    if finding.rows and (samples is None or len(finding.rows) < len(samples)):
        chosen = finding.rows if samples is None else [samples[row] for row in finding.rows]
        noun = "row of the batch" if samples is None else "sample"
    elif samples:
        chosen, noun = samples, "one of the samples"
    else:
        return ""
    more = f" and {len(chosen) - MOST_SHOWN} more" if len(chosen) > MOST_SHOWN else ""
    return f"; {noun} {', '.join(map(str, chosen[:MOST_SHOWN]))}{more}"


def _save(step: Step, path: Path, module: LightningModule, finding: Finding, samples: list[int] | None) -> None:
    try:
        step.save(path, module, finding, samples)
    except OSError as error:  # a full disk must not cost the training
        print(f"\nwarning: {path.as_posix()} was not saved: {error.strerror}", file=sys.stderr)


def _leave_out(trainer: Trainer, optimizer: Optimizer) -> None:
    """Makes the optimizer pass over every parameter: without a gradient, not even weight decay acts."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (
                _scaler(trainer)
                and getattr(optimizer, "_step_supports_amp_scaling", False)
                and parameter.grad is not None
            ):
                parameter.grad.fill_(torch.inf)  # a fused optimizer skips by the scaler's word, which wants gradients
            else:
                parameter.grad = None


def _go_back(trainer: Trainer, factor: float) -> None:
    """Loads weights and moments of the newest checkpoint that is whole and finite; lowers the rates of now."""
    folder = Path(getattr(trainer.checkpoint_callback, "dirpath", None) or "none")
    candidates = [path for name in ("last", "previous") if is_checkpoint(path := folder / f"{name}.ckpt")]
    while candidates:
        path = first_valid(candidates, "policy return")
        checkpoint = load(path)
        if all(value.isfinite().all() for value in checkpoint["state_dict"].values()):
            break
        candidates = candidates[candidates.index(path) + 1 :]
    else:
        raise UserError(
            f"policy: return found no finite checkpoint in {folder.as_posix()}; see --checkpoint.every_n_steps"
        )
    trainer.strategy.load_model_state_dict(checkpoint, strict=trainer.lightning_module.strict_loading)
    # settings of now, as the schedule goes on from now; only the moments are of then
    groups = [{k: v for k, v in g.items() if k != "params"} for opt in trainer.optimizers for g in opt.param_groups]
    trainer.strategy.load_optimizer_state_dict(checkpoint)
    for group, now in zip((g for opt in trainer.optimizers for g in opt.param_groups), groups, strict=True):
        group.update(now)
    scale_rates(trainer.optimizers, [config.scheduler for config in trainer.lr_scheduler_configs], factor)
