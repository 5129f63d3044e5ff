"""Which part of a script evaluates, and what is said of it."""

from pathlib import Path

import pytest

from programs import needs_fork
from script_programs import CLEAN, DATA, DEFECTS, changed, lines, reviewed
from torchdoctor.options import select_ids
from torchdoctor.scripts.command import review_script

pytestmark = [needs_fork, pytest.mark.slow]


def test_validation_is_known_by_its_mode_too(tmp_path: Path) -> None:
    with_gradients = changed(("    with torch.no_grad():\n", "    if True:\n"))
    report = reviewed(tmp_path, with_gradients, only="train-val-overlap")
    assert not report.findings, report
    assert not report.notes, report


def test_a_validation_that_gathers_what_its_first_turn_begins(tmp_path: Path) -> None:
    gathered = """for number, (inputs, target) in enumerate(val_loader):
            if number == 0:
                scores = model(inputs)
            else:
                scores = torch.cat([scores, model(inputs)])
            correct = scores.argmax(1).sum().item()"""
    loop = """for inputs, target in val_loader:
            correct += (model(inputs).argmax(1) == target).sum().item()"""
    report = reviewed(tmp_path, changed((loop, gathered)), only="validation-changes-model")
    assert not report.notes, report
    assert "validation leaves weights and statistics as they are" in report.checked, report


def test_a_validation_of_one_sample_behind_a_norm(tmp_path: Path) -> None:
    """Norms refuse that in training mode, which the evaluation leaves itself."""
    loop = """for inputs, target in val_loader:
            correct += (model(inputs).argmax(1) == target).sum().item()"""
    alone = "model.eval()\n        correct = model(x[320:321]).argmax().item()"
    text = changed(("nn.Dropout(0.1)", "nn.BatchNorm1d(32)"), (loop, alone))
    report = reviewed(tmp_path, text, only="validation-changes-model")
    assert not any("validation: ValueError" in note for note in report.notes), report


def test_a_validation_that_asks_for_gradients(tmp_path: Path) -> None:
    slope = "torch.autograd.grad(F.cross_entropy(model(inputs), target), model.second.bias)[0].sum().item()"
    text = changed(
        ("    with torch.no_grad():\n", "    if True:\n"), ("(model(inputs).argmax(1) == target).sum().item()", slope)
    )
    report = reviewed(tmp_path, text, only="eval-nondeterminism,unused-parameter")
    assert not report.findings, report
    assert not report.notes, report
    assert "evaluation of a batch gives the same result twice" in report.checked, report


def test_a_validation_that_fails_leaves_the_review_of_the_step(tmp_path: Path) -> None:
    i = CLEAN.index("        for inputs, target in val_loader:")
    spoiled = CLEAN[:i].replace(*DEFECTS["double-softmax"]) + "        print(model(x[:4]) / 0, 1 / 0)\n"
    (tmp_path / "train.py").write_text(spoiled, encoding="utf-8")
    report = review_script(tmp_path / "train.py", [], select_ids("double-softmax,crash"))
    assert {name for name, _ in lines(report)} == {"double-softmax", "crash"}, report
    assert [note for note in report.notes if "validation: ZeroDivisionError" in note], report.notes


def test_a_loop_without_backward_evaluates(tmp_path: Path) -> None:
    in_training = changed(("    model.eval()\n", ""), ("    with torch.no_grad():\n", "    if True:\n"))
    report = reviewed(tmp_path, in_training, only="eval-nondeterminism")
    assert lines(report) == [("eval-nondeterminism", "for inputs, target in val_loader:")], report
    trained = changed(
        ("    model.eval()\n", ""),
        ("    with torch.no_grad():\n", "    if True:\n"),
        (
            "correct += (model(inputs).argmax(1) == target).sum().item()",
            "update(F.cross_entropy(model(inputs), target))",
        ),
        ("for epoch", "def update(loss):\n    loss.backward()\n    optimizer.step()\n    return loss\n\n\nfor epoch"),
    )
    assert not reviewed(tmp_path, trained, only="eval-nondeterminism").findings


