"""Repairs as functions of text: the needed characters change, and unknown code stays as it is."""

import ast

import pytest

from torchdoctor.code import Code, Edit
from torchdoctor.registry import all_defects
from torchdoctor.repairs.edits import REPAIRS, repair

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


def repaired(defect: str, text: str, mark: str, **values: str) -> str | None:
    """The text after a repair at the first line that contains a mark, of a finding with these values and no words."""
    lines = text.splitlines()
    number = next(number for number, line in enumerate(lines, start=1) if mark in line)
    return repair(text, {"id": defect, "line": number, "code": lines[number - 1].strip(), "values": values})


def change(defect: str, line: str, **values: str) -> str | None:
    """What becomes of one line inside a method."""
    text = f"{HEAD}class Model(nn.Module):\n    def forward(self, x, y):\n        {line}\n"
    new = repaired(defect, text, line, **values)
    return None if new is None else new.removeprefix(text[: text.index(line)]).rstrip("\n")


SOFTMAX = {"activation": "softmax"}
RELU = {"activation": "relu"}
WIDE = {"variant": "squeeze left", "name": "sub"}
NARROW = {"variant": "squeeze right", "name": "mse_loss"}
DROPS = {"variant": "keep last"}
SHUFFLES = {"variant": "shuffle"}
MODES = {"variant": "leave out"}
SIGN = {"variant": "sign"}
AXIS = {"axis": "-1"}
LAYER = {"layer": "Linear"}
AFTER = {"variant": "after step"}
NO_GRAPH = {"variant": "detach", "reads": ".item()"}
LINES: list[tuple[str, str, dict[str, str], str | None]] = [
    ("double-softmax", "return self.net(x).softmax(-1)  # why", SOFTMAX, "return self.net(x)  # why"),
    ("double-softmax", "return F.softmax(self.net(x), dim=1)", SOFTMAX, "return self.net(x)"),
    ("double-softmax", "return 2 * F.softmax(x + y, dim=1)", SOFTMAX, "return 2 * (x + y)"),
    ("double-softmax", "return x.softmax(0) + y.softmax(0)", SOFTMAX, None),
    ("double-softmax", "return self.softmax(x)", SOFTMAX, None),
    ("activation-on-logits", "return torch.relu(x)", RELU, "return x"),
    ("activation-on-logits", "return F.gelu(x)", RELU, None),
    ("adam-l2", "return torch.optim.Adam(x, weight_decay=0.1)", {}, "return torch.optim.AdamW(x, weight_decay=0.1)"),
    ("adam-l2", "return make(x, weight_decay=0.1)", {}, None),
    ("adam-l2", "return torch.optim.Adam(groups, lr=0.1)", {}, None),
    ("bad-broadcast", "return ((x - y.float()) ** 2).mean()", WIDE, "return ((x.squeeze(-1) - y.float()) ** 2).mean()"),
    ("bad-broadcast", "return F.mse_loss(x, y + 1)", NARROW, "return F.mse_loss(x, (y + 1).squeeze(-1))"),
    ("bad-broadcast", "return (x - y) - (y - x)", WIDE, None),
    ("batch-mixing", "return x.softmax(dim=0)", {}, "return x.softmax(dim=-1)"),
    ("bias-before-norm", "x = nn.Linear(8, 8)", LAYER, "x = nn.Linear(8, 8, bias=False)"),
    ("bias-before-norm", "x = nn.Linear(8, 8, bias=True)", LAYER, "x = nn.Linear(8, 8, bias=False)"),
    ("bias-before-norm", "x = nn.Linear(8, 8)", {}, None),
    ("bias-before-norm", "x = nn.Linear(**y)", LAYER, None),
    ("eval-drops-data", "return DataLoader(x, drop_last=True)", DROPS, "return DataLoader(x, drop_last=False)"),
    ("eval-drops-data", "return DataLoader(x, sampler=y)", DROPS, None),
    ("train-not-shuffled", "return DataLoader(x, shuffle=False)", SHUFFLES, "return DataLoader(x, shuffle=True)"),
    ("train-not-shuffled", "return DataLoader((x))", SHUFFLES, "return DataLoader((x), shuffle=True)"),
    ("train-not-shuffled", "return DataLoader(x, sampler=y)", SHUFFLES, None),
    (
        "eval-nondeterminism",
        "return F.dropout(x, 0.5)",
        {"variant": "condition"},
        "return F.dropout(x, 0.5, training=self.training)",
    ),
    (
        "eval-nondeterminism",
        "x = x + torch.randn_like(x)",
        {"variant": "condition"},
        "if self.training:\n            x = x + torch.randn_like(x)",
    ),
    ("eval-nondeterminism", "self.net.train()", {"variant": "modes"}, "pass"),
    ("detached-graph", "x = self.net(x.detach())", {}, "x = self.net(x)"),
    ("detached-graph", "x = torch.from_numpy(x.detach().numpy())", {}, None),
    ("graph-retained", "self.total += x", {}, "self.total += x.detach()"),
    ("graph-retained", "self.mean = 0.9 * self.mean + x", {}, "self.mean = (0.9 * self.mean + x).detach()"),
    ("graph-retained", "self.losses.append(x)", {}, "self.losses.append(x.detach())"),
    ("host-sync", "x = y.cpu().item()", {"reads": ".cpu() and .item()"}, None),
    ("host-sync", "self.total += x.item()", NO_GRAPH, "self.total += x.detach()"),
    ("host-sync", "self.last = float(x)", NO_GRAPH, "self.last = x.detach()"),
    ("host-sync", "return y.item()", NO_GRAPH, None),
    ("missing-log-softmax", "return F.nll_loss(x, y)", {"variant": "cross_entropy"}, "return F.cross_entropy(x, y)"),
    ("missing-log-softmax", "return F.nll_loss(x, y)", {}, None),
    ("host-sync", 'print(f"{x.item():.3f}")', NO_GRAPH, None),
    ("inplace-on-graph", "x *= y + 1", {}, "x = x * (y + 1)"),
    ("inplace-on-graph", "y = x.relu_()", {}, "y = x.relu()"),
    ("inplace-on-graph", "x.relu_()", {}, "x = x.relu()"),
    ("inplace-on-graph", "x[:, 0] = 0.0", {}, "x = x.clone()\n        x[:, 0] = 0.0"),
    ("inplace-on-graph", "y = F.relu(x, inplace=True)", {}, "y = F.relu(x, inplace=False)"),
    ("learning-rate-too-high", "SGD(x, lr=self.lr)", {"optimizer": "SGD", "rate": "0.001"}, "SGD(x, lr=0.001)"),
    ("learning-rate-too-high", "SGD(x, 10.0)", {"optimizer": "SGD", "rate": "0.1"}, "SGD(x, 0.1)"),
    ("learning-rate-too-high", "Adam(x, 10.0)", {"optimizer": "SGD", "rate": "0.1"}, None),
    ("loss-not-decreasing", "return x.log().mean()", SIGN, "return -x.log().mean()"),
    ("loss-not-decreasing", "return -x.mean()", SIGN, "return x.mean()"),
    ("loss-not-decreasing", "return x + y", SIGN, "return -(x + y)"),
    ("mean-divided-again", "return F.mse_loss(x, y) / len(x)", {}, "return F.mse_loss(x, y)"),
    ("missing-zero-grad", "self.o.step()", AFTER, "self.o.step()\n        self.o.zero_grad()"),
    ("missing-zero-grad", "self.o.step()", {}, None),
    ("missing-zero-grad", "self.scaler.step(o)", AFTER, "self.scaler.step(o)\n        o.zero_grad()"),
    ("non-finite", "y = x.log()", {"log": "log"}, "y = x.clamp(min=1e-6).log()"),
    ("non-finite", "y = torch.sqrt(x)", {"root": "sqrt"}, "y = torch.sqrt(x + 1e-8)"),
    (
        "padding-in-loss",
        "return F.cross_entropy(x, y)",
        {"ignored": "0"},
        "return F.cross_entropy(x, y, ignore_index=0)",
    ),
    (
        "repeated-layer",
        "self.layers = nn.ModuleList([nn.Linear(8, 8)] * self.depth)",
        {},
        "self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(self.depth)])",
    ),
    ("repeated-layer", "x = nn.Sequential(*[f(8)] * 3)", {}, "x = nn.Sequential(*[f(8) for _ in range(3)])"),
    ("repeated-layer", "x = [nn.Linear(8, 8), nn.ReLU()] * 3", {}, None),
    (
        "kept-weights-change",
        "self.best = x.state_dict()",
        {},
        "self.best = {name: value.clone() for name, value in x.state_dict().items()}",
    ),
    ("kept-weights-change", "self.best = x.state_dict(), y.state_dict()", {}, None),
    ("same-position", "return x + self.table[:, x.size(1)]", {}, "return x + self.table[:, : x.size(1)]"),
    ("softmax-axis", "return F.softmax(x, dim=1) @ y", AXIS, "return F.softmax(x, dim=-1) @ y"),
    ("softmax-axis", "return F.softmax(x @ y, 1)", AXIS, "return F.softmax(x @ y, -1)"),
    ("softmax-axis", "return F.softmax(x)", AXIS, "return F.softmax(x, dim=-1)"),
    ("softmax-axis", "return (x + y).softmax(1)", AXIS, "return (x + y).softmax(-1)"),
    ("softmax-axis", "self.normalise = nn.Softmax(1)", AXIS, "self.normalise = nn.Softmax(-1)"),
    ("softmax-axis", "return x.softmax(self.axis)", AXIS, None),
    ("softmax-axis", "return x.softmax(1), y.softmax(1)", AXIS, None),
    ("stuck-in-eval", "self.net.eval()", MODES, "pass"),
    ("stuck-in-eval", "net = self.net.eval()", MODES, "net = self.net"),
    (
        "unshifted-targets",
        "return F.cross_entropy(x.view(-1, 9), y.view(-1))",
        {},
        "return F.cross_entropy(x[:, :-1].reshape(-1, 9), y[:, 1:].reshape(-1))",
    ),
    (
        "unsafe-load",
        "x.load_state_dict(torch.load(y, weights_only=False))",
        {},
        "x.load_state_dict(torch.load(y, weights_only=True))",
    ),
    ("unsafe-load", "x = torch.load(y, weights_only=False)", {}, None),
    (
        "unregistered-submodule",
        "self.layers = [x, y]",
        {"container": "ModuleList"},
        "self.layers = nn.ModuleList([x, y])",
    ),
    ("unnormalized-input", "x = y.float()", {"variant": "pixels"}, "x = y.float() / 255"),
    (
        "channel-order",
        "x = torch.from_numpy(y)",
        {"variant": "permute", "order": "0, 3, 1, 2"},
        "x = torch.from_numpy(y).permute(0, 3, 1, 2)",
    ),
    (
        "channel-order",
        "x = x.view(-1, 3, 8, 8)",
        {"variant": "view", "order": "0, 3, 1, 2"},
        "x = x.permute(0, 3, 1, 2).contiguous()",
    ),
]


