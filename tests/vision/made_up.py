"""A few made-up samples of the published data sets that the recipes train on."""

from pathlib import Path

from tests.data.vision.test_detection import write_voc
from tests.data.vision.test_image_archive import archive, usual
from tests.data.vision.test_masks import write_pets
from tests.data.vision.test_published import write_cifar10, write_cifar100, write_mnist


def write(folder: Path) -> None:
    """Writes them where and as they are published."""
    for name in ("MNIST", "FashionMNIST"):
        write_mnist(folder, name, num_train=600)
    archive(folder / "cifar10_jpeg.tar.xz", usual(size=(32, 32)))
    write_cifar10(folder)
    write_cifar100(folder)
    write_pets(folder)
    write_voc(folder / "bccd", ("Platelets", "RBC"))
