"""Explains torch's most frequent errors in terms of the program: the cause and the change.

Each row of `_CAUSES` is a pattern of torch's message, in its wordings since 2.6, and a function that gets what the
pattern has found and the scene of the error. It may return nothing where the scene does not fit.
"""

import ast
import math
import re
from collections.abc import Callable
from contextlib import suppress
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Place
from torchdoctor.running.record import tensors

_LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "binary_cross_entropy", "mse_loss")
_LOSSES += ("l1_loss", "smooth_l1_loss", "huber_loss")
_CUT = 300  # characters of a text that ends amid a sentence
_SECOND_BACKWARD = "Trying to backward through the graph a second time"
_LONGEST = 60  # characters of the user's code that a text repeats


class Explanation(NamedTuple):
    """The cause of an error, and the fix.

    Args:
        cause: in the program's own names, as far as they are known.
        fix: the change as code.
    """

    cause: str
    fix: str


class Scene:
    """The frames, modules and variables at an error.

    Args:
        error: with its traceback.
    """

    def __init__(self, error: BaseException) -> None:
        self.frames: list[tuple[FrameType, int]] = list(walk_tb(error.__traceback__))
        own = [(frame, line) for frame, line in self.frames if source.is_user(frame.f_code.co_filename)]
        self.frame, line = own[-1] if own else (None, 0)
        self.place = Place(self.frame.f_code.co_filename, line) if self.frame is not None else None
        self.own_frames = [frame for frame, _ in own]
        owners = [frame.f_locals.get("self") for frame, _ in self.frames]
        modules = [owner for owner in owners if isinstance(owner, nn.Module) and "_modules" in vars(owner)]
        self.module = modules[-1] if modules else None
        self.parents = [module for module in modules if module is not self.module]

    def value(self, name: str) -> Any:
        """The value of a variable of torch's innermost function, or of the user's if torch has no such variable."""
        for frame, _ in reversed(self.frames):
            if name in frame.f_locals:
                return frame.f_locals[name]
        return None

    @property
    def name(self) -> str:
        """The program's name of the innermost module: `self.net[2]`, `model[0]`, or its type."""
        for frame in reversed(self.own_frames):
            for variable, value in frame.f_locals.items():
                path = self._path(value) if isinstance(value, nn.Module) else None
                if path is not None and "_modules" in vars(value):
                    return f"{variable}{path}"
        return f"the {type(self.module).__name__}"

    def _path(self, owner: nn.Module) -> str | None:
        names = [name for name, part in owner.named_modules() if part is self.module]
        parts = names[0].split(".") if names and names[0] else []
        return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts) if names else None

    @property
    def made_at(self) -> str:
        """A comment to append to code, `  # line 12`: where the innermost module is constructed."""
        place = origins.maker(self.module) if self.module is not None else None
        if place is None and self.module is not None:
            roots = [parent for parent in self.parents if source.classes_of(parent)]
            place = origins.layer(roots[-1], self.module) if roots else None
        return f"  # {place.seen_from(self.place)}" if place is not None and self.place is not None else ""

    def call(self, *names: str) -> ast.Call | None:
        """The user's call at the line of a function of one of these names, or that of the innermost module."""
        calls = source.around(self.place, ast.Call) if self.place is not None else []
        for call in calls:
            is_named = ast.unparse(call.func).rpartition(".")[2] in names
            if is_named or (not names and self.module is not None and self.named(call.func) is self.module):
                return call
        return None

    def argument(self, position: int, name: str, *functions: str) -> str:
        """The source of an argument of the user's call at the line; the name alone if it is not there."""
        call = self.call(*functions)
        arguments = [option.value for option in call.keywords if option.arg == name] if call is not None else []
        arguments += call.args[position : position + 1] if call is not None else []
        text = ast.unparse(arguments[0]) if arguments else name
        return text if len(text) <= _LONGEST else name

    def named(self, node: ast.expr) -> Any:
        """The value of a variable, an attribute or an entry of the user's innermost function."""
        if isinstance(node, ast.Attribute):
            return getattr(self.named(node.value), node.attr, None)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self.named(node.value)
            return owner[node.slice.value] if owner is not None else None
        if self.frame is None or not isinstance(node, ast.Name):
            return None
        return {**self.frame.f_globals, **self.frame.f_locals}.get(node.id)

    def variables(self) -> dict[str, Any]:
        """The variables of the user's innermost function, and the attributes of its `self`."""
        known = dict(self.frame.f_locals) if self.frame is not None else {}
        attributes = vars(known["self"]) if hasattr(known.get("self"), "__dict__") else {}
        return known | {f"self.{name}": value for name, value in attributes.items()}


