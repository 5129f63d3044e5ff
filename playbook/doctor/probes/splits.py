"""Splits of one data set that are drawn anew by each process or for each stage."""

import os
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import DataLoader, Subset

from playbook.doctor import sandbox, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.probes.overlap import _compared, _keys, _share
from playbook.doctor.samples import base, owner, size, train_loaders
from playbook.doctor.subject import Subject

SPLIT_CHANGES = Defect(
    "split-changes",
    "critical",
    "Samples that are trained on come back in validation or test, and scores are too good.",
    shown_by=Evidence("experiment", "the data were set up again, as another rank and for the tests"),
)
DEFECTS = (SPLIT_CHANGES,)
_SETUP_S = 8.0
_DRAWS = ("random_split", "train_test_split", "randperm", "permutation", "shuffle", "sample")
_RANK = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def splits(subject: Subject) -> Iterator[Finding | str]:
    """Sets the data up once more, and looks for samples of the training in what is then validated or tested.

    As another rank: with the same global seed, two copies of the process set up `fit`, of which one has rank 1. As the
    tests do after a training: `setup("test")` with random numbers that have moved on. Data that overlap without that
    are another defect.
    """
    keeper, trains = owner(subject), train_loaders(subject)
    if type(keeper).setup in (pl.LightningDataModule.setup, pl.LightningModule.setup) or not trains:
        return
    vals = subject.loaders("val")
    if any(_share(train.dataset, val.dataset)[0] > 0 for train in trains for val in vals):
        return
    number, of = _common(_contents(trains), _set_up(subject, "test", "test", 0), by_index=False)
    text = f"after setup('test'), {number} of {of} test samples are among those that `fit` trains on"
    if not number:
        first, second = _set_up(subject, "fit", "train", 0), _set_up(subject, "fit", "val", 1)
        number, of = _common(first, second, by_index=True)
        text = f"{number} of {of} validation samples of rank 1 are trained on by rank 0, under one global seed"
    if number:
        yield Finding(SPLIT_CHANGES, _place(keeper), text, "random_split(…, torch.Generator().manual_seed(0))")
        return
    yield "every rank and every stage splits the data alike"


def _set_up(subject: Subject, stage: str, kind: str, rank: int) -> dict[str, Any]:
    """What loaders of a kind hold after another set-up in a copy of this process; nothing if that fails."""

    def run() -> dict[str, Any]:
        keeper: Any = owner(subject)
        pl.seed_everything(1 if stage == "test" else 0, verbose=False)
        if rank:
            os.environ |= dict.fromkeys(_RANK, str(rank))
            pl.Trainer.global_rank = pl.Trainer.local_rank = property(lambda _: rank)  # type: ignore[assignment,misc]  # in a copy of the process
        keeper.setup(stage)
        made = getattr(keeper, f"{kind}_dataloader")()
        return _contents([made] if isinstance(made, DataLoader) else [])

    try:
        return sandbox.call(run, _SETUP_S)
    except sandbox.SandboxError:
        return {}


def _contents(loaders: list[DataLoader]) -> dict[str, Any]:
    """Keys of a loader's samples by content, and their indices in the data set that they are a part of."""
    for loader in loaders[:1]:
        dataset: Any = loader.dataset
        if (size(dataset) or 0) == 0:
            return {}
        keys = _keys(dataset)
        found = {"keys": [key[0] for key in keys], "real": all(key[2] for key in keys), "of": ""}
        if isinstance(dataset, Subset) and not isinstance(dataset.dataset, Subset):
            found |= {"of": f"{type(base(dataset)).__name__} {size(base(dataset))}", "at": [*map(int, dataset.indices)]}
        return found
    return {}


def _common(trained: dict[str, Any], others: dict[str, Any], by_index: bool) -> tuple[int, int]:
    """How many of other samples are trained on, and how many there are."""
    if not trained or not others:
        return 0, 0
    if by_index and trained["of"] and trained["of"] == others["of"]:
        return len(set(trained["at"]) & set(others["at"])), len(others["at"])
    return _compared(trained["keys"], others["keys"], trained["real"] and others["real"])[1], len(others["keys"])


def _place(keeper: Any) -> Place | None:
    classes = source.classes_of(keeper)
    return source.first_call([type(keeper).setup, *classes], *_DRAWS) or source.definition(type(keeper).setup)
