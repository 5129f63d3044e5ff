from torch.utils.data import random_split

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        everything = self.train_set
        self.train_set, _ = random_split(everything, [320, 80])
        _, self.val_set = random_split(everything, [320, 80])  # here


class RepairedData(Blobs):
    pass
