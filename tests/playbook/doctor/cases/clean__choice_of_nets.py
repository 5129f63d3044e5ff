from torch import nn

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Builds several nets, and trains the chosen one."""

    def __init__(self, name: str = "narrow") -> None:
        super().__init__()
        self.choices = {
            "narrow": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
            "wide": nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3)),
        }
        self.net = self.choices[name]


class Data(Blobs):
    pass
