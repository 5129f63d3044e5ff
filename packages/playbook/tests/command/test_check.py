"""What is told before torch is imported; the same mistakes, told by the parser, are in test_messages.py."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import project
from playbook.command import arguments
from playbook.command.check import check
from playbook.errors import UserError
from playbook.testing.command import model_verb
from running import CNN_DIGITS, PROJECT, cli_process


@pytest.fixture(autouse=True)
def files(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, of the machine's own small project."""
    former = project.current()
    project.choose("example")
    (workdir / "own.py").write_text(OWN)
    (workdir / "widths.yaml").write_text("class_path: CNN\ninit_args: {widhts: [4]}\n")
    (workdir / "short.yaml").write_text("max_epoch: 3\n")
    yield
    monkeypatch.setattr(project, "_current", former)


OWN = """
import torch
from torch import nn
from playbook import Task, Data

class Open(nn.Module):
    def __init__(self, size: int, **options):
        self.options = options

class Own(Task):
    def __init__(self, net: nn.Module, teacher: nn.Module | None, plan: dict, rate: float = 0.1, name: str = ""): ...

class Plain(Data): ...

class Needy(Data):
    def __init__(self, root: str, limit: int | None): ...
"""


def mistake(*args: str) -> str | None:
    """What is reported of a command; None if nothing is."""
    try:
        check(arguments.read(model_verb(args[0]), list(args[1:])))
    except UserError as error:
        return str(error)
    return None


RECIPE = ("fit", "--config", CNN_DIGITS)

