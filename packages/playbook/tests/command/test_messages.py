"""Every mistake of the user is one line on stderr, exit code 2, without a traceback, through the real command line."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from playbook.testing.command import Cli
from running import CNN_DIGITS

TINY = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2", "--model.net.widths", "[4, 4]")


def mistake(cli: Cli, *args: str) -> str:
    """Runs a command that must fail as a mistake of the user; returns its message."""
    done = cli(*args)
    assert done.code == 2, (done.out, done.err)
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, f"expected one line, got {lines}"
    assert lines[0].startswith("error: ")
    assert "Traceback" not in done.err
    assert "usage" not in done.err
    return lines[0].removeprefix("error: ")


CASES = {
    # unknown option, with the nearest names
    "--trainer.max_epoch 5": "--trainer.max_epoch: no such option. Nearest: --trainer.max_epochs",
    "--max_epochs 5": "--max_epochs: no such option. Nearest: --trainer.max_epochs",
    "--lr 5": "--lr: no such option. Nearest: --model.optimizer.lr",
    "--data.batchsize 3": "--data.batchsize: no such option of Digits. Nearest: --data.batch_size",
    "--model.net.width [3]": "--model.net.width: no such option of CNN. Nearest: --model.net.widths",
    "--model.optimizer.weight_deca 1": "no such option of AdamW. Nearest: --model.optimizer.weight_decay",
    "--model.schedule.warmups 1": "no such option of WarmupCosine. Nearest: --model.schedule.warmup",
    "--checkpoint.monitors x": "--checkpoint.monitors: no such option. Nearest: --checkpoint.monitor",
    "--trainer.callbacks+=EarlyStopping --trainer.callbacks.patienc=3": "patienc",
    "stray": "stray: expected options in the form --name value",
    "--trainer.max_epochs": "--trainer.max_epochs: expected a value, got none",
    "--ckpt_path": "--ckpt_path: expected a value, got nothing",
    # wrong type
    "--trainer.max_epochs five": "--trainer.max_epochs: expected an integer, got five",
    "--data.batch_size many": "--data.batch_size: expected an integer, got many",
    "--model.net.widths 3": "--model.net.widths: expected a sequence, got 3",
    "--model.net.dropout high": "--model.net.dropout: expected a number, got high",
    "--model.optimizer.lr fast": "--model.optimizer.lr: expected a number, got fast",
    "--checkpoint.mode up": "--checkpoint.mode: expected one of min, max, got up",
    "--trainer.precision 17": "--trainer.precision: expected one of 64, 32, 16",
    # value out of range
    "--data.batch_size 0": "--data.batch_size: expected at least 1, got 0",
    "--data.num_workers -1": "--data.num_workers: expected at least 0, got -1",
    "--model.net.dropout 1.5": "--model.net.dropout: expected a probability in [0, 1), got 1.5",
    "--model.net.widths []": "--model.net.widths: expected at least one stage, got none",
    "--model.num_classes 1": "--model.num_classes: expected at least 2, got 1",
    "--model.schedule.warmup 3": "--model.schedule.warmup: expected a share of the steps in [0, 1), got 3.0",
    "--model.optimizer.lr -1": "--model.optimizer, --model.schedule: Invalid learning rate: -1.0",
    "--checkpoint.every_n_steps 0": "--checkpoint.every_n_steps: expected more than 0, got 0",
    "--trainer.max_epochs -5": "--trainer.max_epochs: expected at least -1, got -5",
    "--trainer.accumulate_grad_batches 0": "--trainer.accumulate_grad_batches: expected at least 1, got 0",
    "--trainer.log_every_n_steps 0": "--trainer.log_every_n_steps: expected at least 1, got 0",
    "--trainer.val_check_interval 0": "--trainer.val_check_interval: expected steps or a share of an epoch above 0",
    "--trainer.limit_train_batches 0": "schedule: the training has no steps",
    "--trainer.callbacks+=Checkpoint": "--trainer.callbacks: Checkpoint is configured twice",
    "--model.schedule OneCycleLR": "--model.schedule: OneCycleLR needs max_lr",
    "--model.net.num_classes 7": "num_classes: expected logits of shape (64, 10)",
    "--model.net.in_channels 3": "--model.net.in_channels: expected 1, as in the data, got 3",
    "--model.num_classes 5 --model.net.num_classes 5": "num_classes: labels run from 0 to 9, expected 0 to 4",
    # missing file
    "--model.optimizer torch.optm.Adam": "--model.optimizer torch.optm.Adam: no such class. Nearest: Adam, ",
    "--model.schedule WarmupCosine(0.1)": "--model.schedule WarmupCosine(0.1): no such class",
    "--trainer.max_time never": "--trainer.max_time: expected DD:HH:MM:SS, got never",
    "--trainer nosuch.yaml": "--trainer nosuch.yaml: no such file",
    "--model nosuch.yaml": "--model nosuch.yaml: no such file",
    "--config configs/vision/cnn-digit.yaml": "no such file. Nearest: configs/vision/cnn-digits.yaml",
    "--config configs/cnn-digits.yaml": "no such file. Nearest: configs/vision/cnn-digits.yaml",
    "--init_from nosuch.ckpt": "--init_from nosuch.ckpt: no such file or run directory",
    "--ckpt_path runs/nosuch": "--ckpt_path runs/nosuch: no such file or run directory",
    # unknown class path, with the nearest of ours
    "--model.net CNNN": "--model.net CNNN: no such class. Nearest: CNN",
    "--model Clasification": "--model Clasification: no such class. Nearest: Classification",
    "--data Digts": "--data Digts: no such class. Nearest: Digits",
    "--model.optimizer AdmaW": "--model.optimizer AdmaW: no such class. Nearest: AdamW",
    "--model.schedule WarmupCosin": "--model.schedule WarmupCosin: no such class. Nearest: WarmupCosine",
    "--model.net example.nets.cnn.CNX": "--model.net example.nets.cnn.CNX: no such class",
    "--model.net example.nets.cn.CNN": "Nearest: example.nets.cnn.CNN",
    "--trainer.callbacks+=EarlyStoping": "Nearest: EarlyStopping",
    # a class of the wrong kind
    "--model.net Digits": "--model.net Digits: expected a net (torch.nn.Module). Ours: CNN, MLP, ",
    "--model CNN": "--model CNN: expected a task",
    "--data Classification": "--data Classification: expected a data module. Ours: ",
    "--model.optimizer CNN": "--model.optimizer CNN: expected an optimizer",
    "--trainer.callbacks+=CNN": "--trainer.callbacks CNN: expected a callback",
    "--data collections.OrderedDict": "--data collections.OrderedDict: expected a data module",
    # both at once
    "--init_from x.ckpt --ckpt_path best": "--init_from, --ckpt_path: expected only one of them",
    # hardware that is not there
    "--trainer.accelerator gpu": "--trainer.accelerator: No supported gpu backend found",
    "--trainer.strategy ddpp": "ddpp",
}


@pytest.mark.parametrize("args", CASES, ids=str)
def test_mistake_on_the_command_line(cli: Cli, args: str) -> None:
    assert CASES[args] in mistake(cli, "fit", "--config", CNN_DIGITS, *args.split())


def test_no_model(cli: Cli) -> None:
    assert "--model: required; name a recipe with --config" in mistake(cli, "fit")


def test_unknown_verb(cli: Cli) -> None:
    assert "fti: no such verb" in mistake(cli, "fti")
    assert "Nearest: fit" in mistake(cli, "fti")


@pytest.mark.parametrize("verb", ["test", "validate", "predict"])
def test_evaluation_without_checkpoint(cli: Cli, verb: str) -> None:
    assert f"--ckpt_path: {verb} needs one" in mistake(cli, verb, "--config", CNN_DIGITS)


YAML_CASES = {
    "trainer:\n  max_epochs: 3\n  max_epoch: 4": "bad.yaml:3: --trainer.max_epoch: no such option",
    "model:\n  class_path: Classification\n  init_args:\n    net:\n      class_path: CNN\n"
    "      init_args: {widthss: [3]}": "bad.yaml:6: --model.net.widthss: no such option of CNN. Nearest: ",
    "data:\n  class_path: Digits\n  init_args:\n    batch_size: many": "bad.yaml:4: --data.batch_size: expected",
    "data: {class_path: Digts}": "--data Digts: no such class. Nearest: Digits",
    "config: [a.yaml, b.yaml]": "bad.yaml:1: config: expected one file, got a list",
    "trainer:\n  max_epochs: 3\nconfig:\n  - a.yaml": "bad.yaml:3: config: expected one file, got a list",
    "config: 3": "bad.yaml:1: config: expected one file, got 3",
    "config: nosuch.yaml": "nosuch.yaml: no such file",
    "trainer: {max_epochs: 3": "bad.yaml:1: not valid YAML",
    "trainer: {max_epochs: 3}\ntrainer: {max_steps: 3}": "bad.yaml:2: trainer: occurs twice",
    "1: 2": "bad.yaml:1: 1: expected the name of an option",
    "checkpoint: null": "--checkpoint: expected a mapping",
    "- 3": "bad.yaml: expected a mapping of options, got a list",
    "trainr: {max_epochs: 3}": "trainr",
    "model: {init_args: {net: {init_args: {dropout: 2}}}}": "bad.yaml:1: --model.net.dropout: expected a probability",
}


@pytest.mark.parametrize("text", YAML_CASES)
def test_mistake_in_a_config(cli: Cli, workdir: Path, text: str) -> None:
    (workdir / "bad.yaml").write_text(text)
    assert YAML_CASES[text] in mistake(cli, "fit", "--config", CNN_DIGITS, "--config", "bad.yaml")


def test_list_under_config_of_a_base(cli: Cli, workdir: Path) -> None:
    (workdir / "base.yaml").write_text("config: [a.yaml]")
    (workdir / "top.yaml").write_text("config: base.yaml")
    assert "base.yaml:1: config: expected one file" in mistake(cli, "fit", "--config", "top.yaml")


MONITORS = {
    "val/acuracy": "--checkpoint.monitor val/acuracy: nothing logs it. Nearest: val/accuracy",
    "train/acuracy": "--checkpoint.monitor train/acuracy: nothing logs it. Nearest: train/accuracy",
    "accuracy": "--checkpoint.monitor accuracy: nothing logs it",
}


@pytest.mark.parametrize("monitor", MONITORS)
def test_monitored_metric_that_nothing_logs(cli: Cli, monitor: str) -> None:
    found = mistake_after_header(cli, "--checkpoint.monitor", monitor)
    assert MONITORS[monitor] in found
    assert not list(Path("run").glob("checkpoints/*"))


def test_callback_and_schedule_monitors(cli: Cli) -> None:
    stopping = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/los")
    assert "EarlyStopping: monitor val/los: nothing logs it. Nearest: val/loss" in mistake_after_header(cli, *stopping)
    plateau = ("--model.schedule", "ReduceLROnPlateau", "--model.schedule.monitor", "val/los")
    assert "--model.schedule.monitor val/los: nothing logs it. Nearest: val/loss" in mistake_after_header(cli, *plateau)


def test_monitor_while_validation_is_off(cli: Cli) -> None:
    assert "nothing logs it while validation is off" in mistake_after_header(cli, "--trainer.limit_val_batches", "0")


def mistake_after_header(cli: Cli, *args: str) -> str:
    return mistake(cli, "fit", "--config", CNN_DIGITS, "--run_dir", "run", *TINY, *args)


DATA = """
from lightning.pytorch import LightningDataModule
from example.data.digits import Digits

