from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Learns from one sample at a time."""


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1)
