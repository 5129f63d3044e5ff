"""Small images in an archive, decoded once."""

import hashlib
import io
import lzma
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from playbook import DataError, ResidentImages, UserError
from src.data.vision.images import FORMATS, read_picture, read_resized, reading_of, with_mode

LAYOUT = 3  # version of the decoded file; older files are not read


class ImageArchive(ResidentImages):
    """Images of one size in a tar archive, as train/CLASS/… and test/CLASS/…, decoded once and kept in memory.

    Classes are the folders of train in alphabetical order. The first run decodes the images and stores them in `cache`.

    Args:
        root: the archive, plain or compressed by gzip, bzip2 or xz.
        batch_size: samples per batch and process, B, at least 1.
        cache: folder for the decoded images. Defaults to playbook in $XDG_CACHE_HOME or ~/.cache.
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
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to images
            that cannot be read and to those of a class that train lacks.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time augmented anew.

    Shapes:
        image (B, C, H, W), normalised; C = 1 if the first image is grey, else 3; target (B,), 0 to K - 1.

    Raises:
        UserError: the archive is missing or empty, images differ in size, or test has a class that train lacks.
    """

    formats = FORMATS
    picture = staticmethod(read_picture)

    def __init__(
        self,
        root: str,
        batch_size: int = 512,
        cache: str | None = None,
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
        default_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playbook"
        self.cache = default_cache if cache is None else Path(cache)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        if self._decoded().exists():
            return
        arrays, broken = self._decode()
        for name, cause in broken:
            self._skip(name, f"{name} ({self.root.as_posix()}): {cause}")
        decoded = self._decoded()
        decoded.parent.mkdir(parents=True, exist_ok=True)
        beside = decoded.with_name(f".{decoded.name}.{os.getpid()}")
        with beside.open("wb") as file:
            np.savez(file, broken=np.array([name for name, _ in broken], dtype=str), **arrays)
        beside.replace(decoded)

    def setup(self, stage: str) -> None:
        with np.load(self._decoded(), allow_pickle=False) as arrays:
            self.skipped_samples.update(arrays["broken"].tolist())
            splits = ("train", "test")
            train, test = (_tensors(arrays[f"{split}_images"], arrays[f"{split}_targets"]) for split in splits)
            names = [arrays[f"{split}_names"].tolist() for split in splits]
            self.hold(train, test, sorted({Path(name).parent.name for name in names[0]}), names)

    def read(self, source: Any) -> Tensor:
        """Reads an image (C, H, W), normalised, from a path or bytes; other sizes are scaled and centre-cropped."""
        return self.prepared(read_resized(source, self.facts["image_shape"]))

    def preprocessing(self) -> dict[str, Any]:
        shape, statistics = self.facts["image_shape"], {name: self.facts[name] for name in ("mean", "deviation")}
        return reading_of(shape[0], [{"cover": shape[1:]}], **statistics)

    def _decoded(self) -> Path:
        try:
            state = self.root.stat()
        except OSError as error:
            raise UserError(f"--data.root {self.root.as_posix()}: {error.strerror}; expected an archive") from error
        key = f"{LAYOUT} {self.root.absolute()} {state.st_size} {state.st_mtime_ns} {self.on_error}"
        return self.cache / f"{self.root.name.partition('.')[0]}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npz"

    def _decode(self) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Arrays by name, and the images that could not be read, each with its cause."""
        images: dict[str, dict[str, Any]] = {"train": {}, "test": {}}  # by name
        broken, mode, shape = [], "", ()
        try:
            with tarfile.open(self.root, tarinfo=_Member) as archive:
                for member in archive:
                    split = Path(member.name).parts[:-2][-1:]
                    name = Path(member.name)
                    is_image = name.suffix.lower() in FORMATS and name.name[0] != "."  # macOS adds ._NAME
                    if split not in (("train",), ("test",)) or not is_image:
                        continue
                    stream = archive.extractfile(member)
                    assert stream is not None, member.name  # nothing but files ends in .png
                    try:
                        with Image.open(io.BytesIO(stream.read())) as file:
                            mode = mode or ("L" if file.mode[0] in "1LI" else "RGB")
                            pixels = np.asarray(with_mode(file, mode))
                        shape = shape or pixels.shape
                        if pixels.shape != shape:
                            size, first = (f"{s[1]}×{s[0]}" for s in (pixels.shape, shape))
                            raise ValueError(f"expected {first} pixels as the first image has, got {size}")
                    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                        if self.on_error == "stop":
                            raise DataError(f"--data.root {self.root.as_posix()}: {member.name}: {error}") from error
                        broken.append((member.name, f"{type(error).__name__}: {error}"))
                        continue
                    images[split[0]][member.name] = pixels
                while archive.fileobj and archive.fileobj.read(2**20):  # the checksum of a packed archive is at its end
                    pass
        except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise UserError(f"--data.root {self.root.as_posix()}: cannot be read: {error}") from error
        return self._arrays(images, broken), broken

    def _arrays(self, images: dict[str, dict[str, Any]], broken: list[tuple[str, str]]) -> dict[str, Any]:
        classes = sorted({Path(name).parent.name for name in images["train"]})
        arrays = {}
        for split, pixels in images.items():
            for name in sorted(pixels):
                if (kind := Path(name).parent.name) not in classes:
                    text = f"test has a class {kind}, which train does not have"
                    if self.on_error == "stop":
                        raise UserError(f"--data.root {self.root.as_posix()}: {text}")
                    broken.append((name, text))
                    del pixels[name]
            if not pixels:
                raise UserError(f"--data.root {self.root.as_posix()}: expected images as {split}/CLASS/NAME.jpg")
            names = sorted(pixels)
            arrays[f"{split}_images"] = np.stack([pixels[name] for name in names])
            arrays[f"{split}_names"] = np.array(names, dtype=str)
            arrays[f"{split}_targets"] = np.array([classes.index(Path(name).parent.name) for name in names])
        return arrays


class _Member(tarfile.TarInfo):
    """Raises an error at a damaged header, where tarfile would treat the archive as ended."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Member":
        place = tarfile_.offset
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]  # not in the stubs
            raise tarfile.ReadError(f"damaged at byte {place}: {error}") from error


def _tensors(images: Any, targets: Any) -> tuple[Tensor, Tensor]:
    pixels = torch.from_numpy(images)
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)  # (N, C, H, W)
    return pixels.contiguous(), torch.from_numpy(targets).long()
