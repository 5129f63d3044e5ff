"""MNIST and its relatives, CIFAR-10 and CIFAR-100, read from their published files."""

import gzip
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from playbook import ResidentImages, UserError
from src.data.vision.images import FORMATS, read_picture, read_resized, reading_of

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CHARACTERS = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
# what reading damaged files raises
FAULTS = (OSError, EOFError, LookupError, ValueError, TypeError, zlib.error, pickle.UnpicklingError, tarfile.TarError)
CIFAR_10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class MNIST(ResidentImages):
    """70,000 grey 28×28 images of 10 digits (LeCun et al. 1998): 60,000 to train and validate, 10,000 test.

    Args:
        root: folder that holds MNIST/raw/*-ubyte, compressed by gzip or not, or into which torchvision downloads them.
        batch_size: samples per batch and process, B, at least 1.
        val_share: share of the training images used for validation, chosen with a fixed seed, in (0, 1).
        num_train: number of the remaining images to train on, the same ones for every seed. Defaults to all of them.
        flip: whether to flip training images horizontally with probability 0.5.
        translate: largest translation of training images in pixels, padded by reflection; 0 turns it off.
        crop: smallest share of a training image's area that a random resized crop covers, in (0, 1]; 1 turns it off.
            The aspect ratio varies by up to 4:3.
        cutout: side in pixels of a square that is set to the mean in each training image; 0 turns it off.
        num_workers: number of loader processes, which need the images in host memory; 0 keeps them in device memory and
            makes the batches there.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time augmented anew.

    Shapes:
        image (B, 1, 28, 28), normalised; target (B,), 0 to 9.
    """

    class_names: ClassVar[tuple[str, ...]] = DIGITS
    formats = FORMATS
    picture = staticmethod(read_picture)

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 512,
        val_share: float = 0.1,
        num_train: int | None = None,
        flip: bool = False,
        translate: int = 0,
        crop: float = 1.0,
        cutout: int = 0,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(
            batch_size,
            val_share=val_share,
            num_train=num_train,
            flip=flip,
            translate=translate,
            crop=crop,
            cutout=cutout,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            balanced=balanced,
        )
        self.root = Path(root)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        if self._folder() is None:
            name = type(self).__name__
            download(name, self.root, name, "raw/train-images-idx3-ubyte")

    def setup(self, stage: str) -> None:
        folder = self._folder()
        assert folder is not None, self.root
        train, test = (_read_idx_pair(folder, prefix) for prefix in ("train", "t10k"))
        self.hold(train, test, self.class_names)

    def read(self, source: Any) -> Tensor:
        """Reads an image (1, 28, 28), normalised, from a path or bytes; others are scaled and cut to the centre."""
        return self.prepared(read_resized(source, self.facts["image_shape"]))

    def preprocessing(self) -> dict[str, Any]:
        shape, statistics = self.facts["image_shape"], {name: self.facts[name] for name in ("mean", "deviation")}
        return reading_of(shape[0], [{"cover": shape[1:]}], **statistics)

    def _folder(self) -> Path | None:
        folders = [self.root / type(self).__name__ / "raw", self.root / "raw", self.root]
        return next((folder for folder in folders if any(folder.glob("train-images-idx3-ubyte*"))), None)


class FashionMNIST(MNIST):
    """70,000 grey 28×28 images of 10 kinds of clothing (Xiao et al. 2017): 60,000 to train and validate, 10,000 test.

    Takes the same options as MNIST.

    Args:
        root: folder that holds FashionMNIST/raw/*-ubyte, compressed by gzip or not, or into which torchvision downloads
            them.

    Shapes:
        image (B, 1, 28, 28), normalised; target (B,), 0 to 9.
    """

    class_names: ClassVar[tuple[str, ...]] = CLOTHES


class KMNIST(MNIST):
    """70,000 grey 28×28 images of 10 cursive characters (Clanuwat et al. 2018): 60,000 to train and validate.

    Takes the same options as MNIST.

    Args:
        root: folder that holds KMNIST/raw/*-ubyte, compressed by gzip or not, or into which torchvision downloads them.

    Shapes:
        image (B, 1, 28, 28), normalised; target (B,), 0 to 9.
    """

    class_names: ClassVar[tuple[str, ...]] = CHARACTERS


