"""Which labels of a step teach something, measured by the gradient of its loss."""

from torch import Tensor

from playbook.doctor.losses import Loss
from playbook.doctor.steps import Step


def supervised(loss: Loss, step: Step) -> Tensor | None:
    """Where a loss over classes moves its scores, in the shape of its target; None where that cannot be told.

    Ignored labels, masks that multiply the loss afterwards and weights of zero all leave scores without a gradient.
    """
    gradient = step.grads.get(id(loss.prediction))
    if gradient is None or loss.kind != "classes" or loss.target.is_floating_point():
        return None
    moved = (gradient != 0).any(1 if gradient.dim() > 1 else 0)
    return moved if moved.shape == loss.target.shape else None