class OnDisk(Digits):
    def __init__(self, root: str, batch_size: int = 64) -> None:
        super().__init__(batch_size)
        self.root = root

    def prepare_data(self) -> None:
        with open(f"{self.root}/cache.bin", "wb") as file:
            file.write(b"1")
"""


@pytest.mark.parametrize(("root", "kind"), [("nosuch", FileNotFoundError), ("file", NotADirectoryError)])
def test_a_file_that_the_users_data_cannot_open(cli: Cli, workdir: Path, root: str, kind: type[OSError]) -> None:
    """The traceback names the line; only the user knows which option it comes from."""
    (workdir / "ondisk.py").write_text(DATA)
    (workdir / "file").write_text("a file, where nobody can write a file below")
    with pytest.raises(kind, match=f"{root}/cache.bin"):
        cli("fit", "--config", CNN_DIGITS, "--data", "ondisk.OnDisk", "--data.root", root)


def test_run_directory_not_writable(cli: Cli, workdir: Path) -> None:
    (workdir / "file").write_text("")
    assert "--run_dir file/run: cannot be written" in mistake(
        cli, "fit", "--config", CNN_DIGITS, "--run_dir", "file/run"
    )


def test_run_directory_in_use(cli: Cli, fitted: str) -> None:
    assert "already contains a run" in mistake(cli, "fit", "--config", CNN_DIGITS, "--run_dir", fitted)


def test_class_whose_module_cannot_be_imported(cli: Cli, workdir: Path) -> None:
    (workdir / "needy.py").write_text("import not_installed_anywhere\nclass Data: ...\n")
    found = mistake(cli, "fit", "--config", CNN_DIGITS, "--data", "needy.Data")
    assert found == "--data needy.Data: its module needs not_installed_anywhere, which is not installed"


@pytest.fixture
def fitted(cli: Cli) -> str:
    """A run directory with checkpoints."""
    assert cli("fit", "--config", CNN_DIGITS, "--run_dir", "run", *TINY).code == 0
    return "run"


@pytest.mark.parametrize("verb", ["test", "validate", "predict"])
def test_damaged_checkpoint(cli: Cli, workdir: Path, fitted: str, verb: str) -> None:
    whole = (workdir / fitted / "checkpoints/best.ckpt").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for content, words in [
        (whole[: len(whole) // 2], "truncated"),
        (b"", "truncated, or not a checkpoint"),
        (b"hello", "not a checkpoint"),
        (bytes(flipped), "corrupted (its checksum"),
    ]:
        (workdir / "damaged.ckpt").write_bytes(content)
        found = mistake(cli, verb, "--ckpt_path", "damaged.ckpt")
        assert "damaged.ckpt" in found
        assert words in found


class Payload:
    """Runs a command when it is unpickled without care."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch pwned",)


