"""Sequences with lengths, padding and states, of which nothing is lost that counts."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from cases import padding_leak, unequal_accumulation
from programs import Blobs, Classifier, OneStep, Sequences


# -- carried_state
class CarriedStateModel(Classifier):
    """Goes on where the batch before ended: rows of batches are recordings in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 1))
        self.carry: dict[str, Any] = {}

    def step(self, batch: Any, stage: str) -> Tensor:
        x, y = batch
        states, last = self.rnn(x, self.carry.get(stage))
        self.carry[stage] = last.detach()
        return F.mse_loss(self.net(states)[..., 0], y)

    def on_train_epoch_start(self) -> None:
        self.carry.clear()

    def on_validation_epoch_start(self) -> None:
        self.carry.pop("val", None)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch, "val"))


class Pieces(IterableDataset):
    def __init__(self, seed: int) -> None:
        self.signal = torch.randn(12, 800, 2, generator=torch.Generator().manual_seed(seed))
        level, levels = torch.zeros(12), []
        for moment in self.signal.unbind(1):
            level = 0.9 * level + 0.4 * moment[:, 0]
            levels.append(level)
        self.level = torch.stack(levels, dim=1)

    def __iter__(self) -> Any:
        for start in range(0, 800, 20):
            yield self.signal[:, start : start + 20], self.level[:, start : start + 20]


class CarriedStateData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Pieces(0), batch_size=None)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Pieces(1), batch_size=None)


# -- forgetful
ForgetfulData = Blobs


class ForgetfulModel(Classifier):
    """Of a long sequence the end counts: what is forgotten is not lost between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(1, 16)
        self.cell = nn.GRUCell(16, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 16)
        for part in x.flip(1).repeat(1, 3).unbind(dim=1):
            state = self.cell(self.enter(part[:, None]), state)
        return self.net(state)


# -- gates_by_hand
class GatesByHandModel(Classifier):
    """An LSTM of linear layers over 60 steps, told by the last: its gates are made to forget the first."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(1 + 16, 4 * 16)
        self.head = nn.Linear(16, 1)
        self.net = nn.Sequential()
        nn.init.normal_(self.gates.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        state = memory = x.new_zeros(len(x), 16)
        for step in x.unbind(1):
            i, f, o, g = self.gates(torch.cat([step[:, None], state], 1)).chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
        return self.head(state)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.training_step(batch, batch_idx))


class GatesByHandData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        phase = 6.3 * torch.rand(300, 1, generator=torch.Generator().manual_seed(0))
        x = torch.sin(phase + 0.3 * torch.arange(61))
        self.train_set = TensorDataset(x[:240, :60], x[:240, 60:])
        self.val_set = TensorDataset(x[240:, :60], x[240:, 60:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


# -- last_state
class LastState(nn.Module):
    """A recurrent classifier that reads the last state, and neither the outputs nor the last cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        _, (state, _) = self.lstm(x.t().unsqueeze(2))  # (T, B, 1)
        return self.head(state[-1])  # (B, 3)


class LastStateModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = LastState()  # type: ignore[assignment]


class LastStateData(Blobs):
    pass


# -- long_sequence
LongSequenceData = Blobs


class LongSequenceModel(Classifier):
    """Reads each sample 40 times, twice as often as there are samples."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 16)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 16, device=x.device)
        for _ in range(40):
            h = self.cell(x, h)
        return self.net(h)


# -- masked_tokens
class MaskedTokensModel(Classifier):
    """Masked tokens, drawn anew for validation too; -100 where nothing is asked, padding is -1."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(41, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 40))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, real, labels = batch
        labels = labels.masked_fill(~real, -1)
        return F.cross_entropy(self(tokens).flatten(0, 1), labels.flatten(), ignore_index=-1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


def mask(rows: list[Any]) -> Any:
    tokens = torch.stack([row[0] for row in rows])
    hidden = torch.rand(tokens.shape) < 0.2
    hidden[:, 0] = True
    return tokens.masked_fill(hidden, 40), tokens >= 0, tokens.masked_fill(~hidden, -1)


class MaskedTokensData(Blobs):
    def setup(self, stage: str) -> None:
        tokens = torch.randint(0, 40, (300, 12), generator=torch.Generator().manual_seed(0)).cummax(dim=1).values
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=mask)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=mask)


# -- sorted_by_length
SortedByLengthData = Sequences


class SortedByLengthModel(OneStep):
    """Sorts its sequences by length, which every layer gets in that order, and their scores back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths, order = lengths.sort(descending=True)
        _, hidden = self.encoder(pack_padded_sequence(x[order], lengths.cpu(), batch_first=True))
        return self.net(hidden[0])[order.argsort()], hidden[0]

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        logits, code = self(x, lengths)
        return F.cross_entropy(logits, y) + 1e-3 * code.square().mean()


# -- spread_of_each_word
SpreadOfEachWordData = padding_leak.Data


class SpreadOfEachWordModel(padding_leak.Repaired):
    """Draws a code for each word, of which those of the padding are left out: how many there are moves the others."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.Embedding(30, 16)
        nn.init.constant_(self.spread.weight, -1.0)

    def forward(self, tokens: Tensor) -> Tensor:
        real = (tokens != 0).unsqueeze(-1)
        mean = self.embed(tokens)
        codes = mean + self.spread(tokens).exp() * torch.randn_like(mean)
        return self.out((codes * real).sum(1) / real.sum(1))


# -- stages
class StagesModel(pl.LightningModule):
    """Two stages, of which the second reads the first one's probabilities, also beside ignored labels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 3, 5, padding=2), nn.Conv1d(3, 3, 9, padding=4)

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        first = self.first(x)
        second = self.second(first.softmax(1))
        return sum(F.cross_entropy(scores, y, ignore_index=-100) for scores in (first, second)) / 2

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class StagesData(pl.LightningDataModule):
    """Signals of 8 to 20 steps, the largest of whose first three values is the class of a step; then -100."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(300, 4, 20, generator=generator)
        lengths = torch.randint(8, 21, (300, 1), generator=generator)
        y = x[:, :3].argmax(1).where(torch.arange(20) < lengths, -100)
        self.train, self.val = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)


# -- texts_now_and_then
END = 2


class TextsNowAndThenModel(Classifier):
    """Answers that a step prints now and then, each cut where it ends, if it does."""

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


class TextsNowAndThenData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randint(20, (500, 8), generator=torch.Generator().manual_seed(0))
        y = (7 * x + 3) % 20
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- weighed_tokens
WeighedTokensData = unequal_accumulation.Data


class WeighedTokensModel(unequal_accumulation.Model):
    """Says what its loss is a mean over, by which its trainer weighs the batches of a step."""

    def weight(self, batch: Any) -> Tensor:
        return (batch[1] != -100).sum()