@pytest.mark.parametrize(("defect", "line", "values", "expected"), LINES)
def test_repairs_of_a_line(defect: str, line: str, values: dict[str, str], expected: str | None) -> None:
    assert change(defect, line, **values) == expected


def test_repairs_are_of_known_defects() -> None:
    assert set(REPAIRS) <= set(all_defects())


@pytest.mark.parametrize(
    ("imported", "called"), [("import copy", "copy.deepcopy"), ("from copy import deepcopy", "deepcopy")]
)
def test_weights_are_copied_with_what_is_imported(imported: str, called: str) -> None:
    text = f'{imported}\n\nkept = {{\n    "model": model.state_dict(),\n    "epoch": epoch,\n}}\n'
    new = repaired("kept-weights-change", text, "state_dict")
    assert new == text.replace("model.state_dict()", f"{called}(model.state_dict())")


def test_all_dropouts_of_a_function_are_those_of_training() -> None:
    text = "class Net(nn.Module):\n    def forward(self, x):\n        x = F.dropout(x, 0.2)\n        x = self.one(x)\n"
    text += "        x = F.dropout(x, p=0.3)\n        return F.dropout(x, 0.4, training=self.training)\n"
    new = repaired("eval-nondeterminism", text, "0.2")
    assert new == text.replace("0.2)", "0.2, training=self.training)").replace("0.3)", "0.3, training=self.training)")


