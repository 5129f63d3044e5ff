"""The Oxford-IIIT Pet data set: photos with masks of pet, background and the border between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from src.data.vision.channels import ChannelReader
from src.data.vision.images import lines_of
from src.data.vision.mask_transforms import MaskTransforms
from src.data.vision.masks import _Masks
from src.data.vision.published import download


class OxfordPets(_Masks):
    """Oxford-IIIT Pet (Parkhi et al. 2012): 7,349 photos of cats and dogs, 3,680 to train and validate, 3,669 to test.

    Every pixel belongs to the pet (0), to the background (1) or to the border between them (2).

    Args:
        root: folder that holds oxford-iiit-pet/images and annotations, or into which torchvision downloads them.
        border: class makes it the third class; ignore replaces it by 255.
        image_size: height and width in pixels to which images and masks are resized, [H, W].
        val_share: share of the official trainval used for validation, chosen with a fixed seed, in (0, 1).
        flip: whether half of the training images are mirrored left to right.
        crop: smallest share of the area that a random crop of a training image covers, in (0, 1]; 1 turns it off.
        colour: largest change of brightness, contrast and saturation of training images, as a share in [0, 1]; 0 turns
            it off.
        mean: mean to subtract from each channel, for values in [0, 1], such as [R, G, B]. Defaults to ImageNet's for
            RGB, 0.5 for grey images, and that of 100 training images for others.
        deviation: standard deviation to divide each channel by, such as [R, G, B]. Defaults to ImageNet's for RGB, 0.25
            for grey images, and that of 100 training images for others.
        channels: channels of an image, C; 1 converts them to grey, 3 to RGB.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: number of loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to files
            without a counterpart.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        image (B, C, H, W), normalised; mask (B, H, W), 0 to 2, or 0, 1 and 255.

    Raises:
        ValueError: a value is out of range.
        UserError: the data is missing and cannot be downloaded or, with on_error stop, a file is missing.
    """

    def __init__(
        self,
        root: str = "data",
        border: Literal["class", "ignore"] = "class",
        image_size: Sequence[int] = (128, 128),
        val_share: float = 0.2,
        flip: bool = True,
        crop: float = 0.5,
        colour: float = 0.2,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        channels: int = 3,
        batch_size: int = 64,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        check_files: bool = False,
    ) -> None:
        if border not in ("class", "ignore"):
            raise ValueError(f"border: expected class or ignore, got {border}")
        names = ["pet", "background", *(["border"] if border == "class" else [])]
        classes = {1: 0, 2: 1, 3: 2 if border == "class" else 255}
        reader = ChannelReader(channels)
        transforms = MaskTransforms(image_size, flip, crop, colour, channels, mean, deviation)
        super().__init__(
            classes=classes,
            class_names=names,
            num_classes=len(names),
            reader=reader,
            transforms=transforms,
            val_share=val_share,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            check_files=check_files,
        )
        self.root = Path(root)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        folder = self.root / "oxford-iiit-pet"
        if not (folder / "annotations" / "trimaps").is_dir() or not (folder / "images").is_dir():
            expected = f"{folder.name}/images and annotations"
            download("OxfordIIITPet", self.root, folder.name, expected, target_types="segmentation")

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        folder = self.root / "oxford-iiit-pet"
        splits = []
        for name in ("trainval", "test"):
            lines = lines_of(folder / "annotations" / f"{name}.txt")
            names = [line.split()[0] for line in lines if not line.startswith("#")]
            images, masks = folder / "images", folder / "annotations" / "trimaps"
            pairs = [(images / f"{name}.jpg", masks / f"{name}.png") for name in names]
            self.leave_out("not there", [file for pair in pairs for file in pair if not file.is_file()])
            splits.append([pair for pair in pairs if all(file.is_file() for file in pair)])
        self.hold(splits[0], None, splits[1])
