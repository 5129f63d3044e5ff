from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Options(Blobs):
    def __init__(self, drop_last: bool = True) -> None:
        super().__init__()
        self.options = {
            "batch_size": 48,
            "drop_last": drop_last,  # here
        }

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, **self.options)


class Data(Options):
    pass


class RepairedData(Options):
    def __init__(self) -> None:
        super().__init__(drop_last=False)
