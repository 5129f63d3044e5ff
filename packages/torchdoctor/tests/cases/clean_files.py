"""Files and pickles of a program's own."""

import io
import pickle
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from programs import Blobs, Classifier

# -- exchanged_bytes
ExchangedBytesData = Blobs


def gathered(value: Any) -> list[Any]:
    """Values of all processes, as bytes on their way between them."""
    own = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    buffers: list[Tensor] = [own]
    if torch.distributed.is_initialized():
        buffers = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(buffers, own)
    return [pickle.loads(buffer.numpy().tobytes()) for buffer in buffers]


class ExchangedBytesModel(Classifier):
    def on_train_epoch_end(self) -> None:
        self.print(gathered({"epoch": self.current_epoch}))


# -- own_list_of_names
OwnListOfNamesModel = Classifier


class OwnListOfNamesData(Blobs):
    """Keeps a list beside the data, and reads it again where it is there."""

    def __init__(self, part: str = "train") -> None:
        super().__init__()
        self.part = part

    def keep(self, names: list[str]) -> None:
        with open(f"names_{self.part}", "wb") as file:
            pickle.dump(names, file)

    def read(self) -> Any:
        with open(f"names_{self.part}", "rb") as file:
            return pickle.load(file)


# -- samples_and_old_pickles
SamplesAndOldPicklesData = Blobs


def read(path: str) -> Any:
    with open(path, "rb") as file:
        if sys.version_info > (3, 0):  # noqa: UP036
            return torch.load(file)
        else:  # noqa: RET505
            return pickle.load(file)


class SamplesAndOldPicklesModel(Classifier):
    """A policy whose actions go to what is outside, and whose rewards come back from there."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        actions = Categorical(logits=self(x))
        chosen = actions.sample()
        right = [float(one == other) for one, other in zip(chosen.tolist(), y.tolist(), strict=True)]
        rewards = torch.tensor(right, device=x.device)
        return F.cross_entropy(self(x), y) - 0.1 * (actions.log_prob(chosen) * rewards).mean()


# -- saves_in_the_step
SavesInTheStepData = Blobs


class SavesInTheStepModel(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        torch.save(self.net.state_dict(), io.BytesIO())
        return super().training_step(batch, batch_idx)
