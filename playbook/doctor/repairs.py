"""Repairs of the user's source that are sure from a finding and the code at its line: a function for each defect."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from playbook.doctor.code import Code, Edit, keyword, name_of

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Site:
    """Where a defect was found.

    Args:
        code: the file.
        finding: as Finding.as_dict has it.
    """

    code: Code
    finding: dict[str, Any]

    @property
    def line(self) -> int:
        """The line of the finding."""
        return self.finding["line"]

    @property
    def fix(self) -> str:
        """The change as the probe puts it."""
        return self.finding["fix"]

    @property
    def statement(self) -> ast.stmt | None:
        """The innermost statement at the line."""
        return self.code.statement_at(self.line)

    def call(self, *names: str) -> ast.Call | None:
        """The one call of these names at the line."""
        return _only(self.code.calls_at(self.line, *names))

    def nodes(self, kind: type[_Node]) -> list[_Node]:
        """Nodes of a kind that begin at the line."""
        return [node for node in self.code.nodes_at(self.line) if isinstance(node, kind) and node.lineno == self.line]

    def value(self) -> ast.expr | None:
        """What the statement at the line assigns to one target, or returns."""
        statement = self.statement
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return statement.value
        return statement.value if isinstance(statement, ast.Return) else None

    def figure(self, before: str) -> str | None:
        """The number that follows a text in the probe's fix."""
        found = re.search(re.escape(before) + r"(-?[\d.]+(?:e[-+]?\d+)?)", self.fix)
        return found[1] if found else None


def repair(text: str, finding: dict[str, Any]) -> str | None:
    """The text of a file without a defect; None where the code is not what the repair knows.

    Args:
        text: of the file that the finding names.
        finding: as Finding.as_dict has it.
    """
    try:
        code = Code(text)
    except (SyntaxError, ValueError):
        return None
    line = code.lines[finding["line"] - 1].strip() if 0 < finding["line"] <= len(code.lines) else None
    if finding["id"] not in REPAIRS or line != finding["code"]:
        return None
    return code.edited(REPAIRS[finding["id"]](Site(code, finding)))


def _only(items: list[_Node]) -> _Node | None:
    return items[0] if len(items) == 1 else None


def _set(name: str, value: str, *calls: str) -> Callable[[Site], list[Edit]]:
    """Sets an option of the call at the line."""

    def act(site: Site) -> list[Edit]:
        call = site.call(*calls)
        return site.code.set_keyword(call, name, value) if call is not None else []

    return act


def _first(*repairs: Callable[[Site], list[Edit]]) -> Callable[[Site], list[Edit]]:
    """The edits of the first repair that knows the code."""

    def act(site: Site) -> list[Edit]:
        return next(filter(None, (attempt(site) for attempt in repairs)), [])

    return act


def _operand(code: Code, call: ast.Call) -> ast.expr | None:
    """What a function or a method computes on: x in `F.relu(x)`, `x.relu()` and `self.act(x)`."""
    if not isinstance(call.func, ast.Attribute) or _is_module(code, call.func.value):
        return call.args[0] if call.args else None
    return call.func.value


