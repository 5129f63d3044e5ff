"""What the run of a whole script shows."""

from pathlib import Path

import pytest

from programs import needs_fork
from script_programs import changed, lines, reviewed

pytestmark = [needs_fork, pytest.mark.slow]


def test_clipping_after_the_step_and_before_it(tmp_path: Path) -> None:
    imported = ("import torch\n", "import torch\nfrom torch.nn.utils import clip_grad_value_\n")
    step, clip = "optimizer.step()\n", "clip_grad_value_(model.parameters(), 0.5)\n"
    late = changed(imported, (step, f"{step}        {clip}"))
    assert lines(reviewed(tmp_path, late, only="ineffective-clipping")) == [("ineffective-clipping", clip.strip())]
    report = reviewed(tmp_path, late.replace(step, f"{clip}        {step}"), only="ineffective-clipping")
    assert not report.findings, report
    assert "gradients are clipped before an optimizer takes them" in report.checked


STOPPING = """
class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.most, self.num_waiting = patience, -1, 0

    def __call__(self, correct, model):
        if correct > self.most:
            self.most, self.num_waiting = correct, 0
            self.weights = model.state_dict()
        else:
            self.num_waiting += 1
        return self.num_waiting >= self.patience


stopping = EarlyStopping(2)
for epoch"""


def test_best_weights_that_are_kept_and_copied(tmp_path: Path) -> None:
    text = changed(
        ("losses = Net(), []", "most = Net(), -1"),
        ("    print(epoch, correct)", "    if correct > most:\n        most, best = correct, model.state_dict()"),
    )
    text += "model.load_state_dict(best)\nprint(most)\n"
    report = reviewed(tmp_path, text, only="kept-weights-change")
    assert lines(report) == [("kept-weights-change", "most, best = correct, model.state_dict()")], report
    saved = text.replace("model.load_state_dict(best)", 'torch.save({"model": best}, "best.pt")')
    report = reviewed(tmp_path, saved, only="kept-weights-change")
    assert lines(report) == [("kept-weights-change", "most, best = correct, model.state_dict()")], report
    at_once = text.replace("model.state_dict()\n", 'model.state_dict()\n        torch.save(best, "best.pt")\n')
    at_once = at_once.replace("model.load_state_dict(best)", "")
    assert not reviewed(tmp_path, at_once, only="kept-weights-change").findings
    always = saved.replace("    if correct > most:\n        most, best", "    most, best")
    assert not reviewed(tmp_path, always, only="kept-weights-change").findings  # it is the last one on purpose
    copied = text.replace("model.state_dict()", "{name: value.clone() for name, value in model.state_dict().items()}")
    report = reviewed(tmp_path, copied, only="kept-weights-change")
    assert not report.findings, report
    assert "weights that are loaded are not the model's own tensors" in report.checked


@pytest.mark.parametrize("keeps", ["best = model", "nets.append(model)", "keeper.take(correct, model)"])
def test_a_best_model_that_is_the_model_itself(tmp_path: Path, keeps: str) -> None:
    keeper = "class Keeper:\n    most = -1\n\n    def take(self, correct, model):\n        if correct > self.most:\n"
    keeper += "            self.most = correct\n            self.best = model\n\n\n"
    keeper += "model, most, nets, keeper = Net(), -1, [], Keeper()\n"
    text = changed(
        ("model, losses = Net(), []\n", keeper),
        ("    print(epoch, correct)", f"    if correct > most:\n        most = correct\n        {keeps}"),
    )
    line = keeps if "take" not in keeps else "self.best = model"
    report = reviewed(tmp_path, text, only="kept-weights-change")
    assert lines(report) == [("kept-weights-change", line)], report
    copied = text.replace("best = model", "best = deepcopy(model)").replace("append(model)", "append(deepcopy(model))")
    copied = f"from copy import deepcopy\n{copied}"
    assert not reviewed(tmp_path, copied, only="kept-weights-change").findings


