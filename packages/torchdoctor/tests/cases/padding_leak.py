from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier, Sequences


class Model(pl.LightningModule):
    """The mean of all embeddings, those of the padding too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.out(x.mean(dim=1))  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, y = batch
        return F.cross_entropy(self(tokens), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        real = (tokens != 0).unsqueeze(-1)
        return self.out((self.embed(tokens) * real).sum(1) / real.sum(1))


class Data(pl.LightningDataModule):
    """Sentences of 3 to 20 words; one half of the words is for one class."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        samples = []
        for _ in range(300):
            label, length = (
                int(torch.randint(low, high, (1,), generator=generator)) for low, high in ((0, 2), (3, 21))
            )
            samples.append((torch.randint(1 + 10 * label, 20 + 10 * label, (length,), generator=generator), label))
        self.train_set, self.val_set = samples[:240], samples[240:]

    @staticmethod
    def collate(samples: list[Any]) -> tuple[Tensor, Tensor]:
        tokens, labels = zip(*samples, strict=True)
        return pad_sequence(list(tokens), batch_first=True), torch.tensor(labels)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=self.collate)  # type: ignore[arg-type]


# -- fixed_length
class FixedLengthModel(Classifier):
    """Samples are padded to one length when the data are made, and no batch is ever shorter: this is advice."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).mean(1)  # here


class FixedLengthRepaired(FixedLengthModel):
    def forward(self, x: Tensor) -> Tensor:
        real = (x != 0).any(-1, keepdim=True)
        return (self.net(x) * real).sum(1) / real.sum(1)


class FixedLengthData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 24, 8, generator=generator)
        x[:, :, :3] += nn.functional.one_hot(y, 3)[:, None]
        lengths = torch.randint(8, 25, (500, 1), generator=generator)
        x *= (torch.arange(24) < lengths)[..., None]
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- recurrent
class RecurrentRepaired(Classifier):
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


class RecurrentModel(RecurrentRepaired):
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


class RecurrentData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Texts(400, 0), batch_size=20, shuffle=True, collate_fn=collate)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Texts(100, 1), batch_size=20, collate_fn=collate)


# -- inverted_mask
class InvertedMaskModel(Classifier):
    """Attention gets True where words stand, and so looks at the padding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 3)

    def ignored(self, real: Tensor) -> Tensor:
        return real

    def forward(self, tokens: Tensor) -> Tensor:
        x, real = self.embed(tokens), tokens != 0
        x = x + self.attention(x, x, x, key_padding_mask=self.ignored(real))[0]  # here
        return self.out((x * real[..., None]).sum(1) / real.sum(1, keepdim=True))


class InvertedMaskRepaired(InvertedMaskModel):
    def ignored(self, real: Tensor) -> Tensor:
        return ~real


def collate_with_more(samples: list[Any]) -> tuple[Tensor, Tensor]:
    texts, labels = collate(samples)
    return F.pad(texts, (0, 3)), labels


class InvertedMaskData(Blobs):
    """Also the longest text of a batch has some padding."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Texts(400, 0), batch_size=20, shuffle=True, collate_fn=collate_with_more)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Texts(100, 1), batch_size=20, collate_fn=collate_with_more)


# -- inverted_mask_of_features
class InvertedMaskOfFeaturesModel(Classifier):
    """Scores of words are set to minus infinity in place of those of the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(4, 16), nn.Linear(4, 16), nn.Linear(4, 3)

    def hidden(self, real: Tensor) -> Tensor:
        return real

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        scores = scores.masked_fill(self.hidden(real)[:, None], -1e9)
        x = x + scores.softmax(-1) @ x  # here
        return self.out((x * real[..., None]).sum(1) / lengths[:, None])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, lengths, y = batch
        return F.cross_entropy(self(x, lengths), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class InvertedMaskOfFeaturesRepaired(InvertedMaskOfFeaturesModel):
    def hidden(self, real: Tensor) -> Tensor:
        return ~real


class InvertedMaskOfFeaturesData(Sequences):
    """Of at most eight steps, so that each sample has some padding."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("train_set", "val_set"):
            x, lengths, y = getattr(self, name).tensors
            lengths = lengths.clamp(max=8)
            x = x * (torch.arange(10) < lengths[:, None])[..., None]
            setattr(self, name, TensorDataset(x, lengths, y))