def with_explanation(error: BaseException, text: str, fix: str = "") -> tuple[str, str]:
    """The message and the fix for an error: torch's own words, followed by the cause.

    Args:
        error: with its traceback.
        text: that tells of it.
        fix: where nothing better is known.
    """
    explanation = explain(error)
    if explanation is None:
        return text, fix
    sentences, mark, _ = text.rpartition(". ")
    words = sentences if mark and len(text) >= _CUT else text
    return f"{words.rstrip('.')}. Cause: {explanation.cause}", explanation.fix


def cause_line(error: BaseException) -> Place | None:
    """The line that causes an error which no line of the user's raises: that of a state with an old graph."""
    state = None
    if re.search(_SECOND_BACKWARD, str(error)):
        with suppress(Exception):  # what a program has in its variables may be anything
            state = _state(Scene(error))
    return state[1] if state is not None else None


def explain(error: BaseException) -> Explanation | None:
    """The cause of a known torch error and its fix; None for any other.

    Args:
        error: with its traceback.
    """
    text = " ".join(str(error).split())
    for pattern, describe in _CAUSES:
        match = re.search(pattern, text)
        try:
            explanation = describe(match, Scene(error)) if match is not None else None
        except Exception:  # what a program has in its variables may be anything, and its error is told in any case
            explanation = None
        if explanation is not None:
            return explanation
    return None


def _matrices(match: re.Match[str], scene: Scene) -> Explanation | None:
    rows, columns, expected, outputs = map(int, match.groups())
    layer, layer_input = scene.module, scene.value("input")
    if not isinstance(layer, nn.Linear) or not isinstance(layer_input, Tensor):
        cause = f"a matrix product needs equal inner sizes, and these are {columns} and {expected}"
        return Explanation(cause, "x @ weight.T  # or whichever of the two is the wrong way round")
    got = "×".join(map(str, layer_input.shape))
    cause = f"{scene.name} takes {expected} features, and the last dimension of what it gets ({got}) has {columns}"
    if layer_input.dim() > 2 and math.prod(layer_input.shape[1:]) == expected:
        fix = f"{scene.argument(0, 'x')}.flatten(1)" if scene.call() is not None else "nn.Flatten()"
        return Explanation(f"{cause}: the samples are not flattened", f"{fix}  # before {scene.name}")
    if layer_input.dim() == 1 or rows == 1:
        cause += "; if that is one sample that was flattened with its batch, use flatten(1)"
    elif layer_input.dim() == 2:
        cause += ", which is what the layers before it leave of a sample"
    options = "" if layer.bias is not None else ", bias=False"
    return Explanation(cause, f"nn.Linear({columns}, {outputs}{options}){scene.made_at}")


def _classes_wanted(match: re.Match[str], scene: Scene) -> Explanation:
    name = scene.argument(1, "target", *_LOSSES)
    cause = f"a loss over classes takes their numbers as int64 (Long), and {name} is {match[1].lower()}"
    return Explanation(cause, f"{name}.long()")


def _probabilities(match: re.Match[str], scene: Scene) -> Explanation:
    name = scene.argument(1, "target", *_LOSSES)
    cause = f"{name} has the shape of the scores, so that it stands for probabilities, but it holds integers"
    return Explanation(cause, f"{name}.argmax(1)  # of one-hot rows; or {name}.float()")


def _floats_wanted(match: re.Match[str], scene: Scene) -> Explanation:
    name = scene.argument(1, "target", *_LOSSES)
    cause = f"this loss compares floats, and {name} holds integers (Long)"
    return Explanation(cause, f"{name}.float()  # as the loss gets it")


def _backward_type(match: re.Match[str], scene: Scene) -> Explanation:
    cause = f"the loss was computed of {match[1].lower()} numbers beside {match[2].lower()} ones, as targets often are"
    return Explanation(cause, "target.float()  # where the loss gets it")


def _input_type(match: re.Match[str], scene: Scene) -> Explanation:
    name = scene.argument(0, "x")
    cause = f"{scene.name} gets {match[1].lower()} numbers, and its weights are {match[2].lower()}"
    if match[1].lower() in ("double", "torch.float64"):
        cause += ": arrays of NumPy are float64 unless told otherwise"
    return Explanation(cause, f"{name}.float()  # or dtype=torch.float32 where it is made")