def test_weights_of_before_the_training_that_are_used_in_the_end(tmp_path: Path) -> None:
    kept, loaded = "best = copy.deepcopy(model.state_dict())", "model.load_state_dict(best)"
    text = changed(("import torch\n", "import copy\nimport torch\n"), ("for epoch", f"{kept}\nfor epoch")) + loaded
    report = reviewed(tmp_path, text, only="untrained-weights")
    assert lines(report) == [("untrained-weights", loaded)], report
    again = text.replace("    print(epoch, correct)", f"    {kept}")
    assert not reviewed(tmp_path, again, only="untrained-weights").findings
    folds = text[: text.index("for epoch")] + f"{loaded}\n" + text[text.index("for epoch") :].replace(loaded, "")
    assert not reviewed(tmp_path, folds + folds[folds.index(loaded) :], only="untrained-weights").findings
    saved = changed(("for epoch", 'torch.save(model.state_dict(), "net.pt")\nfor epoch'))
    report = reviewed(tmp_path, saved, only="untrained-weights")
    assert lines(report) == [("untrained-weights", 'torch.save(model.state_dict(), "net.pt")')], report
    twice = saved + "if correct > 1000:\n    torch.save(model.state_dict(), 'best.pt')\n"
    assert not reviewed(tmp_path, twice, only="untrained-weights").findings


def test_weights_that_stay_on_the_cpu_while_the_model_is_sent_away(tmp_path: Path) -> None:
    device = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
    text = changed(
        ("losses = Net(), []", f"first = Net(), None\n{device}\nfirst = model.state_dict()\nmodel.to(device)"),
        ("    print(epoch, correct)", "    last = model.cpu().state_dict()\n    model.to(device)"),
    )
    report = reviewed(tmp_path, f"{text}model.load_state_dict(first)\n", only="kept-weights-change")
    assert not report.findings, report
    text = text.replace("    last =", "    if epoch == 0:\n        last =")
    report = reviewed(tmp_path, f"{text}model.load_state_dict(last)\n", only="kept-weights-change")
    assert not report.findings, report


def test_weights_that_are_all_held_until_the_best_are_known(tmp_path: Path) -> None:
    text = changed(("    print(epoch, correct)", "    losses.append((correct, epoch, model.state_dict()))"))
    text += "model.load_state_dict(max(losses)[2])\n"
    report = reviewed(tmp_path, text, only="kept-weights-change")
    assert [name for name, _ in lines(report)] == ["kept-weights-change"], report


def test_weights_that_an_object_keeps_to_stop_early(tmp_path: Path) -> None:
    stop = "    if stopping(correct, model):\n        break"
    text = changed(("for epoch", STOPPING), ("range(3)", "range(9)"), ("    print(epoch, correct)", stop))
    text += "model.load_state_dict(stopping.weights)\n"
    report = reviewed(tmp_path, text, only="kept-weights-change")
    assert lines(report) == [("kept-weights-change", "self.weights = model.state_dict()")], report
    brought = "{name: value.cpu() for name, value in model.state_dict().items()}"  # copies of what is on a GPU
    report = reviewed(tmp_path, text.replace("model.state_dict()", brought), only="kept-weights-change")
    assert not report.findings, report


