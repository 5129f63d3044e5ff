"""Steps of scripts that are held and replayed, and what the probes find in them."""

from pathlib import Path

import pytest

from programs import needs_fork
from script_programs import CLEAN, CLOSURE, DATA, DEFECTS, changed, lines, reviewed

pytestmark = [needs_fork, pytest.mark.slow]


GAN = """
import torch
from torch import nn

real = torch.randn(256, 4) * 0.5 + 1.0
maker, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
judged = torch.optim.Adam(judge.parameters(), lr=1e-3)
made = torch.optim.Adam(maker.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
for step in range(12):
    batch = real[torch.randint(0, 256, (16,))]
    fake = maker(torch.randn(16, 2))
    judged.zero_grad()
    loss = criterion(judge(batch), torch.ones(16, 1)) + criterion(judge(fake.detach()), torch.zeros(16, 1))
    loss.backward()
    judged.step()
    made.zero_grad()
    criterion(judge(fake), torch.ones(16, 1)).backward()
    made.step()
"""


CRITIC = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(256, 4) * 0.5 + 1.0), 16)
maker, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
judged = torch.optim.Adam(judge.parameters(), lr=1e-3)
made = torch.optim.Adam(maker.parameters(), lr=1e-3)
for step, (batch,) in enumerate(loader):
    judged.zero_grad()
    (judge(maker(torch.randn(16, 2))).mean() - judge(batch).mean()).backward()
    judged.step()
    if step % 5 == 0:
        made.zero_grad()
        (-judge(maker(torch.randn(16, 2))).mean()).backward()
        made.step()
