from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from programs import Blobs, Classifier, OneStep


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(400, 8, generator=generator)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long() + 1  # here
        self.train_set = TensorDataset(x, y)


class RepairedData(Blobs):
    pass


# -- gather
class GatherModel(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return -torch.log_softmax(self(x), dim=1).gather(1, y[:, None]).mean()


class GatherData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = torch.utils.data.TensorDataset(x, y + 1)  # here


class GatherRepairedData(Blobs):
    pass


# -- one_hot
class OneHotModel(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), F.one_hot(y, num_classes=3).float())


class OneHotData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = torch.utils.data.TensorDataset(x, 2 * y)  # here


class OneHotRepairedData(Blobs):
    pass


# -- rare
class RareModel(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, x: Tensor, y: Tensor, unknown: int) -> None:
        self.x, self.y, self.unknown = x, y, unknown

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        label = int(self.y[i])
        if i == 300:
            label = self.unknown  # here
        return self.x[i], label


class RareData(Blobs):
    unknown = 255

    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(*self.train_set.tensors, self.unknown)  # type: ignore[attr-defined]


class RareRepairedData(RareData):
    unknown = -100


# -- signs
class SignsModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x)[:, 0], y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Signs(Blobs):
    def signs(self, x: Tensor) -> Tensor:
        return torch.sign(x[:, 0] + x[:, 1])  # here

    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, generator=torch.Generator().manual_seed(1))
        y = self.signs(x)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class SignsData(Signs):
    pass


class SignsRepairedData(Signs):
    def signs(self, x: Tensor) -> Tensor:
        return (x[:, 0] + x[:, 1] > 0).float()


# -- void
VOID = 255


class VoidModel(OneStep):
    ignored = -100

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))

    def step(self, batch: Any) -> Tensor:
        image, mask = batch
        return F.cross_entropy(self(image), mask, ignore_index=self.ignored)


class VoidRepaired(VoidModel):
    ignored = VOID


def drawn(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    image, mask = torch.randn(1, 16, 16, generator=generator), torch.zeros(16, 16, dtype=torch.long)
    for kind in torch.randint(1, 3, (int(torch.randint(1, 4, (), generator=generator)),), generator=generator):
        top, left = torch.randint(0, 8, (2,), generator=generator).tolist()
        if kind == 1:
            window = slice(top, top + 6), slice(left, left + 6)
        else:
            window = slice(top, top + 4), slice(left, left + 8)
        image[0][window] += 2.0 * kind
        inner = mask[window]
        inner[:] = kind
        inner[0] = VOID  # here
    return image, mask


class VoidData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.scenes(120, 0), self.scenes(40, 1)

    def scenes(self, number: int, seed: int) -> TensorDataset:
        generator = torch.Generator().manual_seed(seed)
        images, masks = zip(*(drawn(generator) for _ in range(number)), strict=True)
        return TensorDataset(torch.stack(images), torch.stack(masks))


# -- words
class WordsModel(Classifier):
    pass


class Words:
    known = ("stop", "go", "left")

    def __init__(self, *others: str) -> None:
        self.spoken = [*self.known, *others]

    def index(self, word: str) -> int:
        return self.known.index(word) if word in self.known else len(self.known)

    def draw(self, number: int) -> TensorDataset:
        generator = torch.Generator().manual_seed(0)
        said = torch.randint(0, len(self.spoken), (number,), generator=generator).tolist()
        x = torch.randn(number, 8, generator=generator)
        x[torch.arange(number), said] += 3
        x = x - x.mean()

        return TensorDataset(x, torch.tensor([self.index(self.spoken[number]) for number in said]))  # here


class WordsData(Blobs):
    others: tuple[str, ...] = ("uh", "hm")

    def __init__(self) -> None:
        super().__init__()
        words = Words(*self.others)
        self.train_set = words.draw(400)


class WordsRepairedData(WordsData):
    others = ()