@pytest.mark.parametrize("args", [("test", "--ckpt_path"), ("fit", "--init_from"), ("fit", "--ckpt_path")], ids=str)
def test_malicious_checkpoint(cli: Cli, workdir: Path, args: tuple[str, str]) -> None:
    torch.save({"state_dict": {"w": Payload()}, "config": "{}"}, workdir / "evil.ckpt")
    found = mistake(cli, args[0], args[1], "evil.ckpt", "--config", CNN_DIGITS)
    assert "refused" in found
    assert "system" in found
    assert not (workdir / "pwned").exists()


def test_incompatible_checkpoint(cli: Cli, fitted: str) -> None:
    found = mistake(cli, "test", "--ckpt_path", fitted, "--model.net.widths", "[4, 6]")
    assert "does not fit this model: mismatched" in found
    assert "net.stages.1.0.weight (4, 4, 3, 3) in the file, (6, 4, 3, 3) in the model" in found
    found = mistake(cli, "test", "--ckpt_path", fitted, "--model.net.widths", "[4, 4, 4]")
    assert "missing" in found
    assert "net.stages.2.0.weight" in found
    found = mistake(cli, "test", "--ckpt_path", fitted, "--model.net.widths", "[4]")
    assert "unexpected" in found


def test_incompatible_optimizer(cli: Cli, fitted: str) -> None:
    more = ("--trainer.max_epochs", "2", "--model.optimizer", "LBFGS", "--model.optimizer.lr", "1")
    found = mistake(cli, "fit", "--run_dir", fitted, "--ckpt_path", "last", *more)
    assert "--model.optimizer: expected AdamW as in the checkpoint, got LBFGS" in found