def test_a_schedule_that_another_file_steps_later(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("def finish(schedule, epoch):\n    if epoch > 9:\n        schedule.step()\n")
    made = "from loop import finish\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
    text = changed(("for epoch", f"{made}for epoch"), ("    print(epoch, correct)", "    finish(schedule, epoch)"))
    assert not reviewed(tmp_path, text, only="scheduler-cadence").findings
    forgotten = changed(("for epoch", f"{made}for epoch"))
    (tmp_path / "loop.py").write_text("finish = None\n")
    assert [name for name, _ in lines(reviewed(tmp_path, forgotten, only="scheduler-cadence"))] == ["scheduler-cadence"]


def test_a_rate_that_no_optimizer_reads(tmp_path: Path) -> None:
    text = changed(("    model.train()\n", "    model.train()\n    optimizer.lr = 1e-3 * 0.5**epoch\n"))
    report = reviewed(tmp_path, text, only="scheduler-cadence")
    assert lines(report) == [("scheduler-cadence", "optimizer.lr = 1e-3 * 0.5**epoch")], report


MADE = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"


def test_an_optimizer_for_each_epoch(tmp_path: Path) -> None:
    text = changed((f"{MADE}\n", ""), ("    model.train()\n", f"    {MADE}\n    model.train()\n"))
    report = reviewed(tmp_path, text, only="optimizer-recreated")
    assert [(*line, item["severity"]) for line, item in zip(lines(report), report.findings, strict=True)] == [
        ("optimizer-recreated", MADE, "warning")
    ], report
    decayed = reviewed(tmp_path, text.replace("lr=1e-3", "lr=1e-3 * 0.9**epoch"), only="optimizer-recreated")
    assert [item["severity"] for item in decayed.findings] == ["advice"], decayed


def test_an_optimizer_for_each_task_and_each_beginning(tmp_path: Path) -> None:
    for_each = ("    model.train()\n", f"    {MADE}\n    model.train()\n")
    tasks = ("    for inputs, target in train_loader:", "    for inputs, target in DataLoader(list(zip(x, y)), 20):")
    report = reviewed(tmp_path, changed((f"{MADE}\n", ""), for_each, tasks), only="optimizer-recreated")
    assert not report.findings, report
    saved = (f"{MADE}\n", "first = {name: value.clone() for name, value in model.state_dict().items()}\n")
    again = ("    model.train()\n", f"    model.load_state_dict(first)\n    {MADE}\n    model.train()\n")
    report = reviewed(tmp_path, changed(saved, again), only="optimizer-recreated")
    assert not report.findings, report


def test_the_line_that_left_the_model_in_evaluation_mode(tmp_path: Path) -> None:
    text = changed(
        ("for epoch in range(3):\n    model.train()\n", "for epoch in range(3):\n"),
        ("    print(epoch, correct)\n", "    print(epoch, correct)\n\nmodel.eval()\n"),
    )
    report = reviewed(tmp_path, text, only="stuck-in-eval")
    [finding] = report.findings
    assert finding["line"] == 1 + text[: text.index("    model.eval()")].count("\n"), report


def test_a_window_of_losses_that_keep_graphs(tmp_path: Path) -> None:
    """Reported is what grows, also where each epoch begins anew, however short it is, and no list of the last ten."""
    growing = changed(("        optimizer.step()", "        optimizer.step()\n        losses.append(loss)"))
    again = growing.replace("    model.train()", "    model.train()\n    losses = []")
    short = again.replace("batch_size=20, shuffle", "batch_size=64, shuffle")
    beside = growing.replace(
        "for epoch", "before = sum(F.cross_entropy(model(x[i:i+1]), y[i:i+1]) for i in range(99))\nfor epoch"
    )
    for text in (growing, again, short, beside):
        report = reviewed(tmp_path, text, only="graph-retained")
        assert lines(report) == [("graph-retained", "losses.append(loss)")], report
    last = growing.replace("losses.append(loss)", "losses = [*losses[-9:], loss]")
    report = reviewed(tmp_path, last, only="graph-retained")
    assert not report.findings, report
    assert "no graphs pile up from step to step" not in report.checked


def test_a_sum_beside_another_that_keeps_graphs(tmp_path: Path) -> None:
    """The loss of a step gathers its own parts alone."""
    text = changed(
        ("for epoch", "total = 0\nfor epoch"),
        (
            "        loss.backward()",
            "        loss += 1e-4 * model.second.weight.square().sum()\n        total += loss\n        loss.backward()",
        ),
    )
    report = reviewed(tmp_path, text, only="graph-retained")
    assert lines(report) == [("graph-retained", "total += loss")], report


def test_a_running_average_that_keeps_graphs(tmp_path: Path) -> None:
    line = "mean = 0.9 * mean + 0.1 * loss"
    text = changed(
        ("for epoch", "mean = torch.zeros(())\nfor epoch"),
        ("        loss.backward()\n", f"        {line}\n        loss.backward(retain_graph=True)\n"),
    )
    report = reviewed(tmp_path, text, only="graph-retained")
    assert lines(report) == [("graph-retained", line)], report