def test_a_number_that_numpy_may_take_stays_one() -> None:
    """It refuses tensors of an accelerator, which a second review on the CPU does not see."""
    text = "def evaluate(x):\n    {} = x.item()\n    return np.array([count])\n"
    assert repaired("host-sync", text.format("count"), "x.item()", **NO_GRAPH) is None


def test_a_number_that_is_written_each_time_stays_one() -> None:
    text = "for x in y:\n    total += x.item()\n    bar.set_description('{:.2f}'.format(total))\n"
    assert repaired("host-sync", text, "x.item()", **NO_GRAPH) is None
    text = text.replace("    bar", "    if done:\n        bar")
    new = repaired("host-sync", text, "x.item()", **NO_GRAPH)
    assert new == text.replace("x.item()", "x.detach()")
    kept = "for x in y:\n    total += x.item()\ncurve.append(total / len(y))\n"
    assert repaired("host-sync", kept, "x.item()", **NO_GRAPH) is None
    assert repaired("host-sync", "print('loss', x.item())\n", "x.item()", **NO_GRAPH) is None


def test_a_tensor_is_made_on_the_device_of_one_that_is_there() -> None:
    text = (
        HEAD + "class Net(nn.Module):\n    def forward(self, x=None):\n{}        x = torch.zeros(3)\n        return x\n"
    )
    new = repaired("device-unsafe-tensor", text.format(""), "torch.zeros", made="torch.zeros(3)")
    assert new == text.format("").replace("zeros(3)", "zeros(3, device=x.device)")
    inside = text.format("        if x is None:\n    ")
    assert repaired("device-unsafe-tensor", inside, "torch.zeros", made="torch.zeros(3)") is None