class CIFAR10(ResidentImages):
    """60,000 colour 32×32 images of 10 kinds (Krizhevsky 2009): 50,000 to train and validate, 10,000 test.

    Args:
        root: folder that holds cifar-10-batches-py or cifar-10-python.tar.gz, or into which torchvision downloads it.
        batch_size: samples per batch and process, B, at least 1.
        val_share: share of the training images used for validation, chosen with a fixed seed, in (0, 1).
        num_train: number of the remaining images to train on, the same ones for every seed. Defaults to all of them.
        flip: whether to flip training images horizontally with probability 0.5.
        translate: largest translation of training images in pixels, padded by reflection; 0 turns it off.
        crop: smallest share of a training image's area that a random resized crop covers, in (0, 1]; 1 turns it off.
            The aspect ratio varies by up to 4:3.
        cutout: side in pixels of a square that is set to the mean in each training image; 0 turns it off.
        num_workers: number of loader processes, which need the images in host memory; 0 keeps them in device memory and
            makes the batches there.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time augmented anew.

    Shapes:
        image (B, 3, 32, 32), normalised; target (B,), 0 to 9.
    """

    folder: ClassVar[str] = "cifar-10-batches-py"
    archive: ClassVar[str] = "cifar-10-python.tar.gz"
    files: ClassVar[tuple[list[str], list[str]]] = ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"])
    labels: ClassVar[str] = "labels"
    names: ClassVar[tuple[str, str]] = ("batches.meta", "label_names")  # file and entry that name the classes
    formats = FORMATS
    picture = staticmethod(read_picture)

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 512,
        val_share: float = 0.1,
        num_train: int | None = None,
        flip: bool = False,
        translate: int = 0,
        crop: float = 1.0,
        cutout: int = 0,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(
            batch_size,
            val_share=val_share,
            num_train=num_train,
            flip=flip,
            translate=translate,
            crop=crop,
            cutout=cutout,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            balanced=balanced,
        )
        self.root = Path(root)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        if not any((self.root / name).exists() for name in (self.folder, self.archive)):
            download(type(self).__name__, self.root, self.folder, f"{self.folder} or {self.archive}")

    def setup(self, stage: str) -> None:
        train, test = (self._read(names) for names in self.files)
        self.hold(train, test, self._class_names())

    def read(self, source: Any) -> Tensor:
        """Reads an image (3, 32, 32), normalised, from a path or bytes; others are scaled and cut to the centre."""
        return self.prepared(read_resized(source, self.facts["image_shape"]))

    def preprocessing(self) -> dict[str, Any]:
        shape, statistics = self.facts["image_shape"], {name: self.facts[name] for name in ("mean", "deviation")}
        return reading_of(shape[0], [{"cover": shape[1:]}], **statistics)

    def _class_names(self) -> list[str]:
        file, entry = self.names
        try:
            return [str(name) for name in self._content(file)[0][entry]]
        except UserError:  # copies without this file are in use
            num_classes = 10 if self.labels == "labels" else 100
            return list(CIFAR_10) if num_classes == 10 else [str(k) for k in range(num_classes)]

    def _content(self, name: str) -> tuple[dict[str, Any], Path]:
        """Content of one of the files, and where it is: in the folder or in the archive."""
        place = self.root / self.folder / name
        try:
            if place.exists():
                content = place.read_bytes()
            else:
                place = self.root / self.archive
                with tarfile.open(place) as archive:
                    member = archive.extractfile(f"{self.folder}/{name}")
                    content = member.read() if member else b""
            return _Arrays(io.BytesIO(content), encoding="latin1").load(), place
        except FAULTS as error:
            raise _damaged(place, error) from error

    def _read(self, names: list[str]) -> tuple[Tensor, Tensor]:
        images, targets = [], []
        for name in names:
            batch, place = self._content(name)
            try:
                pixels = _whole_numbers("data", batch["data"])
                if pixels.size and not 0 <= pixels.min() <= pixels.max() <= 255:
                    raise ValueError(f"data: expected 0 to 255, got {pixels.min()} to {pixels.max()}")
                images.append(pixels.astype(np.uint8).reshape(-1, 3, 32, 32))
                targets.append(_whole_numbers(self.labels, batch[self.labels]).astype(np.int64))
                if len(images[-1]) != len(targets[-1]):
                    raise ValueError(f"{len(images[-1])} images and {len(targets[-1])} labels")
            except FAULTS as error:
                raise _damaged(place, error) from error
        return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(targets))


