from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Model(pl.LightningModule):
    """CTC with its lengths on the CPU, and a mask that follows its input if that is on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.BoolTensor(len(x), x.shape[1])
        mask.copy_(torch.arange(x.shape[1]) >= lengths[:, None])
        if x.is_cuda:
            mask = mask.cuda()
        return self.net(x.masked_fill(mask[..., None], 0.0))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, lengths, words, sizes = batch
        lengths = lengths.cpu()
        scores = self(x, lengths).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(scores, words, lengths, sizes, zero_infinity=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    x, words = zip(*samples, strict=True)
    lengths, sizes = ([len(item) for item in items] for items in (x, words))
    return pad_sequence(x, batch_first=True), torch.tensor(lengths), torch.cat(words), torch.tensor(sizes)


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        sounds = torch.randn(6, 8, generator=generator)
        self.rows = []
        for number in torch.randint(2, 6, (320,), generator=generator).tolist():
            words = torch.randint(1, 6, (number,), generator=generator)
            noise = 0.3 * torch.randn(4 * number, 8, generator=generator)
            self.rows.append((sounds[words].repeat_interleave(4, 0) + noise, words))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows, batch_size=16, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]  # a list
