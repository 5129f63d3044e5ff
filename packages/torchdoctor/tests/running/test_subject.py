"""The training that is looked at: its batches, its modes, and how slow steps are shortened."""

import time
from collections import deque
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from programs import Blobs, Classifier
from torchdoctor.evidence import replay
from torchdoctor.evidence.samples import loader_owner
from torchdoctor.running import rehearsal, subject
from torchdoctor.running.opening import open_subject
from torchdoctor.running.subject import Subject


def looked(model: Classifier, data: Blobs) -> Subject:
    """The subject, after the look at it has ended."""
    found: list[Subject] = []
    open_subject(model, data, {"max_epochs": 3}, found.append)
    return found[0]


class _Hooked(Classifier):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        return (x + 1000 if self.training else x), y


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


class _Slow(Classifier):
    seconds = 0.3

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        compute(self.seconds)
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:You have overridden")
def test_batches_arrive_through_the_hooks_of_their_stage() -> None:
    seen = looked(_Hooked(), Blobs())
    assert len(seen.batches) == subject.NUM_TRAIN
    assert all(batch[0].mean() > 500 for batch in seen.batches)
    assert all(batch[0].mean() < 500 for batch in seen.val_batches)
    assert seen.validates
    assert seen.samples is None


def test_a_look_in_evaluation_leaves_the_modes() -> None:
    seen = looked(Classifier(), Blobs())
    seen.model.net[1].eval()  # type: ignore[index]  # a Sequential
    modes = [part.training for part in seen.model.modules()]
    with seen.evaluating():
        assert not any(part.training for part in seen.model.modules())
        assert not torch.is_grad_enabled()
    assert [part.training for part in seen.model.modules()] == modes


@pytest.mark.slow
def test_slow_steps_see_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = looked(_Slow(), Blobs())
    assert seen.seconds >= 0.3
    assert seen.samples is not None
    assert 4 <= seen.samples < 20
    assert {len(batch[0]) for batch in (*seen.batches, *seen.val_batches)} == {seen.samples}
    monkeypatch.setattr(_Slow, "seconds", 0.0)
    sizes: list[int] = []
    step = seen.model.training_step
    seen.model.training_step = lambda batch, batch_idx: sizes.append(len(batch[0])) or step(batch, batch_idx)
    rehearsal.rehearsal_notes(seen, rehearsal.Watch)
    assert sizes == [seen.samples] * 6  # in two epochs


@pytest.mark.slow
def test_slow_steps_on_bare_tensors_see_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    class Images(Blobs):
        def train_dataloader(self) -> Any:
            return DataLoader(torch.randn(100, 8), batch_size=20)  # type: ignore[arg-type]  # a tensor

        val_dataloader = train_dataloader

    class Autoencoder(_Slow):
        outputs = 8

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            compute(self.seconds)
            sizes.append(len(batch))
            return (self(batch) - batch).square().mean()

        validation_step = training_step  # type: ignore[assignment]  # a loss, too

    sizes: list[int] = []
    seen = looked(Autoencoder(), Images())
    assert seen.samples is not None
    monkeypatch.setattr(_Slow, "seconds", 0.0)
    sizes.clear()
    rehearsal.rehearsal_notes(seen, rehearsal.Watch)
    assert set(sizes) == {seen.samples}


def test_data_are_made_again() -> None:
    seen = looked(Classifier(), Blobs())
    before = loader_owner(seen)
    replay.rebuild_data(seen)()
    assert loader_owner(seen) is before


@pytest.mark.filterwarnings("ignore:Total length")
def test_no_batch_is_told() -> None:
    class Empty(Blobs):
        def train_dataloader(self) -> Any:
            return []

    with pytest.raises(ValueError, match="no batch"):
        looked(Classifier(), Empty())


def test_a_step_of_a_certain_size_keeps_its_batches() -> None:
    class Fixed(_Slow):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            assert len(batch[0]) == 20
            return super().training_step(batch, batch_idx)

    seen = looked(Fixed(), Blobs())
    assert seen.samples is None
    assert len(seen.batches[0][0]) == 20


class _Tracker:
    def __init__(self) -> None:
        self.losses: list[Tensor] = []


class _Optimizing(Classifier):
    """Steps its optimizer and its schedule by itself, and keeps its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.latest = deque[Tensor](maxlen=3)
        self.tracker = _Tracker()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        optimizer: Any = self.optimizers()
        schedule: Any = self.lr_schedulers()
        loss = super().training_step(batch, batch_idx)
        self.latest.append(loss.detach())
        self.tracker.losses.append(loss.detach())
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        schedule.step()
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


@pytest.mark.parametrize("model", [Classifier(), _Optimizing()], ids=["automatic", "manual"])
def test_steps_are_recorded_once_and_change_nothing(model: Classifier) -> None:
    begun = looked(model, Blobs())
    [optimizer] = begun.trainer.optimizers
    before, rate = {name: value.clone() for name, value in model.state_dict().items()}, optimizer.param_groups[0]["lr"]
    begun.record_steps()
    assert begun.step(1) is begun.step(1)
    assert begun.step(0, training=False) is begun.step(0, training=False)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == rate
    if isinstance(model, _Optimizing):
        assert not model.latest
        assert not model.tracker.losses
