"""The command line: `torchdoctor train.py --epochs 2`, `torchdoctor --model my.Module --data my.Data`.

It imports torch only once the options are read, so that `--help` and mistakes in options are answered at once.
"""

import argparse
import atexit
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from torchdoctor import __version__
from torchdoctor.errors import ReviewError, nearest

COMMAND = ("-m", "torchdoctor")
FLAGS = ("--fix", "--all", "--debug", "--help", "-h", "--version")  # options without a value
FORMATS = ("terminal", "json", "markdown", "sarif")
SEVERITIES = ("critical", "warning", "advice")
USAGE = """torchdoctor [options] train.py [the script's own arguments]
       torchdoctor [options] --model my.Module [--data my.Data]"""
EPILOG = """a LightningModule is built from its class: --model.NAME VALUE and --data.NAME VALUE give arguments of the
constructors, --trainer.NAME VALUE one of the settings of Lightning's Trainer, in YAML's notation

exit code: 0 no critical finding, 1 a critical finding, 2 the review could not be run"""


def main() -> NoReturn:
    """Runs the command that this process was started with, and ends the process."""
    try:
        code = run(sys.argv[1:])
        print(end="", flush=True)  # here, where a closed pipe is expected
    except ReviewError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        code = 130
    leave(code)


def leave(code: int) -> NoReturn:
    """Ends this process at once; Python would first search all objects for cycles, which takes more than a second.

    The report is whole: what the program prints as it ends goes to standard error.
    """
    sys.stdout = sys.stderr
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def run(args: list[str], command: Sequence[str] = COMMAND, libraries: Iterable[str | Path] = ()) -> int:
    """Runs one review.

    Args:
        args: of the command line.
        command: what starts a review, after the name of the Python interpreter; `--fix` and written tests repeat it.
        libraries: folders outside of site-packages whose code is not the user's, such as editable installs.

    Returns:
        1 if a finding is critical, else 0.

    Raises:
        ReviewError: a mistake in the options, or a program that cannot be reviewed.
    """
    number = script_position(args)
    own, script = (args, []) if number is None else (args[:number], args[number:])
    own = own[:-1] if own[-1:] == ["--"] else own
    parser = _parser()
    options, rest = parser.parse_known_args(own)
    if options.help:
        print(parser.format_help(), end="")
        return 0
    if options.version:
        print(__version__)
        return 0
    arguments = _arguments(rest)
    if script and (options.model or options.data or rest):
        first = "--model" if options.model else "--data" if options.data else rest[0].partition("=")[0]
        raise ReviewError(f"{first}: expected either a module or a script, got {script[0]} as well")
    if script and options.write_tests:
        raise ReviewError("--write-tests: expected --model; tests of a script are not written")
    if not script and not options.model:
        raise ReviewError("expected a script (train.py) or --model MODULE.CLASS; --help shows both")
    for folder in options.libraries:
        if not Path(folder).is_dir():
            raise ReviewError(f"--libraries {folder}: no such folder")
    prepare([*libraries, *options.libraries])
    if script:
        return _review_script(options, script, [*command])
    return _review_module(options, arguments, [*command, *args])


def script_position(args: Sequence[str]) -> int | None:
    """The position of the first argument that is no option, and no option's value, if it is a Python file."""
    rest = iter(enumerate(args))
    for number, arg in rest:
        if arg == "--":
            return number + 1 if number + 1 < len(args) else None
        if not arg.startswith("-"):
            return number if arg.endswith(".py") else None
        if "=" not in arg and arg not in FLAGS:
            next(rest, None)
    return None