def _devices(match: re.Match[str], scene: Scene) -> Explanation:
    weight = getattr(scene.module, "weight", None)
    wanted = weight.device if isinstance(weight, Tensor) else None
    places: dict[str, list[str]] = {}
    for name, value in scene.variables().items():
        leaves = tensors(list(value.parameters()) if isinstance(value, nn.Module) else value)
        if leaves and not name.startswith("self._"):
            places.setdefault(str(leaves[0].device), []).append(name)
    known = "; ".join(f"{', '.join(names[:4])} on {device}" for device, names in places.items())
    cause = "a call gets tensors of two devices" + (f": {known}" if len(places) > 1 else "")
    others = next((names for device, names in places.items() if device != str(wanted)), ["x"])
    first = next((name for name in others if name != "self"), "x")
    target = "self.device" if "self" in scene.variables() else "device"
    return Explanation(cause, f"{first} = {first}.to({target})  # or register_buffer, or device= where it is made")


def _in_place(match: re.Match[str], scene: Scene) -> Explanation:
    shape, maker = match[1], re.sub(r"Backward\d*$", "", match[2] or "")
    needed = f"what {maker.lower()} gave" if maker else "a weight or an input"
    cause = f"backward needs {needed} ({shape}) as it was, and a line has changed it in place since"
    files = dict.fromkeys(frame.f_code.co_filename for frame in scene.own_frames[-1:])
    files |= dict.fromkeys(source.files_of(*_modules(scene)))
    places = [place for file in files for place in _in_place_lines(file)]
    if len(places) == 1 and scene.place is not None:
        return Explanation(f"{cause}: {places[0].seen_from(scene.place)}, `{places[0].code}`", _out_of_place(places[0]))
    return Explanation(cause, "x = x + y  # in place of x += y; x.relu() in place of x.relu_() or inplace=True")


def _in_place_lines(file: str) -> list[Place]:
    """Lines that change a tensor in place, as far as the source shows."""
    lines = set()
    for function in ast.walk(source.tree(file)):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        plain = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
        counters = {ast.unparse(target) for node in plain for target in node.targets}
        for node in nodes:
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            is_call = name.endswith("_") and hasattr(Tensor, name) and name not in ("requires_grad_", "retain_grad_")
            is_sum = isinstance(node, ast.AugAssign) and ast.unparse(node.target) not in counters
            is_item = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
            if isinstance(node, ast.stmt | ast.expr) and (is_call or is_sum or is_item):
                lines.add(node.lineno)
    return [Place(file, line) for line in sorted(lines)]


def _out_of_place(place: Place) -> str:
    """The statement rewritten out of place, if it is simple."""
    for node in source.around(place, ast.AugAssign):
        if isinstance(node.target, ast.Name | ast.Attribute):
            target = ast.unparse(node.target)
            return ast.unparse(ast.parse(f"{target} = {ast.unparse(ast.BinOp(node.target, node.op, node.value))}"))
    return re.sub(r"\.([a-z]\w*)_\(", r".\1(", place.code) + "  # a new tensor"


def _leaf_in_place(match: re.Match[str], scene: Scene) -> Explanation:
    cause = "a weight is changed in place while autograd follows it"
    return Explanation(cause, "with torch.no_grad():  # around the line that writes into the weight")


def _second_backward(match: re.Match[str], scene: Scene) -> Explanation:
    state = _state(scene)
    if state is None:
        cause = "the graph of an earlier backward is in this loss: a tensor outlives its step, or one loss goes twice"
        return Explanation(cause, "loss = first + second  # one backward; and tensor.detach() for what a step leaves")
    name, place, is_tuple = state
    line = place.seen_from(scene.place or Place("", 0))
    cause = f"{name}, which {line} hands on from batch to batch, still holds the graph of the batch before"
    value = f"tuple(part.detach() for part in {name})" if is_tuple else f"{name}.detach()"
    return Explanation(cause, f"{name} = {value}  # before the step on the next batch")


def _state(scene: Scene) -> tuple[str, Place, bool] | None:
    """The state that is returned by a recurrent network and fed back: its name, the line, and whether it is a tuple."""
    scopes = [vars(part) for part in _modules(scene)] + [frame.f_locals for frame in reversed(scene.own_frames)]
    files = [frame.f_code.co_filename for frame in reversed(scene.own_frames)]
    files += source.files_of(*_modules(scene))
    for file in dict.fromkeys(files):
        for node in ast.walk(source.tree(file)):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            arguments = {ast.unparse(part) for part in (*node.value.args, *(key.value for key in node.value.keywords))}
            targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
            for name in (ast.unparse(part) for part in targets if ast.unparse(part) in arguments):
                value = next((scope[key] for scope in scopes if (key := name.removeprefix("self.")) in scope), None)
                has_graph = any(leaf.grad_fn is not None for leaf in tensors(value))
                if has_graph:
                    return name, Place(file, node.lineno), isinstance(value, tuple)
    return None


