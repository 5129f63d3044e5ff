"""What answers at once, without torch: help, list, versions; and that the help tells the truth."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbook import project
from playbook.command import discovery, helptext
from playbook.command import main as entrance
from playbook.command.verb import ModelVerb, own_options, verbs
from playbook.errors import UserError
from playbook.testing.command import Cli
from running import CNN_DIGITS, python_path

QUICK = [
    ["--help"], ["-h"], ["help"], [], ["--version"], ["-V"], ["list"], ["list", "nets"], ["list", "--help"],
    ["list", "netts"], ["list", "nets", "data"], ["new", "--help"], ["fti"], ["fit", "--help"], ["fit", "-h"],
    ["test", "--help"],
    ["predict", "--config", "nosuch.yaml", "--help"], ["validate", "--help"], ["fit", "--config", "nosuch.yaml"],
]  # fmt: skip
MODEL_VERBS = [verb for verb in verbs().values() if isinstance(verb, ModelVerb)]
FIT = dict(next(verb for verb in MODEL_VERBS if verb.name == "fit").common)
RUN_ALL = """
import io, json, sys, time
from contextlib import redirect_stderr, redirect_stdout
from playbook.command.main import run
answers = []
for args in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    start = time.perf_counter()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(args, "example")
    heavy = sorted({"torch", "lightning", "jsonargparse", "numpy", "rich", "wandb"} & set(sys.modules))
    answers.append([code, out.getvalue(), err.getvalue(), time.perf_counter() - start, heavy])