def test_a_loop_for_both_training_and_evaluation(tmp_path: Path) -> None:
    i = CLEAN.index("for epoch")
    shared = """
def run(loader, train):
    for inputs, target in loader:
        loss = F.cross_entropy(model(inputs), target)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


for epoch in range(2):
    run(train_loader, True)
    model.cpu().load_state_dict(model.state_dict())  # neither evaluates
    run(val_loader, False)
"""
    report = reviewed(tmp_path, CLEAN[:i] + shared, only="eval-nondeterminism")
    assert lines(report) == [("eval-nondeterminism", "for inputs, target in loader:")], report
    modes = shared.replace("    for inputs", "    model.train(train)\n    for inputs")
    report = reviewed(tmp_path, CLEAN[:i] + modes, only="eval-nondeterminism")
    assert not report.findings, report
    assert not report.notes, report


def test_validation_comes_after_a_look_at_the_training_data(tmp_path: Path) -> None:
    i = CLEAN.index("        for inputs, target in val_loader:")
    text = CLEAN[:i] + CLEAN[i:].replace(
        "    print(epoch", "        [model(inputs) for inputs, _ in val_loader]\n    print(epoch"
    )
    text = text.replace("        for inputs, target in val_loader:", "        for inputs, target in train_loader:")
    report = reviewed(tmp_path, text, only="train-val-overlap")
    assert not report.findings, report
    whole = changed(("in val_loader", "in DataLoader(train_loader.dataset, batch_size=20)"))
    assert [name for name, _ in lines(reviewed(tmp_path, whole, only="train-val-overlap"))] == ["train-val-overlap"]
    i = CLEAN.index("    correct = 0")
    again = CLEAN[i:].replace("val_loader", "DataLoader(TensorDataset(x[:100], y[:100]), batch_size=20)")
    report = reviewed(tmp_path, CLEAN[:i] + again + CLEAN[i:], only="train-val-overlap")
    assert not report.findings, report
    assert "no validation sample is in the training data" in report.checked


def test_validation_in_the_loop_of_the_training(tmp_path: Path) -> None:
    i = CLEAN.index("for epoch")
    phases = """
loaders = {"train": train_loader, "val": val_loader}
for epoch in range(2):
    for phase in ["train", "val"]:
        model.train(phase == "train")
        for inputs, target in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(inputs), target)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
"""
    report = reviewed(tmp_path, CLEAN[:i] + phases, only="train-val-overlap")
    assert not report.findings, report
    assert not report.notes, report


def test_pictures_drawn_with_dropout_are_no_evaluation(tmp_path: Path) -> None:
    """A network of pictures may have no other noise (Isola et al. 2017, pix2pix, section 3.2)."""
    drawing = changed(
        ("    model.eval()\n    correct = 0\n", "    drawn = []\n"),
        ("correct += (model(inputs).argmax(1) == target).sum().item()", "drawn += [model(inputs)[0]]"),
        ("    print(epoch, correct)", "    drawn = torch.stack(drawn)"),
    )
    assert not reviewed(tmp_path, drawing, only="eval-nondeterminism").findings
    scoring = drawing.replace("drawn += [model(inputs)[0]]", "drawn += [F.cross_entropy(model(inputs), target)]")
    assert lines(reviewed(tmp_path, scoring, only="eval-nondeterminism")) == [
        ("eval-nondeterminism", "for inputs, target in val_loader:")
    ]


