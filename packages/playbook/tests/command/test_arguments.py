"""How the command line and its configs are read before torch is there."""

from pathlib import Path

import pytest
import yaml

from playbook import project
from playbook.command.arguments import Invocation, appended_callbacks, keys_of, read
from playbook.errors import UserError
from playbook.testing.command import model_verb

NESTED = """\
model:
  class_path: Classification
  init_args:
    net:
      class_path: CNN
      init_args:
        widths: [4]
data: {class_path: Digits, init_args: {batch_size: 8}}
trainer:
  callbacks+:
    - class_path: EarlyStopping
"""


FIT = model_verb("fit")


@pytest.fixture(autouse=True)
def files(workdir: Path) -> None:
    for folder in ("a", "b"):
        (workdir / folder).mkdir()
    (workdir / "a/one.yaml").write_text("run_dir: from-one\nckpt_path: last\n")
    (workdir / "b/two.yaml").write_text("run_dir: from-two\n")
    (workdir / "b/nested.yaml").write_text(NESTED)


@pytest.mark.parametrize(
    "args",
    [("--config", "a/one.yaml"), ("--config=a/one.yaml",), ("-c", "a/one.yaml"), ("-c=a/one.yaml",)],
    ids=" ".join,
)
def test_forms_of_config(args: tuple[str, ...]) -> None:
    invocation = read(FIT, ["--x", "1", *args, "--y=2"])
    assert invocation.configs == [Path("a/one.yaml")]
    assert invocation.args == ["--x", "1", "--config", "a/one.yaml", "--y=2"], "the parser needs it too, in its place"
    assert invocation.recipe == "one"


@pytest.mark.parametrize("option", ["run_dir", "ckpt_path", "init_from"])
@pytest.mark.parametrize("form", ["--{} {}", "--{}={}"])
def test_forms_of_resolved_options(option: str, form: str) -> None:
    invocation = read(FIT, ["--model.net", "CNN", *form.format(option, "here/a=b").split(), "rest"])
    assert invocation.settings == {option: "here/a=b"}
    assert invocation.args == ["--model.net", "CNN", "rest"], "resolved before the parser sees it"


def test_dashes_in_names_are_underscores() -> None:
    invocation = read(
        model_verb("doctor"), ["--run-dir", "a-b", "--write-tests=x-y.py", "--data.labels.red-cell", "c-d"]
    )
    assert invocation.settings == {"run_dir": "a-b"}
    assert invocation.args == ["--write_tests=x-y.py", "--data.labels.red-cell", "c-d"]
    assert invocation.given == ["--run_dir", "a-b", *invocation.args]


@pytest.mark.parametrize(
    ("args", "got"),
    [
        ("--run_dir", "nothing"),
        ("--run_dir=", "nothing"),
        ("--run_dir --config a/one.yaml", "--config"),
        ("--config", "nothing"),
        ("-c --run_dir x", "--run_dir"),
    ],
)
def test_option_without_value(args: str, got: str) -> None:
    with pytest.raises(UserError, match=f"expected a value, got {got}$"):
        read(FIT, args.split())


def test_last_of_two_values_counts() -> None:
    assert read(FIT, ["--run_dir", "x", "--run_dir=y"]).settings["run_dir"] == "y"


@pytest.mark.parametrize(
    "text", ["{trainer: {max_epochs: 3}}", " {trainer: {max_epochs: 3}}", "trainer:\n  max_epochs: 3"]
)
def test_inline_yaml_is_not_a_file(text: str) -> None:
    invocation = read(FIT, ["--config", text, "--config", "a/one.yaml"])
    assert invocation.configs == [Path("a/one.yaml")]
    assert invocation.args == ["--config", text, "--config", "a/one.yaml"]


@pytest.mark.parametrize("text", ["{run_dir: inline}", "run_dir: inline\nckpt_path: last"])
def test_resolved_options_in_inline_yaml(text: str) -> None:
    assert read(FIT, ["--config", text]).settings["run_dir"] == "inline"