print(json.dumps(answers))
"""


def python(*args: str, cwd: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, *args]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.run(command, check=False, cwd=cwd, env=environment, encoding="utf-8", **settings)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Code, stdout, stderr, seconds and heavy modules of every quick command, all asked of one process."""
    done = python("-c", RUN_ALL, json.dumps(QUICK), cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stderr
    return {" ".join(args): answer for args, answer in zip(QUICK, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("command", [" ".join(args) for args in QUICK])
def test_answers_without_importing_torch(answers: dict[str, list[Any]], command: str) -> None:
    code, out, err, seconds, heavy = answers[command]
    wrong = command in ("fti", "list netts", "list nets data", "fit --config nosuch.yaml")
    assert heavy == []
    assert code == (2 if wrong else 0)
    assert bool(out) != wrong
    assert err.count("\n") == (1 if wrong else 0)
    assert seconds < 2


def test_overview_shows_every_verb(answers: dict[str, list[Any]]) -> None:
    overview = answers["--help"][1]
    assert overview == answers[""][1] == answers["-h"][1] == answers["help"][1]
    for name, verb in verbs().items():
        assert re.search(rf"^  {name} +{re.escape(verb.summary)}$", overview, re.MULTILINE)


def test_pages_of_verbs(answers: dict[str, list[Any]]) -> None:
    assert all(option in answers["fit --help"][1] for option in [*helptext.COMMON, *FIT])
    assert all(option in answers["test --help"][1] for option in helptext.COMMON)
    assert not any(option in answers["test --help"][1] for option in FIT)
    for verb in MODEL_VERBS:
        page = helptext.verb_page(verb)
        assert f"python -m {project.current().package} {verb.name} --help.all" in page
        assert verb.examples
        assert all(text for _, _, text in own_options(verb)), verb.name


def test_versions(answers: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = answers["--version"][1]
    assert re.fullmatch(r"playbook \d+\.\d+\.\d+ · torch \S+ · lightning \S+\n", shown)
    assert f"lightning {version('lightning')}" in shown

    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert helptext.versions().endswith("torch not installed · lightning not installed")


def test_list_shows_everything(answers: dict[str, list[Any]]) -> None:
    shown = answers["list"][1]
    for entry in [*discovery.recipes(), *discovery.partials()]:
        assert re.search(rf"^  {re.escape(entry.path)}  +{re.escape(entry.summary)}$", shown, re.MULTILINE)
    for kind in discovery.KINDS:
        for entry in discovery.classes(kind):
            assert re.search(rf"^  {entry.name}  +{re.escape(entry.summary)}$", shown, re.MULTILINE)


def test_list_of_one_kind(answers: dict[str, list[Any]]) -> None:
    lines = answers["list nets"][1].splitlines()
    assert lines[0] == "nets"
    assert [line.split()[0] for line in lines[1:]] == [entry.name for entry in discovery.classes("nets")]


def test_mistakes(answers: dict[str, list[Any]]) -> None:
    assert answers["fti"][2].startswith("error: fti: no such verb, expected one of fit, validate, test, predict, ")
    assert answers["fti"][2].endswith(". Nearest: fit\n")
    assert "Nearest: nets" in answers["list netts"][2]
    assert answers["list nets data"][2] == "error: list nets data: expected one section, got 2\n"


def test_two_sections(answers: dict[str, list[Any]]) -> None:
    assert "expected one of recipes" not in answers["list nets data"][2], "data is one of them"


def test_debug_raises_what_else_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert entrance.run(["list", "netts"], "example") == 2
    with pytest.raises(UserError, match="netts"):
        entrance.run(["list", "netts", "--debug"], "example")


@pytest.mark.parametrize("debug", [False, True])
def test_ctrl_c(debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(args: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs()["list"], "answer", interrupted)
    if debug:
        with pytest.raises(KeyboardInterrupt):
            entrance.run(["list", "--debug"], "example")
    else:
        assert entrance.run(["list"], "example") == 130
        assert capsys.readouterr().err == "\nstopped\n"


def test_broken_pipe_prints_no_traceback(workdir: Path) -> None:
    """As `python -m example list | head -0`: nobody reads, from the first byte on."""
    for args in (["list"], ["--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = python("-m", "example", *args, cwd=workdir, stdout=writing)
        finally:
            os.close(writing)
        assert done.stderr == ""
        assert done.returncode in (0, 1)


def test_broken_pipe_while_printing(workdir: Path) -> None:
    """The pipe breaks inside of `main`, as when more is printed than a buffer holds."""
    script = (
        "import playbook.command.main as m, sys\n"
        "from playbook.verbs import list as listing\n"
        "listing.VERB.answer = lambda args: print('x' * 10**6, flush=True)\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = python("-c", f"{script}sys.exit(m.run(['list'], 'example'))", cwd=workdir, stdout=writing)
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1


# a value for every option that the help pages name: what is given, where the configuration shows it, what it shows
GIVEN = {
    "--seed_everything N": ("7", "seed_everything", 7),
    "--model CLASS": ("Classification", "model.class_path", "example.tasks.classification.Classification"),
    "--data CLASS": ("Digits", "data.class_path", "example.data.digits.Digits"),
    "--trainer.devices N": ("2", "trainer.devices", 2),
    "--trainer.precision P": ("bf16-mixed", "trainer.precision", "bf16-mixed"),
    "--run_dir DIR": ("job", "run_dir", "job"),
    "--trainer.max_epochs N": ("3", "trainer.max_epochs", 3),
    "--trainer.callbacks+ CLASS": ("Timer", "trainer.callbacks.0.class_path", "lightning.pytorch.callbacks.Timer"),
    "--model.net CLASS": ("MLP", "model.init_args.net.class_path", "example.nets.mlp.MLP"),
    "--model.optimizer CLASS": ("SGD", "model.init_args.optimizer.class_path", "torch.optim.SGD"),
    "--data.batch_size N": ("3", "data.init_args.batch_size", 3),
    "--data.num_workers N": ("1", "data.init_args.num_workers", 1),
    "--checkpoint.monitor NAME": ("val/x", "checkpoint.monitor", "val/x"),
    "--checkpoint.mode min|max": ("max", "checkpoint.mode", "max"),
    "--checkpoint.every_n_steps N": ("5", "checkpoint.every_n_steps", 5),
    "--checkpoint.every_n_minutes N": ("5", "checkpoint.every_n_minutes", 5.0),
    "--checkpoint.every_n_epochs N": ("5", "checkpoint.every_n_epochs", 5),
}
RESOLVED = {"--config FILE", "--ckpt_path X", "--init_from X", "--debug"}  # read before the parser; tests of their own


def at(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[int(key) if key.isdigit() else key]
    return config


def test_every_option_of_the_help_exists(cli: Cli) -> None:
    assert set(GIVEN) | RESOLVED == {*helptext.COMMON, *FIT}
    args = [part for option, (value, _, _) in GIVEN.items() for part in (option.split()[0], value)]
    args[args.index("--trainer.callbacks+") :][:2] = []
    done = cli("fit", "--config", CNN_DIGITS, "--model.net", "CNN", *args, "--print_config")
    assert done.code == 0, done.err
    config = yaml.safe_load(done.out)
    for option, (_, path, expected) in GIVEN.items():
        assert str(at(config, path)) == str(expected), option


def test_defaults_of_the_help_are_the_defaults(cli: Cli) -> None:
    done = cli("fit", "--model", "Classification", "--model.net", "CNN", "--data", "Digits", "--print_config")
    config = yaml.safe_load(done.out)
    shown = {
        option.split()[0][2:]: match[1]
        for option, text in (helptext.COMMON | FIT).items()
        if (match := re.search(r"\[([^\]<]+)\]$", text))
    }
    assert len(shown) >= 6
    meant = {"32-true": None}  # what Lightning makes of null
    for option, default in shown.items():
        assert at(config, option) == meant.get(default, yaml.safe_load(default)), option


def test_commands_of_the_help_refer_to_what_exists() -> None:
    pages = helptext.overview() + "".join(map(helptext.verb_page, MODEL_VERBS))
    named = re.findall(r"configs/\S+\.yaml", pages)
    assert named
    assert set(named) <= {entry.path for entry in discovery.recipes()}


@pytest.mark.parametrize("verb", ["fit", "test", "validate", "predict"])
def test_help_all_shows_the_real_parser(cli: Cli, verb: str) -> None:
    done = cli(verb, "--help.all")
    assert done.code == 0, done.err
    shown = set(re.findall(r"--[\w.]+\+?", done.out))
    # arguments of a class are shown with the class, and --debug is taken out before
    elsewhere = {"--model.net", "--model.optimizer", "--data.batch_size", "--data.num_workers", "--debug"}
    for option in helptext.COMMON | (FIT if verb == "fit" else {}):
        assert option.split()[0].removesuffix("+") in shown | elsewhere, option
    assert {"--trainer.max_steps", "--trainer.accelerator", "--checkpoint.mode"} <= shown


@pytest.mark.parametrize("args", [["--help.all"], ["--config", CNN_DIGITS, "--print_config"]], ids=["help", "config"])
def test_what_only_prints_leaves_nothing_behind(cli: Cli, args: list[str]) -> None:
    assert cli("fit", *args).code == 0
    assert not Path("runs").exists()


def test_help_of_a_class(cli: Cli) -> None:
    done = cli("fit", "--model.help", "Classification")
    assert done.code == 0, done.err
    for option in ("--model.net", "--model.optimizer", "--model.label_smoothing"):
        assert option in done.out
