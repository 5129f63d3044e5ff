"""What to write in place of the sections `optimizer` and `lr_scheduler` of LightningCLI's configs."""

import yaml

from playbook.command.nodes import content_of
from playbook.command.signatures import Signature

SECTIONS = {"optimizer": "optim", "lr_scheduler": "sched"}  # and a word in the names of a model's arguments


def in_place_of(section: str, value: yaml.Node, model: Signature | None) -> str:
    """The words for a section, with its value under the name of the model's own argument.

    Args:
        section: one of `SECTIONS`.
        value: of the section.
        model: signature of the model's class; None if that is not known.
    """
    word = SECTIONS[section]
    own = [option for option in (model.parameters if model is not None else ()) if word in option]
    if model is not None and not own:
        kind, factory = section.removeprefix("lr_"), {"optimizer": "Optimizer", "lr_scheduler": "LRScheduler"}[section]
        return (
            f"a section of LightningCLI; {model.class_path.rpartition('.')[2]} takes no {kind}: give its "
            f"__init__ an argument {kind}: {factory}Callable (of lightning.pytorch.cli), and call it in "
            "configure_optimizers"
        )
    text = yaml.safe_dump(content_of(value), default_flow_style=True, width=10_000)
    text = " ".join(text.split()).removesuffix(" ...")  # which ends a document of one word
    return f"a section of LightningCLI; expected under model: init_args: as {own[0] if own else section}: {text}"
