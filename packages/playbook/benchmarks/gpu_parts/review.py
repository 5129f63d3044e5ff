"""A review by torchdoctor of a small script that trains on the GPU where there is one, with one defect in it.

The review hides GPUs from the script, as it trains in forked processes: what is measured is how long it takes on this
machine, and that it finds there what it finds without a GPU, `bad-broadcast`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_parts.measuring import Setting

DEFECT = "bad-broadcast"
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.linspace(-1, 1, 8)
loader = DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(SCRIPT, encoding="utf-8")
        command = [sys.executable, "-m", "torchdoctor", "--format", "json", str(script)]
        reviews: list[subprocess.CompletedProcess[str]] = []
        seconds = setting.seconds(
            lambda: reviews.append(subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder))
        )
    (review,) = reviews
    if review.returncode not in (0, 1):
        raise RuntimeError(f"torchdoctor ended with code {review.returncode}: {review.stderr.strip()}")
    yield "seconds with start-up", seconds
    findings = json.loads(review.stdout)["findings"]
    yield "findings", ", ".join(sorted(finding["id"] for finding in findings))