def _modules(scene: Scene) -> list[nn.Module]:
    values = [value for frame in scene.own_frames for value in frame.f_locals.values()]
    parts = [*scene.parents, *filter(None, [scene.module]), *values]
    return [part for part in parts if isinstance(part, nn.Module) and "_modules" in vars(part)]


def _class_range(match: re.Match[str], scene: Scene) -> Explanation | None:
    label, scores, target = int(match[1]), scene.value("input"), scene.value("target")
    name = scene.argument(1, "target", *_LOSSES)
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor):
        return None
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    least, most = int(target.min()), int(target.max())
    cause = f"the scores are those of {classes} classes, 0 to {classes - 1}, and {name} holds {least} to {most}"
    if label < 0:
        return Explanation(
            f"{cause}: a mark for what does not count?", f"ignore_index={label}  # an option of the loss"
        )
    if most == classes and least > 0:
        return Explanation(f"{cause}: the labels begin with 1", f"{name} - 1")
    return Explanation(cause, f"{most + 1}  # outputs of the last layer, or fewer labels")


def _index_range(match: re.Match[str], scene: Scene) -> Explanation | None:
    weight, indices = scene.value("weight"), scene.value("input")
    if not isinstance(weight, Tensor) or not isinstance(indices, Tensor) or not isinstance(scene.module, nn.Embedding):
        return None
    least, most = int(indices.min()), int(indices.max())
    cause = f"{scene.name} has {len(weight)} entries, 0 to {len(weight) - 1}, and gets {least} to {most}"
    return Explanation(cause, f"nn.Embedding({most + 1}, {weight.shape[1]}){scene.made_at}")


def _channels(match: re.Match[str], scene: Scene) -> Explanation:
    shape = [int(size) for size in match[1].split(",")]
    expected, got = int(match[2]), int(match[3])
    name, layer_input = scene.argument(0, "x"), scene.value("input")
    cause = (
        f"{scene.name} takes {expected} channels, and dimension 1 of its input ({'×'.join(map(str, shape))}) has {got}"
    )
    dims = len(shape)
    if isinstance(layer_input, Tensor) and layer_input.dim() == dims - 1 and expected == 1:
        return Explanation(f"{cause}: the channel is missing", f"{name}.unsqueeze(1)")
    if shape[-1] == expected != got:
        order = ", ".join(map(str, [0, dims - 1, *range(1, dims - 1)]))
        return Explanation(f"{cause}: they come last", f"{name}.permute({order})")
    kind = type(scene.module).__name__ if scene.module is not None else "Conv2d"
    outputs = getattr(scene.module, "out_channels", "…")
    size = getattr(scene.module, "kernel_size", ("…",))
    kernel = size[0] if len(set(size)) == 1 else size
    return Explanation(cause, f"nn.{kind}({got}, {outputs}, {kernel}, …){scene.made_at}")