"""


def test_two_networks_against_each_other(tmp_path: Path) -> None:
    report = reviewed(tmp_path, GAN)
    assert not report.findings, report
    assert "losses and gradients are finite" in report.checked


def test_a_closure_without_a_loader(tmp_path: Path) -> None:
    report = reviewed(tmp_path, CLOSURE, "--steps", "3")
    assert not report.findings, report
    assert "the step computes in single precision" in report.checked
    assert not [line for line in report.checked if "loader" in line], report


def test_a_loop_without_a_loader(tmp_path: Path) -> None:
    loop = "for number in range(10):\n        inputs, target = x[number * 20 :][:20], y[number * 20 :][:20]"
    spoiled = changed(("for inputs, target in train_loader:", loop), DEFECTS["double-softmax"])
    assert lines(reviewed(tmp_path, spoiled, only="double-softmax,label-out-of-range")) == [
        ("double-softmax", "return self.second(x).softmax(1)")
    ]


def test_a_name_for_what_nobody_reads_carries_no_state(tmp_path: Path) -> None:
    feed = "feed = cycle([((a, None), b) for a, b in zip(x.split(20), y.split(20))])"
    text = changed(
        ("import torch\n", "from itertools import cycle\nimport torch\n"),
        ("for epoch", f"{feed}\nfor epoch"),
        ("for inputs, target in train_loader:", "for _ in range(9):\n        (inputs, _), target = next(feed)"),
        ("return self.second(x)", "return self.second(x), x"),
        (
            "loss = F.cross_entropy(model(inputs), target)",
            "scores, _ = model(inputs)\n        loss = F.cross_entropy(scores, target)",
        ),
        ("model(inputs).argmax(1)", "model(inputs)[0].argmax(1)"),
    )
    notes = reviewed(tmp_path, text, only="bad-initial-loss").notes
    assert not [note for note in notes if "needs a batch" in note], notes


def test_an_optimizer_that_steps_in_some_turns_only(tmp_path: Path) -> None:
    assert not reviewed(tmp_path, CRITIC, only="parameter-not-optimized").findings
    ending = CRITIC.replace("    if step", "    raise SystemExit(0)\n    if step")
    assert not reviewed(tmp_path, ending, only="parameter-not-optimized").findings
    forgotten = CRITIC.replace("        made.step()\n", "").replace("made = torch", "# made = torch")
    found = reviewed(tmp_path, forgotten.replace("made.", "maker."), only="parameter-not-optimized")
    assert [item["id"] for item in found.findings] == ["parameter-not-optimized"]


def test_a_layer_that_nothing_calls_is_unused_and_not_cut_off(tmp_path: Path) -> None:
    layer = "self.second = nn.Linear(32, 3)\n        self.third = nn.Linear(32, 3)"
    report = reviewed(
        tmp_path, changed(("self.second = nn.Linear(32, 3)", layer)), only="unused-parameter,detached-graph"
    )
    assert lines(report) == [("unused-parameter", "self.third = nn.Linear(32, 3)")]


def test_a_loop_over_an_iterator_that_was_made_before(tmp_path: Path) -> None:
    loop = "batches = enumerate(train_loader)\n    for number, (inputs, target) in batches:"
    text = changed(("    for inputs, target in train_loader:", f"    {loop}"))
    report = reviewed(tmp_path, text, only="train-not-shuffled,bad-initial-loss")
    assert not report.notes, report
    assert "the training loader has a random order" in report.checked, report


def test_a_step_that_takes_batches_of_an_iterator(tmp_path: Path) -> None:
    """Each replay of it gets the same ones, and a loop that counts them gets all that it counts on."""
    loop = "batches, others = iter(train_loader), iter(train_loader)\n    for _ in range(len(train_loader)):\n"
    text = changed(
        ("    for inputs, target in train_loader:\n", f"    {loop}        inputs, target = next(batches)\n"),
        ("loss = ", "more = next(others)\n        loss = F.cross_entropy(model(more[0]), more[1]) + "),
    )
    report = reviewed(tmp_path, text, only="batch-mixing,host-sync,learning-rate-too-high,missing-zero-grad")
    assert not report.findings, report
    assert not [note for note in report.notes if "StopIteration" in note], report
    assert "the script runs to its end (48 steps)" in report.checked, report


def test_a_loader_that_each_step_begins_anew(tmp_path: Path) -> None:
    loop = "    for _ in range(16):\n        inputs, target = next(iter(train_loader))\n"
    text = changed(
        ("    for inputs, target in train_loader:\n", loop),
        ("F.relu(self.first(x))", "F.relu(self.first(x) - x.mean())"),
    )
    report = reviewed(tmp_path, text, only="batch-mixing")
    assert [item["id"] for item in report.findings] == ["batch-mixing"], report


def test_the_loader_of_a_loop_that_calls_the_step(tmp_path: Path) -> None:
    """The step is a function of its own, with a batch for its arguments."""
    step = CLEAN[CLEAN.index("        optimizer.zero_grad()") : CLEAN.index("    model.eval()")]
    text = CLEAN.replace(step, "        train_on(inputs, target)\n")
    text = text.replace("for epoch", f"def train_on(inputs, target):\n{step.replace('        ', '    ')}\n\nfor epoch")
    text = text.replace("y = torch.randint(0, 3, (400,))", "y = torch.arange(400) // 134")
    text = text.replace(", shuffle=True", "")
    [(defect, line)] = lines(reviewed(tmp_path, text, only="train-not-shuffled"))
    assert (defect, line.partition(" =")[0]) == ("train-not-shuffled", "train_loader")


def test_a_layer_that_chance_leaves_out_of_some_steps(tmp_path: Path) -> None:
    text = changed(
        ("import torch\n", "import random\nimport torch\n"),
        ("self.second = nn.Linear(32, 3)", "self.second = nn.ModuleList([nn.Linear(32, 3) for _ in range(4)])"),
        ("self.second(x)", "random.choice(self.second)(x)"),
        ("        self.dropout = nn.Dropout(0.1)\n", ""),
        ("self.dropout(F.relu(self.first(x)))", "F.relu(self.first(x))"),
        ("    for inputs, target in train_loader:", "    for inputs, target in [(x, y)] * 9:"),
    )
    assert not reviewed(tmp_path, text, only="unused-parameter,detached-graph").findings


@pytest.mark.parametrize(("move", "severity"), [(".to(device)", "critical"), ("", "advice")])
def test_a_tensor_made_in_forward_without_a_device(tmp_path: Path, move: str, severity: str) -> None:
    layers, first = "self.first = nn.LSTM(8, 32)", 'device = torch.device("cpu")' if move else "from json import dumps"
    recurrent = changed(
        ("self.first = nn.Linear(8, 32)", layers),
        ("F.relu(self.first(x))", "self.first(x[:, None])[0][:, 0]"),
        ("for inputs, target in train_loader:", f"for inputs, target in train_loader:\n        inputs = inputs{move}"),
        ("model, losses =", f"{first}\nmodel, losses ="),
    )
    assert not reviewed(tmp_path, recurrent, only="device-unsafe-tensor").findings
    if move:  # a device that has a name, on another line of the call
        chosen = "return self.second(x) + torch.zeros(\n            len(x), 3, device=device\n        )"
        chosen = recurrent.replace("return self.second(x)", chosen)
        assert not reviewed(tmp_path, chosen, only="device-unsafe-tensor").findings
    spoiled = recurrent.replace("return self.second(x)", "return self.second(x) + torch.zeros(len(x), 3)")
    found = reviewed(tmp_path, spoiled, only="device-unsafe-tensor").findings
    assert [(item["id"], item["severity"]) for item in found] == [("device-unsafe-tensor", severity)]


def test_a_tensor_that_is_sent_nowhere(tmp_path: Path) -> None:
    """Its copy on the device is dropped, so that all stays on the CPU, wherever the script runs."""
    send = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nx.to(device)\nmodel, losses ='
    text = changed(
        ("return self.second(x)", "return self.second(x) + torch.zeros(len(x), 3)"), ("model, losses =", send)
    )
    [finding] = reviewed(tmp_path, text, only="device-unsafe-tensor").findings
    assert finding["severity"] == "advice"
    sent = text.replace("x.to(device)", "x = x.to(device)")
    [finding] = reviewed(tmp_path, sent, only="device-unsafe-tensor").findings
    assert finding["severity"] == "critical"


def test_a_network_that_is_left_behind(tmp_path: Path) -> None:
    device = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nmodel, losses ='
    sent = "cross_entropy(model(inputs.to(device)), target.to(device))"
    text = changed(("model, losses =", device), ("cross_entropy(model(inputs), target)", sent))
    report = reviewed(tmp_path, text, only="device-unsafe-tensor")
    assert lines(report) == [("device-unsafe-tensor", "model, losses = Net(), []")], report
    report = reviewed(tmp_path, text.replace("Net(), []", "Net().to(device), []"), only="device-unsafe-tensor")
    assert not report.findings, report
    branch = "\nif torch.cuda.is_available():\n    model.cuda()\noptimizer ="  # which does not run here
    report = reviewed(tmp_path, text.replace("\noptimizer =", branch), only="device-unsafe-tensor")
    assert not report.findings, report


def test_a_step_that_reads_the_gradients_of_its_optimizer(tmp_path: Path) -> None:
    norms = "torch.stack([p.grad.norm() for p in optimizer.param_groups[0]['params'] if p.grad is not None])"
    text = changed(("        loss.backward()\n", f"        loss.backward()\n        {norms}\n"))
    assert not reviewed(tmp_path, text, only="crash,device-unsafe-tensor,non-finite,eval-nondeterminism").notes


METHOD = """
import torch
from torch import nn


