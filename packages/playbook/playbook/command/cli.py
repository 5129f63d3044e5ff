"""From arguments to a session: LightningCLI with our precedence, run directories and short names."""

from enum import Enum
from typing import Any

import torch
import yaml
from jsonargparse import Namespace
from jsonargparse.typing import register_type
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.seed import isolate_rng

from playbook import project
from playbook.checkpoints.io import first_valid
from playbook.command import parser as parsing
from playbook.command.arguments import RESOLVED, Invocation, appended_callbacks, keys_of
from playbook.command.defaults import drop_former_defaults, keep_own_defaults
from playbook.command.fill import fill
from playbook.command.hyperparameters import arguments_as_given
from playbook.command.links import resolve
from playbook.command.messages import origin
from playbook.command.ranges import fault
from playbook.command.resolve import choose_run, require_fit, resolve_checkpoint
from playbook.command.session import Session
from playbook.from_data import in_words, option_values, set_up
from playbook.network import restored
from playbook.processes import is_first_process
from playbook.runs.directory import checkpoint_candidates
from playbook.runs.loggers import calm, place_in_run
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.trainer import Trainer, as_list

SECTIONS = ("seed_everything", "trainer", "model", "data", "checkpoint")  # what a run's config.yaml holds


def open_session(invocation: Invocation) -> Session:
    """Resolves the checkpoint and the run directory; `build` makes the rest.

    Raises:
        UserError: there is no such checkpoint, or the directory holds another run.
    """
    parsing.prepare()
    # some of Lightning's defaults are enums, which YAML cannot hold: Timer's interval
    yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, value: dumper.represent_str(value.name))
    register_type(torch.device, fail_already_registered=False)  # likewise, StochasticWeightAveraging's device
    checkpoint = resolve_checkpoint(invocation)
    session = Session(invocation, choose_run(invocation, checkpoint), checkpoint)
    origin = invocation.settings.get("init_from")
    if invocation.verb.checkpoint == "continued" and origin and checkpoint is None:  # else it was for the first start
        candidates = checkpoint_candidates(origin, None, invocation.recipe, "--init_from")
        session.init_from = first_valid(candidates, "--init_from")
    return session


def build(session: Session) -> None:
    """Parses the configuration, and makes model, data and trainer of it."""
    CLI(session)


