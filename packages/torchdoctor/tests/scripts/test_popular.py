"""Mistakes that people ask about most, as scripts make them."""

from pathlib import Path

import pytest

from programs import needs_fork
from script_programs import changed, lines, reviewed

pytestmark = [needs_fork, pytest.mark.slow]

PLATEAU = 'schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")'


def test_a_schedule_that_waits_for_a_loss_to_rise(tmp_path: Path) -> None:
    losses = ("        loss.backward()", "        losses.append(loss.item())\n        loss.backward()")
    step = ("    print(epoch, correct)", "    schedule.step(sum(losses[-8:]))")
    text = changed(("for epoch", f"{PLATEAU}\nfor epoch"), losses, step, ("range(3)", "range(9)"), ("1e-3", "3e-3"))
    report = reviewed(tmp_path, text, only="scheduler-cadence")
    assert lines(report) == [("scheduler-cadence", PLATEAU)], report
    report = reviewed(tmp_path, text.replace('"max"', '"min"'), only="scheduler-cadence")
    assert not report.findings, report


ACCUMULATING = """        loss.backward()
        if (number + 1) % args_k == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_gradients_that_grow_with_the_batches_of_a_step(tmp_path: Path) -> None:
    text = changed(
        (
            "for inputs, target in train_loader:\n        optimizer.zero_grad()",
            "for number, (inputs, target) in enumerate(train_loader):",
        ),
        ("        loss.backward()\n        optimizer.step()\n", ACCUMULATING),
        ("model, losses", "args_k = 4\nmodel, losses"),
    )
    report = reviewed(tmp_path, text, only="summed-accumulation")
    assert lines(report) == [("summed-accumulation", "loss.backward()")], report
    divided = text.replace("        loss.backward()", "        loss = loss / args_k\n        loss.backward()")
    assert not reviewed(tmp_path, divided, only="summed-accumulation").findings


CHOICE = """    print(epoch, correct)
    if loss.item() < best:
        best = loss.item()
        torch.save(model.state_dict(), "best.pt")
"""


def test_the_best_epoch_by_the_loss_of_the_training(tmp_path: Path) -> None:
    text = changed(("model, losses", "best = 99.0\nmodel, losses"), ("    print(epoch, correct)\n", CHOICE))
    report = reviewed(tmp_path, text, only="chosen-by-training")
    assert lines(report) == [("chosen-by-training", "if loss.item() < best:")], report
    report = reviewed(tmp_path, text.replace("loss.item()", "-correct"), only="chosen-by-training")
    assert not report.findings, report
    assert "what decides about the best epoch is not of the training alone" in report.checked, report


TARGET = """import copy
model, losses = Net(), []
target_net = model
target_net.load_state_dict(model.state_dict())
"""


def test_a_target_that_is_the_network_itself(tmp_path: Path) -> None:
    text = changed(("model, losses = Net(), []\n", TARGET))
    report = reviewed(tmp_path, text, only="kept-weights-change")
    assert lines(report) == [("kept-weights-change", "target_net.load_state_dict(model.state_dict())")], report
    text = text.replace("target_net = model", "target_net = copy.deepcopy(model)")
    assert not reviewed(tmp_path, text, only="kept-weights-change").findings


PLAYERS = """
import torch
from torch import nn
from torch.nn.functional import l1_loss, softplus
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=20, shuffle=True)
net, critic = (nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, size)) for size in (8, 1))
net_optimizer, critic_optimizer = (torch.optim.Adam(each.parameters(), lr=1e-3) for each in (net, critic))
for epoch in range(3):
    for (real,) in loader:
        fake = net(real + torch.randn_like(real))
        critic_optimizer.zero_grad()
        (softplus(critic(fake.detach())).mean() + softplus(-critic(real)).mean()).backward()
        critic_optimizer.step()
        net_optimizer.zero_grad()
        loss = l1_loss(fake, real) + 0.1 * softplus(-critic(fake.detach())).mean()
        loss.backward()
        net_optimizer.step()
"""


def test_a_term_without_gradient_for_the_network_that_steps(tmp_path: Path) -> None:
    [finding] = reviewed(tmp_path, PLAYERS, only="idle-loss-term").findings
    assert finding["code"].startswith("loss = l1_loss"), finding
    report = reviewed(tmp_path, PLAYERS.replace("-critic(fake.detach())", "-critic(fake)"), only="idle-loss-term")
    assert not report.findings, report
    assert "each term of a loss moves weights of the network that its step trains" in report.checked, report


STATE = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(8, 201, 4).cumsum(1) / 9
cell, head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
state = torch.zeros(1, 8, 16)
for start in range(0, 200, 20):
    optimizer.zero_grad()
    hidden, state = cell(x[:, start : start + 20], state.detach())
    loss = (head(hidden) - x[:, start + 1 : start + 21]).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_a_state_across_steps_is_not_called_unchanged(tmp_path: Path) -> None:
    report = reviewed(tmp_path, STATE, only="inplace-on-graph")
    assert not report.findings, report
    assert not [text for text in report.checked if "in place" in text], report
    assert [note for note in report.notes if note.startswith("inplace-on-graph: a state goes on")], report
    report = reviewed(tmp_path, changed(), only="inplace-on-graph")  # the loss of the step before is no state
    assert "nothing that backward needs is changed in place" in report.checked, report


def test_validation_inputs_on_another_scale(tmp_path: Path) -> None:
    """The network is called by the lines of the loops themselves."""
    text = changed(("TensorDataset(x[320:], y[320:])", "TensorDataset(40 * x[320:] + 9, y[320:])"))
    [finding] = reviewed(tmp_path, text, only="unlike-scales").findings
    assert finding["code"].startswith("val_loader = "), finding