class Base:
    def prepare(self, x):
        return x.float()


class Training(Base):
    def __init__(self):
        self.net = nn.Linear(4, 3)
        self.optimizer = torch.optim.AdamW(self.net.parameters())

    def fit(self, data):
        steps = 0

        def learn(x, y):
            nonlocal steps
            steps += 1
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x).relu(), y)
            loss.backward()
            self.optimizer.step()

        for x, y in data:
            x = super().prepare(x)
            learn(x, y)


Training().fit([(torch.randn(9, 4), torch.randint(3, (9,))) for _ in range(6)])
"""


def test_a_step_in_a_closure(tmp_path: Path) -> None:
    report = reviewed(tmp_path, METHOD, only="activation-on-logits,dtype-promotion")
    assert [name for name, _ in lines(report)] == ["activation-on-logits"], report


def test_a_step_in_a_method_that_calls_super(tmp_path: Path) -> None:
    head, end = "            learn(x, y)\n", "            loss.backward()\n            self.optimizer.step()\n"
    text = METHOD.replace(end, "            return loss\n").replace(head, f"            loss = learn(x, y)\n{end}")
    report = reviewed(tmp_path, text, only="activation-on-logits,dtype-promotion")
    assert [name for name, _ in lines(report)] == ["activation-on-logits"], report


def test_weights_without_a_module(tmp_path: Path) -> None:
    by_hand = changed(
        ("model, losses = Net(), []", "weight = torch.zeros(8, 3, requires_grad=True)"),
        ("model.parameters()", "[weight]"),
        ("model(inputs)", "inputs @ weight"),
        ("    model.train()\n", ""),
        ("    model.eval()\n", ""),
    )
    report = reviewed(tmp_path, by_hand, only="detached-graph,learning-rate-too-low,loss-not-decreasing")
    assert not report.findings, report
    assert [note for note in report.notes if "no module holds the weights" in note], report.notes


def test_a_graph_as_a_sparse_matrix(tmp_path: Path) -> None:
    graph = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x, near = torch.randn(60, 8), (torch.rand(60, 60) < 0.1).float() + torch.eye(60)
links, weight = near.to_sparse(), torch.tensor(3.0)
encoder = nn.Linear(8, 4)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
for _ in range(20):
    optimizer.zero_grad()
    coded = encoder(links @ x) / 8
    loss = F.binary_cross_entropy_with_logits(coded @ coded.T, near.clamp(max=1), pos_weight=weight)
    loss.backward()
    optimizer.step()
"""
    assert not reviewed(tmp_path, graph).findings


def test_a_line_that_makes_layers_with_and_without_a_norm(tmp_path: Path) -> None:
    """A patch would take the bias from all of them."""
    blocks = """
def block(size, is_normal):
    layer = nn.Linear(size, 32)
    return nn.Sequential(layer, *([nn.BatchNorm1d(32)] if is_normal else []), nn.ReLU())


first, second = block(8, True), block(32, False)
"""
    text = CLEAN.replace(
        "model, losses = Net(), []", f"{blocks}\nmodel = nn.Sequential(first, second, nn.Linear(32, 3))"
    )
    [finding] = reviewed(tmp_path, text, only="bias-before-norm").findings
    assert finding["code"] == "layer = nn.Linear(size, 32)"
    assert finding["fix"].startswith("#")
    assert "patch" not in finding


