"""Explains errors: one line for a mistake of the user, nothing for an error in code, which keeps its traceback.

This depends on where the error was raised. Of the errors that the user's own code raises, only UserError is explained,
and, while the classes are built, a `raise ValueError(…)` in a constructor.
"""

import dis
import errno
import os
import re
import signal
import site
import sys
import sysconfig
import traceback
from argparse import ArgumentError
from functools import cache
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException

from playbook import project
from playbook.command.arguments import Invocation
from playbook.command.rejected import one_line, place_of, rejected_option
from playbook.errors import UserError
from playbook.runs.directory import Run
from playbook.training.microbatches import is_out_of_memory

PLAYBOOK = str(Path(__file__).parents[1]) + os.sep
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
EXTRAS = {
    "tensorboard": "tensorboard",
    "pycocotools": "detection",
    "pyarrow": "parquet",
    "tokenizers": "text",
    "transformers": "huggingface",
    "peft": "huggingface",
    "torch_pruning": "prune",
}  # module → extra of pyproject.toml
LOST = ("by peer", "remote process")  # in what gloo and NCCL raise when a process they wait for is gone
LIBRARIES = tuple(
    os.path.abspath(folder) + os.sep
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    )
)


def stopped(run: Run, number: int, trains: bool) -> None:
    """Prints what stopped the command and, after training, the checkpoint and the command that resumes it."""
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    if not trains:
        print(f"\nstopped by {name}")
        return
    print(f"\nstopped by {name}: {_progress(run)}")
    if run.has_checkpoint():
        print(f"continue  {run.continue_command()}")


def _progress(run: Run) -> str:
    metrics = run.read_metrics()
    last = metrics.get("limits", {}).get("max_epochs", -1)
    epoch = metrics.get("epoch", 0) + 1 if last in (-1, None) else min(metrics.get("epoch", 0) + 1, last)
    if not run.has_checkpoint():
        return "no step is done, so there is no checkpoint"
    return f"epoch {epoch}, step {metrics.get('step', 0)}, saved in {run.checkpoints.as_posix()}"


def is_lost_process(error: Exception) -> bool:
    """Whether another process of the training is gone, which has said why."""
    words = any(words in str(error) for words in LOST)
    return isinstance(error, RuntimeError) and words and not _is_raised_by_user(error)


def explain(error: Exception, invocation: Invocation) -> str | None:
    """One line for a mistake of the user; None for an error in code.

    Args:
        error: as it reached the command line.
        invocation: the command, which knows the options, and whether the verb runs already.
    """
    if isinstance(error, UserError):
        return _named(str(error), invocation)
    cause = origin(error)
    if _is_in_user_code(cause):
        if isinstance(error, ArgumentError) and isinstance(cause, ModuleNotFoundError):
            return rejected_option(str(error), invocation)
        return _of_user_code(cause, invocation)
    if isinstance(error, ArgumentError):
        return rejected_option(str(error), invocation)
    return _of_libraries(cause, one_line(str(cause)), invocation)


def origin(error: BaseException) -> BaseException:
    """What libraries raised others from: the outermost exception that user code has a part in, else the outermost."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    for cause in causes:
        if _is_in_user_code(cause):
            return cause
    return causes[-1] if "Does not validate against any" in str(error) else error


def _of_libraries(error: BaseException, text: str, invocation: Invocation) -> str | None:
    """What Playbook, Lightning and torch raise by themselves."""
    for words, line in _told_by_words(text, invocation):
        if words in text:
            return line
    if is_out_of_memory(error):  # outside the training step, which splits its batches
        return _out_of_memory(text)
    if isinstance(error, MisconfigurationException):
        return _named(text, invocation)
    if isinstance(error, OSError) and (error.errno in FULL or not invocation.running):
        name = error.filename or (os.environ.get("PLAYBOOK_RUN_DIR") if error.errno in FULL else None)
        return f"{name}: {error.strerror}" if name else text
    if isinstance(error, ImportError) and not invocation.running:
        return _missing_extra(text, invocation) or text
    if isinstance(error, ValueError | TypeError):
        return _missing_extra(text, invocation) or _of_values(error, text, invocation)
    return _missing_extra(text, invocation)


def _of_user_code(error: BaseException, invocation: Invocation) -> str | None:
    """What a user's class may say of an option, and what torch raises below it that an option is to blame for."""
    text = one_line(str(error))
    if isinstance(error, UserError):
        return _named(str(error), invocation)
    if not invocation.running:
        if isinstance(error, ImportError):
            return _missing_extra(text, invocation)
        refused = type(error) is ValueError and (_is_raised_by_user(error) or _is_raised_by_playbook(error))
        return _named(text, invocation) if refused else None
    if _is_raised_by_user(error):
        return None
    if is_out_of_memory(error):
        return _out_of_memory(text)
    return _wrong_channels(error, text, invocation)


