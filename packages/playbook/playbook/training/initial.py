"""Initial weights of a training: loads those of a file that fit the model, and reports why others do not."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from playbook.checkpoints.io import load, weights_of
from playbook.errors import UserError, nearest
from playbook.facts import unpack
from playbook.training.class_rows import match_rows

MOST_LINES = 6  # for each reason
HOLDERS = ("model_state_dict", "model", "net")  # keys under which training scripts save a state dict
WRAPPERS = ("module", "model", "net", "network", "backbone", "body", "encoder")  # modules that only hold another
INSERTED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # by torch.compile and the like


@dataclass
class Comparison:
    """The weights of a file compared with those of a model.

    Args:
        weights: weights of the file, by their names in the model.
        model: state dict of the model.
        sources: the name of each weight in the file.
    """

    weights: Mapping[str, Tensor]
    model: Mapping[str, Tensor]
    sources: Mapping[str, str]

    @property
    def fitting(self) -> dict[str, Tensor]:
        """Weights with the right name and shape."""
        return {
            name: value
            for name, value in self.weights.items()
            if name in self.model and value.shape == self.model[name].shape
        }

    @property
    def mismatched(self) -> list[str]:
        """Names of weights whose shapes differ, with both shapes."""
        return [
            f"{name} {tuple(self.weights[name].shape)} in the file, {tuple(value.shape)} in the model"
            for name, value in self.model.items()
            if name in self.weights and self.weights[name].shape != value.shape
        ]

    @property
    def missing(self) -> list[str]:
        """Names of weights that only the model has."""
        return [name for name in self.model if name not in self.weights]

    @property
    def unknown(self) -> list[str]:
        """Names of weights that only the file has."""
        return [self.sources[name] for name in self.weights if name not in self.model]


def load_weights(model: pl.LightningModule, path: Path, facts: Mapping[str, Any] | None = None) -> None:
    """Copies the weights that match by name and shape, and prints which do not, and why.

    Prefixes of wrappers, such as `module.`, `model.`, `backbone.` and `_orig_mod.`, may differ between the file and the
    model: for example, `conv1.weight` of a bare net becomes `net.conv1.weight`.

    Args:
        model: model to load the weights into.
        path: a Lightning checkpoint, or a file with only weights, by torch.save or safetensors.
        facts: of the data to train on; if both have class names, the classes are matched by name.

    Raises:
        UserError: no weight fits.
    """
    own = model.state_dict()
    content = load(path)
    weights = _stored(content, path)
    known = (unpack(content, path.as_posix()) or {}).get("classes")
    names, renaming = _matched_names(weights, own)
    renamed = {names[name]: value for name, value in weights.items()}
    classes = (facts or {}).get("classes")
    matching = match_rows(renamed, own, known, classes) if known and classes else ""
    comparison = Comparison(renamed, own, {names[name]: name for name in weights})
    fitting = comparison.fitting
    if not fitting:
        raise UserError(f"--init_from {path.as_posix()}: no weight fits this model: {_why_none(comparison)}")
    model.load_state_dict(fitting, strict=False)
    lines = [f"init_from {path.as_posix()}: {len(fitting)} of {len(own)} entries loaded{renaming}"]
    lines += [f"  {matching}"] if matching else []
    lines += _section("with a different shape, left at their initialisation", comparison.mismatched)
    missing = comparison.missing
    lines += _section("missing in the file, left at their initialisation", summarised(missing, own), len(missing))
    unknown = comparison.unknown
    lines += _section("not in this model, skipped", summarised(unknown, weights), len(unknown))
    print("\n".join(lines), flush=True)


def _stored(content: dict[str, Any], path: Path) -> dict[str, Tensor]:
    """The state dict in a file, also if a training script has saved it together with other things."""
    inner = next((content[key] for key in HOLDERS if isinstance(content.get(key), Mapping)), None)
    return weights_of(content if inner is None or "state_dict" in content else {"state_dict": inner}, path)


def _matched_names(weights: Collection[str], own: Collection[str]) -> tuple[dict[str, str], str]:
    """The model's name for each of a file's names, and a description of the changes.

    Of all ways to replace a prefix of wrappers in the file by one in the model, this uses the one that gives most names
    of the model, and among these the one that changes least.
    """
    plain = {name: ".".join(part for part in name.split(".") if part not in INSERTED) for name in weights}
    choices = [("", ""), *((old, new) for old in _prefixes(plain.values()) for new in _prefixes(own))]
    old, new = max(
        choices,
        key=lambda choice: (
            sum(_exchanged(name, *choice) in own for name in plain.values()),
            choice[0] == choice[1],
            -len(choice[0]) - len(choice[1]),
        ),
    )
    names = {name: _exchanged(stripped, old, new) for name, stripped in plain.items()}
    if len(set(names.values())) < len(names):  # two of the file's would become one
        return {name: name for name in weights}, ""
    inserted = [word for word in INSERTED if any(word in name.split(".") for name in weights)]
    changes = [f"{word}. left out" for word in inserted]
    if old != new:
        changes.append(
            f"{old} left out" if not new else f"{new} put before names" if not old else f"{old} read as {new}"
        )
    return names, f" ({', '.join(changes)})" if changes else ""


def _prefixes(names: Iterable[str]) -> list[str]:
    """Every prefix of a name that consists only of wrappers, and the empty prefix."""
    prefixes = {"": None}
    for name in names:
        prefix = ""
        for part in name.split(".")[:-1]:
            if part not in WRAPPERS:
                break
            prefix += f"{part}."
            prefixes[prefix] = None
    return list(prefixes)


def _exchanged(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name.startswith(old) else name


def summarised(names: Collection[str], every: Iterable[str]) -> list[str]:
    """«net.head.* (2)» for each module all of whose names are included, and the other names one by one.

    Args:
        names: names to summarise.
        every: all names of the model or file.
    """
    chosen, complete = set(names), dict[str, int]()
    for name in every:
        parts = name.split(".")
        for end in range(1, len(parts)):
            prefix = ".".join(parts[:end])
            complete[prefix] = -1 if name not in chosen or complete.get(prefix) == -1 else complete.get(prefix, 0) + 1
    lines = {}
    for name in names:
        parts = name.split(".")
        prefixes = (".".join(parts[:end]) for end in range(1, len(parts)))
        prefix = next((prefix for prefix in prefixes if complete.get(prefix, -1) > 1), None)
        lines[f"{prefix}.* ({complete[prefix]})" if prefix is not None else name] = None
    return list(lines)


def _section(reason: str, lines: list[str], count: int | None = None) -> list[str]:
    """A heading and the first lines; nothing if there are none."""
    rest = len(lines) - MOST_LINES
    shown = lines[:MOST_LINES] if rest > 1 else lines  # one more would take the line that counts it
    more = [f"    and {rest} more"] if rest > 1 else []
    heading = f"  {len(lines) if count is None else count} {reason}:"
    return [heading, *(f"    {line}" for line in shown), *more] if lines else []


def _why_none(comparison: Comparison) -> str:
    """One line with the first different shape, or with names of both sides and the nearest."""
    if mismatched := comparison.mismatched:
        return f"{mismatched[0]}{f', and {len(mismatched) - 1} more like it' if len(mismatched) > 1 else ''}"
    sides = {"the file": comparison.unknown, "the model": comparison.missing}
    text = "; ".join(
        f"{side} has {', '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''}"
        for side, names in sides.items()
    )
    return text + nearest(comparison.unknown[0], comparison.missing)