NAMES = {
    "--trainer.max_epoch 3": "--trainer.max_epoch: no such option. Nearest: --trainer.max_epochs, ",
    "--trainer.max_epoch=3": "--trainer.max_epoch: no such option. Nearest: --trainer.max_epochs, ",
    "--trainer.nonsense_beyond_words 3": "--trainer.nonsense_beyond_words: no such option",
    "--checkpoint.monitr x": "--checkpoint.monitr: no such option. Nearest: --checkpoint.monitor",
    "--data.batchsize 3": "--data.batchsize: no such option of Digits. Nearest: --data.batch_size",
    "--data.init_args.batchsize 3": "--data.batchsize: no such option of Digits. Nearest: --data.batch_size",
    "--model.net.widht [3]": "--model.net.widht: no such option of CNN. Nearest: --model.net.widths",
    "--model.optimiser.lr 1e-3": "--model.optimiser.lr: no such option of Classification. Nearest: --model.optimizer.",
    "--model.optimizer.weight_deca 1": "no such option of AdamW. Nearest: --model.optimizer.weight_decay",
    "--model.schedule.warmups 1": "no such option of WarmupCosine. Nearest: --model.schedule.warmup",
    "--checkpoint.nonsense 3": "--checkpoint.nonsense: no such option. Expected one of monitor, mode, every_n_steps, ",
    "--model.widths [3]": "--model.widths: no such option of Classification. Nearest: --model.net.widths",
    "--model.net MLP --model.net.in_channels 3": "--model.net.in_channels: no such option of MLP",
    "--model.net.class_path MLP --model.net.init_args.in_channels 3": "--model.net.in_channels: no such option of MLP",
    "--model.net {class_path:·MLP,init_args:·{width:·[3]}}": "--model.net.width: no such option of MLP",
    "--model.optimizer.params 3": None,  # which the parser tells: the task gives them
    "--max_epochs 5": "--max_epochs: no such option. Nearest: --trainer.max_epochs",
    "--lr 5": "--lr: no such option. Nearest: --model.optimizer.lr",
    "--modle.net CNN": "--modle.net: no such option. Nearest: --model.net",
    "--trainer.callbacks+=EarlyStopping --trainer.callbacks.patienc=3": "no such option of EarlyStopping. Nearest: ",
    "--trainer.callbacks+=Timer --trainer.callbacks.interva=3": "no such option of Timer. Nearest: ",
    "--trainer.callbacks [{class_path:·Timer,init_args:·{intervall:·x}},EarlyStopping]": "option of Timer",
    "--trainer.logger {class_path:·CSVLogger,init_args:·{save_dirr:·x}}": "no such option of CSVLogger",
    "--seed 3": "--seed: no such option. Nearest: --seed_everything",
    "stray": "stray: expected options in the form --name value",
    "-trainer.max_epochs 3": "-trainer.max_epochs: expected options in the form --name value",
    "--trainer.max_epochs 3 4": "4: expected options in the form --name value",
    "--model.net {class_path:·CNN,widths:·[3]}": "--model.net.widths: expected under init_args, not beside class_path",
    "--model.net {class_pth:·CNN,init_args:·{}}": "--model.net: expected class_path and init_args, got class_pth. Near",
    "--data {batchsize:·3}": "--data.batchsize: no such option of Digits. Nearest: --data.batch_size",
    "--trainer short.yaml": "short.yaml:1: --trainer.max_epoch: no such option",
    "--model.net widths.yaml": "widths.yaml:2: --model.net.widhts: no such option of CNN. Nearest: --model.net.widths",
}
CLASSES = {
    "--model.net CNNN": "--model.net CNNN: no such class. Nearest: CNN",
    "--model Clasification": "--model Clasification: no such class. Nearest: Classification",
    "--data Digts": "--data Digts: no such class. Nearest: Digits",
    "--model.optimizer AdmaW": "--model.optimizer AdmaW: no such class. Nearest: AdamW",
    "--model.schedule WarmupCosin": "--model.schedule WarmupCosin: no such class. Nearest: WarmupCosine",
    "--trainer.callbacks+=EarlyStoping": "--trainer.callbacks EarlyStoping: no such class. Nearest: EarlyStopping",
    "--model.optimizer torch.optim.Adamm": "no such class. Nearest: torch.optim.Adam, ",
    "--model.net torch.nn.Linea": "no such class. Nearest: torch.nn.Linear, ",
    "--model.schedule torch.optim.lr_scheduler.StepLRR": "no such class. Nearest: torch.optim.lr_scheduler.StepLR, ",
    "--model.net example.nets.cnn.CNX": "no such class. Nearest: example.nets.cnn.CNN",
    "--model.net example.nets.cn.CNN": "no such class. Nearest: example.nets.cnn.CNN",
}
TYPES = {
    "--trainer.max_epochs 1e1": "--trainer.max_epochs: expected an integer such as 10, got 1e1",
    "--data.batch_size 32.0": "--data.batch_size: expected an integer such as 32, got 32.0",
    "--trainer.barebones true": "--trainer.barebones: it takes checkpoints, logs and progress out of a run",
    "--trainer.max_epochs abc": "--trainer.max_epochs: expected an integer, got abc",
    "--trainer.precision 17": "--trainer.precision: expected one of 64, 32, 16, ",
    "--seed_everything 3": None,
    "--seed_everything many": "--seed_everything: expected an integer or true or false, got many",
    "--seed_everything -1": "--seed_everything: expected 0 to 4294967295, got -1",
    "--trainer 3": "--trainer: expected a mapping of options, got 3",
    "--trainer null": "--trainer: expected a mapping of options, got null",
    "--checkpoint [a]": "--checkpoint: expected a mapping of options, got ['a']",
    "--trainer.max_epochs -2": "--trainer.max_epochs: expected at least -1, got -2",
    "--trainer.limit_train_batches 1.5": "--trainer.limit_train_batches: expected a share in [0, 1] or a whole number",
    "--trainer.limit_train_batches 2": None,
    "--model.net.widths {a:·3}": "--model.net.widths: expected a sequence, got {'a': 3}",
    "--data.batch_size 1.5": "--data.batch_size: expected an integer, got 1.5",
    "--model.net.dropout yes": "--model.net.dropout: expected a number, got yes",
    "--model.net.widths 3": "--model.net.widths: expected a sequence, got 3",
    "--model.net.widths [1,a]": "--model.net.widths: expected a sequence of integers, got [1, 'a']",
    "--model.optimizer.lr fast": "--model.optimizer.lr: expected a number, got fast",
    "--checkpoint.mode up": "--checkpoint.mode: expected one of min, max, got up",
    "--trainer.max_epochs x --trainer.max_steps y": "--trainer.max_epochs: expected an integer, got x",
}
MISSING = {
    "--model.schedule OneCycleLR": "--model.schedule: OneCycleLR needs max_lr",
    "--data own.Needy": "--data: Needy needs root",
    "--model own.Own --model.net CNN": "--model: Own needs plan",
    "--model.net own.Open": "--model.net: Open needs size",
}


