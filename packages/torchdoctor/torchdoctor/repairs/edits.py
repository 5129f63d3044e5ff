"""Repairs of the user's source that are sure from a finding and the code at its line: rules for each defect."""

import ast
from collections.abc import Callable
from typing import Any

from torchdoctor.code import Code, Edit, keyword, name_of
from torchdoctor.repairs.patterns import Option, Rule, Site

Repair = Callable[[Site], list[Edit]]


def repair(text: str, finding: dict[str, Any]) -> str | None:
    """The text of a file without a defect; None where the code is not what the repairs know.

    Args:
        text: of the file that the finding names.
        finding: as Finding.as_dict has it.
    """
    try:
        code = Code(text)
    except (SyntaxError, ValueError):
        return None
    line = code.lines[finding["line"] - 1].strip() if 0 < finding["line"] <= len(code.lines) else None
    if line != finding["code"]:
        return None
    return code.edited(_first(REPAIRS.get(finding["id"], []), Site(code, finding)))


def _first(repairs: list[Repair], site: Site) -> list[Edit]:
    """The edits of the first repair that knows the code."""
    return next(filter(None, (attempt(site) for attempt in repairs)), [])


def _value(change: str, variant: str = "") -> list[Repair]:
    """Changes X in `return X` and `y = X`."""
    return [Rule("return X;", f"return {change}", variant), Rule("Y = X;", f"Y = {change}", variant)]


def _without_activation(site: Site) -> list[Edit]:
    """Leaves out the activation that the finding names: at its call, at the end of its sequence, or for an Identity."""
    code, kind = site.code, _plain(site.values.get("activation", ""))
    calls = code.calls_at(site.line)
    for call in calls:
        if len(call.args) == 1 and any(_plain(name_of(maker)) == kind for maker in code.makers(call)):
            return code.put(call, code.source(call.args[0]))
    layers = [call for call in calls if _plain(name_of(call)) == kind and name_of(call)[:1].isupper()]
    if len(layers) != 1:
        return []
    layer, outer = layers[0], code.parent(layers[0])
    elements = outer.args if isinstance(outer, ast.Call) else getattr(outer, "elts", [])
    in_sequence = isinstance(outer, ast.List) or (isinstance(outer, ast.Call) and name_of(outer) == "Sequential")
    if in_sequence and len(elements) > 1 and elements[-1] is layer:
        if code.lines[layer.lineno - 1].partition("#")[0].strip() == f"{code.source(layer)},":
            return code.without_line(layer.lineno)
        return [Edit(code.span(elements[-2])[1], code.span(layer)[1], "")]
    if not isinstance(layer.func, ast.Attribute):
        return []
    return code.put(layer, f"{code.source(layer.func.value)}.Identity()")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _with_graph(site: Site) -> list[Edit]:
    """Leaves out `torch.no_grad()`."""
    code, words = site.code, ("no_grad", "inference_mode")
    for node in code.nodes_at(site.line):
        if isinstance(node, ast.With) and node.lineno == site.line and len(node.items) == 1:
            item = node.items[0].context_expr
            return code.dedent(node) if isinstance(item, ast.Call) and name_of(item) in words else []
    is_decorator = any(code.lines[site.line - 1].strip().startswith(f"@torch.{word}") for word in words)
    return code.without_line(site.line) if is_decorator else []


def _uncut(site: Site) -> list[Edit]:
    """Leaves out `.detach()` or `.data`, unless NumPy or Python take the values."""
    is_taken = any(site.code.calls_at(site.line, "numpy", "tolist", "item"))
    return [] if is_taken else _first([Rule("X.detach()", "X"), Rule("X.data", "X")], site)


def _as_buffer(site: Site) -> list[Edit]:
    """A tensor that is an attribute of a module as a buffer, which checkpoints made so far need not have."""
    buffer = 'self.register_buffer("N", torch.F(*A), persistent=False)'
    statement = site.code.statement_at(site.line)
    outer = site.code.class_around(statement) if statement is not None else None
    is_module = outer is not None and bool(outer.bases)
    return Rule("self.N = torch.F(*A);", buffer, "buffer")(site) if is_module else []