def test_command_line_wins_over_configs_and_later_config_over_earlier() -> None:
    configs = ["--config", "a/one.yaml", "--config", "b/two.yaml"]
    assert read(FIT, configs).settings == {"run_dir": "from-two", "ckpt_path": "last"}
    assert read(FIT, configs[2:] + configs[:2]).settings["run_dir"] == "from-one"
    assert read(FIT, ["--run_dir", "mine", *configs, "--ckpt_path=best"]).settings == {
        "run_dir": "mine",
        "ckpt_path": "best",
    }


def test_chain_of_configs_is_relative_to_each_file() -> None:
    Path("top.yaml").write_text("config: a/middle.yaml\n")
    Path("a/middle.yaml").write_text("config: ../b/two.yaml\nckpt_path: best\n")
    invocation = read(FIT, ["--config", "top.yaml"])
    assert invocation.settings == {"run_dir": "from-two", "ckpt_path": "best"}
    assert [path.as_posix() for path, _ in invocation.nodes] == ["a/../b/two.yaml", "a/middle.yaml", "top.yaml"]
    assert invocation.recipe == "top"
    Path("top.yaml").write_text("run_dir: from-top\nconfig: a/middle.yaml\n")
    assert read(FIT, ["--config", "top.yaml"]).settings["run_dir"] == "from-top", "the file over its base"


def test_missing_base_names_the_file_that_wants_it() -> None:
    Path("a/top.yaml").write_text("config: nosuch.yaml\n")
    with pytest.raises(UserError, match=r"^a/top.yaml: config: a/nosuch.yaml: no such file"):
        read(FIT, ["--config", "a/top.yaml"])


@pytest.mark.parametrize("chain", [["a/x.yaml"], ["a/x.yaml", "a/y.yaml"], ["a/x.yaml", "b/y.yaml", "a/z.yaml"]])
def test_cycle(chain: list[str]) -> None:
    for file, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        Path(file).write_text(f"config: ../{following}\n")
    with pytest.raises(UserError, match="refers back to itself"):
        read(FIT, ["--config", chain[0]])


def test_files_that_are_no_configs() -> None:
    Path("empty.yaml").write_text("# nothing yet\n")
    assert read(FIT, ["--config", "empty.yaml"]).settings == {}
    Path("latin.yaml").write_bytes("# é\nrun_dir: é\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.yaml: not valid YAML"):
        read(FIT, ["--config", "latin.yaml"])
    Path("tab.yaml").write_text("trainer:\n  max_epochs: 3\n\tx: 1\n")
    with pytest.raises(UserError, match=r"tab\.yaml:3: not valid YAML"):
        read(FIT, ["--config", "tab.yaml"])
    with pytest.raises(UserError, match="--config a: a directory"):
        read(FIT, ["--config", "a"])
    Path("scalar.yaml").write_text("cnn-digits\n")
    with pytest.raises(UserError, match="expected a mapping of options, got a str"):
        read(FIT, ["--config", "scalar.yaml"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {}\ntrainer:\n  max_epochs: 3\n  max_epochs: 4\n", r"keys\.yaml:4: max_epochs: occurs twice"),
        ("trainer: {}\ntrainer: {}\n", r"keys\.yaml:2: trainer: occurs twice"),
        ("trainer:\n  3: x\n", r"keys\.yaml:2: 3: expected the name of an option"),
    ],
)
def test_keys_that_would_be_lost(text: str, message: str) -> None:
    Path("keys.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read(FIT, ["--config", "keys.yaml"])


def test_weights_to_start_from_are_for_fit_alone() -> None:
    with pytest.raises(UserError, match="--init_from: only for fit; use --ckpt_path with test"):
        read(model_verb("test"), ["--init_from", "x"])
    with pytest.raises(UserError, match="expected only one of them"):
        read(FIT, ["--init_from", "x", "--ckpt_path", "best"])
    assert read(FIT, ["--init_from", "x", "--ckpt_path", "last"]).settings["init_from"] == "x", "for the first start"


@pytest.mark.parametrize("verb", ["test", "predict", "fit"])
def test_checkpoint_of_a_recipe_that_started_from_weights(verb: str) -> None:
    Path("finetune.yaml").write_text("init_from: pretrained.ckpt\n")
    invocation = read(model_verb(verb), ["--config", "finetune.yaml", "--ckpt_path", "last"])
    assert invocation.settings["ckpt_path"] == "last", "the command line is stronger than the recipe"


def test_keys() -> None:
    node = yaml.compose(NESTED, yaml.SafeLoader)
    assert node is not None
    assert keys_of(node) == [
        "model", "model.net", "model.net.widths", "data", "data.batch_size", "trainer", "trainer.callbacks",
    ]  # fmt: skip
    scalar = yaml.compose("3", yaml.SafeLoader)
    assert scalar is not None
    assert keys_of(scalar) == []


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("model", 1),
        ("model.net", 4),
        ("model.net.widths", 7),
        ("model.init_args.net.init_args.widths", 7),
        ("data.batch_size", 8),
        ("trainer.callbacks", 10),
        ("model.net.width", None),
        ("model.net.widths.deeper", None),
        ("batch_size", None),
    ],
)
def test_line_of_a_key(key: str, line: int | None) -> None:
    invocation = read(FIT, ["--config", "b/nested.yaml"])
    assert invocation.where(key) == ("" if line is None else f"b/nested.yaml:{line}: ")