class CIFAR100(CIFAR10):
    """60,000 colour 32×32 images of 100 kinds (Krizhevsky 2009): 50,000 to train and validate, 10,000 test.

    Takes the same options as CIFAR10.

    Args:
        root: folder that holds cifar-100-python or cifar-100-python.tar.gz, or into which torchvision downloads it.

    Shapes:
        image (B, 3, 32, 32), normalised; target (B,), 0 to 99.
    """

    folder: ClassVar[str] = "cifar-100-python"
    archive: ClassVar[str] = "cifar-100-python.tar.gz"
    files: ClassVar[tuple[list[str], list[str]]] = (["train"], ["test"])
    labels: ClassVar[str] = "fine_labels"
    names: ClassVar[tuple[str, str]] = ("meta", "fine_label_names")


def download(name: str, root: Path, folder: str, expected: str, **options: Any) -> None:
    """Downloads a data set with torchvision; after a failure, removes the empty folders that it created.

    Args:
        name: name of torchvision's class.
        root: folder for data sets.
        folder: folder of this data set in root.
        expected: files that were searched for, for messages.
        options: further arguments of torchvision's class.

    Raises:
        UserError: the download failed.
    """
    from torchvision import datasets

    top = root / folder
    before = {place for place in (top, *top.parents, *top.rglob("*")) if place.exists()}
    try:
        getattr(datasets, name)(root, download=True, **options)
    except (OSError, RuntimeError) as error:
        new_folders = {top, *top.parents, *top.rglob("*")} - before
        for place in sorted(new_folders, reverse=True):  # from the innermost outwards
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
        text = " ".join(str(error).split())
        raise UserError(
            f"--data.root {root.as_posix()}: contains no {name} ({expected}), and it cannot be downloaded: {text}"
        ) from error


def _read_idx_pair(folder: Path, prefix: str) -> tuple[Tensor, Tensor]:
    images, place = _read_idx(folder, f"{prefix}-images-idx3-ubyte", num_dimensions=3)
    targets, _ = _read_idx(folder, f"{prefix}-labels-idx1-ubyte", num_dimensions=1)
    if len(images) != len(targets):
        raise _damaged(place, ValueError(f"{len(images)} images and {len(targets)} labels"))
    return images[:, None], targets.long()


def _read_idx(folder: Path, name: str, num_dimensions: int) -> tuple[Tensor, Path]:
    """Reads MNIST's format: two zeros, 8 for bytes, the number of dimensions, their sizes, then the bytes."""
    packed, plain = folder / f"{name}.gz", folder / name
    place = plain if plain.exists() else packed
    try:
        content = gzip.decompress(packed.read_bytes()) if place == packed else plain.read_bytes()
        if content[:4] != bytes([0, 0, 8, num_dimensions]):
            raise ValueError(f"begins with {content[:4].hex()}, expected 000008{num_dimensions:02x}")
        sizes = np.frombuffer(content, dtype=">i4", count=num_dimensions, offset=4).astype(int).tolist()
        if min(sizes) < 0 or 0 in sizes[1:]:
            raise ValueError(f"expected sizes above 0, its header has {' × '.join(map(str, sizes))}")
        values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_dimensions)
        return torch.from_numpy(values.copy()).view(sizes), place
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
        raise _damaged(place, error) from error


def _whole_numbers(name: str, content: Any) -> np.ndarray:
    values = np.asarray(content)
    if values.size and values.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected whole numbers, got {values.dtype}")
    return values


def _damaged(place: Path, error: Exception) -> UserError:
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return UserError(f"--data.root: {place.as_posix()} cannot be read: {text}")


class _Arrays(pickle.Unpickler):
    """Reads lists, dicts and NumPy arrays; anything else in a pickle could run code."""

    allowed: ClassVar[set[tuple[str, str]]] = {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
        *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data set needs")
        if name == "_reconstruct":
            module = "numpy._core.multiarray"  # its place since NumPy 2; the old one warns
        return super().find_class(module, name)
