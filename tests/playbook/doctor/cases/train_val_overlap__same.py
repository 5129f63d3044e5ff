from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=10, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class RepairedData(Data):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
