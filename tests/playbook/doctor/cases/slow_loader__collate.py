import json
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def collate(rows: list[Any]) -> Any:
    x = torch.stack([row[0] for row in rows])
    for _ in range(60):
        text = json.dumps([list(map(float, row[0])) for row in rows] * 4)  # here
        assert json.loads(text)
    return x, torch.stack([row[1] for row in rows])


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=collate)


class RepairedData(Blobs):
    pass
