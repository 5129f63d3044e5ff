"""From arguments to a running Trainer: LightningCLI with our precedence, run directories and short names."""

import signal
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonargparse._typehints as typehints
import torch
import yaml
from jsonargparse.typing import register_type
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from playbook.checkpoints.io import AtomicCheckpointIO, first_valid
from playbook.command import discovery, messages
from playbook.command.arguments import RESOLVED, Invocation, appended_callbacks, keys_of
from playbook.command.factories import keep_own_defaults, refuse_functions
from playbook.command.resolve import choose_run, config_of, require_fit, resolve_checkpoint
from playbook.doctor import batch, source
from playbook.doctor.command import show, show_failure
from playbook.errors import Stopped
from playbook.network import restored
from playbook.processes import is_first_process, is_started_by_lightning, join, require_one_training
from playbook.project import current
from playbook.runs.directory import Run, checkpoint_candidates
from playbook.runs.loggers import MetricsCSV, calm, finish, place_in_run
from playbook.runs.predictions import WritePredictions
from playbook.training.microbatches import MicroBatches
from playbook.training.monitors import CheckMonitors
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.progress import Progress
from playbook.training.record import Record
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.exact import ExactResume
from playbook.training.resume.signals import StopOnSignal, requeue, stop_at_once_on_sigterm
from playbook.training.review import Doctor, review_errors
from playbook.training.trainer import Trainer

SECTIONS = ("seed_everything", "trainer", "model", "data", "checkpoint")  # what a run's config.yaml holds
SKIPPED = {"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule", "weights_only", "verbose"}
STRICT = {"exit_on_error": False, "allow_abbrev": False}  # errors come to messages.py; a typo is not an abbreviation

LEAST = {  # of options that Lightning does not check, or not in words
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "log_every_n_steps": 1,
    "gradient_clip_val": 0,
    "limit_train_batches": 0,
    "limit_val_batches": 0,
    "limit_test_batches": 0,
    "limit_predict_batches": 0,
    "num_sanity_val_steps": -1,
    "max_epochs": -1,
    "max_steps": -1,
}


def run(invocation: Invocation) -> int:
    """Resolves the checkpoint and the run directory, then parses, builds and runs the verb; returns the exit code."""
    _prefer_our_classes()
    refuse_functions()
    # some of Lightning's defaults are enums, which YAML cannot hold: Timer's interval
    yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, value: dumper.represent_str(value.name))
    register_type(torch.device, fail_already_registered=False)  # likewise, StochasticWeightAveraging's device
    stop_at_once_on_sigterm()
    if invocation.verb == "doctor":
        with review_errors():
            if names := batch.names_in(invocation.args):
                return batch.run(names)
    checkpoint = resolve_checkpoint(invocation)
    run = choose_run(invocation, checkpoint)
    try:
        CLI(invocation, checkpoint, run)
    except Stopped as stop:
        return _end(run, stop)
    except SystemExit as exit_:
        if isinstance(exit_.__context__, KeyboardInterrupt):  # how Lightning ends on a second Ctrl-C
            return _end(run, Stopped(signal.SIGINT))
        raise
    except _FinishedError as finished:
        if is_first_process():
            print(finished)
    finally:
        finish()
        run.release()
    return 0


def _end(run: Run, stop: Stopped) -> int:
    if not is_first_process():
        # Lightning kills the first process, amid its last words, when one that it started ends otherwise
        return 0 if is_started_by_lightning() else stop.exit_code
    messages.stopped(run, stop.number)
    requeue(stop.number)
    return stop.exit_code


class _FinishedError(Exception):
    """There is nothing left to do, which is no error: a requeued job repeats its command until it is done."""