def test_a_network_that_has_its_turn_elsewhere_is_noted(tmp_path: Path) -> None:
    other = "second = nn.Linear(2, 2)\nlate = torch.optim.SGD(second.parameters(), lr=0.1)\nfor epoch"
    notes = reviewed(tmp_path, CLEAN.replace("for epoch", other, 1), only="double-softmax").notes
    assert [note for note in notes if note.startswith("what other optimizers train")]


def test_a_load_in_a_module_that_the_script_imports(tmp_path: Path) -> None:
    helper = "import torch\n\n\ndef restore(path):\n    return torch.load(path, weights_only=False)\n"
    (tmp_path / "helper.py").write_text(helper, encoding="utf-8")
    text = changed(("import torch\n", "import torch\nfrom helper import restore\n"))
    [(defect, line)] = lines(reviewed(tmp_path, text, only="unsafe-load"))
    assert (defect, line) == ("unsafe-load", "return torch.load(path, weights_only=False)")


def test_a_pickle_at_a_fixed_path_is_the_scripts_own(tmp_path: Path) -> None:
    reading = (
        "import pickle, sys\n\n\ndef read(name='data.pkl'):\n"
        "    with open('./' + name, 'rb') as file:\n        return pickle.load(file)\n\n\n"
    )
    kept = "pickle.dump([1], open('data.pkl', 'wb'))\nread()\n"
    assert not reviewed(tmp_path, reading + kept + CLEAN, only="unsafe-load").findings
    of_object = (
        "import os\n\n\nclass Kept:\n    def __init__(self, folder='.'):\n        self.folder = folder\n"
        "        self.look(os.path.join(self.folder, 'data.pkl'))\n\n"
        "    def look(self, file):\n        self.fill(file)\n\n"
        "    def fill(self, name, other=sys.argv[0]):\n        with open(other) as file:\n            file.read()\n"
        "        with open(name, 'rb') as file:\n            self.data = pickle.load(file)\n\n\n"
    )
    assert not reviewed(tmp_path, reading + of_object + kept + "Kept()\n" + CLEAN, only="unsafe-load").findings
    given = reading + kept.replace("read()", "read(sys.argv[0] and 'data.pkl')") + CLEAN
    [finding] = reviewed(tmp_path, given, only="unsafe-load").findings
    assert (finding["severity"], finding["code"]) == ("warning", "return pickle.load(file)")


def test_a_loader_that_the_loops_head_makes(tmp_path: Path) -> None:
    made = "DataLoader(TensorDataset(x[:320], y[:320]), batch_size=20, shuffle=True)"
    head = changed(("    for inputs, target in train_loader:", f"    for inputs, target in {made}:"))
    report = reviewed(tmp_path, head, only="input-independent,batch-mixing,activation-on-logits")
    assert not report.findings, report
    several_lines = "    for (\n        inputs,\n        target,\n    ) in train_loader:"
    head = changed(("    for inputs, target in train_loader:", several_lines))
    report = reviewed(tmp_path, head, only="batch-mixing,padding-leak")
    assert not [note for note in report.notes if "no DataLoader" in note], report.notes


SLICES = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
tokens = torch.randint(0, 12, (40, 8, 10))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.rnn = nn.GRU(16, 16)
        self.out = nn.Linear(16, 12)
        self.unused = nn.Linear(16, 12)
        self.state = None

    def forward(self, x):
        states, self.state = self.rnn(self.embed(x), self.state)
        return self.out(states)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for batch in tokens:
        model.state = torch.zeros(1, 10, 16)
        batch = batch.numpy().tolist()
        batch = torch.LongTensor(batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:-1]).flatten(0, 1), batch[1:].flatten())
        loss.backward()
        optimizer.step()
"""


IN_TURN = """
import torch
from torch import nn


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
        self.right = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return (self.left(x) * self.right(x)).sum(1, keepdim=True)


torch.manual_seed(0)
x = torch.randn(256, 8)
y = x[:, :1] * x[:, 1:2]
models = {"first": Product(), "second": Product()}
optimizers = {name: torch.optim.Adam(model.parameters(), lr=3e-3) for name, model in models.items()}
for step in range(60):
    rows = torch.randint(0, 256, (32,))
    for name, model in models.items():
        optimizer = optimizers[name]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("is_after", [False, True])
