from torch.utils.data import DataLoader, RandomSampler

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        part = RandomSampler(self.val_set, num_samples=50)  # type: ignore[arg-type]
        return DataLoader(self.val_set, batch_size=20, sampler=part)  # here


class RepairedData(Blobs):
    pass