class CLI(LightningCLI):
    """One command in the making; LightningCLI's constructor runs it.

    Args:
        invocation: the command line.
        checkpoint: the file that --ckpt_path means, if any; its configuration comes before all --config.
        run: the run directory.
    """

    def __init__(self, invocation: Invocation, checkpoint: Path | None, run: Run) -> None:
        self.invocation = invocation
        self.checkpoint = checkpoint
        self.run = run
        args = list(invocation.args)
        if checkpoint is not None:
            config = yaml.safe_load(config_of(checkpoint)) or {}
            mentioned = [key for _, node in invocation.nodes for key in keys_of(node)]
            if any(key.startswith("trainer.callbacks") for key in mentioned):
                config.get("trainer", {}).pop("callbacks", None)  # `callbacks+:` would append to itself
            elif isinstance(kept := config.get("trainer", {}).get("callbacks"), list):  # as would a repeated command
                again = appended_callbacks(args)
                config["trainer"]["callbacks"] = [c for c in kept if c["class_path"].rpartition(".")[2] not in again]
            args = ["--config", yaml.safe_dump(config), *args]
        if not any(arg.partition("=")[0].endswith(".help") for arg in args):  # which takes what follows for its own
            args += [f"--run_dir={run.path}", f"--ckpt_path={checkpoint or 'null'}"]
        if invocation.verb == "fit" and checkpoint is not None and invocation.settings.get("init_from"):
            args += ["--init_from=null"]  # it was for the first start
        elif invocation.verb == "fit" and (origin := invocation.settings.get("init_from")):
            path = first_valid(checkpoint_candidates(origin, None, invocation.recipe, "--init_from"), "--init_from")
            args += ["--init_from", str(path)]
        super().__init__(
            trainer_class=Trainer,
            trainer_defaults={"enable_model_summary": False},
            seed_everything_default=0,
            save_config_callback=None,
            auto_configure_optimizers=False,
            parser_kwargs={**STRICT, invocation.verb: dict(STRICT)},
            args=[invocation.verb, *args],
        )

    def subcommands(self) -> dict[str, set[str]]:
        return {self.invocation.verb: set(SKIPPED)}  # building the parsers of the other verbs costs start-up

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(Checkpoint, "checkpoint")
        parser.add_argument("--run_dir", type=str, help="directory of the run")
        if self.invocation.verb == "fit":
            parser.add_argument("--doctor", action="store_true", help="review the program first, stop if it is wrong")
        if self.invocation.verb != "fit":  # a recipe that says how it starts can be tested as well
            parser.add_argument("--init_from", type=str, help="for fit")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        options = self._subcommand_parsers[self.invocation.verb]._option_string_actions
        known = {name.removeprefix("--").removesuffix("+") for name in options if name.startswith("--")}
        known |= {key for _, node in self.invocation.nodes for key in keys_of(node)} | set(RESOLVED)
        self.invocation.known = sorted(name for name in known if not name.endswith(".help"))
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Lightning would let the checkpoint override the command line; ours came in as the first config."""

    @property
    def options(self) -> Any:
        """What was configured, as a namespace."""
        return self.config[self.invocation.verb]

    def before_instantiate_classes(self) -> None:
        for name in ("model", "data"):
            keep_own_defaults(self.options[name], name, self.invocation)
        self._dump_config()  # what save_hyperparameters and config.yaml take, before paths of this run are filled in
        trainer = self.options.trainer
        for name, least in LEAST.items():
            if trainer[name] is not None and not isinstance(trainer[name], str | dict) and trainer[name] < least:
                raise ValueError(f"{name}: expected at least {least}, got {trainer[name]}")
        if trainer.val_check_interval == 0:
            raise ValueError("val_check_interval: expected steps or a share of an epoch above 0, got 0")
        continuing = self.invocation.verb == "fit" and self.checkpoint is not None
        if continuing and self.invocation.settings.get("ckpt_path") != "best":
            self._stop_if_finished()
        if trainer.logger in (True, None, False) or self.invocation.verb == "predict":
            trainer.logger = False
        else:
            place_in_run(trainer.logger, self.run)
        trainer.default_root_dir = str(self.run)

    def instantiate_classes(self) -> None:
        try:
            with restored(from_checkpoint=self.checkpoint is not None):
                super().instantiate_classes()
        except Exception as error:  # for the review, what the user's own class raises is a finding
            if self.invocation.verb != "doctor" or source.raised_at(error) is None:
                raise
            show_failure(error, self.options.format, self.invocation.recipe or self.options.model.class_path)
            raise SystemExit(1) from None

    def _stop_if_finished(self) -> None:
        metrics = self.run.read_metrics()
        done, wanted = metrics.get("limits", {}), self.options.trainer
        more = any(
            wanted[name] is not None and wanted[name] != limit and (wanted[name] == -1 or 0 <= limit < wanted[name])
            for name, limit in done.items()
        )
        if metrics.get("status") == "finished" and not more:
            raise _FinishedError(
                f"{self.run} is finished: {metrics['epoch']} epochs, {metrics['step']} steps; "
                "train on with a larger --trainer.max_epochs"
            )

    def instantiate_trainer(self, **kwargs: Any) -> LightningTrainer:
        values = self.config_init[self.invocation.verb]
        chosen = values.trainer
        checkpoint: Checkpoint = values.checkpoint
        values_dict = {name: self.config_dump[name] for name in SECTIONS if name in self.config_dump}
        config = yaml.safe_dump(values_dict, sort_keys=False)
        loggers = chosen.logger if isinstance(chosen.logger, list) else [chosen.logger] if chosen.logger else []
        for logger in loggers:
            calm(logger)
        # order matters: ours that reset randomness come before the user's, Lightning puts checkpoints last
        callbacks: list[Any] = [ExactResume(checkpoint), MicroBatches(), CheckMonitors(), *_as_list(chosen.callbacks)]
        has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
        if self.invocation.verb == "fit" and not any(isinstance(callback, NonFinite) for callback in callbacks):
            callbacks.append(NonFinite())
        if self.invocation.verb == "fit" and values.doctor:
            callbacks.insert(0, Doctor())
        if chosen.enable_progress_bar is not False and not has_bar:
            callbacks.append(Progress())
        if self.invocation.verb == "fit":
            loggers = [*loggers, MetricsCSV(self.run.metrics_csv)]
            callbacks += [Record(self.run, config, values_dict), StopOnSignal(checkpoint)]
            checkpoint.folder, checkpoint.config = self.run.checkpoints, config
        if self.invocation.verb == "predict":
            callbacks.append(WritePredictions(self.run.predictions))
        if chosen.enable_checkpointing is not False:
            callbacks.append(checkpoint)
        plugins = [*_as_list(chosen.plugins), AtomicCheckpointIO()]
        settings = {**chosen, "logger": loggers, "callbacks": callbacks, "plugins": plugins, **kwargs}
        trainer = Trainer(**settings)
        trainer.run = self.run
        return trainer

    def _run_subcommand(self, subcommand: str) -> None:
        require_one_training(self.trainer)
        self.invocation.running = True
        try:
            super()._run_subcommand(subcommand)
            if subcommand == "doctor":
                self._show_report()
        except Exception:  # of any kind; it goes on
            if launcher := self.trainer.strategy.launcher:  # the other processes would wait for this one
                launcher.kill(signal.SIGKILL)
            raise
        finally:
            join(self.trainer)

    def _show_report(self) -> None:
        assert isinstance(self.trainer, Trainer)
        report, options = self.trainer.report, self.options
        assert report is not None
        title = self.invocation.recipe or type(self.model).__name__
        command = ["-m", current().package or "playbook", "doctor", *self.invocation.given]
        with review_errors():
            show(report, options.format, title, options.write_tests, command)
        if any(item["severity"] == "critical" for item in report.findings):
            raise SystemExit(1)

    def after_instantiate_classes(self) -> None:
        if self.checkpoint is not None:
            require_fit(self.model, self.checkpoint)
        if self.invocation.verb == "fit":  # only now: a mistake before leaves no directory behind
            self.run.create()


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _prefer_our_classes() -> None:
    """Lets a short name mean our class before any other of that name, importing no more than the one chosen.

    jsonargparse knows the imported classes only, and finds `MLP` in torchvision as well. It has no public hook.
    """
    original = typehints.resolve_class_path_by_name
    if hasattr(original, "playbook"):
        return

    def resolve(cls: Any, name: str) -> str:
        paths = discovery.class_paths(name) if isinstance(name, str) and "." not in name else []
        fitting = [path for path in paths if _is_subclass(path, cls)]
        return (fitting or paths)[0] if paths else original(cls, name)

    resolve.playbook = True  # marks the function as replaced
    typehints.resolve_class_path_by_name = resolve


def _is_subclass(path: str, cls: Any) -> bool:
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    return any(
        isinstance(base, type) and issubclass(found, base) for base in (cls if isinstance(cls, tuple) else (cls,))
    )
