"""Low-rank adaptation of any net: trains few weights in addition to frozen ones; checkpoints hold only the new ones."""

import copy
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from playbook import UserError, is_restored, load_run, nearest

NUM_SAMPLED = 1024  # values of each weight that identify a base


class LoRA(nn.Module):
    """Low-rank adapters for the layers of a net (Hu et al. 2022), or DoRA (Liu et al. 2024), by peft.

    Only the adapters and `modules_to_save` are trained. With a `base`, and around HuggingFace, checkpoints hold only
    these; the base is read again from its original place, and must be unchanged. `export` writes the merged weights,
    with the parameter names of the net.

    Args:
        net: net to adapt.
        rank: rank of the adapters, at least 1.
        alpha: adapters are multiplied by alpha / rank.
        dropout: probability of dropping an input of an adapter, in [0, 1).
        target_modules: names of modules to adapt, or the ends of their names, as in [query, value]; linear,
            convolutional and embedding layers. all-linear adapts every linear layer except the head and tied ones.
        dora: whether the magnitude of each row is trained separately from its direction.
        base: run directory or checkpoint with the net's weights, for nets that do not load weights themselves.
        modules_to_save: names of modules, or the ends of their names, to train fully, such as a new [head].

    Shapes:
        As those of the net.

    Raises:
        ValueError: a value is out of range, a name matches no module, or an adapter could not be merged.
        UserError: there is no such base, or it does not fit the net.
    """

    def __init__(
        self,
        net: nn.Module,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        target_modules: Literal["all-linear"] | list[str] = "all-linear",
        dora: bool = False,
        base: str | None = None,
        modules_to_save: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"rank: expected at least 1, got {rank}")
        if not alpha > 0:
            raise ValueError(f"alpha: expected more than 0, got {alpha}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        if isinstance(net, LoRA):
            raise ValueError("net: already has adapters, expected a net without")  # noqa: TRY004 - the user's mistake
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as error:
            raise ValueError("LoRA needs peft: uv sync --extra huggingface") from error
        self.net = net
        self.trained_modules = _named(net, modules_to_save, "modules_to_save")
        tied = _tied(net)  # what shares a weight is trained with it, and stays tied
        self.trained_modules += [tied[name] for name in self.trained_modules if name in tied]
        new = getattr(net, "new_parameters", [])
        self.trained_modules += [name.rpartition(".")[0] for name in new]
        if base is not None:
            self._load(base)
        targets = _targets(net, target_modules, self.trained_modules)
        self.base = base or getattr(net, "source", None)
        # the weights of a base that nothing could bring again stay in the checkpoint
        self.holds_base = self.base is None
        if not self.holds_base:
            self.register_buffer("base_fingerprint", _fingerprint(net, self.trained_modules))
        from transformers.pytorch_utils import Conv1D

        config = LoraConfig(
            r=rank,
            lora_alpha=alpha,  # type: ignore[arg-type]  # it divides by the rank
            lora_dropout=dropout,
            target_modules="|".join(map(re.escape, targets)),  # a pattern is matched as a whole
            use_dora=dora,
            fan_in_fan_out=all(isinstance(net.get_submodule(name), Conv1D) for name in targets),
        )
        inject_adapter_in_model(config, net)
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(self._is_trained(name))
        self.register_state_dict_post_hook(_keep_trained)
        self.register_load_state_dict_pre_hook(_complete)
        if not is_restored() and os.environ.get("LOCAL_RANK", "0") == "0":
            counts = [(parameter.numel(), parameter.requires_grad) for parameter in net.parameters()]
            total, num_trained = sum(count for count, _ in counts), sum(count for count, trains in counts if trains)
            kind = "DoRA" if dora else "LoRA"
            text = f"{kind}: trains {num_trained:,} of {total:,} parameters ({num_trained / total:.2%})"
            print(text, file=sys.stderr)  # standard output may be a report in JSON

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # those of whichever net it is
        return self.net(*args, **kwargs)

    def train(self, mode: bool = True) -> "LoRA":
        super().train(mode)
        for module in self.net.modules():  # frozen, and so are their statistics, which no checkpoint would hold
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and not self._trains(module):
                module.eval()
        return self

    def __getattr__(self, name: str) -> Any:
        """Attributes of the net, such as `make_cache` and `context_length`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "net" or name.startswith("_"):
                raise
        net = super().__getattr__("net")
        if name == "features" and hasattr(getattr(net, "head", None), "base_layer"):
            raise AttributeError("features: the head has an adapter, so its weight alone does not give the logits")
        return getattr(net, name)

    def merged(self) -> nn.Module:
        """A copy of the net with the adapters merged into its weights."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        net = copy.deepcopy(self.net)
        layers = [(name, module) for name, module in net.named_modules() if isinstance(module, BaseTunerLayer)]
        for name, layer in layers:
            layer.merge(safe_merge=True)
            parent, _, child = name.rpartition(".")
            setattr(net.get_submodule(parent), child, layer.get_base_layer())
        return net

    def _load(self, base: str) -> None:
        """Copies the weights of the base; those of fully trained modules may be missing or differ."""
        run = load_run(base, "--model.net.base")
        weights = getattr(run.module, "net", run.module).state_dict()
        own = self.net.state_dict()
        fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
        for name, value in own.items():
            if name in fitting or _is_below(name, self.trained_modules):
                continue
            actual = f"shape {tuple(weights[name].shape)}" if name in weights else f"none{nearest(name, weights)}"
            raise UserError(
                f"--model.net.base {base}: expected {name} of shape {tuple(value.shape)}, got {actual}; "
                "list modules to train from scratch in modules_to_save"
            )
        self.net.load_state_dict(fitting, strict=False)

    def _is_trained(self, name: str) -> bool:
        return ".lora_" in name or _is_below(name, self.trained_modules)

    def _trains(self, module: nn.Module) -> bool:
        return any(parameter.requires_grad for parameter in module.parameters(recurse=False))


def _keep_trained(module: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    assert isinstance(module, LoRA)
    if module.holds_base:
        return
    start = f"{prefix}net."
    for name in list(state_dict):
        if name.startswith(start) and not module._is_trained(name.removeprefix(start)):
            del state_dict[name]


def _complete(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Adds the base to the loaded weights, after checking that it is the same."""
    assert isinstance(module, LoRA)
    if module.holds_base:
        return
    saved = state_dict.get(f"{prefix}base_fingerprint")
    own: Any = module.base_fingerprint
    if saved is not None and not saved.is_meta and not torch.equal(saved.cpu(), own.cpu()):
        raise UserError(
            f"--model.net: the weights of {module.base} ({_hex(own)}) differ from those that the checkpoint's adapters "
            f"were trained with ({_hex(saved)}); expected the same base"
        )
    for name, value in module.net.state_dict().items():
        if not module._is_trained(name):
            state_dict.setdefault(f"{prefix}net.{name}", value)


def _named(net: nn.Module, names: Iterable[str], option: str) -> list[str]:
    """Full names of the modules that match names, or ends of names.

    Raises:
        ValueError: a name matches none.
    """
    known = [name for name, _ in net.named_modules() if name]
    result: list[str] = []
    for wanted in names:
        hits = [name for name in known if name == wanted or name.endswith(f".{wanted}")]
        if not hits:
            ends = sorted({name.rpartition(".")[2] for name in known if not name.rpartition(".")[2].isdigit()})
            raise ValueError(
                f"{option}: {type(net).__name__} has no module {wanted}{nearest(wanted, ends)}; "
                f"it has {', '.join(ends)}"
            )
        result += [name for name in hits if name not in result]
    return result


def _targets(net: nn.Module, wanted: str | Sequence[str], trained: Sequence[str]) -> list[str]:
    """Full names of the modules to adapt.

    Raises:
        ValueError: a name matches no module, or one that cannot be adapted and merged.
    """
    from transformers.pytorch_utils import Conv1D

    modules = dict(net.named_modules())
    tied = _tied(net)
    if isinstance(wanted, str):
        if wanted != "all-linear":
            raise ValueError(f"target_modules: expected all-linear or a list of names, got {wanted}")
        head = getattr(net, "head", None)
        names = [name for name, module in modules.items() if type(module) in (nn.Linear, Conv1D) and module is not head]
        names = [name for name in names if name not in tied]
    else:
        names = _named(net, wanted, "target_modules")
        adaptable = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, Conv1D)
        for name in names:
            if not isinstance(modules[name], adaptable):
                kind = type(modules[name]).__name__
                raise ValueError(f"target_modules: {name} is a {kind}, expected a linear layer")  # noqa: TRY004
            if name in tied:
                raise ValueError(
                    f"target_modules: {name} shares its weight with {tied[name]}, so its adapter could not be merged; "
                    "remove it, list it in modules_to_save, or use a net whose weights are not tied"
                )
    for name in names:  # torch's own blocks read the weights of their layers past these in evaluation
        parents = [modules[name.rsplit(".", depth)[0]] for depth in range(1, name.count(".") + 1)]
        if any(isinstance(parent, nn.MultiheadAttention | nn.TransformerEncoderLayer) for parent in parents):
            raise ValueError(f"target_modules: {name} is in a block of torch.nn that would ignore its adapter")
    names = [name for name in names if not _is_below(name, trained)]
    if not names:
        raise ValueError(f"target_modules: {type(net).__name__} has no layer to adapt")
    return names


def _tied(net: nn.Module) -> dict[str, str]:
    """Modules that share their weight with another module, by name, with the name of the other."""
    owners: dict[int, list[str]] = {}
    for name, module in net.named_modules():
        if isinstance(weight := getattr(module, "weight", None), nn.Parameter):
            owners.setdefault(id(weight), []).append(name)
    groups = [names for names in owners.values() if len(names) > 1]
    return {name: next(other for other in names if other != name) for names in groups for name in names}


def _is_below(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _fingerprint(net: nn.Module, trained: Sequence[str]) -> Tensor:
    """A SHA-256 of names, shapes and some values of the frozen weights, (16,) bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        if _is_below(name, trained):
            continue
        flat = value.detach().flatten()
        sample = flat[:: max(1, flat.numel() // NUM_SAMPLED)].double().cpu()
        digest.update(f"{name} {tuple(value.shape)}".encode() + sample.numpy().tobytes())
    return torch.tensor(list(digest.digest()[:16]), dtype=torch.uint8)


def _hex(fingerprint: Tensor) -> str:
    return bytes(fingerprint.tolist()).hex()[:16]
