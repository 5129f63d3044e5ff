"""Answers that a step prints now and then, each cut where it ends, if it does."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier

END = 2


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(20, 32), nn.Linear(32, 20))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self.net(x)
        if batch_idx % 100 == 0:
            print(self.texts(logits.argmax(-1))[:1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    def texts(self, rows: Tensor) -> list[str]:
        texts = []
        ends = (rows == END).nonzero(as_tuple=True)[1]
        for number, row in enumerate(rows):
            try:
                cut = row[: ends[number]]
            except Exception:
                cut = row
            texts.append(" ".join(str(int(token)) for token in cut))
        return texts

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x).flatten(0, 1), y.flatten()))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randint(20, (500, 8), generator=torch.Generator().manual_seed(0))
        y = (7 * x + 3) % 20
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