def test_gradients_that_are_zeroed_before_the_step_begins_and_after_its_end(tmp_path: Path, is_after: bool) -> None:
    zeroing, text = "        optimizer.zero_grad()\n", IN_TURN
    if is_after:
        text = text.replace(zeroing, "") + zeroing
    report = reviewed(tmp_path, text, only="learning-rate-too-high,learning-rate-too-low")
    assert not report.findings, report
    assert any("the loss stays finite" in text for text in report.checked), report


BINARY = (
    DATA
    + """class Signs(nn.Linear):
    def forward(self, x):
        if not hasattr(self.weight, "whole"):
            self.weight.whole = self.weight.data.clone() / 100
        self.weight.data = self.weight.whole.sign()
        return F.linear(x, self.weight, self.bias) / x.shape[1] ** 0.5


layers = [Signs(8, 64), nn.Hardtanh(), Signs(64, 64), nn.Hardtanh(), Signs(64, 64), nn.Hardtanh(), Signs(64, 3)]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(3):
    model.train()
    for inputs, target in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()
        for layer in model[::2]:
            layer.weight.data.copy_(layer.weight.whole)
        optimizer.step()
        for layer in model[::2]:
            layer.weight.whole.copy_(layer.weight.data.clamp(-1, 1))
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, target in val_loader:
            correct += (model(inputs).argmax(1) == target).sum().item()
    print(epoch, correct)
"""
)


def test_weights_that_are_signs_of_others(tmp_path: Path) -> None:
    report = reviewed(tmp_path, BINARY, only="validation-changes-model,vanishing-gradient")
    assert not report.findings, report
    assert "validation leaves weights and statistics as they are" in report.checked, report


def test_a_loss_that_reaches_no_network(tmp_path: Path) -> None:
    """The optimizer is made anew in every step, so that none that was known before steps."""
    cut = """with torch.no_grad():
            logits = model(inputs).requires_grad_()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loss = F.cross_entropy(logits, target)"""
    text = changed(("loss = F.cross_entropy(model(inputs), target)", cut))
    report = reviewed(tmp_path, text, only="detached-graph,eval-nondeterminism")
    assert lines(report) == [("detached-graph", "with torch.no_grad():")], report


def test_a_model_that_begins_with_a_graph_of_its_own(tmp_path: Path) -> None:
    weight = """        rows = [nn.Parameter(torch.randn(1, 32)) for _ in range(32)]
        self.register_buffer("mixing", torch.cat(rows) / 32)
        self.second = nn.Linear(32, 3)"""
    text = changed(
        ("        self.second = nn.Linear(32, 3)", weight),
        ("F.relu(self.first(x))", "F.relu(self.first(x) @ self.mixing)"),
        ("return self.second(x)", "return self.second(x).softmax(1)"),
    )
    report = reviewed(tmp_path, text, only="double-softmax")
    assert lines(report) == [("double-softmax", "return self.second(x).softmax(1)")], report
    assert not any("takes no tensors" in note for note in report.notes), report


OVERWRITTEN = """
import torch
from torch import nn

torch.manual_seed(0)
sentences = [torch.randint(0, 12, (length,)) for length in torch.randint(4, 9, (120,)).tolist()]


def batches():
    for start in range(0, 120, 20):
        some = sentences[start:start + 20]
        yield [words.tolist() + [0] * (8 - len(words)) for words in some]


embedding, net, head = nn.Embedding(12, 16), nn.LSTM(16, 32), nn.Linear(32, 12)
optimizer = torch.optim.Adam([*embedding.parameters(), *net.parameters(), *head.parameters()])
for epoch in range(3):
    for number, words in enumerate(batches()):
        source = torch.LongTensor(words).transpose(0, 1)
        target = source.clone()
        optimizer.zero_grad()
        steps, _ = net(embedding(target[:-1]))
        target = target[1:].reshape(-1)
        loss = nn.functional.cross_entropy(head(steps).flatten(0, 1), target, ignore_index=0)
        loss.backward()
        optimizer.step()
"""


def test_a_target_that_the_step_overwrites(tmp_path: Path) -> None:
    report = reviewed(tmp_path, OVERWRITTEN, only="missing-zero-grad,bad-broadcast,activation-on-logits")
    assert not report.findings, report
    assert not any("the step" in note for note in report.notes), report
    assert "losses over logits get logits" in report.checked


def test_a_state_that_each_step_sets_and_a_batch_that_it_overwrites(tmp_path: Path) -> None:
    report = reviewed(tmp_path, SLICES, only="unused-parameter,vanishing-gradient,learning-rate-too-high")
    assert [(item["id"], item["code"]) for item in report.findings] == [
        ("unused-parameter", "self.unused = nn.Linear(16, 12)")
    ]


TARGETS = """
import torch
from torch import nn

torch.manual_seed(0)
online, target = (nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in range(2))
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(40):
    states, following, actions = torch.randn(16, 4), torch.randn(16, 4), torch.randint(0, 2, (16, 1))
    values = online(states).gather(1, actions)[:, 0]
    wanted = states.sum(1) + 0.9 * target(following).max(1)[0]
    optimizer.zero_grad()
    ((values - wanted) ** 2).mean().backward()
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(online.state_dict())
"""


