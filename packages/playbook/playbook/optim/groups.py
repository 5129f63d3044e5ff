"""Parameter groups: which parameters are optimised, which decay, and which are matrices of hidden layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from playbook.optim.rules import Setting

# batch and instance norms have vectors alone, which do not decay anyway
UNDECAYED = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.EmbeddingBag)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
UNDECAYED_NAMES = ("bias", "embed", "position", "token")  # of bare parameters, as of a Vision Transformer
LAST_NAMES = {"head", "heads", "lm_head", "classifier"}  # modules whose matrices are last, wherever they stand


def parameter_groups(module: nn.Module, split_hidden: bool = False) -> list[dict[str, Any]]:
    """Splits the trainable parameters into those that decay and those that do not.

    Norms, biases and embeddings get no weight decay: it would only shrink scales that the next layer restores
    (Goyal et al. 2017, section 5.3; Touvron et al. 2021). Frozen parameters are excluded, shared ones included once.

    Args:
        module: module with the parameters.
        split_hidden: whether the matrices of hidden layers form a group of their own, with `hidden` set, for Muon.

    Returns:
        At most three groups in the format of `torch.optim`. The hidden matrices, if requested, and the other weights
        use the optimizer's weight decay; the last group has none.
    """
    undecayed = {
        id(parameter)
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if isinstance(owner, UNDECAYED) or parameter.ndim < 2 or any(word in name for word in UNDECAYED_NAMES)
    }
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    hidden = _hidden_matrices(module) - undecayed if split_hidden else set()
    inner = [parameter for parameter in trainable if id(parameter) in hidden]
    decay = [parameter for parameter in trainable if id(parameter) not in undecayed | hidden]
    no_decay = [parameter for parameter in trainable if id(parameter) in undecayed]
    groups: list[dict[str, Any]] = [
        {"params": inner, "hidden": True}, {"params": decay}, {"params": no_decay, "weight_decay": 0.0}
    ]  # fmt: skip
    return [group for group in groups if group["params"]]


def split_groups(
    groups: list[dict[str, Any]], settings: Mapping[int, Setting]
) -> tuple[list[dict[str, Any]], list[Setting]]:
    """Splits groups further, by the rate and weight decay that the rules set for each parameter.

    Args:
        groups: returned by `parameter_groups`; those without weight decay keep none.
        settings: by the id of each parameter.

    Returns:
        The groups, and the common setting of each.
    """
    parts: dict[tuple[int, Setting], list[nn.Parameter]] = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            setting = replace(settings[id(parameter)], frozen=None)
            if group.get("weight_decay") == 0:
                setting = replace(setting, weight_decay=0.0)
            parts.setdefault((number, setting), []).append(parameter)
    split = [{**groups[number], "params": parameters} for (number, _), parameters in parts.items()]
    common = [setting for _, setting in parts]
    for group, setting in zip(split, common, strict=True):
        if setting.weight_decay is not None:
            group["weight_decay"] = setting.weight_decay
    return split, common


def _hidden_matrices(module: nn.Module) -> set[int]:
    """Ids of the trained matrices and kernels but the first and the last by order of registration, and heads by name.

    An embedding counts as the first one; class tokens and the like do not. Of a head that shares its weight with the
    embedding, the weight is last where the head stands.
    """
    matrices = [
        (path, owner, parameter)
        for path, owner in module.named_modules(remove_duplicate=False)
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad and parameter.ndim > 1 and not any(word in name for word in UNDECAYED_NAMES)
        if isinstance(owner, nn.Embedding | nn.EmbeddingBag) or not isinstance(owner, UNDECAYED)
    ]
    ends = {id(parameter) for _, _, parameter in (*matrices[:1], *matrices[-1:])}
    return {
        id(parameter)
        for path, owner, parameter in matrices
        if (parameter.ndim == 2 or isinstance(owner, CONVOLUTIONS)) and not LAST_NAMES & set(path.split("."))
    } - ends
