"""Times by operator, module and line, and times on a device from the events of a trace."""

import json
from typing import Any

import pytest
import torch
from torch.profiler import profile, record_function

from playbook.insight.profile import roofline
from playbook.insight.profile.operators import (
    Roofline,
    add_device_times,
    by_line,
    by_module,
    by_operator,
    keep_fastest,
    seconds_of,
)
from playbook.insight.profile.passes import exported
from playbook.insight.profile.places import Place
from playbook.insight.profile.recorder import BACKWARD, FORWARD, OPTIMIZER, RANGE, Operation

OPERATIONS = [
    Operation("mm", Place("net.a", "net.py:3"), FORWARD, 0.5, 2_000_000_000, 100),
    Operation("mm", Place("net.a", "net.py:3"), FORWARD, 0.5, 2_000_000_000, 100),
    Operation("mm", Place("net.a", "net.py:3"), BACKWARD, 2.0, 1_000_000_000, 100),
    Operation("relu", Place("net.a.b", "net.py:4"), FORWARD, 1.0, 0, 500_000_000),
]


def test_operators_by_place_and_their_share_of_the_roofline() -> None:
    rows = by_operator(OPERATIONS, Roofline(flops=8e9, bytes=1e9))
    assert [(row["operator"], row["pass"], row["calls"], row["ms"], row["share"]) for row in rows] == [
        ("mm", BACKWARD, 1, 2000.0, "50.0%"),
        ("mm", FORWARD, 2, 1000.0, "25.0%"),
        ("relu", FORWARD, 1, 1000.0, "25.0%"),
    ]
    # 1 GFLOP at 8 GFLOP/s takes 0.125 s of the 2 s; 4 GFLOP 0.5 s of 1 s; 0.5 GB at 1 GB/s 0.5 s of 1 s
    assert [row["of roofline"] for row in rows] == ["6%", "50%", "50%"]


def test_the_fastest_of_several_steps_counts() -> None:
    def step(*seconds: float) -> list[Operation]:
        return [Operation(name, Place(), FORWARD, s, 0, 0, s / 2) for name, s in zip("abc", seconds, strict=False)]

    last = step(1.0, 5.0)
    keep_fastest(last, step(2.0, 4.0))
    keep_fastest(last, step(0.1, 0.1, 0.1))  # another step, such as one that also validates
    assert [(operation.seconds, operation.device_seconds) for operation in last] == [(1.0, 0.5), (4.0, 2.0)]


def test_modules_with_those_inside_them_and_alone() -> None:
    rows = {row["module"]: (row["total ms"], row["self ms"]) for row in by_module(OPERATIONS)}
    assert rows == {"the step": (4000, 0), "net": (4000, 0), "net.a": (4000, 3000), "net.a.b": (1000, 1000)}


def test_lines_have_both_passes() -> None:
    rows = by_line(OPERATIONS)
    assert [(row["line"], row["forward ms"], row["backward ms"], row["share"]) for row in rows] == [
        ("net.py:3", 1000.0, 2000.0, "75.0%"),
        ("net.py:4", 1000.0, 0.0, "25.0%"),
    ]
    assert [row["line"] for row in by_line([Operation("sqrt", Place(), OPTIMIZER, 1.0, 0, 0)])] == [OPTIMIZER]


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, correlation: int | None = None) -> dict[str, Any]:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def test_kernels_count_for_the_operation_that_launched_them() -> None:
    operations = [Operation("mm", Place(), FORWARD, 1.0, 0, 0), Operation("relu", Place(), FORWARD, 1.0, 0, 0)]
    events = [
        event("user_annotation", f"{RANGE}1", 200, 50, tid=7),  # the backward thread
        event("user_annotation", f"{RANGE}0", 100, 50),
        event("user_annotation", "something else", 0, 1000),
        event("cuda_runtime", "cudaLaunchKernel", 110, 5, correlation=11),
        event("cuda_driver", "cuLaunchKernel", 120, 5, correlation=12),
        event("cuda_runtime", "cudaLaunchKernel", 210, 5, tid=7, correlation=13),
        event("cuda_runtime", "cudaLaunchKernel", 210, 5, correlation=14),  # within no operation of its thread
        event("kernel", "gemm", 500, 3000, tid=20, correlation=11),
        event("gpu_memcpy", "copy", 3500, 1000, tid=20, correlation=12),
        event("kernel", "relu", 4500, 250, tid=20, correlation=13),
        event("kernel", "other", 5000, 9999, tid=20, correlation=14),
        {"ph": "M", "name": "process_name"},
    ]
    add_device_times(operations, events)
    assert [operation.device_seconds for operation in operations] == pytest.approx([4e-3, 0.25e-3])
    (first, second) = by_operator(operations, Roofline(1, 1))
    assert (first["device ms"], first["host ms"]) == (4.0, 1000.0)
    assert second["operator"] == "relu"


def test_ranges_stand_in_a_trace_as_they_are_read() -> None:
    with profile(activities=[torch.profiler.ProfilerActivity.CPU]) as tracer, record_function(f"{RANGE}0"):
        torch.ones(3).sum()
    events = json.loads(exported(tracer))["traceEvents"]
    assert [e["cat"] for e in events if e["name"] == f"{RANGE}0" and e["ph"] == "X"] == ["user_annotation"]
    operations = [Operation("sum", Place(), FORWARD, 1.0, 0, 0)]
    add_device_times(operations, events)
    assert operations[0].device_seconds is None, "no kernel, no device"
    assert seconds_of(operations[0]) == 1.0


def test_the_roofline_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "SECONDS", 0.01)
    monkeypatch.setattr(roofline, "SIDES", {"cpu": 64})
    monkeypatch.setattr(roofline, "SIZES", {"cpu": 1000})
    monkeypatch.setattr(roofline, "_fastest", lambda act, device: (act(), 0.5)[1])
    assert roofline.measure(torch.device("cpu")) == Roofline(2 * 64**3 / 0.5, 12 * 1000 / 0.5)