def _view(match: re.Match[str], scene: Scene) -> Explanation:
    if (number := getattr(scene.module, "num_classes", None)) is not None and not source.classes_of(scene.module):
        return _metric(scene, number)
    wanted, total = [int(size) for size in match[1].split(",") if size.strip()], int(match[2])
    rest = math.prod(size for size in wanted[1:] if size > 0)
    call = scene.call("view", "reshape")
    owner = ast.unparse(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else "x"
    value = scene.named(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else None
    shape = f" ({'×'.join(map(str, value.shape))})" if isinstance(value, Tensor) else ""
    cause = f"{owner}{shape} has {total} numbers, which do not fill the shape {tuple(wanted)}"
    if len(wanted) > 1 and wanted[0] > 0 and total % rest == 0 and -1 not in wanted:
        cause += f": a batch of {total // rest} where {wanted[0]} is written"
        others = ", ".join(map(str, wanted[1:]))
        return Explanation(cause, f"{owner}.view(-1, {others})  # drop_last=True is no remedy where it is served")
    return Explanation(cause, f"{owner}.flatten(1)  # which keeps the samples, and counts the rest itself")


def _stride(match: re.Match[str], scene: Scene) -> Explanation:
    call = scene.call("view")
    text = ast.unparse(call) if call is not None else "x.view(…)"
    cause = "view needs numbers that lie in this order in memory, which they do not after transpose or permute"
    return Explanation(cause, re.sub(r"\.view\(", ".reshape(", text))


def _one_hot(match: re.Match[str], scene: Scene) -> Explanation:
    name = scene.argument(0, "labels", "one_hot")
    number = scene.argument(1, "num_classes", "one_hot")
    call = scene.call("one_hot")
    value = scene.named(call.args[0]) if call is not None and call.args else None
    most = int(value.max()) if isinstance(value, Tensor) and value.numel() else None
    holds = f"holds {most}, which needs {most + 1} classes" if most is not None else "holds larger numbers"
    fix = f"num_classes={most + 1 if most is not None else '…'}  # or labels from 0 on"
    return Explanation(f"one_hot makes {number} classes, and {name} {holds}", fix)


def _more_classes(match: re.Match[str], scene: Scene) -> Explanation:
    return _metric(scene, int(match[1]))


def _metric(scene: Scene, number: int) -> Explanation:
    """Explains labels that exceed the number of classes of a metric."""
    labels, kind = scene.value("target"), type(scene.module).__name__
    most = int(labels.max()) if isinstance(labels, Tensor) and labels.numel() else None
    cause = f"{kind} is made for num_classes={number}, and a label is {most if most is not None else 'larger'}"
    return Explanation(cause, f"num_classes={most + 1 if most is not None else '…'}{scene.made_at}")


def _one_value(match: re.Match[str], scene: Scene) -> Explanation:
    cause = f"{scene.name} takes the mean and variance of the batch, and gets one value for each channel ({match[1]})"
    if match[1].replace(" ", "").startswith("1,"):
        return Explanation(
            f"{cause}: a batch of one sample", "DataLoader(…, drop_last=True)  # or model.eval() to predict"
        )
    return Explanation(cause, "nn.GroupNorm(…)  # has no need of a batch")


def _sizes_of_batches(match: re.Match[str], scene: Scene) -> Explanation:
    scores, name = scene.argument(0, "input", *_LOSSES), scene.argument(1, "target", *_LOSSES)
    cause = f"{scores} has {match[1]} rows and {name} {match[2]}: a reshape before has moved samples into features"
    return Explanation(cause, f"{scores}.flatten(1)  # in place of view(-1, …), which keeps no samples apart")


_TYPE = r"(?:torch\.)?(\w+)"
_CAUSES: tuple[tuple[str, Callable[[re.Match[str], Scene], Explanation | None]], ...] = (
    (r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _matrices),
    (r"expected target dtype to be Long or Byte, but got (\w+)", _classes_wanted),
    (r"expected scalar type Long but found (\w+)", _classes_wanted),
    (r'"nll_loss\w*" not implemented for \'(\w+)\'', _classes_wanted),
    (r"Expected floating point type for target with class probabilities", _probabilities),
    (r"result type Float can't be cast to the desired output type Long", _floats_wanted),
    (r"Found dtype (\w+) but expected (\w+)", _backward_type),
    (r"mat1 and mat2 must have the same dtype, but got (\w+) and (\w+)", _input_type),
    (r"Input type \((\w+)\) and (?:bias|weight) type \((\w+)\) should be the same", _input_type),
    (rf"RNN input dtype \({_TYPE}\) does not match weight dtype \({_TYPE}\)", _input_type),
    (r"Expected all tensors to be on the same device", _devices),
    (r"Tensor on device \S+ is not on the expected device", _devices),
    (r"Input type \((\S+)\) and weight type \((\S+)\) should be the same", _devices),
    (r"modified by an inplace operation: \[\S+ \[([\d, ]*)\]\](?:, which is output \d+ of (\w+))?", _in_place),
    (r"a leaf Variable that requires grad is being used in an in-place operation", _leaf_in_place),
    (_SECOND_BACKWARD, _second_backward),
    (r"Target (-?\d+) is out of bounds", _class_range),
    (r"index out of range in self", _index_range),
    (r"expected input\[([\d, ]+)\] to have (\d+) channels, but got (\d+) channels", _channels),
    (r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", _view),
    (r"view size is not compatible with input tensor's size and stride", _stride),
    (r"Class values must be smaller than num_classes", _one_hot),
    (r"more unique values in `target` than expected\. Expected only (\d+) but found (\d+)", _more_classes),
    (r"Expected more than 1 value per channel when training, got input size torch\.Size\(\[([\d, ]+)\]\)", _one_value),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", _sizes_of_batches),
)
