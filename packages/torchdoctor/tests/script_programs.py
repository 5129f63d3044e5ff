"""Scripts in plain PyTorch as people write them, and reviews of them."""

from pathlib import Path

from torchdoctor.options import select_ids
from torchdoctor.report import Report
from torchdoctor.scripts.command import review_script

CLEAN = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = torch.randint(0, 3, (400,))
x = torch.randn(400, 8)
x[:, :3] += 2.0 * F.one_hot(y, 3)
train_loader = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=20, shuffle=True)
val_loader = DataLoader(TensorDataset(x[320:], y[320:]), batch_size=20)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.dropout = nn.Dropout(0.1)
        self.second = nn.Linear(32, 3)

    def forward(self, x):
        x = self.dropout(F.relu(self.first(x)))
        return self.second(x)


model, losses = Net(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(3):
    model.train()
    for inputs, target in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, target in val_loader:
            correct += (model(inputs).argmax(1) == target).sum().item()
    print(epoch, correct)
"""


DATA = CLEAN[: CLEAN.index("class Net")]


CLOSURE = """
import argparse
import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    y = x**3
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(args.steps):
        optimizer.step(closure)


if __name__ == "__main__":
    main()
"""


def changed(*pairs: tuple[str, str]) -> str:
    text = CLEAN
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def written(folder: Path, text: str) -> Path:
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    return script


def reviewed(folder: Path, text: str, *arguments: str, only: str | None = None) -> Report:
    report = review_script(written(folder, text), list(arguments), select_ids(only))
    assert not [note for note in report.notes if "Error" in note and "loaders cut short" not in note], report.notes
    return report


def lines(report: Report) -> list[tuple[str, str]]:
    return [(item["id"], item["code"]) for item in report.findings]


CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
SCHEDULE = "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=90)"
DEFECTS = {
    "activation-on-logits": ("return self.second(x)", "return self.second(x).relu()"),
    "double-softmax": ("return self.second(x)", "return self.second(x).softmax(1)"),
    "layer-in-forward": ("return self.second(x)", "return nn.Linear(32, 3)(x)"),
    "missing-zero-grad": ("        optimizer.zero_grad()\n", ""),
    "ineffective-clipping": ("        loss.backward()", f"        {CLIP}\n        loss.backward()"),
    "stuck-in-eval": ("    model.train()\n", ""),
    "eval-nondeterminism": ("    model.eval()\n", ""),
    "graph-retained": ("        loss.backward()", "        losses.append(loss)\n        loss.backward()"),
    "graph-in-eval": ("with torch.no_grad():", "if epoch >= 0:"),
    "scheduler-cadence": ("for epoch", f"{SCHEDULE}\nfor epoch"),
}
LINES = {  # at which they are found, where that is another than the one that is changed
    "missing-zero-grad": "optimizer.step()",
    "ineffective-clipping": CLIP,
    "stuck-in-eval": "model.eval()",
    "eval-nondeterminism": "for inputs, target in val_loader:",
    "graph-in-eval": "correct += (model(inputs).argmax(1) == target).sum().item()",
    "graph-retained": "losses.append(loss)",
    "scheduler-cadence": SCHEDULE,
}