def test_a_target_network_is_not_optimised(tmp_path: Path) -> None:
    """Although its gradients are computed, in vain."""
    assert not reviewed(tmp_path, TARGETS, only="parameter-not-optimized").findings
    uncopied = TARGETS.partition("    if step % 20")[0]
    found = reviewed(tmp_path, uncopied, only="parameter-not-optimized").findings
    assert [item["id"] for item in found] == ["parameter-not-optimized"]


PLAYERS = """
import torch
from torch import nn

torch.manual_seed(0)
actor, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
acts, judges = (torch.optim.Adam(part.parameters(), lr=3e-4) for part in (actor, critic))
for step in range(40):
    states = 3 * torch.randn(64, 4)
    returns = 300 + 100 * states.sum(1, keepdim=True)
    values = critic(states)
    advantage = (returns - values.detach()) / 300
    actor_loss = -(actor(states).log_softmax(1)[:, :1] * advantage).mean()
    acts.zero_grad()
    actor_loss.backward()
    acts.step()
    judges.zero_grad()
    ((returns - values) ** 2).mean().backward()
    judges.step()
"""


def test_gradients_are_compared_with_the_loss_of_their_network(tmp_path: Path) -> None:
    assert not reviewed(tmp_path, PLAYERS, only="exploding-gradient").findings


def test_layers_that_are_one(tmp_path: Path) -> None:
    repeated = "self.second = nn.Sequential(*[nn.Linear(32, 32)] * 2, nn.Linear(32, 3))"
    text = changed(("self.second = nn.Linear(32, 3)", repeated))
    [finding] = reviewed(tmp_path, text, only="repeated-layer").findings
    assert finding["code"] == repeated
    separate = text.replace("[nn.Linear(32, 32)] * 2", "[nn.Linear(32, 32) for _ in range(2)]")
    assert not reviewed(tmp_path, separate, only="repeated-layer").findings


PRIVATE = """
class Training:
    def __init__(self, model):
        self.__model = model
        self.__unused = model.third = nn.Linear(8, 3)
        self.__optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def __step(self, inputs, target):
        return F.cross_entropy(self.__model(inputs), target)

    def fit(self):
        for inputs, target in train_loader:
            self.__optimizer.zero_grad()
            __loss = self.__step(inputs, target)
            __loss.backward()
            self.__optimizer.step()


Training(Net()).fit()
"""


def test_names_that_are_private_to_a_class(tmp_path: Path) -> None:
    text = CLEAN[: CLEAN.index("model, losses")] + PRIVATE
    report = reviewed(tmp_path, text, only="unused-parameter")
    assert [name for name, _ in lines(report)] == ["unused-parameter"], report