def test_no_best_checkpoint(cli: Cli) -> None:
    cli("fit", "--config", CNN_DIGITS, "--run_dir", "plain", *TINY, "--checkpoint.monitor", "null")
    assert "has no best.ckpt" in mistake(cli, "test", "--run_dir", "plain", "--ckpt_path", "best")


def test_no_run_to_continue(cli: Cli) -> None:
    found = mistake(cli, "fit", "--config", CNN_DIGITS, "--ckpt_path", "last")
    assert "no run of cnn-digits under runs/ has a checkpoint" in found


def test_debug_brings_the_traceback_back(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="max_epochs"):
        cli("fit", "--config", CNN_DIGITS, "--trainer.max_epochs", "-5", "--debug")
    monkeypatch.setenv("PLAYBOOK_DEBUG", "1")
    with pytest.raises(Exception, match="max_epochs"):
        cli("fit", "--config", CNN_DIGITS, "--trainer.max_epochs", "-5")


BUG = """
from example.tasks.classification import Classification

class Buggy(Classification):
    def training_step(self, batch, batch_idx):
        raise RuntimeError("a bug in my own code")
"""


def test_an_error_in_code_keeps_its_traceback(cli: Cli, workdir: Path) -> None:
    (workdir / "buggy.py").write_text(BUG)
    with pytest.raises(RuntimeError, match="a bug in my own code"):
        cli("fit", "--config", CNN_DIGITS, "--model", "buggy.Buggy", *TINY)


