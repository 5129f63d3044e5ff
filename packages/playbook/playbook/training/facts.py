"""Passes the facts of the data to the model and its checkpoints, and back."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.checkpoints.opened import Opened
from playbook.facts import KEY, facts_of, named, pack, require_same_classes
from playbook.training.initial import load_weights


class KeepFacts(Callback):
    """Passes the facts of the data to the model, and saves them in every checkpoint and in metrics.json (always on).

    The facts of a checkpoint are passed to the data before its setup, so that its classes keep their numbers. Before
    training, a net with a method `use_facts` gets them too, for buffers that follow the data, such as bins of numbers.
    """

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.init_from: Path | None = None  # weights to start from, once the classes are known
        self._lacking = ""  # a checkpoint that was saved without facts, until that is told

    def give(self, model: Any, datamodule: Any, opened: Opened | None) -> None:
        """Passes the facts of the checkpoint, or else of the model, to model and data; call it before their setup.

        Args:
            model: any model; one without `facts` gets none.
            datamodule: likewise, or None.
            opened: the checkpoint to load or resume, if any.
        """
        facts = getattr(model, "facts", None) if opened is None else opened.facts
        self._lacking = "" if opened is None or facts is not None else opened.path.as_posix()
        self.facts = facts if isinstance(facts, dict) else {}
        for receiver in (model, datamodule):
            if self.facts and isinstance(getattr(receiver, "facts", None), dict):
                receiver.facts = dict(self.facts)
                if opened is not None and hasattr(receiver, "has_trained"):
                    receiver.has_trained = True

    def inherit(self, datamodule: Any) -> None:
        """Passes the facts that belong to the initial weights to the data, such as the tokenizer of their embeddings.

        Args:
            datamodule: any data module, before its setup; or None.
        """
        known = Opened(self.init_from).facts if self.init_from is not None else None
        if known and isinstance(getattr(datamodule, "facts", None), dict):
            names = getattr(datamodule, "facts_of_weights", ("tokenizer",))
            datamodule.facts |= {name: known[name] for name in names if name in known}

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        datamodule = getattr(trainer, "datamodule", None)
        own = facts_of(datamodule)
        require_same_classes(own, self.facts, type(datamodule).__name__)
        if self._lacking and trainer.is_global_zero:
            if own.get("classes"):
                classes = named(own["classes"])
                print(f"{self._lacking} contains no class names: assuming {classes}, without a check", flush=True)
            elif stage == "predict" and callable(getattr(pl_module, "answer", None)):
                print(f"{self._lacking} contains no facts, such as class names: showing numbers instead", flush=True)
        self._lacking = ""
        self.facts = self.facts | own
        if isinstance(getattr(pl_module, "facts", None), dict):
            pl_module.facts = dict(self.facts)  # type: ignore[assignment]  # it is a dict already
        if stage == "fit":  # weights that are loaded afterwards replace what nets take from the facts
            for module in pl_module.modules():
                if callable(use_facts := getattr(module, "use_facts", None)):
                    use_facts(self.facts)
        if stage == "fit" and self.init_from is not None:
            load_weights(pl_module, self.init_from, self.facts)
            self.init_from = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.facts:
            checkpoint[KEY] = pack(self.facts)


def opened(path: str | Path | None) -> Opened | None:
    """The checkpoint at a path; None for none, and for a name that Lightning resolves itself."""
    return Opened(Path(path)) if path is not None and Path(path).exists() else None
