"""Verdicts from made-up measurements."""

from typing import Any

import pytest

from playbook.training.verdict import Evidence, burst_of, notes, verdict

STEADY = [0.01] * 100
BURSTS = [0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.2] * 10


@pytest.mark.parametrize(
    ("evidence", "bound", "advice"),
    [
        (
            {"seconds": {"data": 5, "forward": 5}, "num_workers": 1},
            "data",
            "50% of the time waits for the loader with 1 worker; --data.num_workers 2",
        ),
        ({"seconds": {"data": 5, "forward": 5}, "num_workers": 64}, "data", "all 2 cores work for it already"),
        (
            {"seconds": {"data": 5, "forward": 5}, "num_workers": 3, "cores": 8, "has_option": False},
            "data",
            "with 3 workers; num_workers=6 in the DataLoader",
        ),
        (
            {"seconds": {"data": 5, "forward": 5}, "stages": lambda: {"samples": 0.03, "collate": 0.01}},
            "data",
            "(30 ms for the samples of a batch)",
        ),
        (
            {"seconds": {"data": 5, "forward": 5}, "stages": lambda: {"samples": 0.01, "collate": 0.03}},
            "collate",
            "mostly for collate (30 ms a batch, its samples 10 ms); --data.num_workers 2",
        ),
        (
            {"seconds": {"data": 5, "forward": 5}, "waits": BURSTS},
            "data in bursts",
            "one of ten batches takes 200 ms, the median 1 ms",
        ),
        (
            {"seconds": {"data": 5, "forward": 5}, "waits": BURSTS, "first_waits": 4.0, "num_workers": 2},
            "data at the start of epochs",
            "for which 2 workers start anew; persistent_workers=True",
        ),
        ({"seconds": {"transfer": 5, "data": 1, "forward": 5}}, "transfer", "brings batches to the device"),
        ({"seconds": {"validation": 6, "data": 4}}, "validation", "60% of the time; --trainer.check_val_every"),
        ({"seconds": {"validation": 4, "data": 6}}, "data", "60%"),
        ({"seconds": {"checkpoints": 3, "forward": 7}}, "checkpoints", "--checkpoint.every_n_epochs"),
        ({"seconds": {"callbacks": 3, "forward": 7}, "callback": ("EMA", 2.5)}, "callbacks", "EMA alone 25%"),
        (
            {"seconds": {"hooks of the model": 4, "forward": 6}, "hook": ("Line.on_train_batch_end", 2.5)},
            "hooks",
            "Line.on_train_batch_end alone 25%",
        ),
        ({"seconds": {"optimizer": 5, "forward": 5}}, "the optimizer", "--model.optimizer.fused true"),
        (
            {"seconds": {"loop and logging": 5, "forward": 5}, "step_ms": 0.5},
            "small steps",
            "50% of a step of 0.5 ms is the loop around it; a larger --data.batch_size",
        ),
        (
            {"seconds": {"loop and logging": 6, "callbacks": 3, "forward": 1}, "callback": ("EMA", 2.5)},
            "callbacks",
            "EMA alone 25%",
        ),
        (
            {"seconds": {"forward": 4, "backward": 6}},
            "computation",
            "forward 40%, backward 60%, optimizer 0%; --config configs/trainer/compile.yaml",
        ),
        (
            {"seconds": {"forward": 4, "backward": 6}, "num_operators": 1000, "backward_s": 0.1},
            "computation",
            "forward 40%",
        ),
        ({"seconds": {"forward": 4, "backward": 6}, "num_operators": 10, "backward_s": 1e-4}, "computation", ""),
        (
            {"seconds": {"forward": 4, "backward": 6}, "num_operators": 5000, "backward_s": 0.05},
            "many small operators",
            "5000 operators a step, 10 µs for the backward of each, little more than calling it",
        ),
    ],
)
def test_verdicts(evidence: dict[str, Any], bound: str, advice: str) -> None:
    cause, sentence = verdict(Evidence(**evidence))
    assert cause == bound, sentence
    assert advice in sentence


def test_a_busy_gpu_computes_whatever_the_host_waits_in() -> None:
    """Reading the loss in a callback waits for the GPU, which the host's clock gives to the callback."""
    host = {"callbacks": 8.0, "forward": 1.0, "backward": 1.0}
    idle = Evidence(host, device="cuda", device_seconds={"forward": 1.0, "backward": 1.0}, callback=("Bar", 8.0))
    busy = Evidence(host, device="cuda", device_seconds={"forward": 3.0, "backward": 5.5, "optimizer": 0.5})
    assert verdict(idle)[0] == "callbacks"
    assert verdict(busy) == (
        "computation",
        "forward 30%, backward 55%, optimizer 5%; --config configs/trainer/bf16.yaml may make it faster",
    )


@pytest.mark.parametrize("slowest", [0, 1, 2])
@pytest.mark.parametrize("part", ["forward", "data", "callbacks"])
def test_the_slowest_rank_is_named(slowest: int, part: str) -> None:
    ranks = [{"forward": 0.01, "data": 0.001, "callbacks": 0.0, "backward": 0.05} for _ in range(3)]
    ranks[slowest] = {**ranks[0], "backward": 0.02, part: ranks[0][part] + 0.03}
    cause, sentence = verdict(Evidence(ranks[0], ranks=ranks))
    assert cause == "a slow rank"
    assert f"rank {slowest} takes 41 ms of its own a step, the others 11 ms" in sentence
    assert f"most of that is {part} (+30 ms)" in sentence


def test_ranks_alike_are_judged_as_one() -> None:
    ranks = [{"data": 0.05, "backward": 0.01}, {"data": 0.052, "backward": 0.008}]
    assert verdict(Evidence(ranks[0], ranks=ranks))[0] == "data"


def test_a_rank_that_waits_in_a_callback_is_not_the_slow_one() -> None:
    ranks = [
        {"callbacks": 0.04, "forward": 0.01, "backward": 0.01},
        {"callbacks": 0.01, "forward": 0.04, "backward": 0.01},
    ]
    assert "rank 1 takes" in verdict(Evidence(ranks[0], ranks=ranks))[1]


def test_the_forward_pass_of_shards_waits_for_the_others() -> None:
    ranks = [{"forward": 0.01, "backward": 0.05}, {"forward": 0.04, "backward": 0.02}]
    assert verdict(Evidence(ranks[0], ranks=ranks))[0] == "a slow rank"
    assert verdict(Evidence(ranks[0], ranks=ranks, is_sharded=True))[0] == "computation"


def test_bursts() -> None:
    assert burst_of(STEADY) is None
    assert burst_of(BURSTS) == pytest.approx((0.2, 0.001))
    assert burst_of(BURSTS[:19]) is None, "too few"
    # workers that deliver two batches at once, then none: half of the batches wait
    assert burst_of([0.0, 0.08] * 50) is None


def test_notes() -> None:
    quiet = {"forward": 1.0}
    assert notes(Evidence(quiet)) == []
    (memory,) = notes(Evidence(quiet, growth_mib=0.512))
    assert memory.startswith("growing memory: 0.51 MiB a step, 0.5 GiB in 1,000 steps")
    reads = [("task.py:7", "item()"), ("task.py:9", "float()")]
    (one,) = notes(Evidence(quiet, reads=reads[:1]))
    assert one.startswith("values read in every step: item() at task.py:7; cheap on a CPU")
    (two,) = notes(Evidence(quiet, reads=reads, device="cuda"))
    assert "item() at task.py:7 and 1 more line; each waits for the GPU" in two
