"""Best epochs that the training loss chooses, though there is a validation."""

import ast
from collections.abc import Iterator

from torchdoctor import source
from torchdoctor.code import keyword, name_of
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

CHOSEN_BY_TRAINING = Defect(
    "chosen-by-training",
    "warning",
    "The training loss falls as long as the model learns by heart: the epoch that is kept fits the training best.",
    shown_by=Evidence("source", "what is compared was followed to where it is computed"),
)
_MONITORS = ("EarlyStopping", "ModelCheckpoint")
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_BACKWARD = ("backward", "manual_backward")

_TRAINING = ("training_step", "on_train_batch_end", "on_train_epoch_end")
_EVALUATING = ("eval", "no_grad", "inference_mode", "evaluate", "validate", "test")

Choice = tuple[Place, str, bool]  # where, by what, and whether that is of the training alone


def selection(subject: Subject) -> Iterator[Finding | str]:
    """Follows what decides about the best epoch: a monitored name, or a number that is compared with the best so far.

    A monitored name is one of the training if `training_step` or a hook of the training logs it and nothing else does.
    A number comes from the training if a loop or a function that goes backward computes it, and no other loop or
    function has a part in it. One that also evaluates, or is called several times, may compute either. Without a
    validation there is nothing else to choose by.
    """
    if not subject.validates:
        return
    sources = list(_sources(subject))
    choices = [*_monitored(sources), *(choice for each in sources for choice in _compared(*each))]
    for place, name, is_of_training in choices:
        if is_of_training:
            message = f"{name} decides about the best epoch: it is of the training alone, while there is a validation"
            yield Finding(CHOSEN_BY_TRAINING, place, message, "# decide by the loss or score of the validation")
            return
    if choices:
        yield "what decides about the best epoch is not of the training alone"


PROBE = Probe(look=selection, defects=(CHOSEN_BY_TRAINING,), is_light=True)


def _sources(subject: Subject) -> Iterator[tuple[str, ast.Module]]:
    """The files of a script; of a module, the methods that are its own, and what stands outside of classes."""
    methods: dict[str, dict[str, ast.stmt]] = {}
    known: set[str] = set()
    for file, cls in filter(None, map(source.body, source.classes_of(subject.model))):
        own = {node.name: node for node in ast.iter_child_nodes(cls) if isinstance(node, ast.FunctionDef)}
        methods.setdefault(file, {}).update({name: node for name, node in own.items() if name not in known})
        known |= own.keys()
    for file in subject.files:
        body = source.tree(file).body
        if subject.script is None:
            body = [node for node in body if not isinstance(node, ast.ClassDef)] + list(methods.get(file, {}).values())
        yield file, ast.Module(body, [])


def _monitored(sources: list[tuple[str, ast.Module]]) -> Iterator[Choice]:
    """Names that callbacks of Lightning's watch."""
    nodes = [(file, node) for file, tree in sources for node in ast.walk(tree)]
    functions = [node for _, node in nodes if isinstance(node, ast.FunctionDef)]
    training = {name for function in functions if function.name in _TRAINING for name in _logged(function)}
    others = {name for function in functions if function.name not in _TRAINING for name in _logged(function)}
    for file, call in ((file, node) for file, node in nodes if isinstance(node, ast.Call)):
        first = call.args[0] if call.args and name_of(call) == "EarlyStopping" else None
        monitor = (keyword(call, "monitor") or first) if name_of(call) in _MONITORS else None
        if isinstance(monitor, ast.Constant) and monitor.value in training | others:
            yield Place(file, call.lineno), f'"{monitor.value}"', monitor.value not in others


def _logged(function: ast.FunctionDef) -> set[str]:
    """Names that a function logs, as far as they are written out."""
    keys = [call.args[0] for call in source.calls(function, "log") if call.args]
    dicts = [call.args[0] for call in source.calls(function, "log_dict") if call.args]
    keys += [key for each in dicts if isinstance(each, ast.Dict) for key in each.keys if key is not None]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _compared(file: str, tree: ast.Module) -> Iterator[Choice]:
    """Numbers that are compared with the best so far, which they replace."""
    for branch in (node for node in ast.walk(tree) if isinstance(node, ast.If) and _keeps(node)):
        test = branch.test
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], _ORDERS):
            continue
        sides = {ast.unparse(side): side for side in (test.left, test.comparators[0])}
        for target, value in (pair for node in branch.body for pair in _assigned(node)):
            if {target, value} == sides.keys():
                place = Place(file, branch.lineno)
                kinds = _kinds(sides[value], place, tree)
                yield from [(place, value, kinds == {True})] if kinds else []


def _keeps(branch: ast.If) -> bool:
    """Whether a branch saves something, copies weights, or counts what follows it in vain."""
    calls = {name_of(node) for node in ast.walk(branch) if isinstance(node, ast.Call)}
    counts = any(isinstance(node, ast.AugAssign) for other in branch.orelse for node in ast.walk(other))
    return bool(calls & {"save", "save_checkpoint", "state_dict", "deepcopy"}) or counts


def _assigned(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """What a statement assigns, and to what, as the source has it."""
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = [*zip(target.elts, value.elts, strict=True)]
        yield from ((ast.unparse(one), ast.unparse(other)) for one, other in pairs)


def _kinds(value: ast.expr, place: Place, tree: ast.Module) -> set[bool]:
    """Whether the loops and functions that compute a value go backward; both where that cannot be told."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names, kinds = _names(value), set[bool]()
    scope = source.function_at(place) or tree
    statements = [node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.AugAssign)]
    for node in sorted(statements, key=lambda node: -node.lineno):
        if node.lineno >= place.line or names.isdisjoint(_targets(node)):
            continue
        called = [functions[name_of(call)] for call in source.calls(node.value, *functions)]
        around = [loop for loop in source.loops_around(Place(place.file, node.lineno)) if not _holds(loop, place.line)]
        for part in called or around[:1]:
            is_clear = not any(source.calls(part, *_EVALUATING))
            is_once = part not in called or len(list(source.calls(tree, part.name))) == 1
            goes_backward = any(source.calls(part, *_BACKWARD))
            kinds |= {goes_backward} if not goes_backward or (is_clear and is_once) else {True, False}
        if not called and not around:
            names |= _names(node.value)
    return kinds


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    """The variables that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [part for target in targets for part in (getattr(target, "elts", None) or [target])]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _holds(loop: ast.AST, line: int) -> bool:
    return loop.lineno <= line <= loop.end_lineno  # type: ignore[attr-defined]  # a statement has both
