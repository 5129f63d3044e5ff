"""The memory of a step over its operations, by kind, and what fills it at its peak."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playbook.insight.profile.recorder import Block, Operation

KINDS = ("parameters", "optimizer", "gradients", "batch", "activations", "temporary")
MOST_POINTS = 600  # of the curves
MOST_BLOCKS = 15  # at the peak that are named
MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """Memory of one step.

    Args:
        positions: numbers of the operations that the curves show.
        kinds: MiB of each kind at these.
        peak: number of the operation at the peak; -1 before the first.
        peak_mib: memory there.
        at_peak: blocks that are alive there, the largest first.
    """

    positions: list[int]
    kinds: dict[str, list[float]]
    peak: int
    peak_mib: float
    at_peak: list[Block]


def timeline(blocks: Sequence[Block], num_operations: int) -> Memory:
    """Sums the blocks that are alive after each operation.

    Args:
        blocks: of the step.
        num_operations: of the step.
    """
    changes: list[Counter[str]] = [Counter() for _ in range(num_operations + 2)]  # one before the first
    for block in blocks:
        changes[block.begin + 1][block.kind] += block.size
        if block.end is not None:
            changes[min(block.end + 1, num_operations + 1)][block.kind] -= block.size
    alive: Counter[str] = Counter()
    sums: list[dict[str, int]] = []
    for change in changes[: num_operations + 1]:
        alive.update(change)
        sums.append(dict(alive))
    totals = [sum(values.values()) for values in sums]
    peak = max(range(len(totals)), key=totals.__getitem__)
    stride = -(-len(sums) // MOST_POINTS)
    shown = sorted({*range(0, len(sums), stride), peak})
    kinds = {kind: [sums[k].get(kind, 0) / MIB for k in shown] for kind in KINDS}
    at_peak = [block for block in blocks if block.begin < peak and (block.end is None or block.end >= peak)]
    return Memory(
        [k - 1 for k in shown],
        {kind: values for kind, values in kinds.items() if any(values)},
        peak - 1,
        totals[peak] / MIB,
        sorted(at_peak, key=lambda block: -block.size),
    )


def at_peak(memory: Memory) -> list[dict[str, Any]]:
    """Rows of what is alive at the peak: the largest tensors, then the rest in one row."""
    rows = [
        {
            "kind": block.kind,
            "module": block.place.module,
            "made by": block.operation,
            "line": block.place.line,
            "shape": " × ".join(map(str, block.shape)),
            "MiB": block.size / MIB,
        }
        for block in memory.at_peak[:MOST_BLOCKS]
    ]
    if rest := memory.at_peak[MOST_BLOCKS:]:
        rows.append({"kind": f"{len(rest):,} more", "MiB": sum(block.size for block in rest) / MIB})
    return rows


def moment(memory: Memory, operations: Sequence[Operation]) -> str:
    """A sentence that says when memory is at its peak, and what fills it."""
    kinds: Counter[str] = Counter()
    for block in memory.at_peak:
        kinds[block.kind] += block.size
    total = sum(kinds.values()) or 1
    told = ", ".join(f"{kind} {size / MIB:,.1f} MiB ({size / total:.0%})" for kind, size in kinds.most_common(4))
    if memory.peak < 0:
        return f"Memory is at its peak before the step begins, at {memory.peak_mib:,.1f} MiB: {told}."
    operation = operations[memory.peak]
    place = f" of {operation.place.module}" if operation.place.module else ""
    return (
        f"Memory is at its peak in the {operation.phase} pass, at {operation.name}{place}, "
        f"with {memory.peak_mib:,.1f} MiB: {told}."
    ).replace("optimizer pass", "optimizer's step")
