"""What ended a training is said with its value, and the printed options raise what ended it."""

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import yaml
from lightning.pytorch.callbacks import EarlyStopping, Timer

from playbook.testing.command import UNSAVED
from playbook.testing.line import Line, points
from playbook.training.ending import Ending, endings, plain, seconds_of
from playbook.training.finished import reasons_to_stop
from playbook.training.trainer import Trainer


class Stops(Line):
    """Ends its training itself."""

    def on_train_epoch_end(self) -> None:
        self.trainer.should_stop = True


class Runs(Line):
    """Lets a StopIteration out of a hook, which Lightning takes for the end."""

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            next(iter([]))


def ended(module: Line, config: str = "", **settings: Any) -> list[Ending]:
    """Two steps an epoch."""
    settings = {"max_epochs": 5, **settings}
    trainer = Trainer(**UNSAVED, run_dir=False, config=config, **settings)
    trainer.fit(module, points(), points())
    assert plain(trainer.endings)[0]["text"] == trainer.endings[0].text
    return trainer.endings


def stopping(**settings: Any) -> EarlyStopping:
    settings = {"monitor": "val/loss", **settings}
    return EarlyStopping(**settings)


def written(callback: str, **arguments: Any) -> str:
    return yaml.safe_dump({"trainer": {"callbacks": [{"class_path": callback, "init_args": arguments}]}})


STOPPING = "lightning.pytorch.callbacks.EarlyStopping"


@pytest.mark.parametrize(
    ("settings", "text", "more"),
    [
        ({"max_epochs": 1}, "max_epochs 1", "--trainer.max_epochs 2"),
        ({"max_steps": 3}, "max_steps 3", "--trainer.max_steps 6"),
        ({"max_epochs": -1, "max_steps": 3}, "max_steps 3", "--trainer.max_steps 6"),
        ({"limit_train_batches": 0}, "there are no training batches", ""),
        ({"fast_dev_run": 2}, "fast_dev_run 2", ""),
        ({"overfit_batches": 1, "max_epochs": 2}, "max_epochs 2", "--trainer.max_epochs 4"),
    ],
)
def test_limits_of_the_trainer(settings: dict[str, Any], text: str, more: str) -> None:
    [ending] = ended(Line(), **settings)
    assert (ending.text, ending.more) == (text, more)


def test_two_limits_at_once_are_both_raised() -> None:
    both = ended(Line(), max_epochs=2, max_steps=4)
    assert [ending.more for ending in both] == ["--trainer.max_steps 8", "--trainer.max_epochs 4"]


def test_should_stop_says_where_it_was_set() -> None:
    [ending] = ended(Stops())
    assert ending.text.startswith("trainer.should_stop was set at ")
    assert ending.text.rpartition(":")[0].endswith("test_ending.py")
    assert ending.more == "--trainer.max_epochs 10"
    [ending] = ended(Stops(), max_epochs=-1, max_steps=50)
    assert ending.more == "--trainer.max_steps 100"


def test_minimum_delays_the_stop() -> None:
    assert ended(Stops(), min_epochs=3)[0].limit == "should_stop"
    assert [ending.limit for ending in ended(Stops(), min_epochs=5)] == ["max_epochs"]


def test_stop_iteration_in_a_hook_is_said() -> None:
    [ending] = ended(Runs())
    assert ending.text == "a StopIteration left the loop over epochs"


def test_time_limits() -> None:
    [ending] = ended(Line(), "trainer: {max_time: 00:00:00:00}", max_time=timedelta(seconds=0))
    assert (ending.limit, ending.value) == ("max_time", 0)
    assert ending.more == "--trainer.max_time 00:00:00:01"
    timer = "lightning.pytorch.callbacks.Timer"
    config = written(timer, duration="00:00:00:00", interval="step")
    [ending] = ended(Line(), config, callbacks=[Timer(duration=timedelta(seconds=0))])
    assert ending.text.startswith("Timer: duration ")
    assert shlex.split(ending.more)[1].startswith(f"{{class_path: {timer}, init_args: {{duration: ")


