"""What the documents take for granted: somebody's images, texts, model and code."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

CODE = """
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset


class MyModule(LightningModule):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.layer = torch.nn.Linear(dim, 2)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        inputs, target = batch
        return torch.nn.functional.cross_entropy(self(inputs), target)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class MyData(LightningDataModule):
    def train_dataloader(self):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(256, 16, generator=generator)
        return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=32, shuffle=True)
"""
SCRIPT = """
import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
epochs = parser.parse_args().epochs
torch.manual_seed(0)
inputs = torch.randn(256, 16)
loader = DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(epochs):
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
"""
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}<end>{% endfor %}"


def write(folder: Path) -> None:
    """Writes all of it, a few samples each."""
    draw = np.random.default_rng(0)
    (folder / "my_file.py").write_text(CODE)
    (folder / "train.py").write_text(SCRIPT)
    own = folder / "my"
    own.mkdir()
    (folder / "photos").mkdir()
    for i in range(3):
        _image(draw, 40 * i).save(folder / "photos" / f"{i}.png")
    _image(draw, 0).convert("L").resize((8, 8)).save(own / "digit.png")
    for split, number in (("train", 12), ("test", 4)):
        for label, shade in (("cats", 40), ("dogs", 160)):
            for parent in (own / "images", own / "multispectral"):
                (parent / split / label).mkdir(parents=True)
            for i in range(number):
                _image(draw, shade).save(own / "images" / split / label / f"{i}.png")
                _tiff(draw, own / "multispectral" / split / label / f"{i}.tif")
    lines = ["First Citizen:", "Before we proceed any further, hear me speak.", ""]
    (own / "text.txt").write_text("\n".join(lines * 300))
    rows = [f"{'a fine' if i % 2 else 'no'} film number {i},{'good' if i % 2 else 'bad'}" for i in range(120)]
    (own / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (own / "penguins.csv").write_text("\n".join(_penguins(draw)) + "\n")
    (own / "pairs").mkdir()
    for i in range(40):
        _image(draw, 160 * (i % 2)).save(own / "pairs" / f"{i}.jpg")
        (own / "pairs" / f"{i}.txt").write_text(f"a {('daisy', 'rose')[i % 2]} in the garden, seen {i} times\n")
    months = [f"{1990 + month // 12}-{month % 12 + 1:02}-01" for month in range(144)]
    values = [100 + month + 30 * np.sin(month * np.pi / 6) + draw.normal(0, 3) for month in range(144)]
    rows = [f"{month},{value:.1f}" for month, value in zip(months, values, strict=True)]
    (own / "passengers.csv").write_text("\n".join(["Month,Passengers", *rows]) + "\n")
    _recordings(draw, own / "recordings")
    _graphs(draw, own)
    turns = [{"prompt": f"what is the hello {i % 5}", "completion": f"hello world {i % 5}"} for i in range(60)]
    (own / "chat.jsonl").write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    _model(own / "model")


def _recordings(draw: np.random.Generator, folder: Path) -> None:
    import soundfile

    for label, frequency in (("bird", 900), ("rain", 300)):
        (folder / label).mkdir(parents=True)
        for number in range(20):
            time = np.arange(draw.integers(3000, 6000)) / 8000
            tone = 0.2 * np.sin(2 * np.pi * frequency * time) + draw.normal(0, 0.02, len(time))
            soundfile.write(folder / label / f"{number}.wav", tone, 8000)
    long = 0.2 * np.sin(2 * np.pi * 900 * np.arange(40_000) / 8000)
    soundfile.write(folder.parent / "walk.flac", long, 8000)


def _penguins(draw: np.random.Generator) -> Iterator[str]:
    yield "species,island,bill_length,body_mass,seen"
    for number in range(120):
        species = number % 3
        names = f"{('Adelie', 'Chinstrap', 'Gentoo')[species]},{('Biscoe', 'Dream')[draw.integers(2)]}"
        length, mass = draw.normal(38 + 5 * species, 2), draw.normal(3700 + 500 * species, 200)
        yield f"{names},{length:.1f},{mass:.0f},2024-0{1 + number % 9}-12"


def _graphs(draw: np.random.Generator, own: Path) -> None:
    """A network of people with new ones, and molecules."""
    for name in ("network", "newcomers", "molecules"):
        (own / name).mkdir()
    people = [f"p{i},{draw.normal(30 + 10 * (i % 2), 4):.0f},{('red', 'blue')[i % 2]}" for i in range(60)]
    edges = [f"p{i},p{(i + 2 * draw.integers(1, 5)) % 60}" for i in range(60) for _ in range(2)]
    (own / "network/nodes.csv").write_text("\n".join(["node,age,label", *people]) + "\n")
    (own / "network/edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    (own / "pairs.csv").write_text("source,target\np1,p5\np1,p6\n")
    (own / "newcomers/nodes.csv").write_text("node,age\nq1,33\nq2,44\n")
    (own / "newcomers/edges.csv").write_text("source,target\nq1,p1\nq1,p3\nq2,q1\n")
    sizes = [int(draw.integers(3, 7)) for _ in range(40)]
    atoms = [f"m{g},{i},{'CNO'[draw.integers(3)]}" for g, size in enumerate(sizes) for i in range(size)]
    bonds = [f"m{g},{i},{(i + 1) % size}" for g, size in enumerate(sizes) for i in range(size - 1 + g % 2)]
    labels = [f"m{g},{('chain', 'ring')[g % 2]}" for g in range(len(sizes))]
    (own / "molecules/nodes.csv").write_text("\n".join(["graph,node,atom", *atoms]) + "\n")
    (own / "molecules/edges.csv").write_text("\n".join(["graph,source,target", *bonds]) + "\n")
    (own / "molecules/graphs.csv").write_text("\n".join(["graph,label", *labels]) + "\n")


def _image(draw: np.random.Generator, shade: int) -> Image.Image:
    return Image.fromarray((draw.integers(0, 80, (64, 64, 3)) + shade).astype(np.uint8))


def _tiff(draw: np.random.Generator, path: Path) -> None:
    import tifffile

    tifffile.imwrite(path, draw.integers(0, 255, (32, 32, 5), dtype=np.uint8), planarconfig="contig")


def _model(folder: Path) -> None:
    """A language model of Hugging Face with its tokenizer."""
    from tests.nets.language.test_huggingface import save_model, save_tokenizer

    size = save_tokenizer(folder, TEMPLATE)
    save_model("Llama", folder, vocab_size=size, num_key_value_heads=2, max_position_embeddings=256)
