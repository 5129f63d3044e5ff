"""The life of a run through the real command line: start, test, predict, continue, start anew."""

import csv
import json
import os
import re
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from playbook.testing.command import Cli, Result
from playbook.testing.processes import values_logged
from running import CNN_DIGITS, MLP_DIGITS

TINY = ("--model.net.widths", "[4, 4]", "--trainer.limit_train_batches", "3")


def fit(cli: Cli, *args: str, run: str = "run", epochs: int = 2) -> Result:
    done = cli("fit", "--config", CNN_DIGITS, "--run_dir", run, "--trainer.max_epochs", str(epochs), *TINY, *args)
    assert done.code == 0, done.err
    return done


def metrics(run: str = "run") -> dict[str, Any]:
    return json.loads((Path(run) / "metrics.json").read_text())


def weights(path: str) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


def test_what_fit_prints_and_leaves(cli: Cli) -> None:
    done = fit(cli)
    lines = done.out.splitlines()
    assert lines[0] == "run · CPU, 1 threads, fp32 · 1,078 train, 360 val, 359 test · run"
    assert "Architecture   CNN, 246 parameters" in done.out
    assert "Optimization   CPU, 1 threads, fp32, eager, 1 CPU process" in done.out
    assert "Training       AdamW, lr 0.003, WarmupCosine, cross-entropy, 2 epochs in" in done.out
    result = re.search(r"Results +accuracy: train (\S+) · val (\S+) · test (\S+) +\(best epoch (\d)\)", done.out)
    assert result is not None, done.out
    best, test = metrics()["best"], metrics()["test"]
    shown = [best["metrics"]["train/accuracy"], best["metrics"]["val/accuracy"], test["test/accuracy"]]
    assert [float(result[i + 1]) for i in range(3)] == pytest.approx(shown, abs=1e-4)
    assert int(result[4]) == best["epoch"]
    assert done.err == ""
    left = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    expected = {"config.yaml", "metrics.csv", "metrics.json", "environment.json", "git.diff"}
    assert left == expected | {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
    environment = json.loads(Path("run/environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__.partition("+")[0]
    rows = list(csv.DictReader(Path("run/metrics.csv").read_text().splitlines()))
    assert [row["val/loss"] for row in rows if row["val/loss"]][-1] == f"{metrics()['metrics']['val/loss']:.9g}"


@pytest.mark.slow
def test_the_commands_that_fit_suggests_work(cli: Cli) -> None:
    done = fit(cli)
    commands = re.findall(r"python -m example (.+)", done.out)
    assert [command.split()[0] for command in commands] == ["predict", "test", "fit"]
    for command in commands:
        again = cli(*command.split())
        assert again.code == 0, again.err


@pytest.mark.slow
def test_config_yaml_repeats_the_run(cli: Cli) -> None:
    fit(cli)
    assert cli("fit", "--config", "run/config.yaml", "--run_dir", "again").code == 0
    first, second = weights("run/checkpoints/last.ckpt"), weights("again/checkpoints/last.ckpt")
    assert all(torch.equal(first[name], second[name]) for name in first), "same seed, same weights"
    other = fit(cli, "--seed_everything", "2", run="other")
    assert other.code == 0
    third = weights("other/checkpoints/last.ckpt")
    assert not torch.equal(first["net.head.1.weight"], third["net.head.1.weight"])


@pytest.mark.slow
def test_dated_directory_without_run_dir(cli: Cli) -> None:
    done = cli("fit", "--config", MLP_DIGITS, "--trainer.max_epochs", "1", "--model.net.widths", "[4]")
    assert done.code == 0
    found = re.search(r"runs/mlp-digits/\d{4}-\d\d-\d\d-\d{6}", done.out)
    assert found is not None
    assert Path(found[0], "checkpoints/best.ckpt").is_file()
    fit(cli, run="runs/cnn-digits/2000-01-01-000000")
    for spec in ("best", "last"):
        newest = cli("test", "--ckpt_path", spec)
        assert newest.code == 0
        assert "test" in metrics(found[0])
    assert cli("test", "--ckpt_path", "last", "--config", CNN_DIGITS, *TINY).code == 0, "the newest run of that recipe"
    small = ("--model.net.widths", "[4]")
    continued = cli("fit", "--config", MLP_DIGITS, "--ckpt_path", "last", "--trainer.max_epochs", "2", *small)
    assert continued.code == 0, continued.err
    assert found[0] in continued.out


@pytest.mark.parametrize("spec", ["run", "run/checkpoints", "run/checkpoints/best.ckpt", "copied.ckpt"])
@pytest.mark.slow
def test_checkpoint_alone_is_enough(cli: Cli, spec: str) -> None:
    fit(cli)
    expected = metrics()["test"]
    shutil.copy("run/checkpoints/best.ckpt", "copied.ckpt")
    for verb in ("test", "validate", "predict"):
        done = cli(verb, "--ckpt_path", spec)
        assert done.code == 0, done.err
        if verb == "test":
            assert f"test/accuracy {expected['test/accuracy']:.4g}" in done.out


@pytest.mark.slow
def test_predictions_agree_with_the_test(cli: Cli) -> None:
    fit(cli)
    assert cli("predict", "--ckpt_path", "best", "--run_dir", "run").code == 0
    with Path("run/predictions/predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(359))
    for row in rows[:5]:
        probabilities = [float(row[f"probability_{k}"]) for k in range(10)]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert probabilities.index(max(probabilities)) == int(row["label"])
    correct = sum(row["label"] == row["target"] for row in rows) / len(rows)
    assert correct == pytest.approx(metrics()["test"]["test/accuracy"], abs=1e-6)


@pytest.mark.slow
def test_evaluation_leaves_the_run_as_it_was(cli: Cli) -> None:
    fit(cli)
    before = {name: Path("run", name).read_bytes() for name in ("config.yaml", "metrics.csv", "environment.json")}
    cli("test", "--ckpt_path", "run", "--data.batch_size", "7")
    assert before == {name: Path("run", name).read_bytes() for name in before}
    assert metrics()["best"]


@pytest.mark.slow
def test_finished_run_says_so_and_goes_on_only_with_more_epochs(cli: Cli) -> None:
    fit(cli, "--ckpt_path", "last")
    stamp = os.stat("run/checkpoints/last.ckpt").st_mtime_ns
    again = fit(cli, "--ckpt_path", "last")
    assert again.out == "run is finished: 2 epochs, 6 steps; to continue, increase --trainer.max_epochs\n"
    assert os.stat("run/checkpoints/last.ckpt").st_mtime_ns == stamp
    more = fit(cli, "--ckpt_path", "last", epochs=3)
    assert "epoch 3/3" in more.out
    assert metrics()["epoch"] == 3


def test_first_start_with_ckpt_path_last_starts_afresh(cli: Cli) -> None:
    done = fit(cli, "--ckpt_path", "last")
    assert done.out.startswith("no checkpoint to resume in run: starting a new run\n")


@pytest.mark.slow
def test_damaged_newest_checkpoint_gives_way_to_the_one_before(cli: Cli) -> None:
    fit(cli)
    last = Path("run/checkpoints/last.ckpt")
    last.write_bytes(last.read_bytes()[:1000])
    more = fit(cli, "--ckpt_path", "last", epochs=3)
    assert "run/checkpoints/last.ckpt: truncated" in more.err
    assert "using previous.ckpt instead" in more.err
    for name in ("last", "previous", "best"):
        Path(f"run/checkpoints/{name}.ckpt").write_bytes(b"PK")
    afresh = fit(cli, "--ckpt_path", "last", epochs=3)
    assert "starting a new run" in afresh.out
    assert "epoch 3/3" in afresh.out


@pytest.mark.slow
def test_init_from_takes_what_fits_and_says_what_does_not(cli: Cli) -> None:
    fit(cli)
    done = fit(cli, "--init_from", "run", "--model.optimizer.lr", "0", run="same")
    assert "init_from run/checkpoints/best.ckpt: 14 of 14 entries loaded\nsame" in done.out
    first, second = weights("run/checkpoints/best.ckpt"), weights("same/checkpoints/last.ckpt")
    assert torch.equal(first["net.head.1.weight"], second["net.head.1.weight"])
    narrower = fit(cli, "--init_from", "run/checkpoints/last.ckpt", "--model.net.widths", "[4]", run="narrow")
    assert "  6 not in this model, skipped:\n    net.stages.1.* (6)\n" in narrower.out
    assert "with a different shape" not in narrower.out
    wider = fit(cli, "--init_from", "run", "--model.net.widths", "[4, 6]", run="wide")
    assert "    net.head.1.weight (10, 4) in the file, (10, 6) in the model" in wider.out


@pytest.mark.slow
def test_init_from_a_bare_state_dict(cli: Cli) -> None:
    fit(cli)
    net = {name.removeprefix("net."): value for name, value in weights("run/checkpoints/last.ckpt").items()}
    torch.save(net, "net.pt")
    assert "14 of 14 entries loaded" in fit(cli, "--init_from", "net.pt", run="bare").out


def test_settings_inside_a_config(cli: Cli, workdir: Path) -> None:
    settings = "run_dir: job\nckpt_path: last\ntrainer: {max_epochs: 1}"
    (workdir / "job.yaml").write_text(f"config: {CNN_DIGITS}\n{settings}")
    done = cli("fit", "--config", "job.yaml", *TINY)
    assert done.code == 0, done.err
    assert Path("job/checkpoints/last.ckpt").is_file()
    assert "is finished" in cli("fit", "--config", "job.yaml", *TINY).out


def test_composition_relative_to_the_file(cli: Cli, workdir: Path) -> None:
    (workdir / "parts").mkdir()
    (workdir / "parts/trainer.yaml").write_text("max_epochs: 1\nlimit_train_batches: 2")
    (workdir / "parts/data.yaml").write_text("class_path: Digits\ninit_args: {batch_size: 30}")
    (workdir / "parts/job.yaml").write_text(f"config: {CNN_DIGITS}\ntrainer: trainer.yaml\ndata: data.yaml")
    done = cli("fit", "--config", "parts/job.yaml", "--run_dir", "run", "--model.net.widths", "[4]")
    assert done.code == 0, done.err
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["trainer"]["limit_train_batches"] == 2
    assert config["data"]["init_args"]["batch_size"] == 30


SOURCES = ["default", "checkpoint", "earlier config", "later config", "command line"]


@pytest.mark.parametrize(("weaker", "stronger"), list(combinations(SOURCES, 2)))
def test_precedence(cli: Cli, workdir: Path, weaker: str, stronger: str) -> None:
    values = {weaker: 11, stronger: 22}
    made = [] if "checkpoint" not in values else ["--data.batch_size", str(values["checkpoint"])]
    fit(cli, "--data", "Digits", *made)
    args = ["--ckpt_path", "run"] if "checkpoint" in values else ["--config", CNN_DIGITS, "--data", "Digits"]
    if "checkpoint" not in values:
        (workdir / "plain.yaml").write_text("data: {class_path: Digits}")
        recipe = yaml.safe_load(Path(CNN_DIGITS).read_text()) | {"data": {"class_path": "Digits"}}
        (workdir / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        args = ["--config", "recipe.yaml"]
    for source in ("earlier config", "later config"):
        batch_size = f", init_args: {{batch_size: {values[source]}}}" if source in values else ""
        (workdir / f"{source[:5]}.yaml").write_text(f"data: {{class_path: Digits{batch_size}}}")
        args += ["--config", f"{source[:5]}.yaml"]
    if "command line" in values:
        args += ["--data.batch_size", "22"]
    done = cli("fit", *args, "--print_config")
    assert done.code == 0, done.err
    assert yaml.safe_load(done.out)["data"]["init_args"]["batch_size"] == 22


def test_default_stands_where_nothing_is_said(cli: Cli) -> None:
    done = cli("fit", "--model", "Classification", "--model.net", "CNN", "--data", "Digits", "--print_config")
    assert yaml.safe_load(done.out)["data"]["init_args"]["batch_size"] == 64


def test_short_names_are_ours_before_anybody_elses(cli: Cli) -> None:
    """torchvision.ops has an MLP, torch.optim.lr_scheduler and lightning a ReduceLROnPlateau."""
    import torchvision  # noqa: F401

    args = ("--model", "Classification", "--model.net", "MLP", "--model.schedule", "ReduceLROnPlateau")
    config = yaml.safe_load(cli("fit", *args, "--data", "Digits", "--print_config").out)
    assert config["model"]["init_args"]["net"]["class_path"] == "example.nets.mlp.MLP"
    assert config["model"]["init_args"]["schedule"]["class_path"] == "playbook.optim.schedules.ReduceLROnPlateau"
    full = yaml.safe_load(cli("fit", *args, "--model.net", "torchvision.ops.MLP", "--print_config").out)
    assert full["model"]["init_args"]["net"]["class_path"] == "torchvision.ops.MLP"


def test_optimizer_defaults_do_not_leak(cli: Cli) -> None:
    done = cli("fit", "--config", CNN_DIGITS, "--model.optimizer", "SGD", "--model.optimizer.lr", "1", "--print_config")
    assert yaml.safe_load(done.out)["model"]["init_args"]["optimizer"]["init_args"]["weight_decay"] == 0


def test_reload_from_python(cli: Cli) -> None:
    from example.tasks.classification import Classification

    fit(cli)
    model = Classification.load_from_checkpoint("run/checkpoints/best.ckpt", weights_only=True)
    saved = weights("run/checkpoints/best.ckpt")
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    assert model.hparams["net"]["class_path"] == "example.nets.cnn.CNN"


@pytest.mark.slow
def test_no_validation_or_checkpointing(cli: Cli) -> None:
    fit(cli, "--trainer.enable_checkpointing", "false", run="none")
    assert not Path("none/checkpoints").exists()
    fit(cli, "--trainer.limit_val_batches", "0", "--checkpoint.monitor", "train/loss", run="train")
    assert metrics("train")["best"]["monitor"] == "train/loss"


@pytest.mark.slow
def test_checkpoints_by_steps_and_minutes(cli: Cli) -> None:
    """Both cadences alone leave a checkpoint before the end; --checkpoint.every_n_epochs null takes that one away."""
    for cadence in (("--checkpoint.every_n_steps", "2"), ("--checkpoint.every_n_minutes", "1e-9")):
        run = cadence[0][-5:]
        fit(cli, "--checkpoint.every_n_epochs", "null", *cadence, run=run)
        assert torch.load(f"{run}/checkpoints/previous.ckpt", weights_only=True)["global_step"] < 6
    fit(cli, "--checkpoint.every_n_epochs", "null", "--checkpoint.every_n_minutes", "null", run="end")
    assert not Path("end/checkpoints/previous.ckpt").exists()
    assert torch.load("end/checkpoints/last.ckpt", weights_only=True)["global_step"] == 6


def test_runs_of_the_same_second_have_their_own_directories(workdir: Path) -> None:
    from playbook.runs.directory import new_run

    paths = [new_run("x").path for _ in range(5)]
    assert len(set(paths)) == 5
    assert all(path.is_dir() for path in paths), "each is taken at once"


def test_a_mistake_leaves_no_directory_behind(cli: Cli) -> None:
    assert cli("fit", "--config", CNN_DIGITS, "--model.net.dropout", "2").code == 2
    assert not list(Path("runs").glob("*/*"))


@pytest.mark.slow
def test_appended_callbacks_are_not_doubled_by_a_requeue(cli: Cli, workdir: Path) -> None:
    stopping = "{class_path: EarlyStopping, init_args: {monitor: val/loss, patience: 50}}"
    (workdir / "stop.yaml").write_text(f"trainer: {{callbacks+: {stopping}}}")
    for epochs in (1, 2):
        fit(cli, "--config", "stop.yaml", "--ckpt_path", "last", epochs=epochs)
    callbacks = yaml.safe_load(Path("run/config.yaml").read_text())["trainer"]["callbacks"]
    assert [callback["class_path"].rpartition(".")[2] for callback in callbacks] == ["EarlyStopping"]


@pytest.mark.slow
def test_metrics_survive_a_continuation_that_has_only_the_test_left(cli: Cli) -> None:
    fit(cli)
    rows = Path("run/metrics.csv").read_text()
    record = metrics()
    Path("run/metrics.json").write_text(json.dumps(record | {"status": "running", "test": None}))
    fit(cli, "--ckpt_path", "last")
    assert Path("run/metrics.csv").read_text() == rows
    assert metrics() == record


@pytest.mark.slow
def test_best_alone_is_no_place_to_continue_from(cli: Cli) -> None:
    """It is written before the first last.ckpt; a kill between the two starts afresh, which is exact."""
    fit(cli)
    for name in ("last", "previous"):
        Path(f"run/checkpoints/{name}.ckpt").unlink()
    again = fit(cli, "--ckpt_path", "last", "--checkpoint.every_n_steps", "2")
    assert "starting a new run" in again.out


@pytest.mark.slow
def test_continuing_from_the_best_trains_on(cli: Cli) -> None:
    fit(cli, "--model.schedule", "null", epochs=2)
    best = torch.load("run/checkpoints/best.ckpt", weights_only=True)
    done = fit(cli, "--model.schedule", "null", "--ckpt_path", "best", epochs=3)
    assert metrics()["step"] == 9, done.out
    assert best["global_step"] in (3, 6)
    fit(cli, "--model.schedule", "null", run="whole", epochs=3)
    assert values_logged(Path("run")) == values_logged(Path("whole"))


@pytest.mark.slow
def test_leftovers_of_a_killed_process_are_removed(cli: Cli) -> None:
    fit(cli)
    for leftover in ("run/checkpoints/.last.new.123", "run/.config.yaml.77"):
        Path(leftover).write_bytes(b"half")
    fit(cli, "--ckpt_path", "last", epochs=3)
    assert not list(Path("run").rglob(".*"))


@pytest.mark.parametrize("option", ["--model.help=Classification", "--data.help=Digits", "--model.help"])
def test_help_of_a_class(cli: Cli, option: str) -> None:
    done = cli("fit", *option.split("="))
    assert done.code == 0, done.err
    assert "--model" in done.out or "--data" in done.out


def test_averaging_callbacks_copy_the_module(cli: Cli) -> None:
    swa = ("--trainer.callbacks+=StochasticWeightAveraging", "--trainer.callbacks.swa_lrs=0.01")
    fit(cli, *swa, "--model.schedule", "null", epochs=3)


def test_overlapping_options_of_fast_dev_run(cli: Cli) -> None:
    done = fit(cli, "--trainer.fast_dev_run", "true")
    assert "python -m example" not in done.out, "there is no checkpoint to name"


DATACLASS = """
from dataclasses import dataclass, field
from types import SimpleNamespace
import numpy as np
from example.data.digits import Digits
from example.nets.mlp import MLP
from example.tasks.classification import Classification

@dataclass
class Spec:
    shape: tuple = (8, 8)
    mean: np.ndarray = field(default_factory=lambda: np.zeros(3))

SPEC = Spec()

class Own(Classification):
    def __init__(self, spec=SPEC, plan=SimpleNamespace(widths=[4]), rate: float = 0.1):
        assert spec.shape == (8, 8) and isinstance(spec.mean, np.ndarray) and rate == 0.2
        super().__init__(MLP(widths=plan.widths))
"""


def test_a_default_that_no_configuration_can_hold_stays_the_object(cli: Cli, workdir: Path) -> None:
    (workdir / "own.py").write_text(DATACLASS)
    options = ["--model", "own.Own", "--model.rate", "0.2", "--data", "Digits", "--run_dir", "run"]
    done = cli("fit", *options, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1")
    assert (done.code, done.err) == (0, "")
    assert not {"spec", "plan"} & set(yaml.safe_load(Path("run/config.yaml").read_text())["model"]["init_args"])
    assert cli("test", "--ckpt_path", "run").code == 0
