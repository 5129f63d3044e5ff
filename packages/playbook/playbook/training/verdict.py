"""What bounded a training, and what to try first, judged from numbers alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from playbook.training.timing import ON_DEVICE, OTHER

# shares of the training's time from which on a part bounds it. An overlapped loader or a rare validation has a few
# percent; from here on, removing the part makes a training at least 1.25 times as fast
DATA_SHARE = 0.3
VALIDATION_SHARE = 0.4  # one pass over a validation set of half the size takes a sixth
SAVING_SHARE = 0.2
CALLBACK_SHARE = 0.25
LOOP_SHARE = 0.4
OPTIMIZER_SHARE = 0.4
BUSY_SHARE = 0.8  # of the time that a GPU computes, from which on nothing on the host bounds
BURST_COUNT = 0.1  # of the batches
BURST_SHARE = 0.5  # of the waiting that these longest waits hold: 0.1 if all waits are alike
FIRST_SHARE = 0.5  # of the waiting, before the first batches of epochs
COLLATE_SHARE = 0.5  # of the time to make a batch
SLOW_RANK_SHARE = 0.15  # of a step that the slowest rank computes longer than the others: ranks differ by a few percent
# the backward of an operator on 64 numbers takes 6 µs, nearly all of it to call it; below this, 40 % or more is that
OPERATOR_US = 15.0
LEAST_OPERATORS = 30  # of a step; below, it is the loop around it that takes time
# parts in which a rank does not wait for the others; callbacks and a sharded forward may
OWN_PARTS = ("data", "transfer", "hooks of the model", "hooks of the data")


@dataclass(frozen=True)
class Evidence:
    """What a training has measured.

    Args:
        seconds: of each part, in this process.
        step_ms: median duration of a step.
        device: cpu, cuda, …
        device_seconds: of forward, backward and optimizer on a GPU; empty elsewhere.
        waits: seconds that each step waited for its batch, without the first of an epoch.
        first_waits: seconds before the first batches of epochs.
        num_workers: of the loader.
        has_option: whether --data.num_workers sets that.
        cores: of the machine.
        stages: seconds of a batch in samples and in collate; called if the loader bounds the training.
        callback: that took longest, and its seconds.
        hook: of the model or the data that took longest, and its seconds.
        num_operators: of a step's backward graph; None if unknown.
        backward_s: seconds that were computed in the backward of a step.
        ranks: seconds of each part of a step in every process, by rank; empty for one process.
        is_sharded: whether the forward pass waits for the other ranks.
        growth_mib: that a step adds to the memory in use; 0 where it does not grow.
        reads: lines of the user's code, each with a method, that read a value from a tensor in every step.
    """

    seconds: Mapping[str, float]
    step_ms: float = 10.0
    device: str = "cpu"
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    waits: Sequence[float] = ()
    first_waits: float = 0.0
    num_workers: int = 0
    has_option: bool = True
    cores: int = 2
    stages: Callable[[], Mapping[str, float]] = dict
    callback: tuple[str, float] = ("", 0.0)
    hook: tuple[str, float] = ("", 0.0)
    num_operators: float | None = None
    backward_s: float = 0.0
    ranks: Sequence[Mapping[str, float]] = ()
    is_sharded: bool = False
    growth_mib: float = 0.0
    reads: Sequence[tuple[str, str]] = ()

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def share(self, *parts: str) -> float:
        return sum(self.seconds.get(part, 0.0) for part in parts) / self.total


def verdict(evidence: Evidence) -> tuple[str, str]:
    """What bounds a training, and a sentence with the reason and what to try first."""
    if (finding := _slow_rank(evidence)) is not None:
        return finding
    share = evidence.share
    busy = sum(evidence.device_seconds.values()) / evidence.total
    causes = {
        _bound_by_data: (share("data", "transfer"), DATA_SHARE),
        _bound_by_validation: (share("validation"), VALIDATION_SHARE),
        _bound_by_saving: (share("checkpoints"), SAVING_SHARE),
        _bound_by_callbacks: (share("callbacks"), CALLBACK_SHARE),
        _bound_by_hooks: (share("hooks of the model", "hooks of the data"), CALLBACK_SHARE),
        _bound_by_optimizer: (share("optimizer"), OPTIMIZER_SHARE),
        _bound_by_loop: (share(OTHER, "callbacks", "hooks of the model", "hooks of the data"), LOOP_SHARE),
    }
    candidates = [(value, cause) for cause, (value, least) in causes.items() if value >= least]
    if not candidates or busy >= BUSY_SHARE:
        return _bound_by_computation(evidence)
    specific = [entry for entry in candidates if entry[1] is not _bound_by_loop] or candidates
    value, cause = max(specific, key=lambda entry: entry[0])
    return cause(evidence, value)


def notes(evidence: Evidence) -> list[str]:
    """What a training's owner should know although it does not bound the training."""
    sentences = []
    if evidence.growth_mib:
        thousand = evidence.growth_mib * 1000 / 1024
        sentences.append(
            f"growing memory: {evidence.growth_mib:.2g} MiB a step, {thousand:.2g} GiB in 1,000 steps; "
            "keep loss.detach() or loss.item() instead of tensors with their graph"
        )
    if evidence.reads:
        line, method = evidence.reads[0]
        rest = len(evidence.reads) - 1
        more = f" and {rest} more line{'' if rest == 1 else 's'}" if rest else ""
        effect = "each waits for the GPU" if evidence.device == "cuda" else "cheap on a CPU, but a GPU is waited for"
        sentences.append(
            f"values read in every step: {method} at {line}{more}; {effect}; "
            "self.log takes tensors, or read every 50th step"
        )
    return sentences


