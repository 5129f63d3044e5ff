"""Tensors that stay on the CPU when the model moves to an accelerator."""

import ast
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from sys import _getframe
from typing import Any
from unittest import mock

import torch
from lightning.pytorch.utilities import move_data_to_device
from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.pretended_device import (
    NUMPY,
    PACKING,
    PRETENDED,
    PretendedTensor,
    checks_for_cuda,
    pretend_device,
    unconditional_cuda_lines,
)
from torchdoctor.running.record import tensors
from torchdoctor.running.sandbox import SandboxError
from torchdoctor.running.subject import Subject
from torchdoctor.running.unregistered import is_plain, plain_attributes, unregistered_tensors

DEVICE_UNSAFE_TENSOR = Defect(
    "device-unsafe-tensor",
    "critical",
    "The program ends with an error on any accelerator.",
    covers=("host-sync",),
    shown_by=Evidence("experiment", "a step was run with the model and the batch on a simulated device"),
)
_READERS = {  # message and fix
    NUMPY: (
        "NumPy reads a tensor of the model's device here, which is a TypeError on CUDA",
        "torch.…  # in place of NumPy; or ….detach().cpu() before it, where the result meets no tensor",
    ),
    PACKING: (
        "pack_padded_sequence gets lengths on the model's device here, which is a RuntimeError on CUDA",
        "nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), …)",
    ),
}