PACKRAT = """
import numpy
from example.tasks.classification import Classification

class Packrat(Classification):
    def on_save_checkpoint(self, checkpoint):
        checkpoint["array"] = numpy.arange(3)
"""


def test_checkpoint_that_could_not_be_loaded_is_found_at_the_first_save(cli: Cli, workdir: Path) -> None:
    (workdir / "packrat.py").write_text(PACKRAT)
    done = cli("fit", "--config", CNN_DIGITS, "--model", "packrat.Packrat", "--trainer.max_epochs", "9", *TINY[2:])
    assert done.code == 2
    assert "a checkpoint of this run could not be loaded again: it contains numpy" in done.err
    assert "epoch 9/9" not in done.out


def test_two_trainings_in_one_directory(cli: Cli, workdir: Path) -> None:
    from playbook.runs.directory import Run

    run = Run(workdir / "run")
    run.path.mkdir()
    lines = "f = open('run/.lock', 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", f"import fcntl, time; {lines}"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        found = mistake(cli, "fit", "--config", CNN_DIGITS, "--run_dir", "run", *TINY)
    finally:
        holder.kill()
        holder.communicate()
    assert "--run_dir run: another process is training in it" in found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_costs_no_training(cli: Cli, small_disk: Path) -> None:
    """A run whose checkpoints do not fit trains to its end, keeps what was saved whole, and exits 2."""
    run = small_disk / "run"
    args = ("--trainer.max_epochs", "3", "--model.net.widths", "[16, 32]", "--checkpoint.monitor", "null")
    done = cli("fit", "--config", CNN_DIGITS, "--run_dir", str(run), *args)
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert "No space left on device" in done.err.strip().splitlines()[-1]
    assert "epoch 3/3" in done.out
    assert cli("test", "--ckpt_path", str(run)).code == 0, "the checkpoint that was saved first must be whole"


def test_disk_full_from_the_start(cli: Cli, small_disk: Path) -> None:
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"0" * 4096):
            pass
    assert "No space left on device" in mistake(
        cli, "fit", "--config", CNN_DIGITS, "--run_dir", str(small_disk / "run"), *TINY
    )
