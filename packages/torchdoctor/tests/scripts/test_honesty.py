"""What a review of a script must not call right: a defect that it could not have found there, or finds."""

from pathlib import Path

import pytest

from programs import needs_fork
from script_programs import changed, lines, reviewed

pytestmark = [needs_fork, pytest.mark.slow]

NOISY = """class Noisy(TensorDataset):
    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.generator = torch.Generator().manual_seed(7)

    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return x + 0.1 * torch.randn(8, generator=self.generator), y


train_loader = DataLoader(Noisy(x[:320], y[:320]), batch_size=20, shuffle=True, num_workers=2)"""
PLAIN = "train_loader = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=20, shuffle=True)"


def test_workers_that_copy_a_generator(tmp_path: Path) -> None:
    """A script's own loops run without workers in the review; the comparison does not."""
    report = reviewed(tmp_path, changed((PLAIN, NOISY)), only="duplicate-worker-rng")
    assert lines(report) == [("duplicate-worker-rng", "self.generator = torch.Generator().manual_seed(7)")], report
    assert "workers draw different random numbers" not in report.checked
    own = changed((PLAIN, NOISY), (", generator=self.generator)", ")"))
    report = reviewed(tmp_path, own, only="duplicate-worker-rng")
    assert not report.findings, report
    assert "workers draw different random numbers" in report.checked


def test_clipping_of_scaled_gradients(tmp_path: Path) -> None:
    """On a machine without CUDA the scaler is off, and only the order of the calls tells."""
    clip = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    step = f"scaler.scale(loss).backward()\n        {clip}\n        scaler.step(optimizer)\n        scaler.update()"
    pairs = (
        ("for epoch", 'scaler = torch.amp.GradScaler("cuda")\nfor epoch'),
        ("loss.backward()\n        optimizer.step()", step),
    )
    report = reviewed(tmp_path, changed(*pairs), only="ineffective-clipping")
    assert lines(report) == [("ineffective-clipping", clip)], report
    assert "gradients are clipped before an optimizer takes them" not in report.checked
    unscaled = (pairs[1][0], step.replace(clip, f"scaler.unscale_(optimizer)\n        {clip}"))
    report = reviewed(tmp_path, changed(pairs[0], unscaled), only="ineffective-clipping")
    assert not report.findings, report
    assert "gradients are clipped before an optimizer takes them" in report.checked


@pytest.mark.parametrize("schedule", ["ExponentialLR(optimizer, 0.7)", "CosineAnnealingLR(optimizer, T_max=3)"])
def test_a_schedule_for_epochs_that_is_stepped_with_batches(tmp_path: Path, schedule: str) -> None:
    made = f"schedule = torch.optim.lr_scheduler.{schedule}"
    pairs = ("for epoch", f"{made}\nfor epoch"), ("optimizer.step()\n", "optimizer.step()\n        schedule.step()\n")
    report = reviewed(tmp_path, changed(*pairs), only="scheduler-cadence")
    assert lines(report) == [("scheduler-cadence", made)], report
    assert "schedules are stepped" not in report.checked
    by_epoch = changed(pairs[0], ("    print(epoch, correct)", "    schedule.step()"))
    report = reviewed(tmp_path, by_epoch, only="scheduler-cadence")
    assert not report.findings, report
    assert "schedules are stepped" in report.checked, report


def test_a_schedule_for_steps(tmp_path: Path) -> None:
    made = "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(train_loader))"
    pairs = ("for epoch", f"{made}\nfor epoch"), ("optimizer.step()\n", "optimizer.step()\n        schedule.step()\n")
    report = reviewed(tmp_path, changed(*pairs), only="scheduler-cadence")
    assert not report.findings, report
    assert "schedules are stepped" in report.checked, report
    once = changed(*pairs, ("range(3)", "range(1)"), (made, made.replace("3 * ", "")))
    report = reviewed(tmp_path, once, only="scheduler-cadence")
    assert not report.findings, report


def test_a_schedule_that_waits_is_not_called_right(tmp_path: Path) -> None:
    made = "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)"
    text = changed(("for epoch", f"{made}\nfor epoch"), ("    print(epoch, correct)", "    schedule.step(-correct)"))
    report = reviewed(tmp_path, text, only="scheduler-cadence")
    assert not report.findings, report
    assert "schedules are stepped" not in report.checked
    assert [note for note in report.notes if note.startswith("scheduler-cadence: ")] == report.notes, report
