import torch

from programs import Blobs, Classifier

Data = Blobs
Repaired = Classifier


class Model(Classifier):
    def __init__(self, weights: str | None = None) -> None:
        super().__init__()
        if weights is not None:
            self.load_state_dict(torch.load(weights, weights_only=False))  # here
