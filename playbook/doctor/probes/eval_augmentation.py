"""Random augmentation of validation and test data."""

import ast
import random
from collections.abc import Callable, Iterator
from sys import _getframe
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from playbook.doctor import blame, replay, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.samples import base, indices, leaves, owner, size, train_loaders
from playbook.doctor.subject import Subject

EVAL_AUGMENTATION = Defect(
    "eval-augmentation",
    "warning",
    "Validation is noisy and not of the data as it is.",
    explains=("eval-nondeterminism",),
    shown_by=Evidence("experiment", "the same validation samples were read twice with other seeds"),
)
DEFECTS = (EVAL_AUGMENTATION,)

_ITEMS = 24
_SHARE = 0.1  # of the samples that change
_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def eval_augmentation(subject: Subject) -> Iterator[Finding | str]:
    """Takes the same validation and test samples twice, with other random states: the label stays, does the input?

    Random inputs belong to some tasks: pairs of views, inputs to be restored, masked tokens, sampled negatives. So
    augmentation is what changes one input, in samples whose label stays and is used by the step; or what only turns it
    over, whether or not there is a label.

    The place is the line that draws where that always happens; where an attribute of the data set decides, the line
    that made the validation data. If these are parts of the same data set as the training data, what the set-up code
    switches on for one part holds for the other: then it is that assignment, and without one the split.
    """
    looked = False
    for kind in ("val", "test"):
        for loader, places in blame.loaders(subject, kind):
            numbers = indices(loader.dataset, _ITEMS)
            if not numbers:
                continue
            looked = True
            found = _changes(subject, loader, numbers)
            if found is None:
                continue
            changed, path, through = found
            message = (
                f"{changed} of {len(numbers)} {kind} samples are another input each time they are read (leaf {path!r})"
            )
            fix = "# give the validation data the transform without random parts: resize, to tensor, normalize"
            if through == "hook":
                fix = "if self.trainer.training:  # only then augment"
            elif through == "dataset" and _is_shared(subject, loader):
                fix = "# validation on a data set of its own, without augmentation: Subset(plain, val.indices)"
            yield Finding(EVAL_AUGMENTATION, _place(subject, loader, places, through, numbers[0]), message, fix)
            return
    if looked:
        yield "validation samples are the same each time they are read"


def _changes(subject: Subject, loader: DataLoader, numbers: list[int]) -> tuple[int, str, str] | None:
    """How many samples change, which leaf does, and through what: the data set, the collation or a hook."""
    first, second = ([_seeded(2 * n + seed, lambda n=n: leaves(loader.dataset[n])) for n in numbers] for seed in (0, 1))
    found = _augmented(subject, first, second)
    if found:
        return *found, "dataset"
    items = [loader.dataset[number] for number in numbers[: loader.batch_size or 1]]
    if loader.batch_sampler is None or loader.collate_fn is None:
        return None
    batches = [_seeded(seed, lambda: loader.collate_fn(list(items))) for seed in (1, 2)]
    found = _augmented(subject, *[_rows(leaves(batch)) for batch in batches])
    if found:
        return *found, "collate"
    moved = [_seeded(seed, lambda: subject.arrived(loader.collate_fn(list(items)))) for seed in (1, 2)]
    found = _augmented(subject, *[_rows(leaves(batch)) for batch in moved])
    return (*found, "hook") if found else None


def _seeded(seed: int, function: Callable[[], Any]) -> Any:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return function()


