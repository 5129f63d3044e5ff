"""Reports a training_step that returns no loss: Lightning skips its optimizer steps without an error."""

import ast
import inspect
import textwrap
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.errors import UserError


class CheckLoss(Callback):
    """Checks that training_step returns a loss, where Lightning is to optimise it (always on)."""

    def __init__(self) -> None:
        self._returned = self._has_batches = False  # in this epoch

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        step = inspect.unwrap(type(pl_module).training_step)
        if pl_module.automatic_optimization and _returns_nothing(step):
            raise UserError(
                f"--model: {type(pl_module).__name__}.training_step "
                f"({inspect.getsourcefile(step)}:{step.__code__.co_firstlineno}) returns no loss, so nothing would be "
                "trained; end it with `return loss`"
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._returned = self._has_batches = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._has_batches = True
        self._returned |= bool(outputs) if isinstance(outputs, dict) else outputs is not None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if pl_module.automatic_optimization and self._has_batches and not self._returned:
            raise UserError(
                f"--model: {type(pl_module).__name__}.training_step returned no loss for any batch of epoch "
                f"{trainer.current_epoch + 1}, so nothing was trained"
            )


def _returns_nothing(step: Any) -> bool:
    """Whether the source of a method certainly has no way to return a value."""
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(step))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return False  # its source is not a plain method
    if not isinstance(tree, ast.FunctionDef) or len(tree.decorator_list) > 0:
        return False
    nested = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not tree]
    inner = {id(node) for function in nested for node in ast.walk(function)}
    own = [node for node in ast.walk(tree) if id(node) not in inner]
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own):
        return False
    return not any(isinstance(node, ast.Return) and node.value is not None for node in own) and not any(
        isinstance(node, ast.Raise) for node in tree.body
    )
