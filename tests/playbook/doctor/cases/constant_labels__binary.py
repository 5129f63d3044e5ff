from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.binary_cross_entropy_with_logits(self(batch["x"])[:, 0], batch["spam"].float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Mails(Dataset):
    spam = "spam"

    def __init__(self, n: int, seed: int, name: str = "Spam") -> None:
        generator = torch.Generator().manual_seed(seed)
        self.names = ["spam" if bit else "ham" for bit in torch.randint(0, 2, (n,), generator=generator)]
        self.x = [torch.randn(8, generator=generator) + (name == "spam") for name in self.names]
        self.name = name

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        is_spam = int(self.names[i] == self.name)  # here
        return {"x": self.x[i], "spam": is_spam}


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Mails(300, 0), Mails(60, 1)


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Mails(300, 0, "spam"), Mails(60, 1, "spam")
