import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
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


class Data(Blobs):
    others: tuple[str, ...] = ("uh", "hm")

    def __init__(self) -> None:
        super().__init__()
        words = Words(*self.others)
        self.train_set = words.draw(400)


class RepairedData(Data):
    others = ()