def test_line_in_the_last_file_that_has_the_key() -> None:
    Path("a/later.yaml").write_text("# a comment\n\ndata: {init_args: {batch_size: 9}}\n")
    invocation = read(FIT, ["--config", "b/nested.yaml", "--config", "a/later.yaml"])
    assert invocation.where("data.batch_size") == "a/later.yaml:3: "
    assert invocation.where("model.net.widths") == "b/nested.yaml:7: "


def test_line_in_a_file_and_in_its_base() -> None:
    Path("top.yaml").write_text("config: b/nested.yaml\ndata:\n  init_args:\n    num_workers: 1\n")
    invocation = read(FIT, ["--config", "top.yaml"])
    assert invocation.where("data.num_workers") == "top.yaml:4: "
    assert invocation.where("data.batch_size") == "b/nested.yaml:8: "


def test_no_config() -> None:
    assert Invocation(FIT, [], [], {}).recipe is None
    assert Invocation(FIT, [], [], {}).where("data") == ""


def test_appended_callbacks() -> None:
    args = [
        "--trainer.callbacks+=EMA",
        "--trainer.callbacks.decay=0.9",
        "--trainer.callbacks+",
        "src.callbacks.mix.Mix",
    ]
    args += ["--trainer.callbacks+={class_path: Timer}", "--trainer.callbacks+", "[A, {class_path: b.B}]", "--x", "EMA"]
    assert appended_callbacks(args) == {"EMA", "Mix", "Timer", "A", "B"}
    assert appended_callbacks(["--trainer.callbacks+={", "--trainer.callbacks", "null"]) == set()


@pytest.mark.parametrize("verb", ["fit", "test"])
@pytest.mark.parametrize("spec", ["nosuch.ckpt", "runs/nosuch"])
def test_a_missing_checkpoint_is_told_before_torch_is_imported(verb: str, spec: str) -> None:
    with pytest.raises(UserError, match=f"--ckpt_path {spec}: no such file or run directory"):
        read(model_verb(verb), ["--ckpt_path", spec]).require_checkpoint()
    read(model_verb(verb), ["--ckpt_path", spec, "--help"]).require_checkpoint()
    read(model_verb(verb), ["--ckpt_path", "best"]).require_checkpoint()


def test_weights_to_start_from_are_looked_for_by_the_first_start_alone() -> None:
    with pytest.raises(UserError, match="--init_from nosuch: no such file"):
        read(model_verb("fit"), ["--init_from", "nosuch"]).require_checkpoint()
    read(model_verb("fit"), ["--init_from", "nosuch", "--ckpt_path", "last"]).require_checkpoint()
    read(model_verb("doctor"), ["--config", '{"init_from": "nosuch"}']).require_checkpoint()


def test_a_config_that_lies_in_the_folder_of_the_project(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workdir / "configs").mkdir()
    (workdir / "configs/a.yaml").write_text("trainer: {max_epochs: 1}\n")
    (workdir / "below").mkdir()
    monkeypatch.setattr(project, "_current", project.Project("src", workdir / "src"))
    monkeypatch.chdir(workdir / "below")
    with pytest.raises(UserError, match=r"a.yaml: no such file here; it is in .*, run the command from there"):
        read(model_verb("fit"), ["--config", "configs/a.yaml"])
