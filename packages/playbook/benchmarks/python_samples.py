"""How much of what a language model of Python source writes parses, and its bits per byte beside those of xz.

    uv run --extra text python packages/playbook/benchmarks/python_samples.py RUN [SEEDS]

RUN is one of configs/language/gpt-python.yaml. Each prompt is continued once a seed, by `predict`. A sample is cut into
top-level statements; the last has no end and is left out. xz compresses the validation files as one stream,
alone and behind the training files.
"""

import ast
import json
import lzma
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[3]  # of the template, whose recipes are measured
sys.path.insert(0, str(ROOT))
PROMPTS = [
    '"""',
    "import ",
    "from ",
    "def main():\n",
    "def read(path):\n",
    "def _test(",
    "class Error(",
    "class Reader:\n    def __init__(self, ",
    "if __name__ == ",
    "try:\n    import ",
]


def statements(text: str) -> list[str]:
    """Top-level statements of a text: lines that begin at the margin, each with the lines below that do not."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        starts = line[:1].strip() and not line.startswith((")", "]", "}", "else", "elif", "except", "finally", "#"))
        if starts and not (found and is_open(found[-1])):
            found.append(line)
        elif found:
            found[-1] += line
        else:
            found = [line]
    return found


def is_open(text: str) -> bool:
    """Whether a string in three quotes, a decorator or a bracket goes on behind a text."""
    quotes = any(text.count(mark) % 2 for mark in ('"""', "'''"))
    return quotes or text.rstrip().rpartition("\n")[2].startswith("@")


def parses(text: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)
    except SyntaxError:
        return False
    return True


def samples(run: str, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "prompts.jsonl")
        rows.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS), encoding="utf-8")
        command = ["predict", "--ckpt_path", run, "--input", rows, "--format", "jsonl", "--output", Path(folder, "out")]
        options = ["--seed_everything", seed, "--model.temperature", 0.7]
        subprocess.run([sys.executable, "-m", "src", *map(str, command + options)], cwd=ROOT, check=True)
        [table] = Path(folder, "out").rglob("predictions.jsonl")
        return [row["prompt"] + row["text"] for row in map(json.loads, table.read_text(encoding="utf-8").splitlines())]


def compressed() -> tuple[float, float]:
    """Bits per byte of the validation files by xz -9e: alone, and behind the training files."""
    from src.data.language.text import Text

    data = Text(vocabulary="bytes")
    parts: dict[str, bytes] = {"train": b"", "val": b""}
    for file, part in data._splits(data._files()):
        parts[str(part)] += file.read_bytes()
    size = {part: len(compress(text)) for part, text in parts.items()}
    both = len(compress(parts["train"] + parts["val"]))
    return tuple(8 * count / len(parts["val"]) for count in (size["val"], both - size["train"]))  # type: ignore[return-value]


def compress(text: bytes) -> bytes:
    return lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)


def main(run: str, num_seeds: int) -> None:
    texts = [text for seed in range(num_seeds) for text in samples(run, seed)]
    parse = [parses(statement) for text in texts for statement in statements(text)[:-1]]
    alone, behind = compressed()
    print(f"xz -9e: {alone:.3f} bits per byte of the validation files, {behind:.3f} behind the training files")
    print(f"{sum(parse)} of {len(parse)} complete statements parse, of {len(texts)} samples")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
