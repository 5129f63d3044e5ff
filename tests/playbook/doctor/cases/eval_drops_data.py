from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(
            self.val_set,
            batch_size=32,
            num_workers=0,
            shuffle=False,
            pin_memory=False,
            drop_last=True,  # here
        )


class RepairedData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=25, drop_last=True)
