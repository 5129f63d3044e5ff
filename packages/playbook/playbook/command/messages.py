"""Explains errors: one line for a mistake of the user, nothing for an error in code, which keeps its traceback.

This depends on where the error was raised. Of the errors that the user's own code raises, only UserError is explained,
and, while the classes are built, a `raise ValueError(…)` in a constructor.
"""

import dis
import errno
import os
import re
import signal
import traceback
from argparse import ArgumentError
from pathlib import Path

import lightning.pytorch
from lightning.pytorch import Callback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from playbook import project
from playbook.command.arguments import Invocation
from playbook.command.naming import named, refused, value_of
from playbook.command.rejected import one_line, place_of, rejected_option
from playbook.errors import UserError
from playbook.project import PLAYBOOK, is_user_file
from playbook.runs.directory import Run
from playbook.training.memory import is_out_of_memory

LIGHTNING = str(Path(lightning.pytorch.__file__).parent)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
EXTRAS = {
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "sqlalchemy": "mlflow",
    "pycocotools": "detection",
    "pyarrow": "parquet",
    "tokenizers": "text",
    "transformers": "huggingface",
    "peft": "huggingface",
    "torch_pruning": "prune",
}  # module → extra of pyproject.toml
UNUSED = (
    "Expected to have finished reduction in the prior iteration",
    "parameters that were not used in producing the loss returned by training_step",
)  # in what DistributedDataParallel raises, and Lightning for it
LOST = ("by peer", "remote process")  # in what gloo and NCCL raise when a process they wait for is gone


def stopped(run: Run, name: str, trains: bool, saved_step: int | None = None) -> None:
    """Prints what stopped the command and, after training, the checkpoint and the command that resumes it.

    Args:
        run: the run directory.
        name: what stopped it.
        trains: whether the command was training.
        saved_step: step of the newest checkpoint, if known; the one that the training has reached by default.
    """
    if not trains:
        print(f"\nstopped by {name}")
        return
    print(f"\nstopped by {name}: {_progress(run, saved_step)}")
    if run.has_checkpoint():
        print(f"continue  {run.continue_command()}")