class CLI(LightningCLI):
    """LightningCLI without its subcommands; the constructor fills the session.

    Args:
        session: what is known before the configuration is parsed.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.verb = session.invocation.verb
        # errors come to messages.py, and a typo is no abbreviation
        strict = {"exit_on_error": False, "allow_abbrev": False}
        super().__init__(
            trainer_class=LightningTrainer,
            trainer_defaults={"enable_model_summary": False},
            seed_everything_default=0,
            save_config_callback=None,
            auto_configure_optimizers=False,
            parser_kwargs={**strict, "prog": f"{project.current().command} {self.verb.name}"},
            args=self._arguments(),
            run=False,
        )

    def _arguments(self) -> list[str]:
        """The command line's, behind the configuration that comes out of the checkpoint."""
        invocation, checkpoint = self.session.invocation, self.session.opened
        args = list(invocation.args)
        if checkpoint is not None:
            config = yaml.safe_load(checkpoint.config) or {}
            drop_former_defaults(config, invocation)
            mentioned = [key for _, node in invocation.nodes for key in keys_of(node)]
            if any(key.startswith("trainer.callbacks") for key in mentioned):
                config.get("trainer", {}).pop("callbacks", None)  # `callbacks+:` would append to itself
            elif isinstance(callbacks := config.get("trainer", {}).get("callbacks"), list):
                again = appended_callbacks(args)  # a repeated command would append them once more
                config["trainer"]["callbacks"] = [
                    callback for callback in callbacks if callback["class_path"].rpartition(".")[2] not in again
                ]
            args = ["--config", yaml.safe_dump(config, sort_keys=False), *args]
        if not invocation.shows_help:  # --x.help takes what follows for its own
            args += [f"--run_dir={self.session.run.path}", f"--ckpt_path={checkpoint or 'null'}"]
            args += [f"--init_from={self.session.init_from or 'null'}"]
        return args

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(Checkpoint, "checkpoint")
        parser.add_argument("--run_dir", type=str, help="directory of the run")
        parser.add_argument("--ckpt_path", type=str | None, help="best, last, a run directory or a checkpoint file")
        parser.add_argument("--init_from", type=str | None, help="initial weights of a new run; for fit")
        self.own_options = parsing.add_verb_arguments(parser, self.verb)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        invocation = self.session.invocation
        in_configs = {key for _, node in invocation.nodes for key in keys_of(node)}
        invocation.known = sorted({*parsing.option_names(parser), *in_configs, *RESOLVED})
        self.config, self.has_gaps = parsing.parse_with_gaps(parser, args, "model")
        self.given = parsing.given_options(parser, args)
        self.session.options = self.config
        _check_ranges(self.config)

    def before_instantiate_classes(self) -> None:
        session, options = self.session, self.config
        saved = yaml.safe_load(session.opened.config) if session.opened is not None else None
        for name in ("model", "data"):
            keep_own_defaults(options[name], name, session.invocation, saved)
        self._note_configuration()
        self.verb.before_build(session)
        if options.trainer.logger in (True, None, False) or not self.verb.uses_loggers:
            options.trainer.logger = False
        else:
            place_in_run(options.trainer.logger, session.run)

    def _note_configuration(self, logger: Any = None) -> None:
        """Notes what save_hyperparameters and config.yaml take, before paths of this run are filled in.

        Args:
            logger: the loggers as they were noted before that, if they were.
        """
        self.config_dump = parsing.plain(self.parser, self.config)
        if logger is not None:
            self.config_dump["trainer"]["logger"] = logger
        session = self.session
        session.values = {name: self.config_dump[name] for name in SECTIONS if name in self.config_dump}
        session.invocation.options = session.values
        session.config = yaml.safe_dump(session.values, sort_keys=False)

    def instantiate_classes(self) -> None:
        try:
            classes = [
                parsing.class_of(options.class_path) for name in ("model", "data") if (options := self.config[name])
            ]
            with restored(from_checkpoint=self.session.checkpoint is not None), arguments_as_given(*classes):
                self._build()
        except Exception as error:  # of any kind; the verb may have an answer
            if (code := self.verb.build_failed(self.session, error)) is None:
                raise
            raise SystemExit(code) from None

    def _build(self) -> None:
        """Makes the data and the trainer, then the model, whose options may follow from the data."""
        others = self.config.clone()
        del others["model"]
        with isolate_rng(include_cuda=False):  # the model is initialised with the same numbers whatever else there is
            self.config_init = self.parser.instantiate(others)
        self.datamodule = self.config_init.get("data")
        self.trainer = self.instantiate_trainer()
        self._fill_from_data()
        try:
            with parsing.linked(self.linked):
                self.config_init["model"] = self.parser.instantiate(Namespace(model=self.config.model)).model
        except Exception as error:  # of any kind; it goes on
            cause = origin(error)
            if isinstance(cause, ValueError) and str(cause).partition(":")[0] in self.filled:
                cause.args = (f"{cause}, which follows from the data",)
            raise
        self.model = self.config_init.model

    def _fill_from_data(self) -> None:
        """Gives options of the model that are left out the values of the data, or of the checkpoint's data."""
        session, trainer = self.session, self.trainer
        assert isinstance(trainer, Trainer), trainer
        if session.opened is not None:
            trainer.keep_facts.give(None, self.datamodule, session.opened)
            facts = trainer.keep_facts.facts
        elif isinstance(getattr(self.datamodule, "facts", None), dict):
            facts = self._facts_of_data(trainer)
        else:
            facts = {}
        from_links, self.linked = resolve(self.config.model, self.datamodule)
        values = option_values(facts)
        filled = fill(self.config.model, self.given.get("model"), values, checks=session.opened is None)
        self.filled = from_links | filled
        if self.filled or self.has_gaps:  # else the parser has checked it
            parsing.require_complete(self.parser, self.config)
        if self.filled:
            self._note_configuration(session.values["trainer"]["logger"])
            trainer.use_configuration(session.config, session.values)
            if is_first_process() and session.opened is None:
                texts = [f"{name} {in_words(value)}" for name, value in self.filled.items() if _is_telling(value)]
                if texts:
                    print(f"from the data: {', '.join(texts)}", flush=True)

    def _facts_of_data(self, trainer: Trainer) -> dict[str, Any]:
        assert self.datamodule is not None
        self.datamodule.trainer = trainer
        trainer.keep_facts.init_from = self.session.init_from
        trainer.keep_facts.inherit(self.datamodule)
        self.session.invocation.running = True  # an error in the setup of the data keeps its words, as it does in fit
        facts = set_up(self.datamodule)
        self.session.invocation.running = False
        return facts

    def instantiate_trainer(self, **kwargs: Any) -> LightningTrainer:
        values: Any = self.config_init
        loggers = as_list(values.trainer.logger or None)
        for logger in loggers:
            calm(logger)
        callbacks = [*as_list(values.trainer.callbacks), *self.verb.callbacks(self.session)]
        settings = {**values.trainer, "logger": loggers, "callbacks": callbacks, **kwargs}
        return Trainer(
            **settings,
            run=self.session.run,
            checkpoint=values.checkpoint,
            config=self.session.config,
            values=self.session.values,
        )

    def after_instantiate_classes(self) -> None:
        session = self.session
        session.model, session.datamodule, session.trainer = self.model, self.datamodule, self.trainer  # type: ignore[assignment]  # made above
        if session.opened is not None:
            require_fit(session.model, session.opened)
            session.trainer.keep_facts.give(session.model, None, session.opened)
        self.verb.after_build(session)
        session.own_options = {name: self.config_init[name] for name in self.own_options}


def _check_ranges(options: Namespace) -> None:
    for name, value in {**options.trainer, "seed_everything": options.seed_everything}.items():
        if (text := fault(name, value)) is not None:
            raise ValueError(f"{name}: {text}")


def _is_telling(value: Any) -> bool:
    """Whether a value that follows from the data is worth a word: not the number of what there is none of."""
    return not (isinstance(value, int | list) and not value)
