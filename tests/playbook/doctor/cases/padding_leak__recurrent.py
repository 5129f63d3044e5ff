from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 3)

    def states(self, x: Tensor, mask: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(x), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    def forward(self, x: Tensor) -> Tensor:
        mask = x > 0
        states = self.states(x, mask) * mask[..., None]
        return self.out(states.sum(1) / mask.sum(1, keepdim=True))


class Model(Repaired):
    def states(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.rnn(self.embed(x))[0]  # here


class Texts(Dataset):
    def __init__(self, number: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(5, 25, (number,), generator=generator).tolist()
        self.texts = [torch.randint(1, 20, (length,), generator=generator) for length in lengths]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.texts[i], int(self.texts[i][0]) % 3


def collate(samples: list[Any]) -> tuple[Tensor, Tensor]:
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Texts(400, 0), batch_size=20, shuffle=True, collate_fn=collate)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Texts(100, 1), batch_size=20, collate_fn=collate)
