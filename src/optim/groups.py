"""Which parameters are optimised, and which of them decay."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

UNDECAYED = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.EmbeddingBag)
UNDECAYED_NAMES = ("bias", "embed", "position", "token")  # of bare parameters, as of a Vision Transformer


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Splits the trainable parameters into those that decay and those that do not.

    Norms, biases and embeddings get no weight decay: it would only shrink scales that the next layer restores
    (Goyal et al. 2017, section 5.3; Touvron et al. 2021). Frozen parameters are left out, shared ones taken once.

    Returns:
        At most two groups in the form of `torch.optim`; the first takes the optimizer's own weight decay.
    """
    undecayed = {
        id(parameter)
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if isinstance(owner, UNDECAYED) or parameter.ndim < 2 or any(word in name for word in UNDECAYED_NAMES)
    }
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    decay = [parameter for parameter in trainable if id(parameter) not in undecayed]
    no_decay = [parameter for parameter in trainable if id(parameter) in undecayed]
    groups: list[dict[str, Any]] = [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
