"""Operations by operator, module and line of code, and how far each is from what the device can do."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from playbook.insight.profile.places import source
from playbook.insight.profile.recorder import BACKWARD, RANGE, Operation

LEAST_SHARE = 0.005  # of a step, for a row of its own


@dataclass(frozen=True)
class Roofline:
    """What the device computes and moves at most, as measured (Williams, Waterman & Patterson 2009).

    Args:
        flops: floating-point operations a second, of a large matrix product.
        bytes: read and written a second, of a large addition.
    """

    flops: float
    bytes: float

    def least_seconds(self, operation: Operation) -> float:
        """That the device needs for an operation at least."""
        return max(operation.flops / self.flops, operation.bytes / self.bytes)


def seconds_of(operation: Operation) -> float:
    """On the device where it has one, or else on the host."""
    return operation.seconds if operation.device_seconds is None else operation.device_seconds


def keep_fastest(operations: Sequence[Operation], former: Sequence[Operation]) -> None:
    """Gives each operation the time of the same one in another step, if it was faster there.

    Args:
        operations: of a step.
        former: of the other one; where it did something else, nothing changes.
    """
    if [operation.name for operation in operations] != [operation.name for operation in former]:
        return
    for operation, other in zip(operations, former, strict=True):
        operation.seconds = min(operation.seconds, other.seconds)
        if operation.device_seconds is not None and other.device_seconds is not None:
            operation.device_seconds = min(operation.device_seconds, other.device_seconds)


def by_operator(operations: Sequence[Operation], roofline: Roofline) -> list[dict[str, Any]]:
    """Rows of operators in their places, the slowest first."""
    groups: dict[tuple[str, str, str, str], list[Operation]] = {}
    for operation in operations:
        key = operation.name, operation.phase, operation.place.module, operation.place.line
        groups.setdefault(key, []).append(operation)
    total = sum(map(seconds_of, operations)) or 1.0
    rows = []
    for (name, phase, module, line), group in groups.items():
        seconds = sum(map(seconds_of, group))
        if seconds / total < LEAST_SHARE:
            continue
        row = {"operator": name, "pass": phase, "module": module, "line": PurePath(line).name, "calls": len(group)}
        row |= _times(group)
        row |= {
            "share": f"{seconds / total:.1%}",
            "GFLOP": sum(operation.flops for operation in group) / 1e9,
            "MB": sum(operation.bytes for operation in group) / 1e6,
            "of roofline": f"{sum(map(roofline.least_seconds, group)) / seconds:.0%}" if seconds else "",
        }
        rows.append((seconds, row))
    return [row for _, row in sorted(rows, key=lambda entry: -entry[0])]


def by_module(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Rows of modules: time of a module with those inside it, and of its own operations alone."""
    own: dict[str, float] = {}
    inclusive: dict[str, float] = {}
    for operation in operations:
        path, seconds = operation.place.module, seconds_of(operation)
        own[path] = own.get(path, 0.0) + seconds
        for parent in {path, *_parents(path)}:
            inclusive[parent] = inclusive.get(parent, 0.0) + seconds
    total = inclusive.get("") or 1.0
    return [
        {
            "module": path or "the step",
            "total ms": 1e3 * seconds,
            "self ms": 1e3 * own.get(path, 0.0),
            "share": f"{seconds / total:.1%}",
        }
        for path, seconds in sorted(inclusive.items(), key=lambda entry: -entry[1])
        if seconds / total >= LEAST_SHARE
    ]


def by_line(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Rows of lines of the user's code, each with its forward and its backward pass; without a line, of the phase."""
    forward: dict[str, float] = {}
    backward: dict[str, float] = {}
    for operation in operations:
        times = backward if operation.phase == BACKWARD else forward
        line = operation.place.line or operation.phase
        times[line] = times.get(line, 0.0) + seconds_of(operation)
    total = sum(forward.values()) + sum(backward.values()) or 1.0
    sums = {line: forward.get(line, 0.0) + backward.get(line, 0.0) for line in {*forward, *backward}}
    return [
        {
            "line": line,
            "code": source(line),
            "forward ms": 1e3 * forward.get(line, 0.0),
            "backward ms": 1e3 * backward.get(line, 0.0),
            "share": f"{seconds / total:.1%}",
        }
        for line, seconds in sorted(sums.items(), key=lambda entry: -entry[1])
        if seconds / total >= LEAST_SHARE
    ]


def add_device_times(operations: Sequence[Operation], events: Iterable[dict[str, Any]]) -> None:
    """Gives each operation the time of its kernels, from the events of a trace.

    A kernel has the correlation number of the call that launched it, and that call lies within the range of its
    operation, on the same thread.

    Args:
        operations: of the step that was traced; left as they are where no kernel ran.
        events: `traceEvents` of a Chrome trace.
    """
    ranges: dict[Any, list[tuple[float, float, int]]] = {}  # begin, end and operation, by thread
    launches: dict[Any, tuple[Any, float]] = {}
    kernels: list[tuple[Any, float]] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        kind, begin = event.get("cat", ""), float(event["ts"])
        correlation = (event.get("args") or {}).get("correlation")
        if kind == "user_annotation" and event["name"].startswith(RANGE):
            number = int(event["name"].removeprefix(RANGE))
            ranges.setdefault(event["tid"], []).append((begin, begin + float(event["dur"]), number))
        elif kind in ("cuda_runtime", "cuda_driver"):
            launches[correlation] = event["tid"], begin
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append((correlation, float(event["dur"]) / 1e6))
    if not kernels:
        return
    for thread in ranges.values():
        thread.sort()
    for operation in operations:
        operation.device_seconds = 0.0
    for correlation, seconds in kernels:
        thread, moment = launches.get(correlation, (None, 0.0))
        within = ranges.get(thread, [])
        position = bisect_right(within, (moment, float("inf"), 0)) - 1
        if position >= 0 and moment <= within[position][1]:
            operation = operations[within[position][2]]
            operation.device_seconds = (operation.device_seconds or 0.0) + seconds


def _times(group: Sequence[Operation]) -> dict[str, float]:
    host = 1e3 * sum(operation.seconds for operation in group)
    if group[0].device_seconds is None:
        return {"ms": host}
    return {"device ms": 1e3 * sum(map(seconds_of, group)), "host ms": host}


def _parents(path: str) -> list[str]:
    """Paths of the modules around one, the outermost, which is empty, first."""
    names = path.split(".")
    return ["", *(".".join(names[:number]) for number in range(1, len(names)))]
