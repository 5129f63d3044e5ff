"""Tensors that are no buffers, or stay on the CPU, and are where they must be all the same."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

from programs import Blobs, Classifier, OneStep

# -- bank_of_validation
BankOfValidationData = Blobs


class BankOfValidationModel(Classifier):
    """Compares with a bank that each validation makes anew, on the model's device; what it has before is never read."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = torch.zeros(3, 5)
        self.bank_labels = torch.zeros(5)

    def on_validation_epoch_start(self) -> None:
        self.bank = torch.eye(3, device=self.device)
        self.bank_labels = torch.arange(3, device=self.device)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        nearest = (scores @ self.bank).argmax(dim=1)
        near = F.one_hot(self.bank_labels.gather(0, nearest), 3)
        self.log("val_accuracy", (near.argmax(dim=1) == y).float().mean())
        self.log("val_loss", F.cross_entropy(scores, y))


# -- centre_of_a_hook
CentreOfAHookData = Blobs


class CentreOfAHookModel(OneStep):
    """Takes a centre of its own results as the training begins, when it is on its device already."""

    def __init__(self) -> None:
        super().__init__()
        self.centre: Tensor | None = None

    def on_train_start(self) -> None:
        if self.centre is None:
            with torch.no_grad():
                self.centre = self.net(torch.zeros(1, 8, device=self.device))

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        return super().step(batch) + 1e-3 * (self.net(x) - self.centre).square().mean()


# -- cuda_by_option
CudaByOptionData = Blobs


class CudaByOptionModel(Classifier):
    """An option tells how many GPUs there are, and with it where a tensor is made."""

    def __init__(self, gpus: int = 0) -> None:
        super().__init__()
        self.gpus = gpus

    def forward(self, x: Tensor) -> Tensor:
        if self.gpus > 0:  # noqa: SIM108  # as people write it
            weights = torch.linspace(0.5, 1.5, 8).cuda()
        else:
            weights = torch.linspace(0.5, 1.5, 8)
        return self.net(x * weights)


# -- moved_at_start
MovedAtStartData = Blobs


class MovedAtStartModel(Classifier):
    """Constants that the training sends to the device as it begins, after the model."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.linspace(0.5, 1.5, 8)

    def on_fit_start(self) -> None:
        self.scale = self.scale.to(self.device)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scale)


# -- packed
class PackedModel(pl.LightningModule):
    """Lengths go to the CPU for packing, and every 20th step prints."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16, padding_idx=0)
        self.rnn = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids, lengths, y = batch
        loss = F.cross_entropy(self(ids, lengths), y)
        if batch_idx % 20 == 0:
            print(f"{batch_idx}: {loss.item():.3f}")
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class PackedData(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for length in torch.randint(4, 20, (320,), generator=generator).tolist():
            ids = torch.randint(1, 40, (length,), generator=generator)
            self.rows.append((ids, length, int(ids[0] < 20)))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows, batch_size=20, shuffle=True, collate_fn=_padded)


def _padded(rows: list[tuple[Tensor, int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    ids, lengths, y = zip(*rows, strict=True)
    return pad_sequence(ids, batch_first=True), torch.tensor(lengths), torch.tensor(y)


# -- speech
class SpeechModel(pl.LightningModule):
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


class SpeechData(pl.LightningDataModule):
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