def _on_device(site: Site) -> list[Edit]:
    """`device=` of a tensor that is made in a step, or in a forward: that of its first argument."""
    calls = site.code.calls_at(site.line)
    call = next((call for call in calls if ast.unparse(call) == site.values.get("made")), None)
    function = site.code.function_around(call) if call is not None else None
    if call is None or function is None:
        return []
    conditions = {ast.unparse(node.test) for node in site.code.parents(call) if isinstance(node, ast.If)}
    arguments = {item.arg: item.annotation for item in function.args.args}
    if function.name.endswith("_step"):
        return site.code.set_keyword(call, "device", "self.device") if "self" in arguments else []
    first = next((name for name in arguments if name != "self"), "")
    kind = arguments.get(first)
    is_tensor = function.name == "forward" if kind is None else ast.unparse(kind) in ("Tensor", "torch.Tensor")
    is_tensor = is_tensor and not any(f"{first} is None" in condition for condition in conditions)
    return site.code.set_keyword(call, "device", f"{first}.device") if first and is_tensor else []


def _only_if(condition: str) -> Repair:
    """Puts a statement that changes what it reads under a condition."""
    rules: list[Repair] = [Rule(pattern, f"if {condition}:\n    ...", "condition") for pattern in ("Y = X;", "Y += X;")]

    def act(site: Site) -> list[Edit]:
        statement = site.code.statement_at(site.line)
        if isinstance(statement, ast.Assign):
            target, values = ast.unparse(statement.targets[0]), ast.walk(statement.value)
            if not any(isinstance(node, ast.expr) and ast.unparse(node) == target for node in values):
                return []
        return _first(rules, site)

    return act


def _without_wait(site: Site) -> list[Edit]:
    """Keeps a tensor on its device, unless its value decides, is returned or written each time, or is not torch's."""
    statement = site.code.statement_at(site.line)
    function = site.code.function_around(statement) if statement is not None else None
    calls = [node for node in ast.walk(function or site.code.tree) if isinstance(node, ast.Call)]
    takes_value = any(ast.unparse(call.func).partition(".")[0] in ("np", "numpy", "str", "math") for call in calls)
    takes_value |= isinstance(statement, ast.If | ast.While | ast.Return)
    takes_value |= isinstance(statement, ast.Expr) and any(map(_writes, ast.walk(statement)))
    lists = [call for call in calls if name_of(call) == "append"]  # of what is read later
    takes_value |= any(_assigned(statement) & _names(call) for call in lists)
    if takes_value or _is_written_beside(site.code, statement):
        return []
    return _first([Rule(read, "X.detach()", "detach") for read in ("X.item()", "float(X)", "X.tolist()")], site)


def _is_written_beside(code: Code, statement: ast.stmt | None) -> bool:
    """Whether what a statement assigns is formatted by another one of the same block, as often as it is assigned."""
    names = _assigned(statement)
    parent = code.parent(statement) if statement is not None else None
    blocks = [block for _, block in ast.iter_fields(parent) if isinstance(block, list)] if parent is not None else []
    simple = [part for block in blocks if statement in block for part in block if isinstance(part, ast.Expr)]
    return any(names & _names(node) for part in simple for node in ast.walk(part) if _writes(node))


def _assigned(statement: ast.stmt | None) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {ast.unparse(target) for target in targets if target is not None}


def _names(node: ast.AST) -> set[str]:
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.expr)}


def _writes(node: ast.AST) -> bool:
    is_call = isinstance(node, ast.Call) and name_of(node) in ("format", "print", "set_postfix", "add_scalar")
    is_percent = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)
    return is_call or is_percent or isinstance(node, ast.JoinedStr)


def _decoupled(site: Site) -> list[Edit]:
    """AdamW for Adam, unless groups bring the decay: those without one would get AdamW's own."""
    if not any(item.arg == "weight_decay" for call in site.code.calls_at(site.line, "Adam") for item in call.keywords):
        return []
    return _first([Rule("M.Adam(*A)", "M.AdamW(*A)"), Rule("Adam(*A)", "torch.optim.AdamW(*A)")], site)


def _tensors_alone(site: Site) -> list[Edit]:
    """`weights_only=True`, where the file saves or loads a state_dict, and saves no object as it is."""
    calls = [node for node in ast.walk(site.code.tree) if isinstance(node, ast.Call)]
    saves = [call for call in calls if name_of(call) == "save" and call.args]
    saves_object = any(isinstance(call.args[0], ast.Name | ast.Attribute) for call in saves)
    has_state = any(name_of(call) in ("state_dict", "load_state_dict", "load_from_checkpoint") for call in calls)
    return Option("weights_only", "True", is_given=True)(site) if has_state and not saves_object else []