def _wrong_channels(error: BaseException, text: str, invocation: Invocation) -> str | None:
    """Where a convolution of torch gets other channels than the net's option in_channels says."""
    channels = re.search(r"expected input\[.*\] to have (\d+) channels, but got (\d+) channels instead", text)
    frames = traceback.extract_tb(error.__traceback__)
    if channels is None or Path(frames[-1].filename).parts[-3:] != ("nn", "modules", "conv.py"):
        return None
    net = (invocation.options or {}).get("model", {}).get("init_args", {}).get("net")
    configured = net.get("init_args", {}).get("in_channels") if isinstance(net, dict) else None
    if configured != int(channels[1]):
        return None
    return (
        f"--model.net.in_channels: expected {channels[2]}, as in the data, got {configured}; "
        "or change the channels of the data"
    )


def _told_by_words(text: str, invocation: Invocation) -> list[tuple[str, str]]:
    """What Lightning and torch raise themselves, and the option it is about."""
    callback = re.search(r"callback of type `(\w+)`", text)
    explanations = [
        (
            "Found more than one stateful callback",
            f"--trainer.callbacks: {callback[1] if callback else 'a callback'} is configured twice",
        ),
        (
            "Error(s) in loading state_dict",
            f"--ckpt_path: does not fit this model: {text.partition(':')[2].strip()}",
        ),
        (
            "parameter group that doesn't match the size of optimizer's group",
            "--ckpt_path: its optimizer does not fit this one; --init_from loads only the weights",
        ),
        (
            "loaded state dict has a different number of parameter groups",
            "--ckpt_path: its optimizer does not fit this one; --init_from loads only the weights",
        ),
    ]
    if not invocation.running:
        mapping = "--checkpoint: expected a mapping of options, as in {monitor: val/loss}"
        explanations.append(("argument after ** must be a mapping", mapping))
    return explanations


def _of_values(error: BaseException, text: str, invocation: Invocation) -> str | None:
    frames, is_ours = traceback.extract_tb(error.__traceback__), _is_raised_by_playbook(error)
    if any(frame.name == "configure_optimizers" for frame in frames):
        if not is_ours and "optim" in Path(frames[-1].filename).parts:
            return f"--model.optimizer, --model.schedule: {text}"
        return _named(text, invocation) if is_ours or "val_check_interval" in text else None
    return _named(text, invocation) if is_ours or not invocation.running else None


def _missing_extra(text: str, invocation: Invocation) -> str | None:
    for module, extra in EXTRAS.items():
        if re.search(rf"(No module named|Neither) ['`]{module}['`.]", text) and not invocation.running:
            command = f"{project.current().command} {invocation.verb.name}"
            return f"{module} is not installed: uv run --extra {extra} {command} …"
    return None


def _out_of_memory(text: str) -> str:
    return f"--data.batch_size: out of memory ({text.partition('. ')[0]})"


@cache
def is_user_file(file: str) -> bool:
    """Whether code is neither Python's, nor a library's, nor Playbook's."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    is_library = any(part in ("site-packages", "dist-packages") for part in path.split(os.sep))
    return not is_library and not path.startswith((PLAYBOOK, *LIBRARIES, os.path.join(sys.prefix, "lib")))


def _is_in_user_code(error: BaseException) -> bool:
    if isinstance(error, SyntaxError) and error.filename:
        return is_user_file(error.filename)
    return any(is_user_file(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def _is_raised_by_user(error: BaseException) -> bool:
    """Whether a `raise` or `assert` statement of the user's made it, and no library that the user called."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_user_file(last.tb_frame.f_code.co_filename):
        return False
    return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


def _is_raised_by_playbook(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(PLAYBOOK)


def _named(text: str, invocation: Invocation) -> str:
    """Puts the option and its place before a message that names it, as ours and Lightning's do."""
    text = text.partition(" Find a complete list")[0]
    word = re.match(r"(\w+):", text) or re.match(r"[`'\"](?:Trainer\()?(\w+)", text) or re.search(r"`(\w+)=", text)
    if "backend found" in text:
        word = re.match("accelerator", "accelerator")
    name = (word[1] if word.re.groups else word[0]) if word else ""
    given_options = [re.split(r"[=+]", arg.removeprefix("--"))[0] for arg in invocation.args if arg.startswith("--")]
    paths = [path for path in given_options if path.rpartition(".")[2] == name]
    known = [*invocation.known, *_names_in(invocation.options)]
    paths = paths or [path for path in known if path.rpartition(".")[2] == name]
    if not paths:
        return text
    paths.sort(key=len)  # the task's own before its net's
    rest = re.sub(rf"^[`'\"]?{name}[`'\"]?:?", "", text).strip()
    return f"{place_of(paths[0], invocation)}--{paths[0]}: {rest}"


def _names_in(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of a configuration, without class_path and init_args."""
    names = []
    for key, value in options.items():
        path = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        names += [path] if key not in ("class_path", "init_args") else []
        names += _names_in(value, path) if isinstance(value, dict) else []
    return names
