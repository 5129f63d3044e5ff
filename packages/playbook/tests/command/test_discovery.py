"""What is listed is what lies in the folders, found without importing it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playbook.command import discovery
from running import PROJECT, ROOT

FILES = {
    "example/nets/fresh.py": '"""A file."""\nimport not_installed_anywhere\n\n\n'
    'class Fresh(not_installed_anywhere.Net):\n    """Straight from the oven.\n\n    More.\n    """\n\n\n'
    "class Silent(Fresh):\n    pass\n\n\nclass _Private(Fresh):\n    pass\n\n\nclass Plain:\n    pass\n\n\n"
    "def build() -> None:\n    class Local(Fresh): ...\n",
    "example/nets/base.py": "class Base(dict):\n    pass\n",
    "example/nets/__init__.py": "class Package(dict):\n    pass\n",
    "example/callbacks/always.py": 'class Always(dict):\n    """Works in silence (always on)."""\n',
    "configs/vision/fresh-digits.yaml": "# Fresh on digits: python -m example fit --config x\nseed_everything: 1\n",
    "configs/audio/silent.yaml": "seed_everything: 1\n",
    "configs/debug/fresh.yaml": "# Only for looking\ntrainer: {}\n",
    "configs/trainer/bf16.yaml": "# Half\n",
    "configs/vision/notes.txt": "no recipe",
}
ASK = """
import json, sys
from dataclasses import astuple
from playbook import project
from playbook.command import discovery
project.choose("example")
found = {kind: [astuple(entry) for entry in discovery.classes(kind)] for kind in discovery.KINDS}
found["recipes"] = [astuple(entry) for entry in discovery.recipes()]
found["partials"] = [astuple(entry) for entry in discovery.partials()]
found["choices"] = [entry.name for entry in discovery.choices("callbacks")]
found["paths"] = [discovery.class_paths("Fresh"), discovery.class_paths("Nobody")]
found["torch"] = sorted({"torch", "lightning", "numpy", "rich"} & set(sys.modules))
print(json.dumps(found))
"""


def ask(folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", ASK], check=True, cwd=folder, env=environment, capture_output=True, encoding="utf-8"
    )
    return json.loads(done.stdout)


def test_new_files_are_found_and_nothing_is_imported(tmp_path: Path) -> None:
    for folder in ("example", "configs"):
        shutil.copytree(PROJECT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = ask(tmp_path)
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    after = ask(tmp_path)
    assert after["torch"] == [], "looking around imports none of them"

    def new(kind: str) -> list[list[str]]:
        return [entry for entry in after[kind] if entry not in before[kind]]

    assert new("nets") == [
        ["Fresh", "example.nets.fresh.Fresh", "Straight from the oven."],
        ["Silent", "example.nets.fresh.Silent", ""],
    ]
    assert new("callbacks") == [["Always", "example.callbacks.always.Always", "Works in silence (always on)."]]
    assert "Always" not in after["choices"], "every run has it anyway"
    assert new("recipes") == [
        ["silent", "configs/audio/silent.yaml", "seed_everything: 1"],
        ["fresh-digits", "configs/vision/fresh-digits.yaml", "Fresh on digits"],
    ]
    assert new("partials") == [
        ["fresh", "configs/debug/fresh.yaml", "Only for looking"],
        ["bf16", "configs/trainer/bf16.yaml", "Half"],
    ]
    assert after["paths"] == [["example.nets.fresh.Fresh"], []]


def test_what_is_found_can_be_imported_and_says_what_it_is() -> None:
    from importlib import import_module

    entries = [entry for kind in discovery.KINDS for entry in discovery.classes(kind)]
    assert {"Classification", "CNN", "MLP", "Digits", "Checkpoint", "WarmupCosine"} <= {entry.name for entry in entries}
    for entry in entries:
        module, _, name = entry.path.rpartition(".")
        found = getattr(import_module(module), name)
        assert entry.summary, f"{entry.path} has no docstring"
        assert entry.summary == found.__doc__.strip().splitlines()[0]


def test_base_classes_are_not_listed() -> None:
    names = {entry.name for kind in discovery.KINDS for entry in discovery.classes(kind)}
    assert not names & {"Task", "Data"}
