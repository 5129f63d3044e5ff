"""Help of options that hold a class: our classes first, torch's on request, and the options of each, without torch."""

import re
import sys

import pytest

from playbook.command import arguments, class_help, discovery, signatures
from playbook.errors import UserError
from playbook.testing.command import Cli, model_verb
from running import CNN_DIGITS


def page(*args: str) -> str:
    text = class_help.page(arguments.read(model_verb("fit"), list(args)))
    assert text is not None, args
    return text


def names(text: str) -> list[str]:
    return re.findall(r"^  ([\w.]+)  ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("option", "ours", "published"),
    [
        ("model", "Classification", ""),
        ("data", "Digits", ""),
        ("model.net", "CNN MLP Transformer", "torch.nn.ReLU"),
        ("model.optimizer", "Muon", "AdamW"),
        ("model.schedule", "WarmupCosine ReduceLROnPlateau", "OneCycleLR"),
        ("trainer.callbacks", "EarlyStopping NonFinite Statistics", "ModelCheckpoint"),
        ("trainer.strategy", "ShardedStrategy", "DDPStrategy"),
    ],
)
@pytest.mark.slow
def test_lists_ours_first_and_others_on_request(option: str, ours: str, published: str) -> None:
    text = page(f"--{option}.help")
    assert names(text) == ours.split()
    assert (f"--{option}.help all" in text) == bool(published)
    entries = names(page(f"--{option}.help", "all"))
    assert entries[: len(ours.split())] == ours.split()
    assert not published or published in entries


def test_a_section_without_classes_of_ours_lists_the_published_ones() -> None:
    assert {"CSVLogger", "WandbLogger"} <= set(names(page("--trainer.logger.help")))
    assert "Logger" not in names(page("--trainer.logger.help")), "the base is no choice"


def test_every_summary_is_shown() -> None:
    text = page("--model.net.help")
    assert all(f"  {entry.summary}" in text for entry in discovery.classes("nets"))


def test_names_that_ours_hide_are_written_in_full() -> None:
    entries = names(page("--trainer.callbacks.help", "all"))
    assert "EarlyStopping" in entries
    assert "lightning.pytorch.callbacks.EarlyStopping" in entries


@pytest.mark.parametrize(
    "args",
    [
        ["--model.net.help", "CNN"],
        ["--model.net.help=CNN"],
        ["--model.init_args.net.help", "CNN"],
        ["--config", CNN_DIGITS, "--model.net.help", "CNN"],
        ["--model", "Classification", "--model.net.help", "example.nets.cnn.CNN"],
    ],
)
def test_options_of_a_class(args: list[str]) -> None:
    text = page(*args)
    signature = signatures.signature("example.nets.cnn.CNN")
    assert signature is not None
    assert re.findall(r"^  --model\.net\.(\w+)", text, re.MULTILINE) == list(signature.parameters)
    assert "--model.net.widths Sequence[int]" in text
    assert "[default: [32, 64]]" in text


def test_types_and_defaults_as_yaml_holds_them() -> None:
    text = " ".join(page("--checkpoint.help").split())
    assert (
        "--checkpoint.mode min|max whether the smallest (min) or the largest (max) value is the best. Defaults to the "
        "direction that the task or the metric states, or else min." in text
    )
    assert "--trainer.precision 64|32|16|" in page("--trainer.help"), "private aliases by what they stand for"
    assert re.search(
        r"--model\.net CLASS .*--model\.net\.help \[required\]",
        " ".join(page("--model.help", "Classification").split()),
    )


def test_what_a_factory_is_given_is_no_option() -> None:
    assert "optimizer.lr" in page("--model.optimizer.help", "AdamW")
    assert "optimizer.params" not in page("--model.optimizer.help", "AdamW")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--model.help Classificatio", "--model.help Classificatio: no such class. Nearest: Classification"),
        ("--model.net.help CNNN", "--model.net.help CNNN: no such class. Nearest: CNN"),
        ("--data.help qqqq", "--data.help qqqq: no such class; --data.help lists them"),
    ],
)
def test_no_such_class(args: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        page(*args.split())


@pytest.mark.parametrize(
    "args", ["--help", "--model.nett.help", "--trainer.max_epochs.help", "--model.net torch.nn.ReLU"]
)
def test_the_rest_is_left_to_the_parser(args: str) -> None:
    assert class_help.page(arguments.read(model_verb("fit"), args.split())) is None


def test_a_class_of_which_the_source_does_not_tell_all_is_shown_by_the_parser(cli: Cli) -> None:
    done = cli("fit", "--trainer.logger.help", "WandbLogger")
    assert done.code == 0, done.err
    assert "--trainer.logger.project" in done.out


def test_the_options_are_those_of_the_parser(cli: Cli) -> None:
    """The page for Digits, read from its source, against the help that jsonargparse makes of the imported class."""
    from example.data.digits import Digits  # on the path of these tests
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_class_arguments(Digits, "data")
    expected = set(re.findall(r"--(data\.\w+)", parser.format_help()))
    assert set(re.findall(r"--(data\.\w+)", cli("fit", "--data.help", "Digits").out)) == expected
    assert "data.on_error" in expected, "of the base, by **options"


def test_torch_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "lightning", "jsonargparse"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    assert "AdamW" in page("--model.optimizer.help", "all")
    assert "--trainer.max_epochs" in page("--trainer.help")
