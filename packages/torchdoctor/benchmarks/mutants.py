"""Defects to plant into a program: each kind finds, by syntax, the expressions or statements that it can spoil."""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

CLASSES = ("cross_entropy", "CrossEntropyLoss")
LABELS = (*CLASSES, "nll_loss", "NLLLoss")
LOGITS = ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss")
NUMBERS = ("mse_loss", "MSELoss", "l1_loss", "L1Loss", "smooth_l1_loss", "SmoothL1Loss")
BINARY = ("binary_cross_entropy", "BCELoss")
LOSSES = (*LABELS, *LOGITS, *NUMBERS, *BINARY)
OPTIMIZERS = ("Adam", "AdamW", "SGD", "RMSprop", "Adadelta")
LAYERS = ("Linear", "Conv2d")
FORWARDS = ("self", "model", "net", "self.model", "self.net", "self.forward")
EVALUATION = ("val", "test", "predict", "eval", "sample", "generate", "on_")

Change = tuple[Any, str]  # what is replaced, and by what
ChangeFinder = Callable[["Program"], Iterator[Change]]


@dataclass(frozen=True)
class Mutant:
    """One change of one program: bytes `start` to `end` become `text`."""

    program: str
    kind: str
    line: int
    first: int  # lines where a finding is at the right place
    last: int
    start: int
    end: int
    text: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.program, self.kind, self.start

    def apply(self, source: bytes) -> bytes:
        missing = source[self.start : self.end].count(b"\n") - self.text.count("\n")
        return source[: self.start] + self.text.encode() + b"\n" * missing + source[self.end :]