def _back_to_training(site: Site) -> list[Edit]:
    """Calls `train()` where each epoch begins, or at the end of the function that called `eval()`."""
    code, statement, calls = site.code, site.code.statement_at(site.line), site.calls("eval")
    if not calls or not isinstance(calls[0].func, ast.Attribute) or not isinstance(statement, ast.Expr):
        return []
    again = f"{code.source(calls[0].func.value)}.train()"
    outer = list(code.parents(statement))
    function = code.function_around(statement)
    around = outer if function is None else outer[: outer.index(function)]
    loop = next((node for node in around if isinstance(node, ast.For | ast.While)), None)
    if loop is not None:
        return code.insert_before(loop.body[0], again)
    if function is None:
        return []
    last = function.body[-1]
    if not isinstance(last, ast.Return):
        return code.insert_after(last, again)
    is_plain = last.value is None or isinstance(last.value, ast.Name | ast.Constant | ast.Tuple)
    return code.insert_before(last, again) if is_plain else []


def _first_super(site: Site) -> list[Edit]:
    """`super().__init__()` as the first line of the constructor, and nowhere else in it."""
    code = site.code
    inits = [node for node in code.nodes_at(site.line) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not inits:
        return []
    body = inits[-1].body
    later = [node for node in body if isinstance(node, ast.Expr) and code.source(node).startswith("super().__init__(")]
    first = body[1] if ast.get_docstring(inits[-1]) is not None and len(body) > 1 else body[0]
    text = code.source(later[0]) if later else "super().__init__()"
    if first.lineno == inits[-1].lineno:
        return []
    return [*code.insert_before(first, text), *(edit for node in later for edit in code.remove(node))]


def _zeroed_by_hook(site: Site) -> list[Edit]:
    """`zero_grad()` in the hook that Lightning calls for it."""
    for node in site.code.nodes_at(site.line):
        if isinstance(node, ast.FunctionDef) and node.name == "optimizer_zero_grad" and len(node.args.args) == 4:
            last, text = node.body[-1], f"{node.args.args[3].arg}.zero_grad()"
            is_empty = isinstance(last, ast.Pass)
            return site.code.put(last, text) if is_empty else site.code.insert_after(last, text)
    return []


def _channels_first(site: Site) -> list[Edit]:
    """A permutation in place of a view, with the batch where the view has one."""
    calls = site.calls("view", "reshape")
    if not site.is_meant("view") or len(calls) != 1 or not isinstance(calls[0].func, ast.Attribute):
        return []
    order = [int(number) for number in site.values["order"].split(",")]
    if len(calls[0].args) == len(order) + 1:
        order = [0, *(number + 1 for number in order)]
    text = f"{site.code.source(calls[0].func.value)}.permute({', '.join(map(str, order))}).contiguous()"
    return site.code.put(calls[0], text) if len(calls[0].args) == len(order) else []


def _over_axis(site: Site) -> list[Edit]:
    """Another axis for a softmax, at its call or where its layer is made, unless a variable holds the axis."""
    calls = site.calls("softmax", "Softmax")
    if len(calls) != 1:
        return []
    call, better = calls[0], site.values["axis"]
    is_method = isinstance(call.func, ast.Attribute) and not site.code.is_module(call.func.value)
    number = 0 if is_method or name_of(call) == "Softmax" else 1
    axis = keyword(call, "dim") or next(iter(call.args[number:]), None)
    if axis is None:
        return site.code.set_keyword(call, "dim", better)
    is_number = site.code.source(axis).removeprefix("-").isdecimal()
    return site.code.put(axis, better) if is_number else []


def _copied(site: Site) -> list[Edit]:
    """A deep copy of a state dict, where the file imports a function for it, or else a copy of each tensor."""
    calls = site.calls("state_dict")
    if len(calls) != 1:
        return []
    call, imports = site.code.source(calls[0]), site.code.imports
    name = next((f"{name}(" for name in ("copy.deepcopy", "deepcopy") if name.partition(".")[0] in imports), "")
    copied = f"{name}{call})" if name else f"{{name: value.clone() for name, value in {call}.items()}}"
    return site.code.put(calls[0], copied)


_NO_ACTIVATION = [
    _without_activation,
    *(Rule(pattern, "X") for pattern in ("M.{activation}(X, *A)", "X.{activation}(*A)")),
]
_ZERO_BIAS = [
    Rule(f"M.{name}(X, *A)", "M.zeros_(X)", "zero bias") for name in ("constant_", "fill_", "normal_", "uniform_")
]
_RATES = [
    Rule("M.{optimizer}(X, C, *A)", "M.{optimizer}(X, {rate}, *A)"),
    Rule("{optimizer}(X, C, *A)", "{optimizer}(X, {rate}, *A)"),
    Option("lr", "{rate}", ("{optimizer}",)),
]


def _in_training_alone(site: Site) -> list[Edit]:
    """Gives the dropout at the line, and the others of its function that are always active, the mode of the module."""
    option = Option("training", "self.training", _DROPOUTS)
    edits = option(site)
    function = site.code.function_around(site.calls(*_DROPOUTS)[0]) if edits else None
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    others = [call for call in calls if name_of(call) in _DROPOUTS and call.lineno != site.line]
    lines = {call.lineno for call in others if keyword(call, "training") is None}
    return edits + [edit for line in lines for edit in option(Site(site.code, site.finding | {"line": line}))]


_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_IGNORED = [
    Option("ignore_index", "{ignored}", (name,))
    for name in ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")
]
_LAYERS_OF_TIME = ("LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer")
_WITH_SCHEDULE = '{"optimizer": X, "lr_scheduler": {"scheduler": Y, "{key}": {value}}}'

REPAIRS: dict[str, list[Repair]] = {
    "activation-on-logits": _NO_ACTIVATION,
    "adam-l2": [
        _decoupled,
        Option("decoupled_weight_decay", "True", ("NAdam", "RAdam")),
    ],
    "amp-unsafe": [
        Rule("M.binary_cross_entropy(X.sigmoid(), *A)", "M.binary_cross_entropy_with_logits(X, *A)"),
        Rule("M.binary_cross_entropy(torch.sigmoid(X), *A)", "M.binary_cross_entropy_with_logits(X, *A)"),
        Rule("X.masked_fill(K, V)", "X.masked_fill(K, torch.finfo(X.dtype).min)"),
    ],
    "bad-broadcast": [
        *(Rule(f"X {sign} Y", f"X.squeeze(-1) {sign} Y", "squeeze left") for sign in ("-", "*", "==")),
        *(Rule(f"X {sign} Y", f"X {sign} Y.squeeze(-1)", "squeeze right") for sign in ("-", "*", "==")),
        Rule("M.{name}(X, Y, *A)", "M.{name}(X.squeeze(-1), Y, *A)", "squeeze left"),
        Rule("M.{name}(X, Y, *A)", "M.{name}(X, Y.squeeze(-1), *A)", "squeeze right"),
    ],
    "bad-initial-loss": [
        Option("std", "{std}", ("normal_", "trunc_normal_")),
        *(Rule(pattern, "X", "factor") for pattern in ("X * C", "C * X", "X / C")),
        *_ZERO_BIAS,
    ],
    "batch-mixing": [
        *(Rule(f"X.{name}(0)", f"X.{name}(-1)") for name in ("softmax", "log_softmax")),
        *(Rule(f"{name}(dim=0)", f"{name}(dim=-1)") for name in ("X.softmax", "X.log_softmax", "M.Softmax")),
        *(Rule(f"M.{name}(X, dim=0)", f"M.{name}(X, dim=-1)") for name in ("softmax", "log_softmax")),
        Option("track_running_stats", "True", ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")),
        Option("batch_first", "True", _LAYERS_OF_TIME),
    ],
    "bias-before-norm": [Option("bias", "False", ("{layer}",))],
    "causal-leak": [Option("is_causal", "True", ("scaled_dot_product_attention",), unless=("attn_mask",))],
    "channel-order": [
        _channels_first,
        Rule("Y = F(*A);", "Y = F(*A).permute({order})", "permute"),
    ],
    "dead-units": _ZERO_BIAS,
    "detached-graph": [_with_graph, _uncut],
    "device-unsafe-tensor": [
        _as_buffer,
        _on_device,
    ],
    "double-softmax": _NO_ACTIVATION,
    "dtype-promotion": [Rule("{tensor}", "{tensor}.float()")],
    "duplicate-worker-rng": [Rule("M.seed(X)", "M.seed(torch.initial_seed() % 2**32)", "seed")],
    "eval-augmentation": [_only_if("self.trainer.training")],
    "eval-drops-data": [
        Option("drop_last", "False", ("DataLoader", "BatchSampler"), "keep last", is_given=True),
    ],
    "eval-nondeterminism": [
        _in_training_alone,
        Rule("X.train()", "X", "modes"),
        _only_if("self.training"),
    ],
    "graph-retained": [
        Rule("Y += X;", "Y += X.detach()"),
        Rule("Y = X;", "Y = X.detach()"),
        Rule("Y.append(X)", "Y.append(X.detach())"),
    ],
    "host-sync": [_without_wait],
    "inplace-on-graph": [
        *(Rule(f"Y {sign}= X;", f"Y = Y {sign} X") for sign in ("+", "-", "*", "/")),
        Rule("Y[L] = X;", "Y = Y.clone()\n..."),
        Rule("X.N_(*A);", "X = X.N(*A)"),
        Rule("X.N_(*A)", "X.N(*A)"),
        Option("inplace", "False", is_given=True),
    ],
    "kept-weights-change": [_copied],
    "label-out-of-range": [
        *_IGNORED,
        *_value("X - {low}"),
        *_value("(X > 0).float()", "binary"),
    ],
    "learning-rate-too-high": _RATES,
    "learning-rate-too-low": _RATES,
    "loss-not-decreasing": [
        Rule("return -X;", "return X", "sign"),
        Rule("Y = -X;", "Y = X", "sign"),
        *_value("-X", "sign"),
        Option("maximize", "False", variant="maximize", is_given=True),
    ],
    "mean-divided-again": [Rule("Y /= X;", ""), Rule("X / Y", "X")],
    "missing-log-softmax": [Rule("M.nll_loss(X, Y, *A)", "M.cross_entropy(X, Y, *A)", "cross_entropy")],
    "missing-super-init": [_first_super],
    "missing-zero-grad": [
        _zeroed_by_hook,
        Rule("self.scaler.step(X);", "...\nX.zero_grad()", "after step"),
        Rule("scaler.step(X);", "...\nX.zero_grad()", "after step"),
        Rule("X.step(*A);", "...\nX.zero_grad()", "after step"),
    ],
    "non-finite": [
        Rule("torch.{log}(X)", "torch.{log}(X.clamp(min=1e-6))"),
        Rule("X.{log}()", "X.clamp(min=1e-6).{log}()"),
        Rule("torch.{root}(X)", "torch.{root}(X + 1e-8)"),
        Rule("X.{root}()", "(X + 1e-8).{root}()"),
    ],
    "non-scalar-loss": [Option("reduction", '"mean"', is_given=True), Rule("return X;", "return X.mean()")],
    "norm-batch-size-one": [Option("drop_last", "True", ("DataLoader",))],
    "padding-in-loss": _IGNORED,
    "parameter-not-optimized": [Rule("self.N.parameters()", "self.parameters()", "all")],
    "repeated-layer": [
        *(Rule(f"[{call}] * Y", f"[{call} for _ in range(Y)]") for call in ("M.N(*A)", "N(*A)")),
    ],
    "same-position": [Rule("Y[X.size(N)]", "Y[: X.size(N)]"), Rule("Y[:, X.size(N)]", "Y[:, : X.size(N)]")],
    "scheduler-cadence": [
        Rule(before, after, in_function=True)
        for before, after in (
            ('{"scheduler": Y, "{key}": V}', '{"scheduler": Y, "{key}": {value}}'),
            ('{"scheduler": Y}', '{"scheduler": Y, "{key}": {value}}'),
            ('{"optimizer": X, "lr_scheduler": Y, "{key}": V}', _WITH_SCHEDULE),
            ('{"optimizer": X, "lr_scheduler": Y}', _WITH_SCHEDULE),
            ("([X], [Y])", '[X], [{"scheduler": Y, "{key}": {value}}]'),
        )
    ],
    "shifted-causal-mask": [
        Rule("torch.ones(X, Y, *A).tril()", "torch.ones(X, Y, *A).tril(Y - X)", "last keys"),
    ],
    "sigmoid-before-logits-loss": _NO_ACTIVATION,
    "softmax-axis": [_over_axis],
    "stuck-in-eval": [Rule("X.eval()", "X", "leave out"), _back_to_training],
    "train-not-shuffled": [
        Option("shuffle", "True", ("DataLoader",), "shuffle", unless=("sampler", "batch_sampler")),
    ],
    "unnormalized-input": [Rule("X.float()", "X.float() / 255", "pixels")],
    "unregistered-submodule": [Rule("self.N = L;", "self.N = nn.{container}(L)")],
    "unsafe-load": [_tensors_alone],
    "unshifted-targets": [
        *(
            Rule(
                f"M.cross_entropy(X.{shape}(*A), Y.{shape}(*B))",
                f"M.cross_entropy(X[:, :-1].{new}(*A), Y[:, 1:].{new}(*B))",
            )
            for shape, new in (("view", "reshape"), ("reshape", "reshape"), ("flatten", "flatten"))
        ),
        Rule("M.cross_entropy(X.transpose(*A), Y)", "M.cross_entropy(X[:, :-1].transpose(*A), Y[:, 1:])"),
        *(
            Rule(f"M.{name}(X, Y)", f"M.{name}(X[:, :-1], Y[:, 1:])")
            for name in ("mse_loss", "l1_loss", "smooth_l1_loss")
        ),
    ],
}
