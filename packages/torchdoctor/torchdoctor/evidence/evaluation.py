"""Tells which modules behave differently in evaluation mode."""

import ast

from torch import nn

from torchdoctor import source
from torchdoctor.findings import RUN, Defect

GRAPH_IN_EVAL = Defect(
    "graph-in-eval",
    "advice",
    "Evaluation takes as much memory as training, and more time than it needs.",
    section="Performance",
    shown_by=RUN,
)


def is_trained_and_mode_dependent(part: nn.Module) -> bool:
    """Whether a module has trainable weights and behaves differently in evaluation mode."""
    return any(p.requires_grad for p in part.parameters()) and any(map(depends_on_mode, part.modules()))


def depends_on_mode(part: nn.Module) -> bool:
    """Whether the module itself, not a submodule, behaves differently in evaluation mode."""
    if isinstance(part, nn.modules.batchnorm._NormBase):
        return part.track_running_stats
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p > 0
    if isinstance(part, nn.RNNBase | nn.MultiheadAttention):
        return part.dropout > 0
    forward = source.body(type(part).forward) if source.definition(type(part)) else None
    return forward is not None and "self.training" in ast.unparse(forward[1])
