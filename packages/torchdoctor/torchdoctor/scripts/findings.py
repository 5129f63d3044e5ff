"""Adapts the probes' findings to a script: which apply, and at which lines."""

import ast
import re
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from torchdoctor import source
from torchdoctor.code import name_of
from torchdoctor.evidence.origins import maker, option
from torchdoctor.findings import Place
from torchdoctor.running.training import parameters_of
from torchdoctor.scripts import notes
from torchdoctor.scripts.module import Script
from torchdoctor.scripts.step import Step

_OF_OPTIMIZER = ("adam-l2", "learning-rate-too-high", "learning-rate-too-low", "parameter-not-optimized")
_OF_LOADER = {
    "train-not-shuffled": "shuffle",
    "norm-batch-size-one": "batch_size",
    "duplicate-worker-rng": "num_workers",
    "slow-loader": "num_workers",
}
_OF_LATER = {  # what the source says of a precision or an accelerator, if the script uses one
    "amp-unsafe": r"autocast",
    **dict.fromkeys(["device-unsafe-tensor", "host-sync"], r"cuda|device|xpu|accelerat|\bmps\b"),
}
_CLIP = ("pl.Trainer(gradient_clip_val=1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
_FACTORIES = ("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rand", "randn", "randint", "randperm")
_FACTORIES += ("tensor", "as_tensor", "from_numpy")


def of_script(findings: list[dict[str, Any]], model: Script, step: Step) -> list[dict[str, Any]]:
    """The findings that apply to a script; those without a line get that of its optimizer or loader."""
    passed = {"parameter-not-optimized"} if _is_optimised(model, step) else set()
    text = "".join(Path(file).read_text(encoding="utf-8") for file in model.sources)
    remaining = [item for item in findings if item["id"] not in passed and not _is_of_device(item)]
    idle = set() if any(map(_sends, map(source.tree, model.files))) else {"device-unsafe-tensor", "host-sync"}
    latent = [
        item["id"] in idle or not re.search(_OF_LATER.get(item["id"], ""), text) or _is_once_an_epoch(item, model)
        for item in remaining
    ]
    own_parts = re.compile(rf"\bself\.(?=(?:{'|'.join(name for name, _ in model.named_children())})\b)")
    for item in remaining:
        item["fix"] = own_parts.sub("", item["fix"]).replace(*_CLIP)
        item["values"] = {name: own_parts.sub("", value) for name, value in item["values"].items()}
    return [
        _with_place(item, step) | ({"severity": "advice"} if is_latent else {})
        for item, is_latent in zip(remaining, latent, strict=True)
    ]


def _sends(tree: ast.AST) -> bool:
    """Whether a file moves anything to a device; `x.to(device)` whose result is dropped does not."""
    nodes = list(ast.walk(tree))
    alone = {node.value for node in nodes if isinstance(node, ast.Expr)}
    assignments = [(node.value, node.targets) for node in nodes if isinstance(node, ast.Assign)]
    targets_of_factories = [
        targets for value, targets in assignments if isinstance(value, ast.Call) and name_of(value) in _FACTORIES
    ]
    tensors = {ast.unparse(target) for targets in targets_of_factories for target in targets}
    by_option = any(isinstance(node, ast.keyword) and node.arg == "device" for node in nodes)
    calls = source.calls(tree, "to", "cuda", "prepare", "set_default_device", "set_default_tensor_type")
    owners = [(call, call.func.value) for call in calls if isinstance(call.func, ast.Attribute)]
    return by_option or any(call not in alone or ast.unparse(owner) not in tensors for call, owner in owners)


def _is_optimised(model: Script, step: Step) -> bool:
    """Whether all trainable weights belong to optimizers, or the script has no optimizers."""
    owned = set(map(id, parameters_of(notes.living_objects(Optimizer))))
    return not step.optimizers or all(id(p) in owned or not p.requires_grad for p in model.parameters())


def _with_place(item: dict[str, Any], step: Step) -> dict[str, Any]:
    things = step.optimizers if item["id"] in _OF_OPTIMIZER else []
    things = step.unit.loaders if item["id"] in _OF_LOADER else things
    place = next(filter(None, map(maker, things)), None)
    if item["file"] or place is None:
        return item
    if item["id"] in _OF_LOADER:
        place = option([place], _OF_LOADER[item["id"]])[0] or place
    return item | {"file": place.file, "line": place.line, "code": place.code}


def _is_once_an_epoch(item: dict[str, Any], model: Script) -> bool:
    """Whether each step is a whole epoch: all steps of the loop have the same batch."""
    step, batches = model.replay[:2]
    is_whole = step.unit.spot.loop is not None and not step.unit.loaders and len(batches) == 1
    return item["id"] == "host-sync" and is_whole


def _is_of_device(item: dict[str, Any]) -> bool:
    """Whether a finding is only due to the script's device being the CPU in this review.

    `.to(device)` then looks like a reading of values, and `torch.zeros(…, device=device)` like a tensor left behind.
    What remains is certain: `.cpu()` or `.to("cpu")`, and a tensor made in a model's forward without any word of a
    device by one of torch's factories: layers make tensors as well, on the device of the batch, which here is the CPU.
    """
    if item["id"] == "host-sync":
        return item["values"]["reads"].startswith(".cpu()") and not re.search(
            r"""\.cpu\(|\.to\(["']cpu""", item["code"]
        )
    if item["id"] != "device-unsafe-tensor":
        return False
    place = Place(item["file"], item["line"])
    function, statement = source.function_at(place), source.around(place, ast.stmt)[-1:]
    text = "".join(map(ast.unparse, statement))  # of all its lines
    named = any(word in text for word in ("device", ".to(", "_like(", ".new_", "cuda", "Tensor("))
    if named or function is None or function.name != "forward":
        return True
    return not any(call.lineno == item["line"] for call in source.calls(function, *_FACTORIES))