def _rows(batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    number = min([len(leaf) for leaf in batch.values() if leaf.dim()], default=0)
    return [{path: leaf[row] for path, leaf in batch.items() if leaf.dim()} for row in range(number)]


def _augmented(
    subject: Subject, first: list[dict[str, Tensor]], second: list[dict[str, Tensor]]
) -> tuple[int, str] | None:
    changed: dict[str, int] = {}
    for one, two in zip(first, second, strict=False):
        for path in one.keys() & two.keys():
            if not _equal(one[path], two[path]):
                changed[path] = changed.get(path, 0) + 1
    inputs = {path: number for path, number in changed.items() if number > _SHARE * len(first)}
    if not inputs or not first:
        return None
    sample = first[0]
    stays = {path: leaf for path, leaf in sample.items() if path not in changed}
    main = max(inputs, key=lambda path: sample[path].numel())
    # views: two leaves of one shape; restoring: what stays is as large as what changes
    floats = [path for path in inputs if sample[path].is_floating_point() and sample[path].numel() > 1]
    views = [
        p for p in floats for q in floats if p < q and sample[p].shape == sample[q].shape and not _is_mask(sample[q])
    ]
    restored = [
        path
        for path, leaf in stays.items()
        if leaf.is_floating_point() and 2 * leaf.numel() >= sample[main].numel() > 2
    ]
    if views or restored or sample[main].numel() < 2:
        return None
    if len(inputs) > 1 and all(_is_mask(sample[path]) or path == main for path in inputs):
        if all(_permuted(one[main], two[main]) for one, two in zip(first, second, strict=False)):
            return inputs[main], main  # image and mask are moved together
        return None
    if (
        not sample[main].is_floating_point()
        and sample[main].dtype != torch.uint8
        and not _mostly_kept(first, second, main)
    ):
        return None
    flipped = all(_is_flipped(one[main], two[main]) for one, two in zip(first, second, strict=False))
    return (inputs[main], main) if flipped or _is_label_used(subject, stays) else None


def _equal(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape:
        return False
    if one.is_floating_point():
        return torch.allclose(one.double(), two.double(), rtol=1e-6, atol=1e-7, equal_nan=True)
    return torch.equal(one, two)


def _is_flipped(one: Tensor, two: Tensor) -> bool:
    """Whether a picture is the other one, or its mirror image."""
    if one.dim() < 2 or one.shape != two.shape:
        return False
    return _equal(one, two) or any(_equal(one.flip(dim), two) for dim in range(one.dim()))


def _is_mask(leaf: Tensor) -> bool:
    return not leaf.is_floating_point() or len(leaf.unique()) <= 8


def _permuted(one: Tensor, two: Tensor) -> bool:
    return one.numel() == two.numel() and torch.allclose(
        one.flatten().sort()[0].double(), two.flatten().sort()[0].double()
    )


def _mostly_kept(first: list[dict[str, Tensor]], second: list[dict[str, Tensor]], path: str) -> bool:
    pairs = [(one[path].flatten(), two[path].flatten()) for one, two in zip(first, second, strict=False)]
    kept = [(one == two).double().mean().item() for one, two in pairs if one.shape == two.shape]
    return bool(kept) and sum(kept) / len(kept) > 0.5


def _is_label_used(subject: Subject, stays: dict[str, Tensor]) -> bool:
    """Whether the validation step computes with a leaf that does not change."""
    if not stays or not subject.validates:
        return False
    batch = subject.val_batches[0]
    used = {item.data_ptr() for op in subject.attempt(training=False).record.ops for item in op.inputs}
    return any(leaf.data_ptr() in used for path, leaf in leaves(batch).items() if path in stays)


def _is_shared(subject: Subject, loader: DataLoader) -> bool:
    """Whether the data are parts of the same data set as the training data."""
    return any(base(item.dataset) is base(loader.dataset) for item in train_loaders(subject))


def _place(subject: Subject, loader: DataLoader, places: list[Place], through: str, number: int) -> Place | None:
    """The line that draws, or the one that made the validation data if the data set can be made without drawing."""
    if through == "hook":
        batch = loader.collate_fn([loader.dataset[number]])
        found = _draws(lambda: subject.arrived(batch), _HOOKS) or _draws(lambda: subject.arrived(batch))
        return found[0] if found else None
    if through == "collate":
        found = _draws(lambda: loader.collate_fn([loader.dataset[number]]))
        return found[0] if found else None
    made = blame.dataset_line(subject, loader.dataset)
    stack = _draws(lambda: loader.dataset[number])
    deciding = _deciding(stack, base(loader.dataset))
    if deciding and _is_shared(subject, loader) and (switch := _switch(subject, base(loader.dataset), deciding)):
        return switch
    if not stack or _is_chosen(stack, base(loader.dataset)) or not size(loader.dataset):
        return made[0] if made else (places[0] if places else next(iter(stack), None))
    return stack[0]


def _draws(run: Callable[[], Any], within: tuple[str, ...] = ()) -> list[Place]:
    """The first line that moves a random state, in functions of these names if there are any, and those that called."""
    found: list[Place] = []

    def states() -> list[Any]:
        return [random.getstate(), str(np.random.get_state()), torch.get_rng_state().sum().item()]

    before = states()

    def see(place: Place, _: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        function = source.function_at(place) if within else None
        if states() != before and (not within or (function is not None and function.name in within)):
            found.extend([place, *source.callers(_getframe(1))[0][1:]])
        return bool(found)

    replay.lines(run, see)
    return found


def _is_chosen(stack: list[Place], dataset: object) -> bool:
    """Whether what draws depends on an argument of the data set: `if self.train`, `self.transform(x)`."""
    tests, held = _conditions(stack[0], dataset)
    own = [place for place in stack[1:] if _is_within(place, dataset)]
    return bool(tests or held or any(_conditions(place, dataset)[0] for place in own))


def _deciding(stack: list[Place], dataset: object) -> set[str]:
    """Attributes of a data set that decide whether it draws."""
    return {
        name for place in stack if _is_within(place, dataset) for part in _conditions(place, dataset) for name in part
    }


def _conditions(place: Place, dataset: object) -> tuple[set[str], set[str]]:
    """Attributes of self in the conditions around a line, and those called on it that no method of the data set is."""
    tests, held = set[str](), set[str]()
    function = source.function_at(place)
    for node in ast.walk(function) if function else ():
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if isinstance(node, ast.If | ast.IfExp) and first <= place.line <= last:
            tests |= {part.attr for part in ast.walk(node.test) if isinstance(part, ast.Attribute) and _of_self(part)}
        if isinstance(node, ast.Call) and first == place.line:
            root, _, name = ast.unparse(node.func).partition(".")
            if root == "self" and not hasattr(type(dataset), name):
                held.add(name.partition(".")[0])
    return tests, held


def _of_self(node: ast.Attribute) -> bool:
    return ast.unparse(node.value) == "self"


def _is_within(place: Place, thing: object) -> bool:
    """Whether a line is in a class of an object's."""
    found = filter(None, (source.body(cls) for cls in source.classes_of(thing)))
    return any(
        file == place.file and node.lineno <= place.line <= (node.end_lineno or 0)
        for file, node in found
        if isinstance(node, ast.ClassDef)
    )


def _switch(subject: Subject, dataset: object, names: set[str]) -> Place | None:
    """The last line beside a data set's own that gives one of its attributes a value other than False or None."""
    found = []
    for place, node in source.statements(*source.classes_of(owner(subject))):
        if not isinstance(node, ast.Assign) or (isinstance(node.value, ast.Constant) and not node.value.value):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr in names and not _of_self(target):
                found.append(place)
    return max(found, key=lambda place: place.line, default=None)