def device_unsafe(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Runs a training and a validation step with model and batch on a pretended accelerator.

    A call that gets a tensor of the CPU beside the others fails on a real one, except for copies, indices, packing
    lengths and tensors without dimensions (PyTorch's documentation of torch.device and type promotion). What counts is
    a tensor that the user's own lines make: in a step, as an attribute of a module, or as a constant of their file. It
    is left out where an option of the program, which nothing here can choose, makes it on CUDA, or a device has a name
    in a program that asks for CUDA. NumPy that reads a tensor of the accelerator fails as well, and so do packing
    lengths on it. A line that names CUDA without asking for it sends to the pretended accelerator here, and says
    nothing of others, or of one that has another number.
    """
    fails_here = subject.attempt().error is not None
    notes = _Notes(_attributes(subject) | _constants(subject))
    try:
        saves = mock.patch.object(torch, "save")  # it writes no simulated tensor
        with pretend_device(notes.on_mixed, notes.on_created, notes.on_read), subject.not_optimized(), saves:
            _run_moved(subject)
    except Exception as error:  # after devices were mixed, which is what is looked for, or as it takes other tensors
        if not notes.calls:
            if isinstance(error, AssertionError):
                yield NotLookedAt(DEVICE_UNSAFE_TENSOR, "the program insists on another kind of tensors")
                return
            if fails_here:
                raise
            raise SandboxError(f"the step does not run on a simulated device ({type(error).__name__})") from error
    files = {place.file for place in map(source.definition, source.classes_in(subject.model)) if place is not None}
    asks = any(map(checks_for_cuda, files))  # to choose a device
    calls = {
        key: call
        for key, call in notes.calls.items()
        if not _is_sent_by_option(key[0]) and not (asks and _is_sent_to_name(key[0]))
    }
    for (place, attribute), call in calls.items():
        yield _finding(place, call, attribute)
    for place, reader in dict.fromkeys(notes.reads):
        yield Finding(DEVICE_UNSAFE_TENSOR, place, *_READERS[reader])
    if calls or notes.reads:
        return
    fixed = next((line for file in subject.files for line in unconditional_cuda_lines(file)), None)
    if fixed is not None:
        where = f"{os.path.basename(fixed.file)}:{fixed.line}"
        yield NotLookedAt(
            DEVICE_UNSAFE_TENSOR, f"{where} names CUDA itself, `{fixed.code}`, and not the model's device"
        )
    elif notes.calls:
        yield NotLookedAt(DEVICE_UNSAFE_TENSOR, "an option of the program chooses the device of a tensor")
    else:
        yield "every tensor of these steps follows the model to its device"


PROBE = Probe(look=device_unsafe, defects=(DEVICE_UNSAFE_TENSOR,), needs=(Need.BATCHES, Need.DENSE))


class _Notes:
    """Where the program's own lines let devices meet.

    Args:
        origins: where tensors are made, and the attribute that they are, by identity.
    """

    def __init__(self, origins: dict[int, tuple[Place, str]]) -> None:
        self.origins = origins
        self.alive: list[Tensor] = []  # so that an identity is not given twice
        self.calls: dict[tuple[Place, str], str] = {}  # that meet a tensor, by where it is made and its attribute
        self.reads: list[tuple[Place, str]] = []  # and what reads there

    def on_created(self, tensor: Tensor, args: Any) -> None:
        """A tensor of the CPU has been made from these arguments."""
        self.alive.append(tensor)
        cpu_tensors = [leaf for leaf in tensors(args) if not isinstance(leaf, PretendedTensor)]
        before = [self.origins[id(leaf)] for leaf in cpu_tensors if id(leaf) in self.origins]
        places, is_direct = source.callers(_getframe(1))
        if before:
            self.origins.setdefault(id(tensor), before[0])
        elif is_direct and not cpu_tensors:
            self.origins.setdefault(id(tensor), (places[0], ""))

    def on_mixed(self, name: str, strangers: list[Tensor]) -> None:
        """A call gets these tensors of the CPU beside others."""
        for tensor in strangers:
            if id(tensor) in self.origins and not isinstance(tensor, nn.Parameter):
                self.calls.setdefault(self.origins[id(tensor)], name.strip("_"))

    def on_read(self, reader: str) -> None:
        """What takes tensors of the CPU alone gets one that is elsewhere."""
        places, is_direct = source.callers(_getframe(1))
        function = source.function_at(places[0]) if is_direct else None
        if function is not None and "cuda" not in ast.unparse(function):  # which would ask first
            self.reads.append((places[0], reader))


def _run_moved(subject: Subject) -> None:
    """Moves the model, which may send more after itself as an epoch begins, and runs steps on moved batches."""
    model = subject.model
    _move(subject)
    for module, name in subject.unset:  # the hooks fill them again, from a model that is elsewhere
        setattr(module, name, None)
    _begin(model.on_fit_start, model.on_train_start)
    torch.manual_seed(0)
    subject.train(move_data_to_device(subject.batches[0], PRETENDED))
    if subject.validates:
        with subject.evaluating():
            _begin(model.on_validation_start, model.on_validation_epoch_start)
            subject.validate(move_data_to_device(subject.val_batches[0], PRETENDED))


def _begin(*hooks: Callable[[], None]) -> None:
    for hook in hooks:
        with suppress(Exception):  # of what has been done already
            hook()


def _move(subject: Subject) -> None:
    """Moves the model, of which the optimizers then have the weights that were moved."""
    weights = dict(subject.model.named_parameters(remove_duplicate=False))  # tied ones part
    subject.model.to(PRETENDED)
    moved = {id(weights[name]): weight for name, weight in subject.model.named_parameters(remove_duplicate=False)}
    for optimizer in subject.trainer.optimizers:
        for group in optimizer.param_groups:
            group["params"] = [moved.get(id(weight), weight) for weight in group["params"]]


def _is_sent_by_option(place: Place) -> bool:
    """Whether another branch of an `if` in the same function makes such a variable on CUDA, or sends it there."""
    function = source.function_at(place) or source.tree(place.file)
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno == place.line]
    names = {ast.unparse(node.targets[0]) for node in assignments}
    inside = [node for branch in ast.walk(function) if isinstance(branch, ast.If) for node in ast.walk(branch)]
    others = [node for node in inside if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names]
    choices = [node for part in assignments for node in ast.walk(part) if isinstance(node, ast.IfExp)]
    return any(any(source.calls(node, "cuda")) for node in (*others, *choices))


def _is_sent_to_name(place: Place) -> bool:
    """Whether a line puts its tensor on a device that has a name, or is computed from one that such a line made before.

    The device of a module is the CPU when it is built.
    """
    function = source.function_at(place) or source.tree(place.file)
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno <= place.line]
    lines = [node for node in assignments if node.lineno == place.line]
    taken = {ast.unparse(part) for node in lines for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
    lines += [node for node in assignments if node.lineno < place.line and ast.unparse(node.targets[0]) in taken]
    calls = [call for node in lines for call in ast.walk(node) if isinstance(call, ast.Call)]
    sent = [call.args[0] for call in calls if getattr(call.func, "attr", "") == "to" and call.args]
    sent += [option.value for call in calls for option in call.keywords if option.arg == "device"]
    return any(isinstance(to, ast.Name | ast.Attribute) and ast.unparse(to) != "self.device" for to in sent)


def _finding(place: Place, call: str, attribute: str) -> Finding:
    if attribute:
        message = (
            f"self.{attribute} is no buffer: its tensor stays on the CPU when the model moves, and meets it in {call}"
        )
        values = [node.value for node in source.around(place, ast.Assign) if node.lineno == place.line]
        value = ast.unparse(values[0]) if values else attribute
        fix = f'self.register_buffer("{attribute}", {value})'
        return Finding(DEVICE_UNSAFE_TENSOR, place, message, fix, {"variant": "buffer"})
    message = f"a tensor made here stays on the CPU, and meets tensors of the model's device in {call}"
    return Finding(DEVICE_UNSAFE_TENSOR, place, message, *_with_device(place))


def _with_device(place: Place) -> tuple[str, dict[str, str]]:
    """The line's own call with `device=`, if it can be told, and as it is now."""
    for call in ast.walk(source.tree(place.file)):
        if not isinstance(call, ast.Call) or call.lineno != place.line:
            continue
        base, _, name = ast.unparse(call.func).rpartition(".")
        if any(keyword.arg == "device" for keyword in call.keywords):
            return f"{place.code}  # the device of a tensor that comes in", {}
        if base == "torch" and "device=" in str(getattr(torch, name, Tensor).__doc__):
            made = ast.unparse(call)
            return f"{made[:-1]}, device=x.device)  # of a tensor x that comes in", {"made": made}
    return f"{place.code}  # … .to(x.device), of a tensor x that comes in", {}


def _attributes(subject: Subject) -> dict[int, tuple[Place, str]]:
    """Tensors among the plain attributes of the user's modules and of their objects, and where they are assigned."""
    known = [(module, *item) for module in subject.model.modules() for item in plain_attributes(module)]
    known += [(value, *item) for _, _, value in known if is_plain(value) for item in vars(value).items()]
    origins = {}
    for owner, name, value in reversed(known):
        leaves = [leaf for leaf in unregistered_tensors(value) if not isinstance(leaf, nn.Parameter)]
        place = source.assignment(owner, name) if leaves else None
        if place is not None:
            attribute = name if isinstance(owner, nn.Module) and isinstance(value, Tensor) else ""  # could be a buffer
            origins = {id(leaf): (place, attribute) for leaf in leaves} | origins
    return origins


def _constants(subject: Subject) -> dict[int, tuple[Place, str]]:
    """Tensors among the constants of the user's files, and where they are assigned."""
    origins = {}
    for module in {cls.__module__ for cls in source.classes_in(subject.model)}:
        scope = vars(sys.modules.get(module, sys))
        file = str(scope.get("__file__", ""))
        for node in source.tree(file).body:
            names = [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
            for leaf in tensors([scope.get(name) for name in names]):
                origins[id(leaf)] = Place(file, node.lineno), ""
    return origins
