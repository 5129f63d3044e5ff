"""Advice on reading a program: each rule on a program that it holds for, and on the one that follows it."""

from pathlib import Path
from typing import Any

import pytest

from torchdoctor.advice.practices import RULES, advise, lines_of, program_files

MODULE = """
class Net(nn.Module):
    def forward(self, x):
        return x.view(-1, 400)
"""
GOOD_MODULE = '''
class Net(nn.Module):
    """Flattens images (B, 1, 20, 20)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, self.size)
'''
TWICE = """
def first(x):
    total = 0
    for value in x:
        if value > 0:
            total += value
        else:
            total -= value
    total = total / 2
    total = total ** 2
    return total
"""
OPTIONS = """
parser.add_argument("--lr")
parser.add_argument("--decay-rate")
args = parser.parse_args()
"""
PAIRS = {  # by rule: what it holds for, and what follows it
    "no-seed": ("model = 1", "torch.manual_seed(0)"),
    "no-held-out-data": (
        "for x, y in DataLoader(data): step(x, y)",
        "for x, y in DataLoader(data): step(x, y)\nfor x, y in DataLoader(val_data): step(x, y)",
    ),
    "hard-coded-device": (
        'model.to("cuda")',
        'device = "cuda" if torch.cuda.is_available() else "cpu"\nmodel.to(device)',
    ),
    "whole-model-saved": (
        "optimizer = Adam(model.parameters())\ntorch.save(model, path)",
        "optimizer = Adam(model.parameters())\ntorch.save(model.state_dict(), path)",
    ),
    "optimizer-not-saved": (
        'torch.save({"epoch": epoch, "model": model.state_dict()}, path)',
        'torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)',
    ),
    "unread-option": (f"{OPTIONS}print(args.lr)", f"{OPTIONS}run(**vars(args))"),
    "bare-except": ("try:\n    load()\nexcept:\n    pass", "try:\n    load()\nexcept OSError:\n    pass"),
    "runs-code-of-files": ("data = pickle.load(file)", "data = yaml.load(file, SafeLoader)"),
    "runs-text": ("value = eval(text)", "model.eval()"),
    "undocumented-shapes": (MODULE, GOOD_MODULE),
    "untyped-forward": (MODULE, GOOD_MODULE),
    "magic-number": (MODULE, GOOD_MODULE),
    "long-function": ("def run():\n" + "    step()\n" * 81, "def run():\n" + "    step()\n" * 79),
    "duplicated-block": (TWICE + TWICE.replace("first", "second"), TWICE),
    "unused-definition": ("def unused(): pass", "def used(): pass\nused()"),
    "unreached-code": ("def run():\n    return 1\n    print(2)", "def run():\n    print(2)\n    return 1"),
}


def advice_on(folder: Path, text: str, is_script: bool = True) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    file = folder / "train.py"
    file.write_text(text)
    return {item["id"]: item for item in advise([str(file)], is_script)}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_rule(tmp_path: Path, rule: str) -> None:
    holds, follows = PAIRS[rule]
    assert rule in advice_on(tmp_path / "holds", holds)
    assert rule not in advice_on(tmp_path / "follows", follows)


def test_what_is_accepted_at_its_line(tmp_path: Path) -> None:
    text = "value = eval(text)  # doctor: ignore[runs-text] a constant of ours\nother = eval(text)"
    [place] = advice_on(tmp_path, text)["runs-text"]["places"]
    assert (place["line"], place["detail"]) == (2, "eval")


def test_a_module_is_not_asked_for_what_its_caller_does(tmp_path: Path) -> None:
    assert advice_on(tmp_path, "model = 1", is_script=False) == {}


def test_three_places_of_a_kind_are_shown(tmp_path: Path) -> None:
    advice = list(advice_on(tmp_path, "eval(a)\n" * 5, is_script=False).values())
    [(kind, text)] = lines_of(advice, lambda path: Path(path).name)
    assert (kind, text) == ("runs-text", "train.py:1 (eval), 2 (eval), 3 (eval) and 2 more: Runs a text as code.")


def test_files_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfrom nets.small import Small\nimport missing, broken")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/__init__.py").write_text("")
    (tmp_path / "nets/small.py").write_text("import helpers")
    (tmp_path / "helpers.py").write_text("")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "broken.py").write_text("def")
    files = program_files(tmp_path / "train.py")
    names = {Path(file).relative_to(tmp_path.resolve()).as_posix() for file in files}
    assert names == {"train.py", "nets/small.py", "helpers.py", "broken.py"}
    assert advise(files, is_script=True)