class Program:
    """The syntax tree of a program, and what the kinds of defects ask of it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def span(self, node: Any) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def nodes(self, *types: type) -> Iterator[Any]:
        return (node for node in ast.walk(self.tree) if isinstance(node, types))

    def above(self, node: Any, *types: type) -> Any:
        while node in self.parents and not isinstance(node, types):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> str:
        return getattr(self.above(node, ast.FunctionDef), "name", "")

    def block(self, node: Any) -> Any:
        """The function around a statement, or the outermost statement."""
        while not isinstance(node, ast.FunctionDef) and not isinstance(self.parents[node], ast.Module):
            node = self.parents[node]
        return node

    def calls(self, *names: str) -> Iterator[ast.Call]:
        return (node for node in self.nodes(ast.Call) if last_name(node.func) in names)

    @cached_property
    def criteria(self) -> dict[str, str]:
        """Names that hold a loss: criterion → CrossEntropyLoss; one that may hold several holds none."""
        held: dict[str, set[str]] = {}
        for node in self.nodes(ast.Assign):
            made = {last_name(call.func) for call in ast.walk(node.value) if isinstance(call, ast.Call)} & {*LOSSES}
            if made:
                held.setdefault(last_name(node.targets[0]), set()).update(made)
        return {name: made.pop() for name, made in held.items() if len(made) == 1}

    def losses(self, *names: str) -> Iterator[ast.Call]:
        """Calls of these losses in training: F.mse_loss(…), nn.MSELoss()(…), self.criterion(…)."""
        for node in self.nodes(ast.Call):
            name = last_name(node.func.func if isinstance(node.func, ast.Call) else node.func)
            name = self.criteria.get(name, name)
            if name in names and len(node.args) > 1 and not self.function(node).startswith(EVALUATION):
                yield node


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((item.value for item in call.keywords if item.arg == name), None)


def argument(losses: tuple[str, ...], place: int, template: str) -> ChangeFinder:
    """Another expression around an argument of a loss."""

    def changes(program: Program) -> Iterator[Change]:
        for call in program.losses(*losses):
            yield call.args[place], template.format(program.text(call.args[place]))

    return changes


def loss(losses: tuple[str, ...], template: str) -> ChangeFinder:
    """Another expression around the loss; {0} is the call, {1} its targets."""

    def changes(program: Program) -> Iterator[Change]:
        for call in program.losses(*losses):
            yield call, template.format(program.text(call), program.text(call.args[1]))

    return changes


def option(calls: tuple[str, ...], name: str, template: str, add: bool = False, inside: str = "") -> ChangeFinder:
    """Another value of a keyword, which is added where `add`, in functions whose name contains `inside`."""

    def changes(program: Program) -> Iterator[Change]:
        for call in program.calls(*calls) if calls else program.nodes(ast.Call):
            value = keyword(call, name)
            if inside not in program.function(call):
                continue
            if value is not None and program.text(value) != template:
                yield value, template.format(program.text(value))
            elif value is None and add and call.args:
                yield call.args[-1], f"{program.text(call.args[-1])}, {name}={template}"

    return changes


def deleted(name: str, base: str = "") -> ChangeFinder:
    """A statement that only calls a method of this name is left out."""

    def changes(program: Program) -> Iterator[Change]:
        for node in program.nodes(ast.Expr):
            function = node.value.func if isinstance(node.value, ast.Call) else None
            if isinstance(function, ast.Attribute) and function.attr == name and base in program.text(function.value):
                yield node, "pass"

    return changes


def after_layer(template: str) -> ChangeFinder:
    """A statement after `self.NAME = nn.Linear(…)`; {0} is the layer, {1} what makes it."""

    def changes(program: Program) -> Iterator[Change]:
        for node in program.nodes(ast.Assign):
            if isinstance(node.value, ast.Call) and last_name(node.value.func) in LAYERS:
                layer, made = program.text(node.targets[0]), program.text(node.value)
                if layer.startswith("self."):
                    yield node, f"{layer} = {made}; " + template.format(layer, made)

    return changes


def returned(template: str) -> ChangeFinder:
    """Another result of `forward`."""

    def changes(program: Program) -> Iterator[Change]:
        for node in program.nodes(ast.Return):
            if program.function(node) == "forward" and node.value and not isinstance(node.value, ast.Tuple):
                yield node.value, template.format(program.text(node.value))

    return changes


def with_modes(changes: ChangeFinder) -> ChangeFinder:
    """Only in programs that differ between training and evaluation."""

    def some(program: Program) -> Iterator[Change]:
        if b"Dropout" in program.source or b"BatchNorm" in program.source:
            yield from changes(program)

    return some


def without_gradient(program: Program) -> Iterator[Change]:
    for node in program.nodes(ast.Assign):
        name = program.text(node.value.func) if isinstance(node.value, ast.Call) else ""
        is_training = not program.function(node).startswith(EVALUATION)
        if name in FORWARDS and is_training and b"\nimport torch\n" in program.source:
            yield node, f"with torch.no_grad(): {program.text(node)}"


def stuck_in_eval(program: Program) -> Iterator[Change]:
    for node in program.nodes(ast.FunctionDef):
        first = node.body[0]
        if node.name == "training_step" and not isinstance(first, (ast.If, ast.For, ast.With)):
            yield first, f"self.eval(); {program.text(first)}"


def after_loss(template: str, inside: str = "") -> ChangeFinder:
    """A statement after `loss = F.cross_entropy(…)`; {0} is the loss."""

    def changes(program: Program) -> Iterator[Change]:
        calls = {*program.losses(*LOSSES)}
        for node in program.nodes(ast.Assign):
            text = program.text(node)
            if node.value in calls and isinstance(node.targets[0], ast.Name) and inside in text:
                yield node, f"{text}; {template.format(node.targets[0].id)}"

    return changes


def python_list(program: Program) -> Iterator[Change]:
    for call in program.calls("ModuleList"):
        yield call.func, "list"


def reshaped(program: Program) -> Iterator[Change]:
    """The shape of a transpose without its order."""
    for call in program.calls("transpose", "permute"):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            yield call, f"{call.func.value.id}.reshape({program.text(call)}.shape)"


def training_set(program: Program) -> Iterator[Change]:
    """Validation on the training set."""
    sets = {program.function(call): [*call.args, keyword(call, "dataset")][0] for call in program.calls("DataLoader")}
    train, val = sets.get("train_dataloader"), sets.get("val_dataloader")
    if train and val:
        yield val, program.text(train)


def no_mask(program: Program) -> Iterator[Change]:
    for call in program.calls("masked_fill"):
        if isinstance(call.func, ast.Attribute) and "inf" in program.text(call):
            yield call, program.text(call.func.value)
    for name in ("attn_mask", "tgt_mask"):
        yield from option((), name, "None")(program)


def unshifted(program: Program) -> Iterator[Change]:
    """x[i + 1 : i + 1 + n] → x[i : i + n]."""
    for node in program.nodes(ast.Slice):
        lower, upper = (node.lower and ast.unparse(node.lower)), (node.upper and ast.unparse(node.upper))
        if lower and upper and lower.endswith(" + 1") and upper.startswith(lower):
            yield node, f"{lower[:-4]}:{upper.replace(' + 1', '', 1)}"


def unscaled(program: Program) -> Iterator[Change]:
    """Inputs from 0 to 255 in place of normalised ones."""
    for call in program.calls("Normalize"):
        yield call, f"{program.text(call.func).replace('Normalize', 'Lambda')}(lambda image: image * 255)"


def interval(program: Program) -> Iterator[Change]:
    for node in program.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "interval" and isinstance(value, ast.Constant):
                yield value, {"step": '"epoch"', "epoch": '"step"'}[str(value.value)]


def parameters_left_out(program: Program) -> Iterator[Change]:
    for call in program.calls(*OPTIMIZERS):
        if call.args and program.text(call.args[0]).endswith(".parameters()"):
            yield call.args[0], f"list({program.text(call.args[0])})[2:]"


def decayed(program: Program) -> Iterator[Change]:
    for call in program.calls("Adam"):
        value = keyword(call, "weight_decay")
        yield (value, "0.01") if value else (call.args[-1], f"{program.text(call.args[-1])}, weight_decay=0.01")
    for call in program.calls("AdamW"):
        if isinstance(call.func, ast.Attribute):
            decay = "" if keyword(call, "weight_decay") else ", weight_decay=0.01"
            yield call, program.text(call).replace("AdamW", "Adam", 1)[:-1] + decay + ")"


def biased(program: Program) -> Iterator[Change]:
    """bias=True where the next of several arguments is a norm."""
    for call in program.calls(*LAYERS):
        bias, around = keyword(call, "bias"), program.parents[call]
        siblings = around.args if isinstance(around, ast.Call) else getattr(around, "elts", [])
        following = siblings[siblings.index(call) + 1 :] if call in siblings else []
        if bias and following and "Norm" in program.text(following[0]):
            yield bias, "True"


def swapped(program: Program) -> Iterator[Change]:
    for call in program.losses(*BINARY, *LOGITS):
        predictions, targets = map(program.text, call.args[:2])
        yield call, program.text(call).replace(f"{predictions}, {targets}", f"{targets}, {predictions}")


KINDS: dict[str, tuple[set[str], ChangeFinder]] = {
    "softmax before cross-entropy": ({"double-softmax"}, argument(CLASSES, 0, "({}).softmax(1)")),
    "ReLU before cross-entropy": ({"activation-on-logits"}, argument(CLASSES, 0, "({}).relu()")),
    "sigmoid before BCE with logits": ({"sigmoid-before-logits-loss"}, argument(LOGITS, 0, "({}).sigmoid()")),
    "dropout after logits": (
        {"activation-on-logits", "bad-initial-loss"},
        argument(CLASSES, 0, "torch.nn.Dropout()({})"),
    ),
    "predictions and targets swapped": ({"loss-not-decreasing", "non-finite"}, swapped),
    "detach before the loss": ({"detached-graph"}, argument(LOSSES, 0, "({}).detach()")),
    "no_grad around forward": ({"detached-graph"}, without_gradient),
    "negated loss": ({"loss-not-decreasing"}, loss(LOSSES, "-{0}")),
    "mean loss divided by the batch size": ({"mean-divided-again"}, loss(LOSSES, "{0} / len({1})")),
    "loss of every sample": ({"non-scalar-loss"}, option(LOSSES, "reduction", '"none"', add=True, inside="step")),
    "labels off by one": ({"label-out-of-range"}, argument(LABELS, 1, "({}) + 1")),
    "constant labels": ({"constant-labels"}, argument(LABELS, 1, "({}) * 0")),
    "labels of other samples": (
        {"misaligned-labels", "misordered-targets", "loss-not-decreasing", "batch-mixing"},
        argument(LABELS, 1, "({}).flip(0)"),
    ),
    "(N, 1) against (N)": ({"bad-broadcast"}, argument(NUMBERS, 1, "({}).unsqueeze(-1)")),
    "no zero_grad": ({"missing-zero-grad"}, deleted("zero_grad")),
    "eval() in the training step": ({"stuck-in-eval"}, with_modes(stuck_in_eval)),
    "no train()": ({"stuck-in-eval"}, with_modes(deleted("train"))),
    "no eval()": ({"eval-nondeterminism", "batch-mixing"}, with_modes(deleted("eval"))),
    "graph kept": ({"graph-retained"}, after_loss("self.__dict__.setdefault('losses', []).append({0})", "self")),
    "item() in the step": ({"host-sync"}, after_loss("value = {0}.item()")),
    "not shuffled": ({"train-not-shuffled"}, option(("DataLoader",), "shuffle", "False")),
    "validation on the training set": ({"train-val-overlap"}, training_set),
    "drop_last in evaluation": (
        {"eval-drops-data"},
        option(("DataLoader",), "drop_last", "True", add=True, inside="val"),
    ),
    "inputs up to 255": ({"unnormalized-input"}, unscaled),
    "rate × 1000": (
        {"learning-rate-too-high", "exploding-gradient", "non-finite"},
        option(OPTIMIZERS, "lr", "1000 * ({})"),
    ),
    "rate ÷ 1e5": ({"learning-rate-too-low"}, option(OPTIMIZERS, "lr", "1e-5 * ({})")),
    "Adam with weight decay": ({"adam-l2"}, decayed),
    "two parameters not optimised": ({"parameter-not-optimized"}, parameters_left_out),
    "schedule's interval": ({"scheduler-cadence"}, interval),
    "schedule never steps": ({"scheduler-cadence"}, deleted("step", "sched")),
    "frozen layer": ({"unused-parameter", "parameter-not-optimized"}, after_layer("{0}.requires_grad_(False)")),
    "layer without use": ({"unused-parameter"}, after_layer("{0}_2 = {1}")),
    "weights of zero": (
        {"input-independent", "dead-units", "vanishing-gradient", "loss-not-decreasing"},
        after_layer("{0}.weight.data.zero_()"),
    ),
    "list in place of ModuleList": ({"unregistered-submodule"}, python_list),
    "no super().__init__()": ({"missing-super-init"}, deleted("__init__", "super()")),
    "bias before a norm": ({"bias-before-norm"}, biased),
    "dropout in evaluation": ({"eval-nondeterminism"}, returned("torch.dropout({}, 0.2, True)")),
    "softmax over the batch": ({"batch-mixing", "softmax-axis"}, option(("softmax", "log_softmax"), "dim", "0")),
    "batch_first": ({"batch-mixing"}, option((), "batch_first", "False")),
    "reshape in place of transpose": ({"batch-mixing", "misordered-targets", "channel-order", "causal-leak"}, reshaped),
    "no causal mask": ({"causal-leak"}, no_mask),
    "mask off by one": ({"shifted-causal-mask", "causal-leak"}, option(("triu", "tril"), "diagonal", "2")),
    "targets not shifted": ({"unshifted-targets"}, unshifted),
    "padding not ignored": ({"padding-in-loss", "label-out-of-range"}, option((), "ignore_index", "-100")),
    "tensor on the CPU": (
        {"device-unsafe-tensor"},
        option(("ones", "zeros", "randn", "rand", "arange", "full"), "device", '"cpu"'),
    ),
}


def mutants_of(name: str, source: bytes, run_lines: set[int]) -> Iterator[Mutant]:
    """Every mutant of a program on lines that run."""
    program = Program(source)
    for kind, (_, changes) in KINDS.items():
        for node, text in changes(program):
            statement = program.above(node, ast.stmt)
            if not run_lines & {*range(statement.lineno, statement.end_lineno + 1)}:
                continue
            place = program.block(statement) if text == "pass" else statement
            mutant = Mutant(name, kind, node.lineno, place.lineno - 1, place.end_lineno + 1, *program.span(node), text)
            if text.count("\n") <= program.text(node).count("\n") and text != program.text(node):
                yield mutant


def sampled(found: list[Mutant], most: int, seed: int) -> list[Mutant]:
    """Kinds in turns; within a kind, programs in turns."""
    generator = random.Random(seed)
    generator.shuffle(found)
    turns, counts = [], dict[tuple[str, str], int]()
    of_kind = dict[str, list[tuple[int, Mutant]]]()
    for mutant in found:
        counts[mutant.kind, mutant.program] = turn = counts.get((mutant.kind, mutant.program), 0) + 1
        of_kind.setdefault(mutant.kind, []).append((turn, mutant))
    for items in of_kind.values():
        turns += [(place, mutant) for place, (_, mutant) in enumerate(sorted(items, key=lambda item: item[0]))]
    return [mutant for _, mutant in sorted(turns, key=lambda item: item[0])][:most]


def unchanged(name: str) -> Mutant:
    return Mutant(name, "", 0, 0, 0, 0, 0, "")
