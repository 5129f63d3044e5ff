"""Made-up pictures of coloured shapes with captions, in each layout."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 210)}
SHAPES = ("square", "disc")
NUM_EACH = 4


def picture(colour: str, shape: str, number: int) -> Image.Image:
    """A shape somewhere on a light ground, 30 × 24 pixels."""
    rng = np.random.default_rng([number, *shape.encode(), *colour.encode()])
    y, x = np.mgrid[:24, :30]
    centre_y, centre_x, radius = rng.integers(8, 16), rng.integers(8, 22), rng.integers(5, 8)
    dy, dx = abs(y - centre_y), abs(x - centre_x)
    inside = np.maximum(dy, dx) <= radius if shape == "square" else dy**2 + dx**2 <= radius**2
    values = np.full((24, 30, 3), 240.0)
    values[inside] = COLOURS[colour]
    return Image.fromarray((values + rng.normal(0, 8, values.shape)).clip(0, 255).astype(np.uint8))


def samples() -> list[tuple[str, Image.Image, str]]:
    """Name, picture and caption of 24 pairs; 4 pictures each have an equal caption."""
    kinds = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    return [
        (f"{colour}-{shape}-{number}", picture(colour, shape, number), f"a {colour} {shape}")
        for number in range(NUM_EACH)
        for colour, shape in kinds
    ]


def write_folder(root: Path) -> Path:
    """Pictures with a .txt beside each."""
    root.mkdir(parents=True)
    for name, image, caption in samples():
        image.save(root / f"{name}.png")
        (root / f"{name}.txt").write_text(f"{caption}\n")
    return root


def write_table(root: Path) -> Path:
    """captions.csv beside the pictures, with two captions of each."""
    (root / "images").mkdir(parents=True)
    lines = ["image,caption"]
    for name, image, caption in samples():
        image.save(root / "images" / f"{name}.png")
        lines += [f"{name}.png,{caption}", f'{name}.png,"{caption}, on white"']
    (root / "captions.csv").write_text("\n".join(lines) + "\n")
    return root


def write_coco(root: Path) -> Path:
    """COCO's captions of train2017 and val2017, two of each picture."""
    (root / "annotations").mkdir(parents=True)
    for split, part in {"train2017": samples()[:18], "val2017": samples()[18:]}.items():
        (root / split).mkdir()
        images, annotations = [], []
        for number, (_, image, caption) in enumerate(part):
            image.save(root / split / f"{number:012d}.jpg")
            images.append({"id": number, "file_name": f"{number:012d}.jpg", "width": 30, "height": 24})
            for text in (caption, f"{caption} on white\n"):
                annotations.append({"id": len(annotations), "image_id": number, "caption": text})
        content = {"images": images, "annotations": annotations}
        (root / "annotations" / f"captions_{split}.json").write_text(json.dumps(content))
    return root


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Adds a file to a tar file."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def encoded(image: Image.Image, form: str = "PNG") -> bytes:
    """The bytes of a picture's file."""
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def write_shards(root: Path) -> Path:
    """Three tar files, one with captions in .json."""
    root.mkdir(parents=True)
    for shard in range(3):
        with tarfile.open(root / f"{shard:03d}.tar", "w") as archive:
            for name, image, caption in samples()[8 * shard : 8 * shard + 8]:
                add(archive, f"{name}.png", encoded(image))
                if shard == 2:
                    add(archive, f"{name}.json", json.dumps({"caption": caption}).encode())
                else:
                    add(archive, f"{name}.txt", caption.encode())
    return root


def write(folder: Path) -> None:
    """No recipe trains on pairs from files."""