def _bound_by_data(evidence: Evidence, share: float) -> tuple[str, str]:
    if evidence.share("transfer") > evidence.share("data"):
        return (
            "transfer",
            f"{share:.0%} of the time brings batches to the device; pinned memory or smaller samples help",
        )
    count = evidence.num_workers
    workers = f"{count} worker{'' if count == 1 else 's'}"
    waiting = evidence.seconds["data"]
    if evidence.first_waits >= FIRST_SHARE * waiting:
        text = f"{share:.0%} of the time waits for the first batches of epochs, for which {workers} start anew"
        return "data at the start of epochs", f"{text}; persistent_workers=True in the DataLoader keeps them"
    text = f"{share:.0%} of the time waits for the loader with {workers}"
    stages = evidence.stages()
    if stages and stages["collate"] >= COLLATE_SHARE * sum(stages.values()):
        text += f", mostly for collate ({1e3 * stages['collate']:.3g} ms a batch, its samples "
        text += f"{1e3 * stages['samples']:.2g} ms)"
        return "collate", f"{text}; {_more_workers(evidence)}"
    if (burst := burst_of(evidence.waits)) is not None:
        longest, middle = burst
        text += f", in bursts: one of ten batches takes {1e3 * longest:.3g} ms, the median {1e3 * middle:.2g} ms"
        return "data in bursts", f"{text}; {_more_workers(evidence)}, which prepares batches ahead"
    if stages:
        text += f" ({1e3 * stages['samples']:.3g} ms for the samples of a batch)"
    return "data", f"{text}; {_more_workers(evidence)}"


def burst_of(waits: Sequence[float]) -> tuple[float, float] | None:
    """Mean of the longest tenth of the waits and the median of all, if that tenth holds most of the waiting."""
    longest = sorted(waits, reverse=True)[: max(1, round(BURST_COUNT * len(waits)))]
    if len(waits) < 2 / BURST_COUNT or sum(longest) < BURST_SHARE * sum(waits):
        return None
    return sum(longest) / len(longest), median(waits)


def _more_workers(evidence: Evidence) -> str:
    count, cores = evidence.num_workers, evidence.cores
    if count >= cores:
        return f"all {cores} cores work for it already: prepare less in each sample, or ahead of training"
    more = min(cores, max(2, 2 * count))
    return f"--data.num_workers {more}" if evidence.has_option else f"num_workers={more} in the DataLoader"