def signal_name(number: int) -> str:
    """Ctrl-C, or the name of a signal."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def _progress(run: Run, saved_step: int | None) -> str:
    metrics = run.read_metrics()
    last = metrics.get("limits", {}).get("max_epochs", -1)
    epoch = metrics.get("epoch", 0) + 1 if last in (-1, None) else min(metrics.get("epoch", 0) + 1, last)
    if not run.has_checkpoint():
        return "no step is done, so there is no checkpoint" if not metrics.get("step") else "there is no checkpoint yet"
    step = metrics.get("step", 0)
    which = "saved" if saved_step in (None, step) else f"the newest checkpoint is of step {saved_step},"
    return f"epoch {epoch}, step {step}, {which} in {run.checkpoints.as_posix()}"


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
        return named(str(error), invocation)
    cause = origin(error)
    if any(words in str(cause) for words in UNUSED):
        return (
            f"{place_of('trainer.strategy', invocation)}--trainer.strategy: a backward pass leaves parameters without "
            "a gradient, as with several optimizers in turn; use ddp_find_unused_parameters_true"
        )
    if re.match("SyncBatchNorm (layers only work with GPU|expected input tensor to be on)", str(cause)):
        place = place_of("trainer.sync_batchnorm", invocation)
        return f"{place}--trainer.sync_batchnorm: expected false, as SyncBatchNorm needs a GPU, got true"
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
        return refused(text, _callback_of(error), invocation)
    if isinstance(error, OSError) and (error.errno in FULL or not invocation.running):
        name = error.filename or (os.environ.get("PLAYBOOK_RUN_DIR") if error.errno in FULL else None)
        return f"{name}: {error.strerror}" if name else text
    if isinstance(error, ImportError) and not invocation.running:
        return _missing_extra(text, invocation) or refused(text, _callback_of(error), invocation)
    if isinstance(error, ValueError | TypeError):
        line = _missing_extra(text, invocation) or _of_values(error, text, invocation)
        return line or (refused(text, _callback_of(error), invocation) if _is_refused_by_lightning(error) else None)
    if isinstance(error, RuntimeError | NotImplementedError | AttributeError) and _is_refused_by_lightning(error):
        return refused(text, _callback_of(error), invocation)
    return _missing_extra(text, invocation)


def _of_user_code(error: BaseException, invocation: Invocation) -> str | None:
    """What a user's class may say of an option, and what torch raises below it that an option is to blame for."""
    text = one_line(str(error))
    if isinstance(error, UserError):
        return named(str(error), invocation)
    if not invocation.running:
        if isinstance(error, ImportError):
            return _missing_extra(text, invocation)
        is_refusal = type(error) is ValueError and (_is_raised_by_user(error) or _is_raised_by_playbook(error))
        return named(text, invocation) if is_refusal else None
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
    metric = re.search(r"conditioned on metric `?([^`\s]+)`? which is not", text)
    logged = re.findall(r"[`']([\w./-]+)[`']", re.split("vailable metrics are|any of the following", text)[-1])
    unlogged = f"{metric[1] if metric else ''}: not logged when it is needed; logged: {', '.join(logged) or 'nothing'}"
    interval = re.search(r"`val_check_interval` \((\d+)\) must be less.*?batches \((\d+)\)", text)
    batches, most = interval.groups() if interval else ("", "")
    share = _stream_share(text, invocation)
    explanations = [
        ("`Trainer(limit_", share),
        ("`Trainer(val_check_interval)` must be time based", share),
        (
            "`val_check_interval` (",
            f"{place_of('trainer.val_check_interval', invocation)}--trainer.val_check_interval: expected at most the "
            f"{most} training batches of an epoch, got {batches}; --trainer.check_val_every_n_epoch null counts on",
        ),
        ("Early stopping conditioned on metric", f"--trainer.callbacks: EarlyStopping: monitor {unlogged}"),
        ("ReduceLROnPlateau conditioned on metric", f"--model.schedule: ReduceLROnPlateau: monitor {unlogged}"),
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


def _stream_share(text: str, invocation: Invocation) -> str:
    """The share of an epoch that an IterableDataset, which has no length, does not have."""
    option = re.search(r"`Trainer\((\w+)\)` must be", text)
    name = option[1] if option else ""
    if name.startswith("limit_") and (invocation.options.get("trainer") or {}).get("overfit_batches"):
        name = "overfit_batches"  # Lightning sets the limits to it
    path = f"trainer.{name}"
    return (
        f"{place_of(path, invocation)}--{path}: expected a whole number of batches, as an IterableDataset has no "
        f"length, got {value_of(path, invocation)}"
    )


def _of_values(error: BaseException, text: str, invocation: Invocation) -> str | None:
    frames, is_ours = traceback.extract_tb(error.__traceback__), _is_raised_by_playbook(error)
    if any(frame.name == "configure_optimizers" for frame in frames):
        if not is_ours and "optim" in Path(frames[-1].filename).parts:
            return f"--model.optimizer, --model.schedule: {text}"
        return named(text, invocation) if is_ours or "val_check_interval" in text else None
    if is_ours:
        return named(text, invocation)
    return None if invocation.running else refused(text, _callback_of(error), invocation)


def _missing_extra(text: str, invocation: Invocation) -> str | None:
    for module, extra in EXTRAS.items():
        if re.search(rf"(No module named|Neither|Requirement) ['`]{module}['`.>]", text) and not invocation.running:
            command = f"{project.current().command} {invocation.verb.name}"
            return f"{module} is not installed: uv run --extra {extra} {command} …"
    return None


def _out_of_memory(text: str) -> str:
    return f"--data.batch_size: out of memory ({text.partition('. ')[0]})"


def _is_in_user_code(error: BaseException) -> bool:
    if isinstance(error, SyntaxError) and error.filename:
        return is_user_file(error.filename)
    return any(is_user_file(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def _is_raised_by_user(error: BaseException) -> bool:
    """Whether a `raise` or `assert` statement of the user's made it, and no library that the user called."""
    file = _raising_file(error)
    return bool(file) and is_user_file(file)


def _is_refused_by_lightning(error: BaseException) -> bool:
    """Whether a `raise` statement in Lightning made it, or in torch below a callback of Lightning's.

    That is an option that Lightning finds wrong once the training is set up.
    """
    file = _raising_file(error)
    return file.startswith(LIGHTNING) or bool(file and _callback_of(error))


def _raising_file(error: BaseException) -> str:
    """The file whose `raise` or `assert` statement made it; empty if an operation failed."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] != "RAISE_VARARGS":
        return ""
    return last.tb_frame.f_code.co_filename


def _is_raised_by_playbook(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(PLAYBOOK)


def _callback_of(error: BaseException) -> str:
    """The class of Lightning's callback that refuses, or whose call of torch does; empty if none has a part in it."""
    last, name = error.__traceback__, ""
    while last is not None:
        owner = last.tb_frame.f_locals.get("self")
        is_lightnings = last.tb_frame.f_code.co_filename.startswith(LIGHTNING)
        name = type(owner).__name__ if is_lightnings and isinstance(owner, Callback) else name
        last = last.tb_next
    return name