def _is_module(code: Code, node: ast.expr) -> bool:
    """Whether an expression is an imported module, as `torch.special`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and code.is_imported(node.id)


def _made(code: Code, call: ast.Call) -> ast.Call | None:
    """The call that made the layer that is called: `nn.Tanh()` for `self.act(x)`, if the file has one."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return None
    name, outer = code.source(call.func), code.class_around(call)
    made = [
        node.value
        for node in ast.walk(outer or code.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if any(code.source(target) == name for target in node.targets)
    ]
    return _only(made)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _without_activation(site: Site) -> list[Edit]:
    """Leaves out the softmax, sigmoid or other activation that the message names."""
    code = site.code
    named = re.match(r"the result of (\w+) goes into", site.finding["message"])
    kind = _plain(named[1]) if named else ""
    calls = [node for node in code.nodes_at(site.line) if isinstance(node, ast.Call)]
    layers = [call for call in calls if _plain(name_of(call)) == kind and name_of(call)[0].isupper()]
    if layer := _only(layers):
        return _without_layer(code, layer)
    applied = [call for call in calls if _plain(name_of(call)) == kind and not name_of(call)[0].isupper()]
    held = [call for call in calls if (made := _made(code, call)) and _plain(name_of(made)) == kind]
    call = _only(list(dict.fromkeys([*applied, *held])))
    if call is None:
        return []
    operand = call.args[0] if call in held and call.args else _operand(code, call)
    return code.keep(operand, call) if operand is not None else []


def _without_layer(code: Code, layer: ast.Call) -> list[Edit]:
    """Leaves out the last layer of a Sequential; elsewhere an Identity takes its place."""
    outer = code.parent(layer)
    elements = outer.args if isinstance(outer, ast.Call) else getattr(outer, "elts", [])
    in_sequence = isinstance(outer, ast.List) or (isinstance(outer, ast.Call) and name_of(outer) == "Sequential")
    if in_sequence and len(elements) > 1 and elements[-1] is layer:
        if code.lines[layer.lineno - 1].partition("#")[0].strip() == f"{code.source(layer)},":
            return code.without_line(layer.lineno)
        return [Edit(code.span(elements[-2])[1], code.span(layer)[1], "")]
    if isinstance(layer.func, ast.Attribute):
        return code.replace(layer, f"{code.source(layer.func.value)}.Identity()")
    return []


def _decoupled(site: Site) -> list[Edit]:
    call = site.call("Adam")
    if call is None:
        other = site.call("NAdam", "RAdam")
        return site.code.set_keyword(other, "decoupled_weight_decay", "True") if other is not None else []
    if isinstance(call.func, ast.Attribute):
        end = site.code.span(call.func)[1]
        return [Edit(end, end, "W")]
    imports = [
        alias
        for node in ast.walk(site.code.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch.optim"
        for alias in node.names
        if alias.name == "Adam" and alias.asname is None
    ]
    if len(imports) != 1:
        return []
    uses = [node for node in ast.walk(site.code.tree) if isinstance(node, ast.Name) and node.id == "Adam"]
    return [
        *site.code.replace(call.func, "AdamW"),
        *site.code.replace(imports[0], "AdamW" if len(uses) == 1 else "Adam, AdamW"),
    ]


def _on_logits(site: Site) -> list[Edit]:
    """`binary_cross_entropy(x.sigmoid(), y)` as one function of logits."""
    call = site.call("binary_cross_entropy")
    if call is None or not call.args or not isinstance(inner := call.args[0], ast.Call) or name_of(inner) != "sigmoid":
        return []
    operand, end = _operand(site.code, inner), site.code.span(call.func)[1]
    return [Edit(end, end, "_with_logits"), *site.code.keep(operand, inner)] if operand is not None else []


def _least_number(site: Site) -> list[Edit]:
    """`masked_fill(mask, -1e9)` with the least number of the tensor's type."""
    call = site.call("masked_fill", "masked_fill_")
    if call is None or len(call.args) != 2 or not isinstance(call.func, ast.Attribute):
        return []
    base = call.func.value
    if not isinstance(base, ast.Name | ast.Attribute) or not site.code.is_imported("torch"):
        return []
    return site.code.replace(call.args[1], f"torch.finfo({site.code.source(base)}.dtype).min")


def _squeezed(site: Site) -> list[Edit]:
    """Squeezes the operand of a difference or a loss that has one dimension more than the other."""
    found = re.match(r"(\w+) of \(([\d, ]*)\) and \(([\d, ]*)\)", site.finding["message"])
    if found is None:
        return []
    left, right = ([int(size) for size in shape.split(",") if size.strip()] for shape in found.groups()[1:])
    operators = {"sub": ast.Sub, "__sub__": ast.Sub, "mul": ast.Mult, "__mul__": ast.Mult, "eq": ast.Eq}
    calls = [call for call in site.nodes(ast.Call) if name_of(call) == found[1]]
    pairs = [(call.args[0], call.args[1]) for call in calls if len(call.args) > 1]
    pairs += [(n.left, n.right) for n in site.nodes(ast.BinOp) if isinstance(n.op, operators.get(found[1], ()))]
    if len(pairs) != 1:
        return []
    if left[-1:] == [1] and left[:-1] == right:
        return site.code.after(pairs[0][0], ".squeeze(-1)")
    return site.code.after(pairs[0][1], ".squeeze(-1)") if right[-1:] == [1] and right[:-1] == left else []


def _apart(site: Site) -> list[Edit]:
    """A softmax over the samples, statistics of the batch in evaluation, or a layer that takes time first."""
    code = site.code
    if softmax := site.call("softmax", "log_softmax", "Softmax"):
        dimension = keyword(softmax, "dim")
        is_first = isinstance(dimension, ast.Constant) and dimension.value == 0
        return code.replace(dimension, "-1") if is_first and dimension is not None else []
    if norm := site.call("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"):
        return code.set_keyword(norm, "track_running_stats", "True")
    kinds = ("LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
    layers = [made for call in site.nodes(ast.Call) if (made := _made(code, call)) and name_of(made) in kinds]
    layer = _only(layers) or site.call(*kinds)
    return code.set_keyword(layer, "batch_first", "True") if layer is not None else []


def _initial_scale(site: Site) -> list[Edit]:
    """Another standard deviation of an initialisation, or a prediction without a factor."""
    code, std = site.code, site.figure("std=")
    call = site.call("normal_", "trunc_normal_")
    if std is not None and call is not None:
        return code.set_keyword(call, "std", std)
    if "without the factor" not in site.fix:
        return []
    product = _only([node for node in site.nodes(ast.BinOp) if isinstance(node.op, ast.Mult | ast.Div)])
    if product is None:
        return []
    sides = [product.left, product.right] if isinstance(product.op, ast.Mult) else [product.right]
    factors = [side for side in sides if isinstance(side, ast.Constant | ast.Attribute)]
    if len(factors) != 1:
        return []
    return code.keep(product.right if factors[0] is product.left else product.left, product)


def _zero_bias(site: Site) -> list[Edit]:
    call = site.call("constant_", "fill_", "normal_", "uniform_")
    if call is None or "zeros_" not in site.fix or not isinstance(call.func, ast.Attribute):
        return []
    code = site.code
    if name_of(call) == "fill_" or len(call.args) + len(call.keywords) < 2:
        return []
    prefix = code.source(call.func.value)
    return code.replace(call, f"{prefix}.zeros_({code.source(call.args[0])})")


def _with_graph(site: Site) -> list[Edit]:
    """Leaves out `torch.no_grad()`, or `.detach()`."""
    code, words = site.code, ("no_grad", "inference_mode")
    for node in ast.walk(code.tree):
        if isinstance(node, ast.With) and node.lineno == site.line and len(node.items) == 1:
            item = node.items[0].context_expr
            return code.dedent(node) if isinstance(item, ast.Call) and name_of(item) in words else []
        marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        if any(mark.lineno == site.line and any(word in code.source(mark) for word in words) for mark in marks):
            return code.without_line(site.line)
    call = site.call("detach")
    if call is not None and isinstance(call.func, ast.Attribute):
        return code.keep(call.func.value, call)
    data = _only([node for node in site.nodes(ast.Attribute) if node.attr == "data"])
    return code.keep(data.value, data) if data is not None else []


def _as_buffer(site: Site) -> list[Edit]:
    """A tensor that is an attribute becomes a buffer, which checkpoints made so far need not have."""
    statement = site.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    target, outer = statement.targets[0], site.code.class_around(statement)
    if not isinstance(target, ast.Attribute) or site.code.source(target.value) != "self":
        return []
    if outer is None or not outer.bases or "register_buffer" not in site.fix:
        return []
    if not isinstance(statement.value, ast.Call) or not site.code.source(statement.value.func).startswith("torch."):
        return []
    name, made = target.attr, site.code.source(statement.value)
    return site.code.replace(statement, f'self.register_buffer("{name}", {made}, persistent=False)')


def _on_device(site: Site) -> list[Edit]:
    """`device=` of a tensor that is made in a step or in forward."""
    calls = [call for call in site.nodes(ast.Call) if _is_module(site.code, call.func)]
    call = next((call for call in calls if f"{site.code.source(call)[:-1]}, device=" in site.fix), None)
    function = site.code.function_around(call) if call is not None else None
    if call is None or function is None or keyword(call, "device") is not None:
        return []
    arguments = function.args.args
    if function.name.endswith("_step") and [item.arg for item in arguments[:1]] == ["self"]:
        return site.code.set_keyword(call, "device", "self.device")
    first = next((item for item in arguments if item.arg != "self"), None)
    kind = site.code.source(first.annotation) if first is not None and first.annotation is not None else ""
    if first is None or not (kind in ("Tensor", "torch.Tensor") or (function.name == "forward" and not kind)):
        return []
    return site.code.set_keyword(call, "device", f"{first.arg}.device")


def _single(site: Site) -> list[Edit]:
    """A tensor of double precision as float32, where it is used."""
    name = site.fix.partition(".float()")[0]
    used = [node for node in site.nodes(ast.expr) if site.code.source(node) == name]
    node = _only(used)
    return site.code.after(node, ".float()") if node is not None else []


def _seeded_by_torch(site: Site) -> list[Edit]:
    call = site.call("seed")
    if call is None or len(call.args) != 1 or "initial_seed" not in site.fix or not site.code.is_imported("torch"):
        return []
    return site.code.replace(call.args[0], "torch.initial_seed() % 2**32")


def _kept_last(site: Site) -> list[Edit]:
    """`drop_last=False`, in a call or in a dict of options."""
    if "drop_last=False" not in site.fix:
        return []
    for call in site.code.calls_at(site.line, "DataLoader", "BatchSampler"):
        value = keyword(call, "drop_last")
        if value is not None:
            return site.code.replace(value, "False")
    return []


def _in_training_alone(condition: str) -> Callable[[Site], list[Edit]]:
    """Puts a statement that changes a variable under a condition."""

    def act(site: Site) -> list[Edit]:
        statement, code = site.statement, site.code
        if not isinstance(statement, ast.Assign | ast.AugAssign) or not code.is_alone(statement):
            return []
        if f"if {condition}:" not in site.fix:
            return []
        function = code.function_around(statement)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if function is None or [item.arg for item in function.args.args[:1]] != ["self"] or len(targets) != 1:
            return []
        name = code.source(targets[0])
        read = [node for node in ast.walk(statement.value) if isinstance(node, ast.expr) and code.source(node) == name]
        if statement.lineno != statement.end_lineno or not (read or isinstance(statement, ast.AugAssign)):
            return []
        start = code.span(statement)[0]
        return [Edit(start, start, f"if {condition}:{code.newline}{code.indent(statement)}    ")]

    return act


def _own_dropout(site: Site) -> list[Edit]:
    call = site.call("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    function = site.code.function_around(call) if call is not None else None
    if call is None or function is None or [item.arg for item in function.args.args[:1]] != ["self"]:
        return []
    return site.code.set_keyword(call, "training", "self.training")


def _without_mode(mode: str) -> Callable[[Site], list[Edit]]:
    """Leaves out a call of `train()` or `eval()`."""

    def act(site: Site) -> list[Edit]:
        call, statement = site.call(mode), site.statement
        if call is None or statement is None or not isinstance(call.func, ast.Attribute) or "leave" not in site.fix:
            return []
        if isinstance(statement, ast.Expr) and statement.value is call:
            return site.code.remove(statement)
        return site.code.keep(call.func.value, call)

    return act


def _back_to_training(site: Site) -> list[Edit]:
    """Calls `train()` where each epoch begins, or at the end of the function that called `eval()`."""
    code, call, statement = site.code, site.call("eval"), site.statement
    if call is None or not isinstance(call.func, ast.Attribute) or not isinstance(statement, ast.Expr):
        return []
    again = f"{code.source(call.func.value)}.train()"
    around = list(code.parents(statement))
    function = code.function_around(statement)
    if function is not None:
        around = around[: around.index(function)]
    loop = next((node for node in around if isinstance(node, ast.For | ast.While)), None)
    if loop is not None:
        return code.insert_before(loop.body[0], again)
    if function is None:
        return []
    last = function.body[-1]
    if isinstance(last, ast.Return):
        is_plain = last.value is None or isinstance(last.value, ast.Name | ast.Constant | ast.Tuple)
        return code.insert_before(last, again) if is_plain else []
    return code.insert_after(last, again)


def _detached(site: Site) -> list[Edit]:
    """What is kept from step to step, without its graph."""
    code, statement = site.code, site.statement
    if isinstance(statement, ast.AugAssign):
        return code.after(statement.value, ".detach()")
    if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Tuple | ast.List | ast.Dict):
        return code.after(statement.value, ".detach()")
    call = site.call("append")
    is_tensor = call is not None and len(call.args) == 1 and isinstance(call.args[0], ast.Name | ast.Call | ast.BinOp)
    return code.after(call.args[0], ".detach()") if call is not None and is_tensor else []


def _without_wait(site: Site) -> list[Edit]:
    """Keeps a tensor on its device in place of reading its value; logs in place of printing."""
    code, statement = site.code, site.statement
    if (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and name_of(statement.value) == "print"
    ):
        logged = re.match(r'self\.log\("(\w+)", \1\)', site.fix)
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        is_sure = logged is not None and logged[1] in names and code.function_around(statement) is not None
        return code.replace(statement, logged[0]) if is_sure and logged is not None else []
    if not site.fix.startswith("….detach()") or isinstance(statement, ast.If | ast.While):
        return []
    call = site.call("item", "float", "tolist")
    if call is None or any(isinstance(node, ast.FormattedValue) for node in code.parents(call)):
        return []
    operand = call.func.value if isinstance(call.func, ast.Attribute) else (call.args or [None])[0]
    if operand is None:
        return []
    return [*code.keep(operand, call), *_moved(code.after(operand, ".detach()"), code.span(call)[1])]


def _moved(edits: list[Edit], end: int) -> list[Edit]:
    """The last insertion, after what is left out there."""
    return [*edits[:-1], Edit(end, end, edits[-1].text)]


def _out_of_place(site: Site) -> list[Edit]:
    """`x += y` as `x = x + y`, `x.relu_()` as `x.relu()`, and a copy before `x[…] = y`."""
    code, statement = site.code, site.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name | ast.Attribute):
        (_, end), (start, _) = code.span(statement.target), code.span(statement.value)
        operator = code.text[end:start].strip().removesuffix("=")
        opening = "" if not isinstance(statement.value, ast.BinOp | ast.IfExp | ast.Compare) else "("
        edits = [Edit(end, start, f" = {code.source(statement.target)} {operator} {opening}")]
        return [*edits, Edit(code.span(statement)[1], code.span(statement)[1], ")")] if opening else edits
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        base = statement.targets[0].value
        name = code.source(base)
        return code.insert_before(statement, f"{name} = {name}.clone()") if isinstance(base, ast.Name) else []
    calls = [call for call in site.nodes(ast.Call) if name_of(call).endswith("_") and not name_of(call).endswith("__")]
    call = _only(calls)
    if call is not None and isinstance(call.func, ast.Attribute):
        end = code.span(call.func)[1]
        edits = [Edit(end - 1, end, "")]
        if isinstance(statement, ast.Expr) and statement.value is call:
            start = code.span(statement)[0]
            edits.append(Edit(start, start, f"{code.source(call.func.value)} = "))
        return edits
    changing = [call for call in site.nodes(ast.Call) if keyword(call, "inplace") is not None]
    return code.set_keyword(changing[0], "inplace", "False") if len(changing) == 1 else []


def _learning_rate(site: Site) -> list[Edit]:
    rate, maker = site.figure("lr="), re.match(r"[\w.]*?(\w+)\(", site.fix)
    call = site.call(maker[1]) if rate is not None and maker is not None else None
    if call is None or rate is None:
        return []
    if keyword(call, "lr") is None and len(call.args) > 1:
        return site.code.replace(call.args[1], rate)
    return site.code.set_keyword(call, "lr", rate)


def _descending(site: Site) -> list[Edit]:
    """The loss with the other sign, or an optimizer that descends."""
    code, value = site.code, site.value()
    if "maximize" in site.fix:
        calls = [call for call in site.nodes(ast.Call) if keyword(call, "maximize") is not None]
        return code.set_keyword(calls[0], "maximize", "False") if len(calls) == 1 else []
    if "the other sign" not in site.fix or value is None:
        return []
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return [Edit(code.span(value)[0], code.span(value.operand)[0], "")]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        return code.replace(value, f"-({code.source(value)})")
    start = code.span(value)[0]
    return [Edit(start, start, "-")]


def _undivided(site: Site) -> list[Edit]:
    statement = site.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Div):
        return site.code.remove(statement)
    quotient = _only([node for node in site.nodes(ast.BinOp) if isinstance(node.op, ast.Div)])
    return site.code.keep(quotient.left, quotient) if quotient is not None else []


def _reset(site: Site) -> list[Edit]:
    """Sets a counter back at the beginning of each validation, to what __init__ gives it."""
    found = re.match(r"(self\.\w+) = …  # reset in (on_validation_epoch_start)", site.fix)
    statement = site.statement
    outer = site.code.class_around(statement) if statement is not None else None
    if found is None or outer is None:
        return []
    methods = {node.name: node for node in outer.body if isinstance(node, ast.FunctionDef)}
    init = methods.get("__init__")
    first = [
        node.value
        for node in (ast.walk(init) if init is not None else ())
        if isinstance(node, ast.Assign) and site.code.source(node.targets[0]) == found[1]
        if isinstance(node.value, ast.Constant)
    ]
    start = _only(first)
    step = site.code.function_around(statement) if statement is not None else None
    if start is None or step is None or step not in outer.body:
        return []
    reset = f"{found[1]} = {site.code.source(start)}"
    if (method := methods.get(found[2])) is not None:
        return site.code.insert_before(method.body[0], reset)
    head = f"def {found[2]}(self){' -> None' if step.returns is not None else ''}:"
    return site.code.insert_before(step, head, f"    {reset}", "")


def _first_super(site: Site) -> list[Edit]:
    """`super().__init__()` as the first line of the constructor, and nowhere else in it."""
    code = site.code
    inits = [node for node in code.nodes_at(site.line) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not inits:
        return []
    body = inits[-1].body
    later = [node for node in body if isinstance(node, ast.Expr) and code.source(node).startswith("super().__init__(")]
    is_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if is_docstring and len(body) > 1 else body[0]
    if first.lineno == inits[-1].lineno:
        return []
    text = code.source(later[0]) if later else "super().__init__()"
    return [*code.insert_before(first, text), *(edit for node in later for edit in code.remove(node))]


def _zeroed(site: Site) -> list[Edit]:
    """`zero_grad()` after the optimizer's step, or in the hook that Lightning calls for it."""
    code = site.code
    for node in code.nodes_at(site.line):
        if isinstance(node, ast.FunctionDef) and node.name == "optimizer_zero_grad" and len(node.args.args) == 4:
            last = node.body[-1]
            text = f"{node.args.args[3].arg}.zero_grad()"
            return code.replace(last, text) if isinstance(last, ast.Pass) else code.insert_after(last, text)
    call, statement = site.call("step"), site.statement
    if call is None or not isinstance(call.func, ast.Attribute) or not isinstance(statement, ast.Expr):
        return []
    owner = code.source(call.func.value)
    is_scaler = len(call.args) == 1 and isinstance(call.args[0], ast.Name) and "scaler" in owner.lower()
    owner = code.source(call.args[0]) if is_scaler else owner
    return code.insert_after(statement, f"{owner}.zero_grad()") if code.is_alone(statement) else []


def _bounded(site: Site) -> list[Edit]:
    """Keeps the operand of a logarithm or a root away from zero."""
    name = next((name for name in ("log", "log2", "log10", "sqrt", "rsqrt") if f"torch.{name}(" in site.fix), None)
    call = site.call(name) if name is not None else None
    operand = _operand(site.code, call) if call is not None else None
    if name is None or operand is None:
        return []
    if "log" in name:
        return site.code.after(operand, ".clamp(min=1e-6)")
    if isinstance(site.code.parent(operand), ast.Attribute):
        start, end = site.code.span(operand)
        closed = isinstance(operand, ast.BinOp)  # it has parentheses already
        return [Edit(end, end, " + 1e-8")] if closed else [Edit(start, start, "("), Edit(end, end, " + 1e-8)")]
    return [Edit(site.code.span(operand)[1], site.code.span(operand)[1], " + 1e-8")]


def _averaged(site: Site) -> list[Edit]:
    calls = [call for call in site.nodes(ast.Call) if keyword(call, "reduction") is not None]
    if len(calls) == 1:
        return site.code.set_keyword(calls[0], "reduction", '"mean"')
    value = site.value()
    return site.code.after(value, ".mean()") if isinstance(value, ast.Name) else []


def _ignored(site: Site) -> list[Edit]:
    number, call = site.figure("ignore_index="), site.call("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")
    return site.code.set_keyword(call, "ignore_index", number) if number is not None and call is not None else []


def _all_parameters(site: Site) -> list[Edit]:
    """All parameters of the module in place of those of one of its parts."""
    calls = [call for call in site.nodes(ast.Call) if name_of(call) == "parameters"]
    found = _only([call for call in calls if re.fullmatch(r"self\.\w+\.parameters\(\)", site.code.source(call))])
    return site.code.replace(found, "self.parameters()") if found is not None and len(calls) == 1 else []


def _all_positions(site: Site) -> list[Edit]:
    """`table[:, : x.size(1)]` for `table[:, x.size(1)]`."""
    indices = []
    for node in site.nodes(ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        indices += [part for part in parts if isinstance(part, ast.Call) and name_of(part) == "size"]
    index = _only(indices)
    return [Edit(site.code.span(index)[0], site.code.span(index)[0], ": ")] if index is not None else []


def _interval(site: Site) -> list[Edit]:
    """How often Lightning steps a schedule: "interval" in the dict under "lr_scheduler"."""
    code, wanted = site.code, re.search(r'"(interval|frequency)": ["\']?(\w+)', site.fix)
    statement = site.statement
    function = code.function_around(statement) if statement is not None else None
    if wanted is None or function is None:
        return []
    key, value = wanted[1], wanted[2] if wanted[2].isdigit() else f'"{wanted[2]}"'
    outer = _only([node for node in ast.walk(function) if isinstance(node, ast.Dict) and _entry(node, "lr_scheduler")])
    if outer is None:
        return _listed(code, function, f'"{key}": {value}')
    beside, inner = _entry(outer, key), _entry(outer, "lr_scheduler")
    edits = _without_entry(code, outer, key) if beside is not None else []
    if inner is None:
        return []
    if not isinstance(inner, ast.Dict):
        if beside is None and isinstance(inner, ast.Name) and _is_dict(function, inner.id):
            return []
        return [*edits, *code.replace(inner, f'{{"scheduler": {code.source(inner)}, "{key}": {value}}}')]
    given = _entry(inner, key)
    if given is not None:
        return [*edits, *code.replace(given, value)]
    last = inner.values[-1] if inner.values else None
    return [*edits, Edit(code.span(last)[1], code.span(last)[1], f', "{key}": {value}')] if last is not None else []


def _entry(node: ast.Dict, name: str) -> ast.expr | None:
    pairs = zip(node.keys, node.values, strict=True)
    return next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name), None)


def _is_dict(function: ast.FunctionDef, name: str) -> bool:
    """Whether a variable of a function is given a dict."""
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    return any(isinstance(node.value, ast.Dict) and _names(node) == [name] for node in assigned)


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _without_entry(code: Code, node: ast.Dict, name: str) -> list[Edit]:
    keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    index = keys.index(name)
    key, value = node.keys[index], node.values[index]
    following = node.keys[index + 1] if index + 1 < len(keys) else None
    if key is None:
        return []
    if following is not None:
        return [Edit(code.span(key)[0], code.span(following)[0], "")]
    start = code.span(node.values[index - 1])[1] if index else code.span(key)[0]
    return [Edit(start, code.span(value)[1], "")]


def _listed(code: Code, function: ast.FunctionDef, entry: str) -> list[Edit]:
    """For `return [optimizer], [scheduler]`, and a scheduler that is returned in no dict."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    pairs = [node for node in returned if isinstance(node, ast.Tuple) and len(node.elts) == 2]
    lists = [pair.elts[1] for pair in pairs]
    schedules = [part for node in lists if isinstance(node, ast.List | ast.Tuple) for part in node.elts]
    schedule = _only(schedules)
    if schedule is None or isinstance(schedule, ast.Dict):
        return []
    return code.replace(schedule, f'{{"scheduler": {code.source(schedule)}, {entry}}}')


def _divided_pixels(site: Site) -> list[Edit]:
    calls = [call for call in site.nodes(ast.Call) if name_of(call) == "float" and isinstance(call.func, ast.Attribute)]
    call = _only(calls)
    is_pixels = site.fix.startswith("x = x / 255") and call is not None
    if not is_pixels or call is None:
        return []
    start, end = site.code.span(call)
    if isinstance(site.code.parent(call), ast.Attribute | ast.BinOp):
        return [Edit(start, start, "("), Edit(end, end, " / 255)")]
    return [Edit(end, end, " / 255")]


def _registered(site: Site) -> list[Edit]:
    """Layers in an nn.ModuleList or nn.ModuleDict, a tensor as an nn.Parameter."""
    wrapper, statement = re.search(r"= nn\.(\w+)\(…\)", site.fix), site.statement
    value = getattr(statement, "value", None)
    if wrapper is None or not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(value, ast.expr):
        return []
    if isinstance(statement, ast.Assign) and (len(statement.targets) > 1 or isinstance(value, ast.Tuple)):
        return []
    prefix = "nn" if site.code.is_imported("nn") else "torch.nn"
    if not site.code.is_imported(prefix.partition(".")[0]):
        return []
    start, end = site.code.span(value)
    return [Edit(start, start, f"{prefix}.{wrapper[1]}("), Edit(end, end, ")")]


def _safe_load(site: Site) -> list[Edit]:
    calls = [call for call in site.nodes(ast.Call) if keyword(call, "weights_only") is not None]
    return site.code.set_keyword(calls[0], "weights_only", "True") if len(calls) == 1 else []


def _shifted(site: Site) -> list[Edit]:
    """Predictions without the last position, targets without the first."""
    call = site.call("cross_entropy", "mse_loss", "l1_loss", "smooth_l1_loss")
    if call is None or len(call.args) < 2:
        return []
    edits: list[Edit] = []
    for argument, part in zip(call.args[:2], ("[:, :-1]", "[:, 1:]"), strict=True):
        change = argument.func if isinstance(argument, ast.Call) else None
        if isinstance(change, ast.Attribute) and change.attr in ("flatten", "view", "reshape", "transpose"):
            edits += site.code.after(change.value, part)
            end = site.code.span(change)[1]
            if change.attr == "view":  # what is cut is not contiguous
                edits.append(Edit(end - len("view"), end, "reshape"))
        elif argument is call.args[0] and name_of(call) == "cross_entropy":  # its classes are in dimension 1
            return []
        else:
            edits += site.code.after(argument, part)
    return edits


def _channels_first(site: Site) -> list[Edit]:
    """A permutation of the dimensions, or one in place of a view."""
    order = re.match(r"x = x(\.permute\(([\d, ]+)\))", site.fix)
    if order is None:
        return []
    code = site.code
    if "in place of view" not in site.fix:
        value, statement = site.value(), site.statement
        is_sure = isinstance(statement, ast.Assign) and isinstance(value, ast.Call)
        return code.after(value, order[1]) if value is not None and is_sure else []
    call = site.call("view", "reshape")
    if call is None or not isinstance(call.func, ast.Attribute):
        return []
    numbers = [int(number) for number in order[2].split(",")]
    if len(call.args) == len(numbers) + 1:  # with the batch
        numbers = [0, *(number + 1 for number in numbers)]
    if len(call.args) != len(numbers):
        return []
    operand = code.source(call.func.value)
    return code.replace(call, f"{operand}.permute({', '.join(map(str, numbers))})")


def _last_queries(site: Site) -> list[Edit]:
    """`torch.ones(T, S).tril(S - T)`: the queries are the last of the keys."""
    call = site.call("tril")
    made = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if call is None or call.args or "tril(S - T)" not in site.fix:
        return []
    if not isinstance(made, ast.Call) or name_of(made) != "ones" or len(made.args) < 2:
        return []
    rows, columns = (site.code.source(size) for size in made.args[:2])
    end = site.code.span(call)[1] - 1
    return [Edit(end, end, f"{columns} - {rows}")]


def _valid_labels(site: Site) -> list[Edit]:
    """Labels that begin at 0, or 0 and 1 in place of -1 and 1."""
    value, shift = site.value(), re.match(r"y = y - (-?\d+)", site.fix)
    if value is None or isinstance(value, ast.Tuple):
        return []
    start, end = site.code.span(value)
    if shift is not None:
        if isinstance(value, ast.Call) and name_of(value)[:1].isupper():  # no tensor
            return []
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and site.code.source(value.right) == shift[1]:
            return site.code.keep(value.left, value)
        return [Edit(end, end, f" - {shift[1]}" if int(shift[1]) > 0 else f" + {-int(shift[1])}")]
    is_binary = site.fix.startswith("y = (y > 0).float()")
    return [Edit(start, start, "("), Edit(end, end, " > 0).float()")] if is_binary else []


def _causal(site: Site) -> list[Edit]:
    call = site.call("scaled_dot_product_attention")
    if call is None or len(call.args) > 3 or keyword(call, "attn_mask") is not None:
        return []
    return site.code.set_keyword(call, "is_causal", "True")


def _shuffled(site: Site) -> list[Edit]:
    call = site.call("DataLoader")
    if call is None or "shuffle=True" not in site.fix or any(keyword(call, n) for n in ("sampler", "batch_sampler")):
        return []
    return site.code.set_keyword(call, "shuffle", "True")


def _without_bias(site: Site) -> list[Edit]:
    kind = re.match(r"nn\.(\w+)\(", site.fix)
    call = site.call(kind[1]) if kind is not None else None
    return site.code.set_keyword(call, "bias", "False") if call is not None else []


REPAIRS: dict[str, Callable[[Site], list[Edit]]] = {
    "activation-on-logits": _without_activation,
    "adam-l2": _decoupled,
    "amp-unsafe": _first(_on_logits, _least_number),
    "bad-broadcast": _squeezed,
    "bad-initial-loss": _first(_initial_scale, _zero_bias),
    "batch-mixing": _apart,
    "bias-before-norm": _without_bias,
    "causal-leak": _causal,
    "channel-order": _channels_first,
    "dead-units": _zero_bias,
    "detached-graph": _with_graph,
    "device-unsafe-tensor": _first(_as_buffer, _on_device),
    "double-softmax": _without_activation,
    "dtype-promotion": _single,
    "duplicate-worker-rng": _seeded_by_torch,
    "eval-augmentation": _in_training_alone("self.trainer.training"),
    "eval-drops-data": _kept_last,
    "eval-nondeterminism": _first(_own_dropout, _without_mode("train"), _in_training_alone("self.training")),
    "graph-retained": _detached,
    "host-sync": _without_wait,
    "inplace-on-graph": _out_of_place,
    "label-out-of-range": _first(_ignored, _valid_labels),
    "learning-rate-too-high": _learning_rate,
    "learning-rate-too-low": _learning_rate,
    "loss-not-decreasing": _descending,
    "mean-divided-again": _undivided,
    "metric-misuse": _reset,
    "missing-super-init": _first_super,
    "missing-zero-grad": _zeroed,
    "non-finite": _bounded,
    "non-scalar-loss": _averaged,
    "norm-batch-size-one": _set("drop_last", "True", "DataLoader"),
    "padding-in-loss": _ignored,
    "parameter-not-optimized": _all_parameters,
    "same-position": _all_positions,
    "scheduler-cadence": _interval,
    "shifted-causal-mask": _last_queries,
    "sigmoid-before-logits-loss": _without_activation,
    "stuck-in-eval": _first(_without_mode("eval"), _back_to_training),
    "train-not-shuffled": _shuffled,
    "unnormalized-input": _divided_pixels,
    "unregistered-submodule": _registered,
    "unsafe-load": _safe_load,
    "unshifted-targets": _shifted,
}