@pytest.mark.parametrize("args", NAMES | CLASSES | TYPES | MISSING, ids=str)
def test_on_the_command_line(args: str) -> None:
    expected = (NAMES | CLASSES | TYPES | MISSING)[args]
    found = mistake(*RECIPE, *(arg.replace("·", " ") for arg in args.split()))
    assert (found is None) if expected is None else (found is not None and expected in found), found


IN_FILES = {
    "modle:\n  class_path: X": "bad.yaml:1: --modle: no such option. Nearest: --model",
    "trainer:\n  max_epochs: 3\n  max_epoch: 4": "bad.yaml:3: --trainer.max_epoch: no such option",
    "trainer: short.yaml": "short.yaml:1: --trainer.max_epoch: no such option",
    "model:\n  init_args:\n    net:\n      init_args: {widthss: [3]}": "bad.yaml:4: --model.net.widthss: no such",
    "model:\n  init_args:\n    net: {class_path: MLP, init_args: {in_channels: 3}}": "bad.yaml:3: --model.net.in_ch",
    "model:\n  init_args:\n    optimizer:\n      init_args:\n        lrr: 1": "bad.yaml:5: --model.optimizer.lrr: ",
    "data:\n  class_path: Digits\n  init_args:\n    batch_size: many": "bad.yaml:4: --data.batch_size: expected an ",
    "data: {class_path: Digts}": "bad.yaml:1: --data Digts: no such class. Nearest: Digits",
    "data: Digts": "bad.yaml:1: --data Digts: no such class. Nearest: Digits",
    "trainer:\n#  max_epochs: 3": "bad.yaml:1: --trainer: expected a mapping of options, got nothing",
    "trainer: [3]": "bad.yaml:1: --trainer: expected a mapping of options, got [3]",
    "model:\n  class_path: [Classification]": "bad.yaml:2: --model: expected the name of a class as class_path, got [",
    "model:\n  class_path:": "bad.yaml:2: --model: expected the name of a class as class_path, got nothing",
    "data:\n  class_path: Digits\n  init_args: [1]": "bad.yaml:3: --data: expected a mapping as init_args, got [1]",
    "model:\n  class_path: Classification\n  net: CNN": "bad.yaml:3: --model.net: expected under init_args, not beside",
    "trainer:\n  callbacks:\n    - class_path: Timer\n      interval: step": "bad.yaml:4: --trainer.callbacks.interv",
    "checkpoint:\n  monitr: x": "bad.yaml:2: --checkpoint.monitr: no such option",
    "trainer:\n  callbacks+:\n    - EarlyStopping\n    - class_path: Timer\n      init_args: {inter: 3}": "bad.yaml:5: "
    "--trainer.callbacks.inter: no such option of Timer",
    "trainer:\n  callbacks:\n    - EarlyStoping": "bad.yaml:3: --trainer.callbacks EarlyStoping: no such class",
    "base: &base {class_path: Digts}\ndata: *base": "bad.yaml:1: --base: no such option",
    "trainer:\n  <<: {max_epoch: 3}": "bad.yaml:2: --trainer.max_epoch: no such option",
    "trainer:\n  <<: [{max_epochs: 3}, {max_epoch: 3}]": "bad.yaml:2: --trainer.max_epoch: no such option",
    "optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}": "bad.yaml:1: optimizer: a section of LightningCLI"
    "; expected under model: init_args: as optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}",
    "lr_scheduler: StepLR\nmodel: {class_path: own.Own, init_args: {net: CNN, plan: {}, teacher: null}}": "bad.yaml:1: "
    "lr_scheduler: a section of LightningCLI; Own takes no scheduler: give its __init__ an argument scheduler: LRSch",
    "model:\n  class_path: own.Own\n  init_args: {net: CNN}": "bad.yaml:1: --model: Own needs plan",
}


