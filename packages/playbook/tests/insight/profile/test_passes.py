"""One short training is timed, traced and recorded."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from playbook.insight.profile import steps
from playbook.insight.profile.passes import TRACED, Passes, write_trace
from playbook.insight.short_training import OBSERVERS, train_copy
from playbook.testing.command import UNSAVED
from playbook.testing.line import Line, Points
from playbook.training.trainer import Trainer


class Own(Line):
    """Whose step stands outside of the package."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return (self.net(x) - y).square().mean()


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_training_is_timed_traced_and_recorded(
    accumulated: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LEAST_SECONDS", 0.0)
    passes = Passes(6)
    trainer = Trainer(**UNSAVED, max_epochs=-1, accumulate_grad_batches=accumulated)
    train_copy(trainer, Own(), Points(), passes, without=OBSERVERS)
    assert passes.result is not None
    assert passes.traced is not None
    write_trace(passes.traced, tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert sum(event["name"] == "net" and event["cat"] == "user_annotation" for event in events) == TRACED
    assert passes.recorder is not None
    names = [operation.name for operation in passes.recorder.operations]
    assert names.count("addmm") == accumulated
    phases: list[Any] = list(dict.fromkeys(operation.phase for operation in passes.recorder.operations))
    assert phases == ["forward", "backward", "optimizer"]
    lines = {operation.place.line.rpartition(":")[0] for operation in passes.recorder.operations}
    assert {Path(line).name for line in lines if line} == {"test_passes.py"}, "not the loop around the step"


def test_what_an_error_leaves_open_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LEAST_SECONDS", 0.0)

    class Failing(Line):
        num_steps = 0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.num_steps += 1
            if self.num_steps == 5 + 6 + TRACED + 1:
                raise ValueError("amid the recorded step")
            return super().training_step(batch, batch_idx)

    passes = Passes(6)
    with pytest.raises(ValueError, match="recorded step"):
        train_copy(Trainer(**UNSAVED, max_epochs=-1), Failing(), Points(), passes, without=OBSERVERS)
    passes.close()
    assert passes.recorder is not None
    num_operations = len(passes.recorder.operations)
    Line().net.weight.sum()
    assert len(passes.recorder.operations) == num_operations