@pytest.mark.parametrize(
    ("settings", "text", "change"),
    [
        ({"min_delta": 100, "patience": 2}, "val/loss has not improved on ", {"patience": 4, "min_delta": 100}),
        ({"stopping_threshold": 100.0}, " has reached the stopping_threshold 100.0", {"stopping_threshold": None}),
        ({"divergence_threshold": 0.0}, " has reached the divergence_threshold 0.0", {"divergence_threshold": None}),
    ],
)
def test_early_stopping(settings: dict[str, Any], text: str, change: dict[str, Any]) -> None:
    config = written(STOPPING, monitor="val/loss", **settings)
    [ending] = ended(Line(), config, callbacks=[stopping(**settings)])
    assert ending.limit == "EarlyStopping"
    assert ending.text.startswith("EarlyStopping: val/loss ")
    assert text in ending.text
    option, entry = shlex.split(ending.more)
    arguments = {"monitor": "val/loss", **{key: value for key, value in change.items() if value is not None}}
    assert (option, yaml.safe_load(entry)) == (
        "--trainer.callbacks+",
        {"class_path": STOPPING, "init_args": arguments},
    )
    [ending] = ended(Line(), callbacks=[stopping(**settings)])
    assert ending.more == "", "Python has built it, so no option changes it"


def test_metric_that_is_not_finite() -> None:
    class NotFinite(Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val/loss", float("nan"))

    [ending] = ended(NotFinite(), written(STOPPING, monitor="val/loss"), callbacks=[stopping()])
    assert ending.text == "EarlyStopping: val/loss nan is not finite"
    assert ending.more == ""


def test_stock_trainer_has_no_place(tmp_path: Path) -> None:
    trainer = pl.Trainer(**UNSAVED, max_epochs=3, default_root_dir=tmp_path)
    trainer.fit(Stops(), points(), points())
    assert [ending.text for ending in endings(trainer)] == ["trainer.should_stop was set"]


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("00:00:01:30", 90), ("01:00:00:00", 86400), ({"minutes": 2}, 120), (timedelta(hours=1), 3600), (None, None)],
)
def test_seconds_of_a_duration(duration: Any, seconds: float | None) -> None:
    assert seconds_of(duration) == seconds


RUN = {"epoch": 2, "step": 6, "limits": {"max_epochs": 5, "max_steps": -1}}
PATIENT: dict[str, Any] = {"callbacks": [{"class_path": STOPPING, "init_args": {"patience": 2}}]}
MORE: dict[str, Any] = {"callbacks": [{"class_path": STOPPING, "init_args": {"patience": 4}}]}
STOPPED = {"limit": "EarlyStopping", "text": "EarlyStopping: x has not improved on 1 in 2 checks"}
TIMED = {"limit": "max_time", "text": "max_time 00:00:00:10", "value": 10.0}


@pytest.mark.parametrize(
    ("ended", "former", "wanted", "reason"),
    [
        ([], {}, {"max_epochs": 2}, "to continue, increase --trainer.max_epochs"),
        ([], {}, {"max_epochs": 3}, None),
        ([], {}, {"max_epochs": 9, "max_steps": 6}, "to continue, increase --trainer.max_steps"),
        (
            [],
            {},
            {"max_epochs": 2, "max_steps": 6},
            "to continue, increase --trainer.max_epochs and --trainer.max_steps",
        ),
        ([TIMED], {}, {"max_epochs": 9, "max_time": "00:00:00:10"}, "max_time 00:00:00:10; to continue, increase --tr"),
        ([TIMED], {}, {"max_epochs": 5, "max_time": {"seconds": 11}}, None),
        ([TIMED], {}, {"max_epochs": 5, "max_time": None}, None),
        (
            [STOPPED],
            PATIENT,
            {"max_epochs": 9, **PATIENT},
            "EarlyStopping: x has not improved on 1 in 2 checks;",
        ),
        ([STOPPED], PATIENT, {"max_epochs": 5, **MORE}, None),
        ([STOPPED], PATIENT, {"max_epochs": 5}, None),
        ([{"limit": "should_stop", "text": "should_stop"}], {}, {"max_epochs": 5}, "should_stop; to continue, incr"),
        ([{"limit": "should_stop", "text": "should_stop"}], {}, {"max_epochs": 6}, None),
        (
            [{"limit": "limit_train_batches", "text": "none"}],
            {"limit_train_batches": 0},
            {"limit_train_batches": 0},
            "none; to continue, set --trainer.limit_train_batches",
        ),
        (None, {}, {"max_epochs": 5}, "to continue, increase --trainer.max_epochs"),
        (None, {}, {"max_epochs": 6}, None),
    ],
)
def test_what_still_holds(ended: Any, former: dict[str, Any], wanted: dict[str, Any], reason: str | None) -> None:
    metrics = RUN if ended is None else {**RUN, "ended": ended}
    reasons = reasons_to_stop(metrics, former, wanted)
    assert reasons[0].startswith(reason) if reason else reasons == []
