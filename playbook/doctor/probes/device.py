"""Tensors that stay on the CPU when the model goes to an accelerator."""

import ast
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from sys import _getframe
from types import CellType, FrameType, FunctionType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import move_data_to_device
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from playbook.doctor import faraway, source
from playbook.doctor.faraway import FAR, Far, elsewhere
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject

DEVICE_UNSAFE_TENSOR = Defect(
    "device-unsafe-tensor",
    "critical",
    "The program ends with an error on any accelerator.",
    explains=("crash",),
    shown_by=Evidence("experiment", "a step was run with the model and the batch on a simulated device"),
)
DEFECTS = (DEVICE_UNSAFE_TENSOR,)


def device_unsafe(subject: Subject) -> Iterator[Finding | str]:  # noqa: C901  # three closures over what one step meets
    """Runs a training and a validation step with model and batch on a pretended accelerator.

    A call that gets a tensor of the CPU beside the others fails on a real one, except for copies, indices, packing
    lengths and tensors without dimensions (PyTorch's documentation of torch.device and type promotion). What counts is
    a tensor that the user's own lines make: in a step, as an attribute of a module, or as a constant of their file.
    """
    known = _attributes(subject) | _constants(subject)
    origins: dict[int, tuple[Place, str]] = dict(known)
    alive: list[Tensor] = []  # so that an identity is not given twice
    found: dict[Place, tuple[str, str]] = {}

    def made(tensor: Tensor, args: Any) -> None:
        alive.append(tensor)
        given = _near_tensors(args)
        before = [origins[id(leaf)] for leaf in given if id(leaf) in origins]
        place = _maker(_getframe(1))
        if before:
            origins.setdefault(id(tensor), before[0])
        elif place is not None and not given:
            origins.setdefault(id(tensor), (place, ""))

    def meeting(name: str, strangers: list[Tensor]) -> None:
        for tensor in strangers:
            if id(tensor) in origins and not isinstance(tensor, nn.Parameter):
                place, attribute = origins[id(tensor)]
                found.setdefault(place, (name.strip("_"), attribute))

    def arrive(module: nn.Module, args: Any) -> Any:
        """RNNs compare the devices of input and state before any call that is seen: the state is sent along."""
        if not isinstance(module, nn.RNNBase | nn.RNNCellBase) or not isinstance(args[0], Far):
            return None
        meeting(type(module).__name__, _near_tensors(args[1:]))
        return (args[0], *pytree.tree_map_only(Tensor, lambda leaf: leaf.to(FAR), tuple(args[1:])))

    hook = nn.modules.module.register_module_forward_pre_hook(arrive)
    try:
        _steps(subject, elsewhere(meeting, made))
    except Exception:  # after a meeting of devices, which is what is looked for, or our own fault
        if not found:
            raise
    finally:
        hook.remove()
    for place, (call, attribute) in found.items():
        yield _finding(place, call, attribute)
    if not found:
        yield "every tensor follows the model to its device"


def _near_tensors(values: Any) -> list[Tensor]:
    """Tensors of the CPU."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor) and not isinstance(leaf, Far)]


def _maker(frame: FrameType | None) -> Place | None:
    """The user's line, if it called torch itself: between them are torch and the pretended accelerator."""
    while frame is not None and frame.f_code.co_filename != __file__:
        file = frame.f_code.co_filename
        if source.is_user(file):
            return Place(file, frame.f_lineno)
        if not source.is_torch(file) and file != faraway.__file__ and not file.startswith("<"):
            return None
        frame = frame.f_back
    return None


def _steps(subject: Subject, pretended: AbstractContextManager[None]) -> None:
    with pretended:
        subject.model.to(FAR)
        torch.manual_seed(0)
        subject.train(move_data_to_device(subject.batches[0], FAR))
        if subject.validates:
            with subject.evaluating():
                subject.validate(move_data_to_device(subject.val_batches[0], FAR))


def _finding(place: Place, call: str, attribute: str) -> Finding:
    if attribute:
        message = (
            f"self.{attribute} is no buffer: its tensor stays on the CPU when the model moves, and meets it in {call}"
        )
        fix = f'self.register_buffer("{attribute}", {attribute})'
        return Finding(DEVICE_UNSAFE_TENSOR, place, message, fix)
    message = f"a tensor made here stays on the CPU, and meets tensors of the model's device in {call}"
    return Finding(DEVICE_UNSAFE_TENSOR, place, message, _with_device(place))


def _with_device(place: Place) -> str:
    """The line's own call with `device=`, if it can be told."""
    for call in ast.walk(source.tree(place.file)):
        if not isinstance(call, ast.Call) or call.lineno != place.line:
            continue
        base, _, name = ast.unparse(call.func).rpartition(".")
        if base == "torch" and not name.endswith("Tensor"):  # those take no device
            return f"{ast.unparse(call)[:-1]}, device=self.device)  # or the device of a tensor that comes in"
    return f"{place.code}  # … .to(self.device)"


def _attributes(subject: Subject) -> dict[int, tuple[Place, str]]:
    """Tensors among the plain attributes of the user's modules and of their objects, and where they are assigned."""
    found = {}
    owners: list[object] = [*subject.model.modules()]
    owners += [value for module in owners for value in vars(module).values() if _is_plain(value)]
    for owner in owners:
        for name, value in vars(owner).items():
            if name in ("_parameters", "_buffers", "_modules") or name.startswith("__"):
                continue
            place = None
            for leaf in _held(value, depth=3):
                if not isinstance(leaf, nn.Parameter):
                    place = place or source.assignment(owner, name)
                    if place is not None:
                        found.setdefault(id(leaf), (place, name))
    return found


def _is_plain(value: Any) -> bool:
    """Whether a value is an object of a class of the user's that is no module."""
    plain = not isinstance(value, nn.Module | pl.LightningDataModule | Dataset) and hasattr(value, "__dict__")
    return plain and not isinstance(value, type) and bool(source.classes_of(value))


def _held(value: Any, depth: int) -> Iterator[Tensor]:
    """Tensors in containers, in the arguments that a partial call keeps, and in what a function closes over."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, partial) and depth:
            yield from _held([leaf.func, leaf.args, leaf.keywords], depth - 1)
        elif isinstance(leaf, FunctionType) and depth:
            cells = [cell.cell_contents for cell in leaf.__closure__ or () if cell != CellType()]
            yield from _held([cells, leaf.__defaults__, leaf.__kwdefaults__], depth - 1)


def _constants(subject: Subject) -> dict[int, tuple[Place, str]]:
    """Tensors among the constants of the user's files, and where they are assigned."""
    found = {}
    for name in {cls.__module__ for cls in source.classes_in(subject.model)}:
        scope = vars(sys.modules.get(name, sys))
        for key, value in scope.items():
            for leaf in pytree.tree_leaves(value) if isinstance(value, Tensor | list | tuple | dict) else ():
                place = _constant(str(scope.get("__file__", "")), key) if isinstance(leaf, Tensor) else None
                if place is not None:
                    found[id(leaf)] = place, ""
    return found


def _constant(file: str, name: str) -> Place | None:
    for node in source.tree(file).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            return Place(file, node.lineno)
    return None