def _bound_by_validation(evidence: Evidence, share: float) -> tuple[str, str]:
    return "validation", f"{share:.0%} of the time; --trainer.check_val_every_n_epoch 5 makes it rarer"


def _bound_by_saving(evidence: Evidence, share: float) -> tuple[str, str]:
    advice = "--checkpoint.every_n_epochs and .every_n_steps save less often"
    return "checkpoints", f"{share:.0%} of the time; {advice}"


def _bound_by_callbacks(evidence: Evidence, share: float) -> tuple[str, str]:
    name, seconds = evidence.callback
    return "callbacks", f"{share:.0%} of the time, {name} alone {seconds / evidence.total:.0%}"


def _bound_by_hooks(evidence: Evidence, share: float) -> tuple[str, str]:
    name, seconds = evidence.hook
    return "hooks", f"{share:.0%} of the time, {name} alone {seconds / evidence.total:.0%}"


def _bound_by_optimizer(evidence: Evidence, share: float) -> tuple[str, str]:
    return (
        "the optimizer",
        f"{share:.0%} of the time; --model.optimizer.fused true joins the kernels of AdamW, Adam and SGD",
    )


def _bound_by_loop(evidence: Evidence, share: float) -> tuple[str, str]:
    text = f"{share:.0%} of a step of {evidence.step_ms:.2g} ms is the loop around it"
    return "small steps", f"{text}; a larger --data.batch_size makes fewer of them"


def _bound_by_computation(evidence: Evidence) -> tuple[str, str]:
    seconds = {**evidence.seconds, **evidence.device_seconds}
    told = ", ".join(f"{part} {seconds.get(part, 0.0) / evidence.total:.0%}" for part in ON_DEVICE)
    count = evidence.num_operators or 0
    if count >= LEAST_OPERATORS and (each := 1e6 * evidence.backward_s / count) <= OPERATOR_US:
        text = f"{count:.0f} operators a step, {each:.2g} µs for the backward of each, little more than calling it"
        advice = "--config configs/trainer/compile.yaml joins them, a larger --data.batch_size makes them worth it"
        return "many small operators", f"{text} ({told}); {advice}"
    partial = "compile" if evidence.device == "cpu" else "bf16"
    return "computation", f"{told}; --config configs/trainer/{partial}.yaml may make it faster"


def _slow_rank(evidence: Evidence) -> tuple[str, str] | None:
    """The rank that the others wait for: they spend in the all-reduce what it spends elsewhere."""
    parts = OWN_PARTS if evidence.is_sharded else ("forward", *OWN_PARTS)
    return _slow_in(evidence, parts) or _slow_in(evidence, (*parts, "callbacks"))


def _slow_in(evidence: Evidence, parts: Sequence[str]) -> tuple[str, str] | None:
    ranks = evidence.ranks
    if len(ranks) < 2:
        return None
    own = [sum(rank.get(part, 0.0) for part in parts) for rank in ranks]
    slowest = max(range(len(own)), key=own.__getitem__)
    others = [number for number in range(len(own)) if number != slowest]
    usual = median(own[number] for number in others)
    if own[slowest] - usual < SLOW_RANK_SHARE * sum(ranks[slowest].values()):
        return None
    extra = {
        part: ranks[slowest].get(part, 0.0) - median(ranks[number].get(part, 0.0) for number in others)
        for part in parts
    }
    part = max(extra, key=extra.__getitem__)
    text = (
        f"rank {slowest} takes {1e3 * own[slowest]:.3g} ms of its own a step, the others {1e3 * usual:.3g} ms and wait "
        f"for it; most of that is {part} (+{1e3 * extra[part]:.3g} ms)"
    )
    places = {"data": "its storage and the samples it gets", "callbacks": "what callbacks do on this rank alone"}
    return "a slow rank", f"{text}; look at {places.get(part, 'its device and its samples')}"
