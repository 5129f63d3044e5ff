"""Broken samples and dead or hanging workers, through the command line, on images in files."""

import importlib
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.pin_memory import pin_memory
from torchvision.datasets import ImageFolder

from playbook.data.base import Data
from playbook.data.files import file_of
from playbook.data.loader import DataError, Loader
from playbook.data.order import SeededSamples
from playbook.errors import UserError
from playbook.testing.command import Cli, Result
from playbook.testing.processes import values_logged
from playbook.testing.resume import PowerCutError
from running import cli_process

NUM_IMAGES, BATCH, EPOCHS = 60, 4, 2
SPLITS = {"train": (0, 1, 2, 3), "val": (4,), "test": (5,)}  # 40, 10 and 10 images, by their number modulo 6
SLOW = pytest.mark.slow
LINUX = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="needs POSIX signals")


class Images(Data):
    """Grey 8×8 images in two folders; image i has i in its first pixel, and the file `trouble` may say what it does."""

    def __init__(self, **loader: Any) -> None:
        super().__init__(BATCH, **loader)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        images = ImageFolder("images", transform=as_tensor)
        self.train_set, self.val_set, self.test_set = (
            Subset(images, [i for i in range(NUM_IMAGES) if i % 6 in residues]) for residues in SPLITS.values()
        )

    def augment(self, sample: tuple[Tensor, int]) -> tuple[Tensor, int]:
        image, target = sample
        if Path("raises").exists() and Path("raises").read_text() == str(int(image[0, 0, 0] * 255)):
            raise AssertionError
        return image + 0.1 * torch.rand_like(image), target


def as_tensor(image: Image.Image) -> Tensor:
    pixels = np.array(image.convert("L"))
    trouble = Path("trouble").read_text().split() if Path("trouble").exists() else []
    if trouble and int(trouble[1]) == pixels[0, 0]:
        match trouble[0]:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exits":
                os._exit(3)
            case "sleeps":
                time.sleep(1000)
            case "computes":  # without giving Python's lock away
                re.match(r"(a+)+$", "a" * 60 + "b")
    return torch.from_numpy(pixels)[None] / 255