OWN_METHODS = (
    DATA
    + """class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)

    def forward(self, x):
        return self.net(x)

    def fit(self, loader):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        for inputs, target in loader:
            optimizer.zero_grad()
            F.cross_entropy(self.forward(inputs), target).backward()
            optimizer.step()

    def evaluate(self, loader):
        return sum((self.forward(inputs).argmax(1) == target).sum().item() for inputs, target in loader)

    def score(self, loader):
        correct = 0
        for inputs, target in loader:
            correct += (self.forward(inputs).argmax(1) == target).sum().item()
        return correct


tagger = Tagger()
for epoch in range(3):
    tagger.fit(train_loader)
    print(epoch, tagger.score(val_loader))
"""
)


@pytest.mark.parametrize("method", ["score", "evaluate"])
def test_a_model_that_trains_and_evaluates_by_its_own_methods(tmp_path: Path, method: str) -> None:
    """The optimizer of each epoch is another one, which the review did not see as it began."""
    text = OWN_METHODS.replace("tagger.score", f"tagger.{method}")
    report = reviewed(tmp_path, text, only="validation-changes-model,eval-nondeterminism")
    assert not report.findings, report
    if method == "score":
        assert "validation leaves weights and statistics as they are" in report.checked, report


def test_sentences_of_a_list_that_are_evaluated_one_by_one(tmp_path: Path) -> None:
    """The words of each are what a recurrent network reads in turn, and not samples."""
    read = "self.first(x[:, None])[0][:, 0]"
    text = changed(
        ("self.first = nn.Linear(8, 32)", "self.first = nn.LSTM(8, 32)"),
        ("F.relu(self.first(x))", read),
        ("y = torch.randint(0, 3, (400,))", "y = torch.randint(0, 3, (400,))\nsentences = []"),
        ("for inputs, target in val_loader:", "for inputs, target in zip(x[320:].split(10), y[320:].split(10)):"),
    )
    report = reviewed(tmp_path, text, only="batch-mixing")
    assert not report.findings, report
    assert any("the validation goes through no DataLoader itself" in note for note in report.notes), report


def test_a_wrapper_that_the_evaluation_leaves_out(tmp_path: Path) -> None:
    wrapper = """class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return F.dropout(self.net(x), 0.1, self.training)


wrapper = Wrapper()
model, losses = wrapper.net, []"""
    text = changed(
        ("model, losses = Net(), []", wrapper),
        ("model.parameters()", "wrapper.parameters()"),
        ("cross_entropy(model(inputs)", "cross_entropy(wrapper(inputs)"),
    )
    assert not reviewed(tmp_path, text, only="eval-nondeterminism").findings
    called = text.replace("(model(inputs).argmax(1)", "(wrapper(inputs).argmax(1)")
    [(name, _)] = lines(reviewed(tmp_path, called, only="eval-nondeterminism"))
    assert name == "eval-nondeterminism"


@pytest.mark.parametrize("place", ["in_the_end", "each_epoch", "in_a_function"])
def test_a_validation_that_is_a_comprehension(tmp_path: Path, place: str) -> None:
    i = CLEAN.index("    model.eval()")
    count = "sum((model(xb).argmax(1) == yb).sum().item() for xb, yb in val_loader)"
    validation = {
        "in_the_end": f"model.eval()\nwith torch.no_grad():\n    correct = {count}\nprint(correct)\n",
        "each_epoch": f"    model.eval()\n    correct = {count}\n",
        "in_a_function": "    model.eval()\n    correct = evaluate()\n",
    }[place]
    text = CLEAN[:i].replace("for epoch", f"def evaluate():\n    return {count}\n\n\nfor epoch") + validation
    report = reviewed(tmp_path, text, only="eval-nondeterminism,train-val-overlap")
    assert not report.findings, report
    assert not report.notes, report
    assert "evaluation of a batch gives the same result twice" in report.checked, report
    in_training = text.replace("model.eval()", "model.train()")
    report = reviewed(tmp_path, in_training, only="eval-nondeterminism")
    assert lines(report) == [
        ("eval-nondeterminism", f"{'return' if place == 'in_a_function' else 'correct ='} {count}")
    ]
