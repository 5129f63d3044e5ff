"""Random images of CIFAR-10's size, on the device; no part of its own."""

import torch

from playbook.data.resident import ResidentImages


class RandomImages(ResidentImages):
    """As many training images of 3 × 32 × 32 random bytes as `num_images`, resident on the device of the Trainer."""

    def __init__(self, num_images: int, batch_size: int, flip: bool = False, translate: int = 0) -> None:
        super().__init__(batch_size, val_share=1 / (num_images + 1), flip=flip, translate=translate)
        self.num_images = num_images

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # each Trainer that trains on it calls this
            return
        generator = torch.Generator().manual_seed(0)
        shape = (self.num_images + 1, 3, 32, 32)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        targets = torch.arange(len(images)) % 10
        self.hold((images, targets), (images[:1], targets[:1]))
