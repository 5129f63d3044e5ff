"""Losses of ensembles: nets that return an output of every member in training."""

from torch import Tensor


def flatten_members(outputs: Tensor, target: Tensor, target_dims: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs each member's output with its target, so that their mean loss is the mean of the members' losses.

    Args:
        outputs: (B, k, …) of k members, with at least three dimensions; (B, …) of a single net is returned unchanged.
        target: of all members alike (B, …), or of each member (B, k, …).
        target_dims: dimensions of the target of one sample: 0 for a number, 1 for probabilities (K,).

    Returns:
        outputs (B k, …) and targets (B k, …), sample by sample.
    """
    if outputs.ndim < 3:
        return outputs, target
    if target.ndim == 1 + target_dims:
        target = target.unsqueeze(1).expand(-1, outputs.shape[1], *target.shape[1:])  # (B, k, …)
    return outputs.flatten(0, 1), target.flatten(0, 1)