def prepare(libraries: Iterable[str | Path] = ()) -> None:
    """Readies this process for a review, before the program is built: without a GPU or threads, which forks lack.

    Args:
        libraries: as of `run`.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["OMP_NUM_THREADS"] = "1"
    import_module("torchdoctor.running.deferred").defer_torchmetrics()
    origins, source = (import_module(f"torchdoctor.{name}") for name in ("evidence.origins", "source"))
    source.treat_as_libraries(libraries)
    origins.note_makers()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ReviewError(message)


def _parser() -> _Parser:
    parser = _Parser(
        "torchdoctor",
        USAGE,
        "Reviews a PyTorch training by running it: any LightningModule, or a script in plain PyTorch.",
        EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", metavar="CLASS", help="LightningModule to review, by its full name")
    add("--data", metavar="CLASS", help="its LightningDataModule, unless the module has its own loaders")
    add("--only", metavar="IDS", help="defects to look for, separated by commas")
    add("--skip", metavar="IDS", help="defects to skip, separated by commas")
    add("--severity", default="advice", choices=SEVERITIES, help="lowest severity to report [advice]")
    add("--format", default="terminal", choices=FORMATS, help="format of the report [terminal]")
    add("--all", action="store_true", help="show all checks that passed, not the ten that matter most")
    add("--fix", action="store_true", help="write each patch that a second review confirms")
    add("--write-tests", "--write_tests", metavar="FILE", help="write tests of everything that was verified")
    add("--thresholds", metavar="YAML", help="thresholds of probes, as in '{dead_units.most: 0.7}'")
    add(
        "--libraries",
        metavar="FOLDERS",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        help="folders whose code is not yours, separated by commas: editable installs",
    )
    add("--version", action="store_true", help="print the version")
    add("-h", "--help", action="store_true", help="print this help")
    return parser


def _review_script(options: argparse.Namespace, script: list[str], command: list[str]) -> int:
    from torchdoctor.formats.render import render
    from torchdoctor.options import select_ids, set_thresholds
    from torchdoctor.repairs import patch
    from torchdoctor.report import select_advice
    from torchdoctor.scripts.command import review_script

    set_thresholds(_thresholds(options.thresholds))
    ids = select_ids(options.only, options.skip, options.severity)
    path, arguments = Path(script[0]), script[1:]
    report = patch.with_patches(review_script(path, arguments, ids))
    if options.fix:
        here = Path.cwd().resolve()
        named = path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path
        own = ["--only", ",".join(sorted({*ids, "crash"})), "--format", "json"]
        own += ["--thresholds", options.thresholds] if options.thresholds else []
        own += ["--libraries", ",".join(options.libraries)] if options.libraries else []
        report = patch.write_patches(report, patch.reviewer([*command, *own, str(named), *arguments]))
    report = select_advice(report, options.only, options.severity)
    print(render(report, options.format, script[0], writes_tests=False, shows_all=options.all), flush=True)
    return int(report.is_critical)


def _review_module(options: argparse.Namespace, arguments: dict[str, dict[str, Any]], command: list[str]) -> int:
    import lightning.pytorch as pl

    from torchdoctor.command import Options, report_module, show_failure
    from torchdoctor.running import legacy

    _require_parameters("--trainer", pl.Trainer, arguments["trainer"])
    legacy.install()
    if not {"", os.getcwd()} & set(sys.path):  # of a console script
        sys.path.insert(0, os.getcwd())
    try:
        with redirect_stdout(sys.stderr):
            build_model = _builder("--model", options.model, arguments["model"])
            build_data = _builder("--data", options.data, arguments["data"]) if options.data else lambda: None
    except ReviewError:
        raise
    except Exception as error:  # of any kind, as the user's module is imported
        return show_failure(error, options.format, options.model)
    own = {field.name: getattr(options, field.name) for field in fields(Options)}
    own["thresholds"] = _thresholds(options.thresholds)
    return report_module(
        lambda: (build_model(), build_data()), arguments["trainer"], Options(**own), options.model, command
    )


def _thresholds(text: str | None) -> dict[str, float]:
    value = _yaml("--thresholds", text) if text else {}
    if not isinstance(value, dict) or not all(isinstance(entry, int | float) for entry in value.values()):
        raise ReviewError(f"--thresholds {text}: expected numbers by name, as {{dead_units.most: 0.7}}")
    return value


def _yaml(option: str, text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads 1e-3 as a number, which YAML 1.1 does not."""

    number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, [*"-+.0123456789"])
    try:
        return yaml.load(text, Loader)  # noqa: S506  # a safe one
    except yaml.YAMLError as error:
        raise ReviewError(f"{option} {text}: no YAML: {' '.join(str(error).split())}") from None


def _arguments(rest: list[str]) -> dict[str, dict[str, Any]]:
    """The values of `--model.NAME VALUE`, `--data.NAME VALUE` and `--trainer.NAME VALUE`, by section."""
    sections: dict[str, dict[str, Any]] = {"model": {}, "data": {}, "trainer": {}}
    words = iter(rest)
    for word in words:
        option, equals, text = word.partition("=")
        section, _, name = option.removeprefix("--").partition(".")
        if not option.startswith("-"):
            raise ReviewError(f"{word}: expected a script (train.py) or an option; --help shows them")
        if not option.startswith("--") or section not in sections or not name:
            known = [action for added in _parser()._actions for action in added.option_strings]
            raise ReviewError(f"{word}: no such option{nearest(option, known)}")
        value = text if equals else next(words, None)
        if value is None:
            raise ReviewError(f"{option}: expected a value")
        sections[section][name] = _yaml(option, value)
    return sections


def _require_parameters(option: str, cls: type, arguments: dict[str, Any]) -> None:
    """Raises ReviewError where a constructor takes no argument of a name."""
    parameters = inspect.signature(cls).parameters
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in () if takes_any else arguments:
        if name not in parameters:
            hint = nearest(name, parameters, f"{option}.")
            raise ReviewError(f"{option}.{name}: {cls.__name__} takes no such argument{hint}")


def _builder(option: str, path: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """What makes an object of a class.

    Args:
        option: that names the class.
        path: its full name.
        arguments: of its constructor.

    Raises:
        ReviewError: there is no such class, or it takes other arguments.
    """
    import lightning.pytorch as pl

    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ReviewError(f"{option} {path}: expected a module and a class, as in my.Module for Module in my.py")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ReviewError(f"{option} {path}: there is no module {error.name} here") from None
    cls = getattr(module, name, None)
    if not isinstance(cls, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ReviewError(f"{option} {path}: {module_name} has no class {name}{nearest(name, classes)}")
    if option == "--model" and not issubclass(cls, pl.LightningModule):
        raise ReviewError(f"{option} {path}: expected a LightningModule; a script can train any other module")
    _require_parameters(option, cls, arguments)
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise ReviewError(f"{option} {path}: {error}; {option}.NAME VALUE gives it") from None
    return partial(cls, **arguments)