@pytest.mark.parametrize("text", IN_FILES)
@pytest.mark.slow
def test_in_a_config(workdir: Path, text: str) -> None:
    (workdir / "bad.yaml").write_text(text)
    found = mistake(*RECIPE, "--config", "bad.yaml")
    assert found is not None
    assert IN_FILES[text] in found
    (workdir / "top.yaml").write_text("config: bad.yaml\n")
    assert mistake(*RECIPE, "--config", "top.yaml") == found, "the file that has it, not the one that builds on it"
    inline = mistake(*RECIPE, "--config", f"{text}\n")
    assert inline is not None
    assert inline in found, "without a file there is no line"


VALID = [
    "--trainer.max_epochs 3 --trainer.precision bf16 --trainer.devices auto --trainer.fast_dev_run true",
    "--model.net.widths [4,4] --model.optimizer.lr 0 --model.schedule null --checkpoint.monitor null",
    "--model.net.widths+ 4",
    "--model.optimizer SGD --model.optimizer.lr 1 --model.optimizer.momentum 0.9",
    "--model.net MLP --model.net.in_features 64 --model.net.norm none",
    "--model.net torchvision.ops.MLP --model.net.in_channels 3 --model.net.hidden_channels [3]",
    "--model.net own.Open --model.net.size 3 --model.net.anything 3",
    "--model.net own.Open --model.net.dict_kwargs.anything 3 --model.net.size 3",
    "--model own.Own --model.net CNN --model.plan {a:·1} --model.plan.b 3 --model.teacher.class_path MLP",
    "--data own.Plain --data.batch_size 3",
    "--data nosuch.Data --data.anything 3",
    "--data UnknownEverywhere --data.anything 3",
    "--data null",
    "--data nosuch.yaml",
    "--trainer nosuch.yaml",
    "--model.net '{'",
    "--trainer.callbacks+=EarlyStopping --trainer.callbacks.patience=3 --trainer.callbacks+=Timer",
    "--trainer.callbacks+=UnknownEverywhere --trainer.callbacks.anything=3",
    "--trainer.callbacks.anything 3",
    "--trainer.logger true",
    "--trainer.logger.anything 3",
    "--trainer.strategy ddp --trainer.profiler simple",
    "--trainer.init_args.max_epochs 3",
    "--print_config --trainer.max_epochs 3",
    "--print_config=skip_null",
    "--doctor --trainer.max_epochs 3",
    "--run_dir x --seed_everything 3 --init_from x.ckpt",
    "--help --trainer.max_epoch 3",
    "--model.help CNN --trainer.max_epoch 3",
    "--trainer.max_epochs",
    "--model",
    "--ckpt_path last --model.schedule OneCycleLR",
    "--model.net MLP --model.net.in_features 3 --model.net CNN --model.net.in_channels 3",
    "--trainer.max_epochs x --trainer.max_epochs 3",
    "--config {config:·nosuch.yaml}",
    "--config {trainer",
    "--config {data:·[3]}",
    "--config {model:·{class_path:·Classification,init_args:·null}}",
    "--config {model:·{class_path:·src.tasks.base.Task}}",
]


@pytest.mark.parametrize("args", VALID)
def test_nothing_is_said_of(args: str) -> None:
    assert mistake(*RECIPE, *(arg.replace("·", " ") for arg in args.split())) is None


def test_options_count_in_their_order() -> None:
    options = ("--model.net.in_channels", "1")
    assert mistake("fit", "--model.net", "MLP", "--config", CNN_DIGITS, *options) is None
    assert "no such option of MLP" in str(mistake("fit", "--config", CNN_DIGITS, "--model.net", "MLP", *options))
    assert "no such option of MLP" in str(mistake("fit", "--config", CNN_DIGITS, *options, "--model.net", "MLP"))


def test_another_config_takes_the_mistake_away(workdir: Path) -> None:
    (workdir / "bad.yaml").write_text("trainer: {max_epochs: many, callbacks: [EarlyStoping]}")
    (workdir / "good.yaml").write_text("trainer: {max_epochs: 3, callbacks: [EarlyStopping]}")
    assert "max_epochs" in str(mistake(*RECIPE, "--config", "good.yaml", "--config", "bad.yaml"))
    assert mistake(*RECIPE, "--config", "bad.yaml", "--config", "good.yaml") is None