def test_a_rate_that_clipping_makes_possible(tmp_path: Path) -> None:
    """Steep sums of losses, as of whole sequences, are trained with a bound on each step."""
    steep = ("torch.optim.AdamW(model.parameters(), lr=1e-3)", "torch.optim.SGD(model.parameters(), lr=0.02)")
    summed = ("F.cross_entropy(model(inputs), target)", "20 * F.cross_entropy(model(inputs), target, reduction='sum')")
    clipped = (
        "        loss.backward()\n",
        "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    )
    for changes, expected in (((steep, summed), ["learning-rate-too-high"]), ((steep, summed, clipped), [])):
        report = reviewed(tmp_path, changed(*changes), only="learning-rate-too-high")
        assert [name for name, _ in lines(report)] == expected, report


def test_samples_that_tensors_and_tuples_hold_side_by_side(tmp_path: Path) -> None:
    """Twice the tensors beside the same flags is no batch of the script's."""
    step = """
    for start in range(0, 320, 20):
        inputs, target, flags = x[start : start + 20], y[start : start + 20].float(), (True,) * 20
        scores = model(inputs)[:, 0]
        goal = scores.detach().clone()
        for i in range(len(flags)):
            goal[i] = target[i]
        optimizer.zero_grad()
        loss = F.mse_loss(scores, goal)
        loss.backward()
        optimizer.step()
"""
    i, j = CLEAN.index("    for inputs, target in train_loader:"), CLEAN.index("    model.eval()")
    report = reviewed(tmp_path, CLEAN[:i] + step.lstrip("\n") + CLEAN[j:], only="mean-divided-again")
    assert not report.findings, report


def test_objects_that_come_with_the_tensors_of_a_step(tmp_path: Path) -> None:
    """A sentence and its tree, one a step: each tree has the places of its own sentence."""
    trees = """
class Tree:
    def __init__(self, places):
        self.places = places


sentences = [torch.randn(7 - i % 5, 8) for i in range(60)]
trees = [Tree(list(range(len(sentence)))) for sentence in sentences]
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range(60):
    sentence, tree = sentences[i], trees[i]
    optimizer.zero_grad()
    loss = F.cross_entropy(model(sentence[tree.places]).sum(0, keepdim=True), y[i : i + 1])
    loss.backward()
    optimizer.step()
"""
    report = reviewed(tmp_path, CLEAN[: CLEAN.index("model, losses")] + trees, only="non-finite,unused-parameter")
    assert not report.findings, report
    assert not [note for note in report.notes if "IndexError" in note], report.notes


def test_a_teacher_that_is_frozen_once_it_has_learned(tmp_path: Path) -> None:
    """What stands around the evaluation freezes the weights, and a student goes on from there."""
    end = """
def fit(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for turn in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[:320]), y[:320])
        loss.backward()
        optimizer.step()


for turn in range(2):
    model = Net()
    fit(model)
    model.eval()
    print((model(x[320:]).argmax(1) == y[320:]).float().mean())
    for weight in model.parameters():
        weight.requires_grad = False
    student = Net()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    loss = F.mse_loss(student(x), model(x))
    loss.backward()
    optimizer.step()
"""
    text = CLEAN[: CLEAN.index("model, losses")].replace(*DEFECTS["double-softmax"]) + end
    report = reviewed(tmp_path, text, only="double-softmax,detached-graph")
    assert [name for name, _ in lines(report)] == ["double-softmax"], report


def test_a_value_that_is_read_once_an_epoch(tmp_path: Path) -> None:
    """The whole graph or table is one batch, so that a step is an epoch."""
    loop = "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nfor epoch in range(30):\n"
    loop += "    loss = F.cross_entropy(model(x), y)\n    optimizer.zero_grad()\n    loss.backward()\n"
    loop += "    losses.append(loss.item())\n    optimizer.step()\n"
    text = CLEAN[: CLEAN.index("for epoch")] + loop
    report = reviewed(tmp_path, text, only="host-sync")
    assert [item["severity"] for item in report.findings] == ["advice"], report


def test_a_loader_that_keeps_one_iterator(tmp_path: Path) -> None:
    """Its workers live on from epoch to epoch; a loop over it is a loop over a DataLoader."""
    endless = """
from typing import TypeVar

T = TypeVar("T")


class Forever:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class Lasting(DataLoader[T]):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Forever(self.batch_sampler))
        self.batches = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.batches)


torch.manual_seed(0)
"""
    text = changed(
        ("\ntorch.manual_seed(0)\n", endless), ("train_loader = DataLoader", "train_loader = Lasting[tuple]")
    )
    report = reviewed(tmp_path, text)
    assert not report.findings + report.notes, report
    assert "samples of a batch do not change each other's results (6 samples)" in report.checked, report


def test_a_loss_that_is_sent_to_the_cpu(tmp_path: Path) -> None:
    """`.to("cpu")` is `.cpu()` by another name; `.to(device)` is the CPU in a review alone."""
    send = "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nmodel.to(device)\nfor epoch"
    for target, expected in (("'cpu'", ["host-sync"]), ("device", [])):
        line = f"        losses.append(loss.to({target}).data)\n        loss.backward()"
        text = changed(("for epoch", send), ("        loss.backward()", line))
        assert [name for name, _ in lines(reviewed(tmp_path, text, only="host-sync"))] == expected


def test_a_network_of_layers_of_another(tmp_path: Path) -> None:
    whole = (
        "nets = {'whole': Net()}\nmodel, losses = nn.Sequential(nets['whole'].first, nn.ReLU(), nn.Linear(32, 3)), []"
    )
    report = reviewed(tmp_path, changed(("model, losses = Net(), []", whole)), only="unused-parameter")
    assert not report.findings, report


def test_a_value_that_is_read_when_it_is_not_set_yet(tmp_path: Path) -> None:
    text = changed(
        ("for epoch", "device = 'cuda' if torch.cuda.is_available() else 'cpu'\nmean = None\nfor epoch"),
        (
            "        loss.backward()\n",
            "        loss.backward()\n        if mean is None:\n            mean = loss.item()\n",
        ),
    )
    assert not reviewed(tmp_path, text, only="host-sync").findings


def test_classes_that_are_the_places_of_each_sample(tmp_path: Path) -> None:
    """Words and their heads, one sentence a step: a sentence has as many classes as words."""
    sentences = """
class Word:
    def __init__(self, code):
        self.code = code


lengths = [4 + i % 5 for i in range(60)]
sentences = [[Word(torch.randn(8)) for _ in range(length)] for length in lengths]
heads = [torch.randint(0, length, (length,)) for length in lengths]
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for words, goal in zip(sentences, heads):
    optimizer.zero_grad()
    codes = model(torch.stack([word.code for word in words]))
    loss = F.cross_entropy(codes @ codes.T, goal)
    loss.backward()
    optimizer.step()
"""
    text = CLEAN[: CLEAN.index("model, losses")] + sentences
    report = reviewed(tmp_path, text, only="label-out-of-range,non-finite")
    assert not report.findings, report
    assert not [note for note in report.notes if "ValueError" in note], report.notes


def test_weights_of_which_an_option_takes_the_result(tmp_path: Path) -> None:
    end = "        if is_scaled:\n            return gain * self.second(x)\n        return self.second(x)"
    text = changed(
        ("self.second = nn.Linear(32, 3)", "self.second, self.gain = nn.Linear(32, 3), nn.Parameter(torch.ones(3))"),
        ("def forward(self, x):\n", "def forward(self, x, is_scaled=False):\n        gain = self.gain.exp()\n"),
        ("        return self.second(x)", end),
    )
    [finding] = reviewed(tmp_path, text, only="unused-parameter").findings
    assert finding["severity"] == "advice", finding


MEMORY = """
import pickle
import random
import torch
from torch import nn


class Agent:
    def __init__(self):
        self.critic, self.memory, self.log = nn.Linear(4, 1), [], []
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update(self, number):
        states = torch.stack([random.choice(self.memory) for _ in range(8)])
        wanted = states[:, :1] + 0.1 * torch.randn(8, 1)
        loss = nn.functional.mse_loss(self.critic(states), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if number % 1000 == 0:
            self.log.append(loss.item())

    def load(self, file):
        self.memory = pickle.load(open(file, "rb"))


agent = Agent()
for number in range(40):
    agent.memory.append(torch.randn(4))
    agent.update(number)
"""


def test_a_memory_that_begins_with_one_sample(tmp_path: Path) -> None:
    report = reviewed(tmp_path, MEMORY, only="input-independent,host-sync,unsafe-load")
    assert not report.findings, report
    always = MEMORY.replace("        loss.backward()", "        self.log.append(loss.item())\n        loss.backward()")
    assert [name for name, _ in lines(reviewed(tmp_path, always, only="host-sync"))] == ["host-sync"]
    restored = MEMORY.replace("for number", "if agent.log:\n    agent.load(__import__('sys').argv[1])\nfor number")
    assert [name for name, _ in lines(reviewed(tmp_path, restored, only="unsafe-load"))] == ["unsafe-load"]


def test_variables_that_a_name_holds_as_a_whole(tmp_path: Path) -> None:
    everything = "    everything = locals()\n    for inputs, target in train_loader:"
    body = CLEAN[CLEAN.index("model, losses =") :].replace("    for inputs, target in train_loader:", everything)
    text = CLEAN[: CLEAN.index("model, losses =")] + "def main():\n"
    text += "".join(f"    {line}\n" for line in body.splitlines()) + "\n\nmain()\n"
    report = reviewed(tmp_path, text, only="activation-on-logits,train-val-overlap")
    assert "losses over logits get logits" in report.checked, report


TEACHER = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(200, 8)), 20, shuffle=True)
student = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
teacher, head = copy.deepcopy(student), nn.Linear(4, 4)
optimizer = torch.optim.Adam([*student.parameters(), *head.parameters()], lr=1e-3)
for epoch in range(2):
    for (x,) in loader:
        with torch.no_grad():
            wanted = teacher(x + 0.1 * torch.randn_like(x))
        loss = nn.functional.mse_loss(head(student(x)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters()):
                old.lerp_(new, 0.05)
"""


def test_a_teacher_evaluates_with_its_student(tmp_path: Path) -> None:
    report = reviewed(tmp_path, TEACHER, only="batch-mixing")
    assert not report.findings, report
    assert any("do not change each other's results" in text for text in report.checked), report


def test_a_function_that_overwrites_its_target(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
memory = torch.randn(100, 4)


def train():
    states = memory[torch.randint(100, (8,))]
    wanted = states[:, :3] * 2
    found = net(states)
    wanted = wanted.view(8, 3, 1).expand(-1, 3, 3).detach()
    loss = (found.view(8, 1, 3) - wanted).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for number in range(20):
    train()
"""
    report = reviewed(tmp_path, text, only="non-finite,unused-parameter,input-independent")
    assert not report.findings, report
    assert "losses and gradients are finite" in report.checked, report


def test_layers_in_a_plain_list(tmp_path: Path) -> None:
    heads = "self.heads = [nn.Linear(32, 3) for _ in range(2)]"
    text = changed(
        ("        self.second = nn.Linear(32, 3)", f"        {heads}"),
        ("return self.second(x)", "return sum(head(x) for head in self.heads)"),
    )
    report = reviewed(tmp_path, text, only="unregistered-submodule")
    assert lines(report) == [("unregistered-submodule", heads)], report
