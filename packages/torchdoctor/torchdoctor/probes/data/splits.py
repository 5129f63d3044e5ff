"""Splits of one data set that are drawn anew by each process or for each stage."""

import os
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import Subset

from torchdoctor import source
from torchdoctor.evidence.contents import sample_keys, shared_keys, shared_samples
from torchdoctor.evidence.samples import dataset_size, loader_owner, train_loaders
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running import sandbox
from torchdoctor.running.subject import Subject

SPLIT_CHANGES = Defect(
    "split-changes",
    "critical",
    "Samples that are trained on come back in validation or test, and scores are too good.",
    explains=("copied-samples",),
    shown_by=Evidence("experiment", "the data were set up again, as another rank and for the tests"),
)
_SETUP_S = 8.0
_DRAWS = ("random_split", "train_test_split", "randperm", "permutation", "shuffle", "sample")
_RANK = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def splits(subject: Subject, least: float = 0.1) -> Iterator[Finding | str]:
    """Sets the data up a second time, and looks for training samples in its validation and test sets.

    As another rank: with the same global seed, two copies of the process set up `fit`, of which one has rank 1. As the
    tests do after a training: `setup("test")` with random numbers that have moved on. If another seed leaves the split
    of `fit` as it is, it is the tests that take samples of the training. So for `setup("predict")`, unless it takes
    samples of the training under one seed, too: predictions may be asked for all of them. Data that overlap without
    that are another defect.

    Args:
        subject: the training that has just begun.
        least: share of the other samples: random splits share more, and public data have some samples twice.
    """
    keeper, trains = loader_owner(subject), train_loaders(subject)
    if type(keeper).setup in (pl.LightningDataModule.setup, pl.LightningModule.setup) or not trains:
        return
    if any(shared_samples(train.dataset, val.dataset)[0] for train in trains for val in subject.loaders("val")):
        return
    trained, tested = _contents(trains[0].dataset), _set_up(keeper, "test", 1)
    number, of = _shared_count(trained, tested, by_index=False, least=least)
    text = f"after setup('test'), {number} of {of} test samples are among those that `fit` trains on"
    again = _set_up(keeper, "fit", 1) if number else {}
    if number and [*map(tuple, again.get("keys", ()))] == trained["keys"]:
        text += ", though every `fit` splits the data alike"
        place = source.definition(getattr(type(keeper), "test_dataloader", None))
        yield Finding(SPLIT_CHANGES, place, text, "# test on samples that the split for `fit` leaves out")
        return
    first = _set_up(keeper, "fit") if not number else {}
    if not number:
        number, of = _shared_count(first, _set_up(keeper, "fit", kind="val", rank=1), by_index=True, least=least)
        text = f"{number} of {of} validation samples of rank 1 are trained on by rank 0, under one global seed"
    none = pl.LightningDataModule.predict_dataloader, pl.LightningModule.predict_dataloader  # which raise
    predicts = type(keeper).predict_dataloader not in none
    if predicts and not number and not _shared_count(first, _set_up(keeper, "predict"), by_index=False, least=least)[0]:
        number, of = _shared_count(trained, _set_up(keeper, "predict", 1), by_index=False, least=least)
        text = f"after setup('predict'), {number} of {of} samples are among those that `fit` trains on"
    if not number:
        who = "every rank and the tests split" if tested else "every rank splits"
        yield f"under one global seed {who} the data alike"
        return
    setup = type(keeper).setup
    place = source.first_call([setup, *source.classes_of(keeper)], *_DRAWS) or source.definition(setup)
    is_sklearn = place is not None and "train_test_split(" in place.code
    fix = "train_test_split(…, random_state=0)" if is_sklearn else "random_split(…, torch.Generator().manual_seed(0))"
    yield Finding(SPLIT_CHANGES, place, text, fix)


PROBE = Probe(look=splits, defects=(SPLIT_CHANGES,), at_start=True)


def _set_up(keeper: Any, stage: str, seed: int = 0, kind: str = "train", rank: int = 0) -> dict[str, Any]:
    """What a loader holds after another set-up in a copy of this process; nothing if that fails.

    Args:
        keeper: of the data.
        stage: to set up.
        seed: of all random numbers.
        kind: of the loader, for `fit`: that of another stage is its own.
        rank: of the process.
    """

    def run() -> dict[str, Any]:
        pl.seed_everything(seed, verbose=False)
        if rank:
            os.environ |= dict.fromkeys(_RANK, str(rank))
            pl.Trainer.global_rank = pl.Trainer.local_rank = property(lambda _: rank)  # type: ignore[assignment,misc]  # in a copy of the process
        keeper.setup(stage)
        loader = getattr(keeper, f"{kind if stage == 'fit' else stage}_dataloader")()
        return _contents(getattr(loader, "dataset", None))

    return sandbox.attempt(run, _SETUP_S, {})


def _contents(dataset: Any) -> dict[str, Any]:
    """What identifies samples by content, and their indices in the data set that they are a part of."""
    if not dataset_size(dataset):
        return {}
    contents = {"keys": sample_keys(dataset), "of": None}
    if isinstance(dataset, Subset) and not isinstance(dataset.dataset, Subset):
        whole = dataset.dataset
        contents |= {"of": f"{type(whole).__name__} {dataset_size(whole)}", "at": [*map(int, dataset.indices)]}
    return contents


def _shared_count(trained: dict[str, Any], others: dict[str, Any], by_index: bool, least: float) -> tuple[int, int]:
    """How many of other samples are trained on, and how many there are."""
    if not trained or not others:
        return 0, 0
    if by_index and trained["of"] is not None and trained["of"] == others["of"]:
        return len(set(trained["at"]) & set(others["at"])), len(others["at"])
    share, number = shared_keys(trained["keys"], others["keys"])
    return number if share > least else 0, len(others["keys"])