def test_a_file_that_holds_a_module_is_loaded_as_before() -> None:
    text = "import torch\n\ntorch.save({}, path)\nnet = torch.load(path, weights_only=False)\n"
    assert repaired("unsafe-load", text.format("net"), "torch.load") is None
    new = repaired("unsafe-load", text.format("net.state_dict()"), "torch.load")
    assert new == text.format("net.state_dict()").replace("only=False", "only=True")


def test_the_last_layer_of_a_sequence_is_left_out() -> None:
    text = "net = nn.Sequential(\n    nn.Linear(8, 3),  # the head\n    nn.Softmax(dim=1),\n)\n"
    new = repaired("double-softmax", text, "nn.Softmax", **SOFTMAX)
    assert new == "net = nn.Sequential(\n    nn.Linear(8, 3),  # the head\n)\n"
    text = "net = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=1))\n"
    assert repaired("double-softmax", text, "nn.Softmax", **SOFTMAX) == "net = nn.Sequential(nn.Linear(8, 3))\n"
    text = "class Net(nn.Module):\n    def __init__(self):\n        self.act = nn.Softmax(1)\n"
    assert repaired("double-softmax", text, "nn.Softmax", **SOFTMAX) == text.replace("nn.Softmax(1)", "nn.Identity()")


def test_a_layer_that_is_called_is_left_out_at_the_call() -> None:
    text = "class Net(nn.Module):\n    def __init__(self):\n        self.act = nn.ReLU()\n\n"
    text += "    def forward(self, x):\n        x = self.act(self.one(x))\n        return self.act(self.two(x))\n"
    new = repaired("activation-on-logits", text, "return", **RELU)
    assert new == text.replace("return self.act(self.two(x))", "return self.two(x)")


def test_an_imported_optimizer_is_called_by_its_new_name() -> None:
    text = "import torch\nfrom torch.optim import Adam\n\n\ndef make(p):\n    return Adam(p, weight_decay=0.1)\n"
    assert repaired("adam-l2", text, "return") == text.replace("return Adam(", "return torch.optim.AdamW(")
    assert repaired("adam-l2", text.replace("import torch\n", ""), "return") is None