@pytest.mark.parametrize("verb", ["test", "validate", "predict", "export"])
def test_classes_of_a_checkpoint_are_unknown(verb: str) -> None:
    assert mistake(verb, "--ckpt_path", "runs/x", "--data.batchsize", "3", "--model.net.anything", "3") is None
    assert "--trainer.devics: no such option" in str(mistake(verb, "--ckpt_path", "runs/x", "--trainer.devics", "3"))
    named = ("--data", "Digits", "--data.batchsize", "3")
    assert "no such option of Digits" in str(mistake(verb, "--ckpt_path", "runs/x", *named))


@pytest.mark.parametrize("option", ["--data", "--trainer.max_epochs", "--model.net.widths"])
def test_a_value_may_come_from_a_file(workdir: Path, option: str) -> None:
    assert mistake(*RECIPE, option, "Digts") is not None
    (workdir / "Digts").write_text("3")
    assert mistake(*RECIPE, option, "Digts") is None


def test_no_model() -> None:
    assert str(mistake("fit")).startswith("--model: required; name a recipe with --config (python -m example list")
    assert mistake("fit", "--print_config") is None
    assert mistake("fit", "--ckpt_path", "last") is None
    assert mistake("fit", "--model", "Classification") == "--model: Classification needs net"


def test_a_class_defined_where_the_parser_looks(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that the project imports: a short name may mean its class."""
    (workdir / "package").mkdir()
    (workdir / "package/__init__.py").write_text("import other\nclass CNNs: ...\n")
    (workdir / "other").mkdir()
    (workdir / "other/__init__.py").write_text("")
    (workdir / "other/deep.py").write_text("class Digts: ...\n")
    project.choose("package")
    command = ("fit", "--model", "example.tasks.classification.Classification", "--model.net")
    assert mistake(*command, "CNNs") is None
    assert mistake(*command, "example.nets.cnn.CNN", "--data", "Digts") is None


def test_a_file_of_the_project_that_cannot_be_read(workdir: Path) -> None:
    (workdir / "package/nets").mkdir(parents=True)
    (workdir / "package/__init__.py").write_text("")
    (workdir / "package/nets/broken.py").write_text("class (:\n")
    project.choose("package")
    task = "example.tasks.classification.Classification"
    assert mistake("fit", "--model", task, "--model.net", "CNN", "--trainer.max_epoch", "3") is None


def test_every_recipe_of_the_project() -> None:
    recipes = sorted((PROJECT / "configs/vision").rglob("*.yaml"))
    assert len(recipes) >= 3
    assert [mistake("fit", "--config", str(recipe)) for recipe in recipes] == [None] * len(recipes)


TELL = """
import sys
from playbook.command.main import run
code = run({args}, "example")
assert code == 2, code
assert not {{"torch", "lightning", "jsonargparse"}} & set(sys.modules), "imported before the mistake was told"
"""


@pytest.mark.parametrize("option", ["--trainer.max_epoch=3", "--model.net=CNNN", "--model.net.dropout=yes"])
def test_torch_is_not_imported(workdir: Path, option: str) -> None:
    from running import python_path

    script = TELL.format(args=[*RECIPE, option])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": python_path()}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("error: --")


def test_a_whole_process(workdir: Path) -> None:
    process = cli_process(*RECIPE, "--model.net.widht", "[3]", cwd=workdir)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == "error: --model.net.widht: no such option of CNN. Nearest: --model.net.widths\n"


def test_a_section_of_lightning_cli_is_translated(workdir: Path) -> None:
    (workdir / "bad.yaml").write_text("optimizer: SGD\n")
    assert mistake(*RECIPE, "--config", "bad.yaml") == (
        "bad.yaml:1: optimizer: a section of LightningCLI; expected under model: init_args: as optimizer: SGD"
    )
    (workdir / "own.yaml").write_text("lr_scheduler: StepLR\nmodel: own.Own\n")
    assert "Own takes no scheduler: give its __init__ an argument scheduler" in str(
        mistake("fit", "--config", "own.yaml")
    )