def path_of(number: int) -> Path:
    return Path("images", str(number // 30), f"{number:02}.png")


def paint(number: int) -> None:
    path_of(number).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (8, 8), dtype=np.uint8)
    pixels[0, 0] = number
    Image.fromarray(pixels).save(path_of(number))


def truncate(number: int) -> None:
    content = path_of(number).read_bytes()
    path_of(number).write_bytes(content[: len(content) // 2])


def image_at(batch: int, epoch: int = 0) -> tuple[int, int]:
    """Index in the training set, and number, of the second sample of a training batch."""
    data = Images()
    data.setup("fit")
    data.trainer = None
    sampler: Any = data.train_dataloader().sampler
    index = sampler.order(epoch)[batch * BATCH + 1].item()
    return index, [i for i in range(NUM_IMAGES) if i % 6 in SPLITS["train"]][index]


@pytest.fixture(autouse=True)
def painted(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    for number in range(NUM_IMAGES):
        paint(number)


MODEL = ("--model", "Classification", "--model.num_classes", "2", "--model.net", "MLP", "--model.net.num_classes", "2",
         "--model.net.in_features", "64", "--model.net.widths", "[8]")  # fmt: skip


COMMAND = ("fit", *MODEL, "--data", f"{__name__}.Images", "--ckpt_path", "last")


def fit(cli: Cli, run: str, *args: str) -> Result:
    return cli(*COMMAND, "--run_dir", run, "--trainer.max_epochs", str(EPOCHS), *args)


def assert_ends_like_a_whole_run(cli: Cli, run: str, *args: str) -> None:
    """Continues the run, and compares it with one that was never stopped."""
    continued, whole = fit(cli, run, *args), fit(cli, "whole", *args)
    assert (continued.code, whole.code) == (0, 0), continued.err + whole.err
    assert "starting a new run" not in continued.out
    found, expected = (torch.load(f"{name}/checkpoints/last.ckpt", weights_only=True) for name in (run, "whole"))
    for name, value in expected["state_dict"].items():
        assert torch.equal(value, found["state_dict"][name]), f"{name} differs"
    assert found["Images"] == expected["Images"]
    assert values_logged(Path(run)) == values_logged(Path("whole"))


def assert_one_line(done: Result, pattern: str) -> None:
    assert done.code == 2, done.err
    lines = [line for line in done.err.splitlines() if line]
    assert len(lines) == 1, done.err
    assert re.fullmatch(f"error: {pattern}", lines[0]), lines[0]


# broken samples


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_truncated_training_image_stops_with_a_checkpoint(cli: Cli, workers: str) -> None:
    index, number = image_at(batch=6)
    truncate(number)
    done = fit(cli, "run", "--data.num_workers", workers)
    path = path_of(number).as_posix()
    assert_one_line(done, rf"--data: train sample {index} \({path}\): OSError: image file is truncated.*")
    assert "saved at step 6" in done.out
    assert "continue  python -m example fit --run_dir run --ckpt_path last" in done.out
    assert json.loads(Path("run/metrics.json").read_text())["status"] == "failed"
    paint(number)
    assert_ends_like_a_whole_run(cli, "run", "--data.num_workers", workers)


@pytest.mark.slow
def test_a_truncated_validation_image_stops_with_a_checkpoint(cli: Cli) -> None:
    number = 6 * 9 + 4  # the last one: behind the batches of the sanity check
    truncate(number)
    assert_one_line(fit(cli, "run"), rf"--data: val sample 9 \({path_of(number).as_posix()}\): OSError: .*")
    paint(number)
    assert_ends_like_a_whole_run(cli, "run")


@pytest.mark.slow
def test_a_missing_test_image_costs_the_test_alone(cli: Cli) -> None:
    number = 5
    path_of(number).rename("away")
    with_folder = path_of(number).as_posix()
    Path(with_folder).symlink_to("nowhere")  # ImageFolder lists what is there when it starts
    missing = rf"--data: test sample 0 \({with_folder}\): FileNotFoundError: No such file or directory"
    assert_one_line(fit(cli, "run"), missing)
    assert_one_line(cli("test", "--ckpt_path", "run"), missing)
    assert_one_line(cli("predict", "--ckpt_path", "run"), missing)
    done = cli("predict", "--ckpt_path", "run", "--data.on_error", "skip")
    assert done.code == 0, done.err
    assert "skipped test sample 0" in done.err
    rows = Path("run/predictions/predictions.csv").read_text().splitlines()[1:]
    assert rows[0].startswith("images/0/11.png,"), rows[0]  # the other samples keep their ids
    path_of(number).unlink()
    paint(number)
    done = fit(cli, "run")
    assert done.code == 0, done.err
    assert "test" in json.loads(Path("run/metrics.json").read_text())


@pytest.mark.slow
def test_skipping_counts_a_sample_once_and_goes_on(cli: Cli) -> None:
    """Also over a cut and a resume, and with the failures of an augmentation."""
    index, number = image_at(batch=6)
    Path("raises").write_text(str(number))
    truncate(4)
    skip = ("--data.on_error", "skip", "--checkpoint.every_n_steps", "1")
    cut_at = "--trainer.callbacks+=playbook.testing.resume.CutAt"
    with pytest.raises(PowerCutError):
        fit(cli, "run", *skip, cut_at, "--trainer.callbacks.step=7")
    whole = fit(cli, "whole", *skip)
    path = re.escape(path_of(number).as_posix())
    warnings = [line for line in whole.err.splitlines() if line]
    assert len(warnings) == 2, whole.err
    assert warnings[0].startswith("warning: skipped val sample 0 (images/0/04.png): OSError: image file is truncated")
    assert re.fullmatch(rf"warning: skipped train sample {index} \({path}\): AssertionError", warnings[1])
    assert json.loads(Path("whole/metrics.json").read_text())["skipped_samples"] == 2
    assert_ends_like_a_whole_run(cli, "run", *skip, "--trainer.callbacks", "null")
    assert json.loads(Path("run/metrics.json").read_text())["skipped_samples"] == 2


def test_a_batch_without_any_whole_sample_stops(cli: Cli) -> None:
    for number in range(NUM_IMAGES):
        truncate(number)
    done = fit(cli, "run", "--data.on_error", "skip")
    assert done.code == 2
    assert "error: --data: every sample of a batch failed, the last one was val sample 9 (images/1/58.png)" in done.err
    assert not Path("run/checkpoints").exists()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_an_evaluation_goes_on_without_a_batch(batch_size: int) -> None:
    loader = Loader(Numbers(7, bad=(6,)), "val", "skip", lambda *_: None, batch_size=batch_size)
    assert [i for batch in loader for i in batch.tolist()] == list(range(6))
    with pytest.raises(DataError, match="every sample of a batch failed, the last one was val sample 1: KeyError: 1"):
        list(Loader(Numbers(2, bad=(0, 1)), "val", "skip", lambda *_: None, batch_size=1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_training_batch_without_any_whole_sample_gets_the_next_one(num_workers: int) -> None:
    told: list[str] = []
    loader = Loader(
        Numbers(9, bad=(0, 6, 7, 8)), "train", "skip", lambda name, text: told.append(name), batch_size=3,
        num_workers=num_workers, timeout=60 if num_workers else 0,
    )  # fmt: skip
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4, 5], [1]]
    assert told == ["train 0", "train 6", "train 7", "train 8", "train 0"]
    with pytest.raises(DataError, match="every sample of a batch failed, the last one was train sample 1"):
        list(Loader(Numbers(3, bad=(0, 1, 2)), "train", "skip", lambda *_: None, batch_size=1))


def test_a_file_is_named_once(workdir: Path) -> None:
    """Also where the error names it again."""
    told: list[str] = []
    for name in ("0.png", "1.png"):
        Path(name).touch()
    loader = Loader(Named(2, bad=(0,)), "test", "skip", lambda name, text: told.append(text), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[1]]
    assert told == ["test sample 0 (0.png): has 4 channels"]


class Numbers(Dataset):
    """Sample i is the number i; some raise."""

    def __init__(self, size: int, bad: tuple[int, ...] = ()) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        if index in self.bad:
            raise KeyError(index)
        return torch.tensor(index)


class Named(Numbers):
    """Samples have files, which their errors name."""

    def __init__(self, size: int, bad: tuple[int, ...] = ()) -> None:
        super().__init__(size, bad)
        self.files = [f"{i}.png" for i in range(size)]

    def __getitem__(self, index: int) -> Tensor:
        if index in self.bad:
            raise UserError(f"{self.files[index]}: has 4 channels")
        return torch.tensor(index)


class Dying(Numbers):
    """Sample 5 kills its process."""

    def __getitem__(self, index: int) -> Tensor:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_skipped_sample_makes_its_batch_smaller(num_workers: int) -> None:
    told: list[str] = []
    loader = Loader(
        Numbers(10, bad=(1, 4)), "val", "skip", lambda name, text: told.append(text), batch_size=4,
        num_workers=num_workers, persistent_workers=num_workers > 0, timeout=60 if num_workers else 0,
    )  # fmt: skip
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 2, 3], [5, 6, 7], [8, 9]]
    assert told == ["val sample 1: KeyError: 1", "val sample 4: KeyError: 4"] * 2


def test_only_ten_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    data = Data()
    for index in range(12):
        data._skip(f"train {index}", f"train sample {index}: OSError")
    lines = capsys.readouterr().err.split("\n\n")
    assert len(lines) == 10
    assert lines[-1].strip() == "warning: skipped train sample 9: OSError; further ones are only counted"
    assert len(data.skipped_samples) == 12
    continued = Data()
    continued.load_state_dict({"epoch": 0, "batch": 0, "skipped_samples": sorted(data.skipped_samples)})
    continued._skip("test 3", "test sample 3: OSError")
    assert "skipped test sample 3" in capsys.readouterr().err


def test_an_interrupt_while_loading_is_none_of_its_business() -> None:
    class Interrupted(Numbers):
        def __getitem__(self, index: int) -> Tensor:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Loader(Interrupted(3), "train", "skip", lambda *_: None))


def test_pinning_leaves_failures_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch walks through what a batch is made of; only the copy to locked memory needs a GPU."""
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor + 0)
    loader = Loader(Numbers(3, bad=(1,)), "train", "skip", lambda *_: None)
    collated: Any = loader.collate_fn([loader.dataset[i] for i in range(3)])
    pinned: Any = pin_memory(collated)
    batch, failures = pinned
    assert batch.tolist() == [0, 2]
    assert failures[0] is collated[1][0]


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_tensors_are_taken_at_once_as_torch_collates_them(num_workers: int) -> None:
    dataset = TensorDataset(torch.randn(10, 2, 3), torch.arange(10))
    plain = DataLoader(dataset, batch_size=4)
    seeded = SeededSamples(dataset, 0, None)
    loader: Any = None
    for own in (dataset, seeded):
        loader = Loader(own, "train", "stop", _none, batch_size=4, num_workers=num_workers)
        for batch, expected in zip(loader, plain, strict=True):
            assert type(batch) is type(expected)
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(batch, expected, strict=True))
    keys = [(0, 3, 7), (0, 1, 8)]
    assert loader._guarded.__getitems__(keys)[1].tolist() == [3, 1]
    collate: Any = loader.collate_fn
    assert collate([seeded[key] for key in keys])[0][1].tolist() == [3, 1], "samples are still collated"


def test_other_data_sets_are_asked_sample_by_sample() -> None:
    class Own(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0] + 1

    ones = TensorDataset(torch.ones(2, 1))
    for dataset, collate, expected in (
        (Own(torch.ones(2, 1)), default_collate, 2.0),
        (SeededSamples(ones, 0, lambda sample: sample[0] * 3), default_collate, 3.0),
        (ones, lambda samples: samples[0][0] * 4, 4.0),
    ):
        [batch] = Loader(dataset, "train", "stop", _none, collate, batch_size=2)
        assert batch.flatten()[0] == expected


def _none(*_: object) -> None:
    """No sample is skipped."""


def test_files_are_found_through_wrappers_and_never_made_up(workdir: Path) -> None:
    images = ImageFolder("images")
    assert file_of(Subset(images, [7, 3]), 1) == "images/0/03.png"
    both = ConcatDataset([Subset(images, [7, 3]), images])
    assert [file_of(both, i) for i in (0, 1, 2, 61)] == [
        f"images/{name}.png" for name in ("0/07", "0/03", "0/00", "1/59")
    ]
    texts: Any = Numbers(2)
    texts.samples = [("a text that is no file", 1), ("another" * 1000, 0)]
    assert [file_of(texts, i) for i in (0, 1)] == [None, None]
    texts.shards = ["images/0/00.png"]  # not one for every sample
    assert file_of(texts, 0) is None
    assert file_of(TensorDataset(torch.zeros(3)), 0) is None


# dead and hanging workers

TWO = ("--data.num_workers", "2")


def saved_at(done: Result) -> int:
    found = re.search(r"^saved at step (\d+), before the batch that could not be loaded$", done.out, re.MULTILINE)
    assert found is not None, done.out
    return int(found[1])


@LINUX
@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (
            "dies",
            r"--data.num_workers: worker \d \(pid \d+\) was killed by SIGKILL at train sample {}; out of memory, .*",
        ),
        pytest.param(
            "exits", r"--data.num_workers: worker \d \(pid \d+\) exited with code 3 at train sample {}", marks=SLOW
        ),
        pytest.param("sleeps", r"--data.timeout_s: no batch .* 3 s: worker \d is at train sample {}", marks=SLOW),
        pytest.param(
            "computes",
            r"--data.timeout_s: no batch came within 3 s: worker \d is at train sample {}",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: value.partition(" ")[0],
)
@pytest.mark.slow
def test_a_lost_worker_is_told_with_its_sample(cli: Cli, trouble: str, message: str) -> None:
    index, number = image_at(batch=6)
    Path("trouble").write_text(f"{trouble} {number}")
    started = time.monotonic()
    done = fit(cli, "run", *TWO, "--data.timeout_s", "3" if "timeout_s" in message else "600")
    assert time.monotonic() - started < 60, "the end waited for the worker"
    assert_one_line(done, message.format(re.escape(f"{index} ({path_of(number).as_posix()})")))
    assert 0 < saved_at(done) <= 6  # workers are some batches ahead
    Path("trouble").unlink()
    assert_ends_like_a_whole_run(cli, "run", *TWO, "--data.timeout_s", "600")


class KillWorkers(Callback):
    """Kills all workers amid the seventh step, and gives the news time to arrive."""

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        if trainer.global_step == 6:
            for child in multiprocessing.active_children():
                child.kill()
            time.sleep(0.2)


@LINUX
@pytest.mark.slow
def test_a_worker_that_dies_amid_a_step_lets_it_end(cli: Cli) -> None:
    done = fit(cli, "run", *TWO, f"--trainer.callbacks+={__name__}.KillWorkers")
    assert_one_line(done, r"--data.num_workers: worker \d \(pid \d+\) was killed by SIGKILL .*")
    assert saved_at(done) == 7
    assert_ends_like_a_whole_run(cli, "run", *TWO, "--trainer.callbacks", "null")


@pytest.mark.slow
@LINUX
def test_a_death_is_noticed_in_a_thread_too() -> None:
    """Where no signal can be handled, at the end of the timeout."""
    caught: list[BaseException] = []

    def read() -> None:
        try:
            for _ in Loader(Dying(8), "val", "stop", lambda *_: None, num_workers=2, timeout=5):
                pass
        except DataError as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(timeout=60)
    assert re.match(r"--data.num_workers: worker \d .* was killed by SIGKILL at val sample 5", str(caught[0]))


@LINUX
def test_a_killed_process_takes_its_workers_along() -> None:
    """At once and even amid a sample: who waits at the other end of its connections hears that they are closed."""
    here, there = multiprocessing.Pipe()
    main = multiprocessing.get_context("fork").Process(target=_load_asleep, args=(there,))
    main.start()
    there.close()
    assert [here.recv(), here.recv()] == ["asleep"] * 2
    main.kill()
    assert here.poll(5)
    with pytest.raises(EOFError):
        here.recv()


def _load_asleep(connection: Any) -> None:
    class Asleep(Numbers):
        def __getitem__(self, index: int) -> Tensor:
            connection.send("asleep")
            time.sleep(20)
            return super().__getitem__(index)

    data = Data(1, num_workers=2)
    data.val_set = Asleep(2)
    next(iter(data.val_dataloader()))


class Telling(Numbers):
    """Raises, as a thread of the worker does that hands tensors to a main process which has ended."""

    def __getitem__(self, index: int) -> Tensor:
        for error in (ConnectionResetError("left"), ValueError("own")):
            sys.excepthook(type(error), error, None)
        return super().__getitem__(index)


def test_a_worker_is_silent_about_the_end_of_the_main_process(capfd: pytest.CaptureFixture[str]) -> None:
    data = Data(2, num_workers=1)
    data.val_set = Telling(2)
    next(iter(data.val_dataloader()))
    assert capfd.readouterr().err.splitlines() == ["ValueError: own"] * 2


def test_handlers_and_timer_are_given_back() -> None:
    signals = [signal.SIGCHLD, signal.SIGALRM]
    before = [signal.getsignal(number) for number in signals]
    batches = iter(Loader(Numbers(8), "val", "stop", lambda *_: None, num_workers=2, timeout=60))
    for _ in range(2):
        next(batches)
        assert [signal.getsignal(number) for number in signals] == before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    list(batches)


@LINUX
@pytest.mark.parametrize("foreign_first", [True, False])
@pytest.mark.slow
def test_other_loaders_are_watched_by_torch_alone(foreign_first: bool) -> None:
    """While ours is at work, a worker of a plain DataLoader that dies raises wherever the main process is, as ever."""
    told = in_fork(_lose_workers, foreign_first)
    assert told["ours"] == "nothing", "the death of a worker of ours found the main process amid its work"
    assert re.match(r"--data.num_workers: worker \d .* was killed by SIGKILL between two samples", told["ours next"])
    assert re.match(r"DataLoader worker \(pid \d+\) is killed by signal: Killed", told["foreign"])
    assert re.match(r"DataLoader worker \(pid\(?s?\)? .* (exited unexpectedly|is killed)", told["foreign next"])


def _lose_workers(foreign_first: bool) -> dict[str, str]:
    def ours() -> Any:
        loader = Loader(Numbers(64), "val", "stop", lambda *_: None, num_workers=1, timeout=60, persistent_workers=True)
        batches = iter(loader)
        next(batches)
        return batches, multiprocessing.active_children()

    def foreign() -> Any:
        before = multiprocessing.active_children()
        batches = iter(DataLoader(Numbers(64), num_workers=1))
        next(batches)
        return batches, [child for child in multiprocessing.active_children() if child not in before]

    told = {}
    if foreign_first:
        their_batches, their_workers = foreign()
        our_batches, workers = ours()
        our_workers = [worker for worker in workers if worker not in their_workers]
    else:
        our_batches, our_workers = ours()
        their_batches, their_workers = foreign()
    for name, batches, [worker] in (("ours", our_batches, our_workers), ("foreign", their_batches, their_workers)):
        told[name] = told[f"{name} next"] = "nothing"
        try:
            worker.kill()
            time.sleep(0.5)  # a signal cuts it short
        except RuntimeError as error:
            told[name] = str(error)
        try:
            for _ in batches:
                pass
        except (RuntimeError, DataError) as error:
            told[f"{name} next"] = str(error)
    return told


@pytest.mark.slow
@LINUX
def test_a_foreign_death_is_told_while_ours_is_waited_for() -> None:
    """torch's handler, which another DataLoader has set, is passed on what is not ours."""
    assert re.match(r"DataLoader worker \(pid \d+\) is killed by signal: Killed", in_fork(_wait_while_another_dies))


def _wait_while_another_dies() -> str:
    class Slow(Numbers):
        def __getitem__(self, index: int) -> Tensor:
            time.sleep(3)
            return super().__getitem__(index)

    plain = iter(DataLoader(Numbers(64), num_workers=1))
    next(plain)
    [worker] = multiprocessing.active_children()
    threading.Timer(1, worker.kill).start()
    try:
        list(Loader(Slow(1), "val", "stop", lambda *_: None, num_workers=1, timeout=60))
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_loading_leaves_torch_as_it_was() -> None:
    """Neither the import nor a loader of ours keeps torch from watching the workers of others."""
    if not hasattr(signal, "SIGCHLD"):
        pytest.skip("no signal tells of a worker's death here")
    mark_before, mark_after, own_handler, foreign_handler = in_fork(_states_of_torch)
    assert mark_before == mark_after == own_handler is False
    assert foreign_handler is True


def _states_of_torch() -> list[bool]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal_handling._SIGCHLD_handler_set = False  # as in a process that has made no loader yet
    importlib.reload(sys.modules[Loader.__module__])
    states = [signal_handling._SIGCHLD_handler_set]
    list(Loader(Numbers(4), "val", "stop", lambda *_: None, num_workers=1, timeout=60))
    states += [signal_handling._SIGCHLD_handler_set, callable(signal.getsignal(signal.SIGCHLD))]
    list(DataLoader(Numbers(4), num_workers=1))
    return [*states, callable(signal.getsignal(signal.SIGCHLD))]


def in_fork(act: Callable[..., Any], *args: Any) -> Any:
    """The result of a function in a copy of this process, whose handlers and workers end with it."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=lambda: there.send(act(*args)))
    process.start()
    there.close()
    try:
        assert here.poll(60), "no answer"
        return here.recv()
    finally:
        process.kill()
        process.join()


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_workers_killed_at_random_moments(cli: Cli, workdir: Path, seed: int) -> None:
    """Again and again: the unchanged command ends with the same weights and metrics."""
    draw, long = random.Random(seed), (*TWO, "--trainer.max_epochs", "100")
    command = (*COMMAND, "--run_dir", "run", *long)
    for _ in range(3):
        process = cli_process(*command, cwd=workdir, env={"PYTHONPATH": os.pathsep.join(sys.path)})
        while len(workers := children(process.pid)) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 3))
        os.kill(draw.choice(workers), signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2, err
        assert re.fullmatch(r"error: --data.num_workers: worker .* was killed by SIGKILL .*", err.strip()), err
    assert_ends_like_a_whole_run(cli, "run", *long)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Buggy(Data):
    """A data set with a bug, and one that names what is wrong with a file."""

    def __init__(self, error: Exception, num_workers: int = 0) -> None:
        super().__init__(2, num_workers)
        self.error = error

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = self.test_set = FailsAt3(self.error)


class FailsAt3(Dataset):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise self.error
        return index


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_bug_in_a_data_set_keeps_its_traceback(num_workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    data = Buggy(KeyError("caption"), num_workers)
    data.setup("fit")
    with pytest.raises(DataError, match="val sample 3: KeyError: 'caption'"):
        list(data.val_dataloader())
    trace = capfd.readouterr().err
    assert "raise self.error" in trace
    assert f'{Path(__file__).name}"' in trace
    assert trace.rstrip().endswith("KeyError: 'caption'")


@pytest.mark.parametrize("error", [OSError(5, "cannot be read", "3.png"), UserError("3.png: holds 7")])
def test_what_a_file_is_to_blame_for_is_one_line(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    data = Buggy(error)
    data.setup("fit")
    with pytest.raises(DataError, match="val sample 3"):
        list(data.val_dataloader())
    assert capfd.readouterr().err == ""