def test_a_block_without_gradients_moves_to_the_left() -> None:
    text = "def f(x):\n    with torch.no_grad():  # fast\n        y = g(x)\n\n        # the last\n        return y\n"
    new = repaired("detached-graph", text, "no_grad")
    assert new == "def f(x):\n    y = g(x)\n\n    # the last\n    return y\n"
    assert repaired("detached-graph", text.replace("g(x)", "'''a\n b'''"), "no_grad") is None
    text = "@torch.no_grad()\ndef f(x):\n    return x\n"
    assert repaired("detached-graph", text, "no_grad") == "def f(x):\n    return x\n"


def test_the_base_is_initialised_first_and_once() -> None:
    text = 'class Net(nn.Module):\n    def __init__(self):\n        """A net."""\n        self.a = nn.Linear(1, 1)\n'
    new = repaired("missing-super-init", text, "self.a")
    assert new == text.replace("        self.a", "        super().__init__()\n        self.a")
    assert repaired("missing-super-init", text + "        super().__init__()\n", "self.a") == new


INTERVAL = {"key": "interval", "value": '"step"'}


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (
            '{"optimizer": o, "lr_scheduler": s}',
            '{"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "step"}}',
        ),
        ('{"lr_scheduler": {"scheduler": s}}', '{"lr_scheduler": {"scheduler": s, "interval": "step"}}'),
        (
            '{"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "epoch"}}',
            '{"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "step"}}',
        ),
        (
            '{"optimizer": o, "lr_scheduler": s, "interval": "step"}',
            '{"optimizer": o, "lr_scheduler": {"scheduler": s, "interval": "step"}}',
        ),
        ("[o], [s]", '[o], [{"scheduler": s, "interval": "step"}]'),
        ("[o], [s, t]", None),
    ],
)
def test_schedules_are_stepped_as_often_as_they_should(returned: str, expected: str | None) -> None:
    text = f"def configure_optimizers(self):\n    s = OneCycleLR(o)\n    return {returned}\n"
    new = repaired("scheduler-cadence", text, "OneCycleLR", **INTERVAL)
    assert new == (None if expected is None else text.replace(returned, expected))


def test_a_loop_returns_to_training_mode() -> None:
    text = "for epoch in range(3):\n    train()\n    model.eval()\n    test()\n"
    new = repaired("stuck-in-eval", text, "eval")
    assert new == text.replace("    train()", "    model.train()\n    train()")
    text = "def test(model):\n    model.eval()\n    print(model(x))\n"
    new = repaired("stuck-in-eval", text, "eval")
    assert new == text + "    model.train()\n"


def test_a_file_that_has_changed_since_the_review_is_left_alone() -> None:
    text = "import torch; o = torch.optim.Adam(p, weight_decay=1)\n"
    finding = {"id": "adam-l2", "line": 1, "code": text.strip(), "values": {}}
    assert repair(text, finding) == "import torch; o = torch.optim.AdamW(p, weight_decay=1)\n"
    assert repair(f"\n{text}", finding) is None
    assert repair(f"{text}(\n", finding) is None
    assert repair("", finding) is None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_positions_count_characters_and_keep_line_ends(newline: str) -> None:
    text = newline.join(
        ["import torch; größe = 'äöü'; o = torch.optim.Adam(größe, weight_decay=1)", "", "o.step()", ""]
    )
    finding = {"id": "adam-l2", "line": 1, "code": text.splitlines()[0], "values": {}}
    assert repair(text, finding) == text.replace("Adam", "AdamW")
    finding = {"id": "missing-zero-grad", "line": 3, "code": "o.step()", "values": AFTER}
    assert repair(text, finding) == f"{text}o.zero_grad(){newline}"


def test_edits_that_overlap_or_break_the_syntax_are_refused() -> None:
    code = Code("x = f(1)\n")
    assert code.edited([Edit(4, 5, "g")]) == "x = g(1)\n"
    assert code.edited([Edit(0, 5, "y"), Edit(4, 8, "z")]) is None
    assert code.edited([Edit(7, 8, "")]) is None
    assert code.edited([]) is None


def test_parentheses_stand_where_they_are_needed() -> None:
    code = Code("y = (a + b).relu() * 2\n")
    (call,) = (node for node in ast.walk(code.tree) if isinstance(node, ast.Call))
    assert isinstance(call.func, ast.Attribute)
    assert code.edited(code.put(call, code.source(call.func.value))) == "y = (a + b) * 2\n"
