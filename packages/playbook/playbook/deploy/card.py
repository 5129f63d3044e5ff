"""The README of an artefact: what it is, how to load it, and how it compares with the model that was trained."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from playbook.deploy.opsets import in_words
from playbook.deploy.weights import Net

MOST_NAMED = 20  # classes that are listed
SPECIAL = re.compile(r"[\\`*\[\]<>|~$&#]|(?<!\w)_|_(?!\w)")  # Markdown reads these; an underscore only at a word's edge


def write_card(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Writes README.md into an artefact.

    Args:
        folder: of the artefact.
        manifest: its content.
    """
    sections = [_head(manifest), _use(manifest), _inputs(manifest), _parity(manifest), _speed(manifest)]
    if manifest["format"] == "onnx":
        sections.append(_tensorrt(manifest))
    return _write(folder, sections)


def write_weights_card(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Writes README.md beside model.safetensors.

    Args:
        folder: of the weights.
        manifest: name, net, task, metrics, postprocessing and `weights`, the net that they are of.
    """
    return _write(folder, [_head(manifest), _weights(manifest["weights"])])


def _write(folder: Path, sections: Sequence[str]) -> Path:
    file = folder / "README.md"
    file.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return file


def _head(manifest: Mapping[str, Any]) -> str:
    quantized = "" if manifest["quantization"] == "none" else f", {manifest['quantization']}"
    lines = [
        f"# {_escaped(manifest['name'])}",
        "",
        f"{_escaped(manifest['net'])} ({_escaped(manifest['task'])}) as {manifest['format']}{quantized}.",
    ]
    if classes := (manifest.get("postprocessing") or {}).get("names"):
        more = f" and {len(classes) - MOST_NAMED} more" if len(classes) > MOST_NAMED else ""
        lines += ["", f"{len(classes)} classes: {', '.join(map(_escaped, classes[:MOST_NAMED]))}{more}."]
    if manifest["metrics"]:
        rows = [(name, f"{value:.4g}") for name, value in manifest["metrics"].items()]
        lines += ["", _table(("metric of the checkpoint", "value"), rows)]
    if manifest["format"] == "torchscript":
        lines += ["", "TorchScript is deprecated in PyTorch; prefer `torch_export` where you can."]
    return "\n".join(lines)


def _use(manifest: Mapping[str, Any]) -> str:
    needs = "ExecuTorch" if manifest["format"] == "executorch" else in_words(manifest["runtime"])
    columns, sources = "", '["FILE"]'
    if (reading := manifest.get("preprocessing") or {}).get("kind") == "table":
        sources = 'model.sources("FILE.csv")'
        names = [f"{_escaped(column['name'])} ({column['kind']})" for column in reading["columns"]]
        columns = f"""

A FILE is a .csv, .tsv or .jsonl with these columns, in any order: {", ".join(names)}.
An input of `predict` is a row, as a dict by column. None stands for a missing value; other columns are not read."""
    return f"""## Use, in this folder

`python load.py FILE` answers a file, and `python load.py` the example. It needs Python 3.11 or newer,
NumPy and {needs}, and nothing of the project that trained
the model; images also need Pillow, recordings `soundfile`, byte-pair vocabularies `tokenizers`.

```python
from runtime import Artefact

model = Artefact(".")
print(model.predict({sources}))
```{columns}"""


def _weights(net: Net) -> str:
    """How to load them: by the names of the net, also where the file has the names of the task."""
    if net.is_all:
        whose = f"Their names are those of the net, `{net.kind}`; in the task, each begins with `{net.prefix}`."
        line = "net.load_state_dict(weights)"
    elif net.prefix:
        whose = f"Their names are those of the task, which has more weights than those of its net, `{net.kind}`."
        chosen = f'for name, value in weights.items() if name.startswith("{net.prefix}")'
        line = f'net.load_state_dict({{name.removeprefix("{net.prefix}"): value {chosen}}})'
    else:
        whose = f"Their names are those of `{net.kind}`."
        line = "module.load_state_dict(weights)"
    return f"""## Use

The weights alone. {whose}
The class and configuration of the task are in the metadata of the file. In the project that trained them,
`test --ckpt_path FILE` measures them and `fit --init_from FILE` starts from them.

```python
from safetensors.torch import load_file

weights = load_file("model.safetensors")
{line}
```"""


def _inputs(manifest: Mapping[str, Any]) -> str:
    rows = [
        (kind, spec["name"], spec["dtype"], " × ".join(map(str, spec["shape"])))
        for kind in ("inputs", "outputs")
        for spec in manifest[kind]
    ]
    limits = [
        f"{name} from {low} to {'any size' if high is None else high}" for name, (low, high) in manifest["dims"].items()
    ]
    table = _table(("", "name", "type", "shape"), [(kind[:-1], *rest) for kind, *rest in rows])
    return f"## Inputs and outputs\n\n{table}\n\n{_escaped('; '.join(limits))}."


def _parity(manifest: Mapping[str, Any]) -> str:
    parity = manifest["parity"]
    lines = ["## Compared with the trained model", ""]
    if calibration := manifest.get("calibration"):
        split = {"train": "training", "val": "validation"}[calibration["split"]]
        lines += [f"Ranges of activations come from {calibration['samples']} {split} samples.", ""]
    lines.append(
        f"On {parity['samples']} validation samples, the largest difference of an output is "
        f"{parity['max_error']:.2g}, the mean {parity['mean_error']:.2g}; the largest output is {parity['scale']:.3g}."
    )
    if parity["agreement"] is not None:
        lines[-1] += f" {parity['agreement']:.2%} of the decisions agree."
    if answers := parity.get("answers"):
        lines[-1] += f" {answers['equal']} of {answers['compared']} answers to raw inputs are equal."
    sizes = [{name: size for name, size in case.items() if name != "max_error"} for case in parity["cases"]]
    rows = [
        (", ".join(f"{name} = {size}" for name, size in own.items()), f"{case['max_error']:.2g}")
        for own, case in zip(sizes, parity["cases"], strict=True)
    ]
    lines += ["", _table(("batch", "largest difference"), rows)]
    if parity["metrics"]:
        rows = [(name, f"{before:.4g}", f"{after:.4g}") for name, (before, after) in parity["metrics"].items()]
        lines += ["", _table(("on the validation set", "model", "export"), rows)]
    return "\n".join(lines)


def _speed(manifest: Mapping[str, Any]) -> str:
    size, weights = sum(file["bytes"] for file in manifest["files"].values()), manifest["eager_bytes"]
    text = f"## Size and speed\n\n{size / 2**20:.2f} MiB; the weights of the model take {weights / 2**20:.2f} MiB."
    if not manifest["speed"]:
        return text
    machine = manifest["machine"]
    rows = [
        (row["way"], str(row["batch"]), f"{row['milliseconds']:.3f}", f"{row['samples_per_second']:,.0f}")
        for row in manifest["speed"]
    ]
    table = _table(("", "batch", "ms", "samples/s"), rows)
    return f"{text}\n\nMedians on {_escaped(machine['processor'])}, {machine['threads']} threads:\n\n{table}"


def _tensorrt(manifest: Mapping[str, Any]) -> str:
    """How NVIDIA's TensorRT runs the program; not tried here."""
    shapes = []
    for option, sizes in (("min", {"B": 1}), ("opt", {"B": 8}), ("max", {"B": 32})):
        of_inputs = []
        for spec in manifest["inputs"]:
            numbers = [_size(size, option, sizes, manifest["dims"]) for size in spec["shape"]]
            of_inputs.append(f"{spec['name']}:{'x'.join(map(str, numbers))}")
        shapes.append(f"--{option}Shapes={','.join(of_inputs)}")
    return f"""## TensorRT

Where TensorRT is installed, it compiles the program for a GPU:

```sh
trtexec --onnx={manifest["file"]} --saveEngine=model.plan {" ".join(shapes)}
```

ONNX Runtime uses it by
`onnxruntime.InferenceSession("{manifest["file"]}", providers=["TensorrtExecutionProvider"])`."""


def _size(size: int | str, option: str, sizes: Mapping[str, int], dims: Mapping[str, Sequence[int | None]]) -> int:
    if isinstance(size, int):
        return size
    low, high = dims[size]
    return sizes.get(size) or (low or 1 if option == "min" else high or 128)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(text: Any) -> str:
    """A text in one line, which Markdown shows as it is."""
    return SPECIAL.sub(r"\\\g<0>", " ".join(str(text).split()))
