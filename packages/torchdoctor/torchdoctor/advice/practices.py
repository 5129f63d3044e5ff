"""What an expert advises on reading a program: practices, security, code quality.

Nothing of this is measured, and much is a matter of judgement: it stands below the findings, a line for each kind.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from torchdoctor import source
from torchdoctor.code import name_of
from torchdoctor.findings import Place
from torchdoctor.report import is_accepted

SECTIONS = ("Practices", "Security and stability", "Code quality")

_SEEDS = ("manual_seed", "seed_everything", "set_seed", "seed", "seed_all", "enable_full_determinism")
_HELD_OUT = re.compile(r"(?<![a-z])(val|valid|validation|test|testing|eval|evaluate|dev|holdout|held_out)(?![a-z])")
_LONGEST = 80  # lines of a function
_SAME = 8  # lines that stand twice
_SMALL = 8  # a whole number below it may be written out: of dimensions, heads, halves


@dataclass(frozen=True)
class Rule:
    """One kind of advice.

    Args:
        id: what users write in `# doctor: ignore[id] reason`.
        section: of the report.
        advice: a sentence.
        look: yields the nodes it holds for, in the syntax tree of one file, each with a word on it.
        scripts: whether it holds for scripts alone: what calls a module may do it.
    """

    id: str
    section: str
    advice: str
    look: "Callable[[Sources, ast.Module], Iterable[tuple[ast.AST, str]]]"
    scripts: bool = False


class Sources:
    """The files of a program; one that is no Python counts as empty.

    Args:
        files: their paths.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.trees = {file: source.tree(file) for file in files}
        self.words = Counter(word for tree in self.trees.values() for word in _words(tree))

    @property
    def main(self) -> ast.Module | None:
        """The first of them."""
        return next(iter(self.trees.values()), None)

    def calls(self, *names: str) -> bool:
        """Whether any file calls a function whose last name is one of these."""
        return any(name_of(node) in names for tree in self.trees.values() for node in _calls(tree))


def advise(files: Sequence[str], is_script: bool) -> list[dict[str, Any]]:
    """Advice on a program, as JSON has it: id, section, text and the places, each with a word on it.

    Places at which the user accepts it by `# doctor: ignore[id] reason` are left out.

    Args:
        files: of the program, the main one first.
        is_script: whether it is a script, and not a LightningModule with its data.
    """
    sources, advice = Sources(files), []
    for rule in RULES if is_script else [rule for rule in RULES if not rule.scripts]:
        places = [
            {"file": file, "line": getattr(node, "lineno", 1), "detail": detail}
            for file, tree in sources.trees.items()
            for node, detail in rule.look(sources, tree)
        ]
        places = [place for place in places if not is_accepted(Place(place["file"], place["line"]), rule.id)]
        if places:
            places.sort(key=lambda place: (files.index(place["file"]), place["line"]))
            advice.append({"id": rule.id, "section": rule.section, "text": rule.advice, "places": places})
    return advice


def program_files(script: Path) -> list[str]:
    """A script, and the files beside it that it imports, directly or through one another."""
    files, todo = [], [script.resolve()]
    while todo:
        file = todo.pop()
        if str(file) in files or not file.is_file():
            continue
        files.append(str(file))
        for name in _imports(file):
            path = script.resolve().parent.joinpath(*name.split("."))
            todo += [path.with_suffix(".py"), path / "__init__.py"]
    return files


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(source.tree(str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _words(tree: ast.AST) -> Iterator[str]:
    """Names as they are used, and as they are defined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _modules(tree: ast.AST) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Classes of modules with their `forward`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Module") for base in node.bases):
            yield from (
                (node, item) for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"
            )


def _unseeded(sources: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    if tree is sources.main and not sources.calls(*_SEEDS):
        yield tree, ""


def _unvalidated(sources: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    words = " ".join(word.lower().replace("_", " ") for word in sources.words)
    is_measured = sources.calls("DataLoader") and "discriminator" not in words  # no scores for players and pictures
    if is_measured and tree is sources.main and not _HELD_OUT.search(words):
        yield tree, ""


def _hard_coded_device(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    if "is_available" in {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}:
        return
    for call in _calls(tree):
        values = [
            *call.args,
            *(keyword.value for keyword in call.keywords if keyword.arg in ("device", "map_location")),
        ]
        names = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda" and not call.args:
            yield call, ".cuda()"
        elif name_of(call) != "autocast":
            yield from ((call, f'"{name}"') for name in names if re.fullmatch(r"cuda(:\d+)?|mps", name))


def _whole_model_saved(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    owners = {
        ast.unparse(call.func.value)
        for call in _calls(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters")
    }
    for call in _calls(tree):
        if name_of(call) == "save" and call.args and ast.unparse(call.args[0]) in owners:
            yield call, f"{ast.unparse(call.args[0])}.state_dict()"


def _optimizer_left_out(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for call in _calls(tree):
        content = call.args[0] if name_of(call) == "save" and call.args else None
        if isinstance(content, ast.Dict):
            keys = [key.value for key in content.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            text = ast.unparse(content)
            if any(re.search("epoch|step", key) for key in keys) and "state_dict" in text and "opt" not in text:
                yield call, ""


def _bare_except(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        is_bare = isinstance(node, ast.ExceptHandler) and node.type is None
        if is_bare and not any(isinstance(item, ast.Raise) for item in ast.walk(node)):
            yield node, ""


def _unread_option(sources: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Only where the options are read one by one: passed on as a whole, any may be read elsewhere."""
    holders = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value) == "parse_args"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    if not holders or any(node.id in holders and id(node) not in inner for node in whole):
        return
    read = {node.attr for each in sources.trees.values() for node in ast.walk(each) if isinstance(node, ast.Attribute)}
    for call in _calls(tree):
        if name_of(call) == "add_argument":
            words = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            dest = [item.value for item in call.keywords if item.arg == "dest" and isinstance(item.value, ast.Constant)]
            long = [word for word in words if not re.match(r"-\w$", word)]
            name = dest[0].value if dest else (long or words or [""])[0].lstrip("-").replace("-", "_")
            if name and name not in read:
                yield call, str((long or words)[0])


def _runs_code_of_files(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for call in _calls(tree):
        name, keywords = ast.unparse(call.func), {item.arg: ast.unparse(item.value) for item in call.keywords}
        is_yaml = name == "yaml.load" and not any("Safe" in ast.unparse(item) for item in [*call.args, *call.keywords])
        if is_yaml or name in ("pickle.load", "pickle.loads", "joblib.load", "dill.load"):
            yield call, name
        elif name in ("np.load", "numpy.load") and keywords.get("allow_pickle") == "True":
            yield call, f"{name} with allow_pickle"


def _runs_text(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for call in _calls(tree):
        is_text = bool(call.args) and not isinstance(call.args[0], ast.Constant)
        shell = any(item.arg == "shell" and ast.unparse(item.value) == "True" for item in call.keywords)
        name = ast.unparse(call.func)
        if is_text and (name in ("eval", "exec", "os.system") or shell):
            yield call, name


def _undocumented_shapes(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for cls, forward in _modules(tree):
        if not ast.get_docstring(forward) and not ast.get_docstring(cls):
            yield forward, cls.name


def _untyped(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for cls, forward in _modules(tree):
        arguments = [*forward.args.posonlyargs, *forward.args.args][1:] + forward.args.kwonlyargs
        if any(item.annotation is None for item in arguments):
            yield forward, cls.name


def _magic_number(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for _cls, forward in _modules(tree):
        for node in ast.walk(forward):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _SMALL:
                yield node, str(node.value)


def _long_function(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for function in _functions(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > _LONGEST:
            yield function, f"{function.name}, {lines} lines"


def _duplicated(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Runs of statements that stand above as well, the same but for blanks and comments."""
    blocks = [value for node in ast.walk(tree) for value in vars(node).values() if _is_block(value)]
    runs: dict[str, list[list[ast.stmt]]] = {}
    for block in blocks:
        for start in range(len(block)):
            for end in range(start + 2, len(block) + 1):
                if (block[end - 1].end_lineno or 0) - block[start].lineno + 1 >= _SAME:
                    runs.setdefault("\n".join(map(ast.unparse, block[start:end])), []).append(block[start:end])
                    break
    covered = 0
    pairs = [(some[0], some[1]) for some in runs.values() if len(some) > 1]
    for first, second in sorted(pairs, key=lambda pair: pair[1][0].lineno):
        if second[0].lineno > max(covered, first[-1].end_lineno or 0):
            covered = second[-1].end_lineno or covered
            yield second[0], f"as line {first[0].lineno}"


def _is_block(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(item, ast.stmt) for item in value)


def _unused(sources: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    statements = tree.body if tree is sources.main else []
    for node in (node for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)):
        is_used = sources.words[node.name] or node.decorator_list or node.name.startswith(("test", "_", "main"))
        if not is_used:
            yield node, node.name


def _unreached(_: Sources, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for block in [value for node in ast.walk(tree) for value in vars(node).values() if _is_block(value)]:
        for before, after in pairwise(block):
            if isinstance(before, ast.Return | ast.Raise | ast.Break | ast.Continue):
                yield after, ""


RULES = (
    Rule(
        "no-seed",
        "Practices",
        "No seed is set: no result can be repeated. torch.manual_seed(0) at the start.",
        _unseeded,
        True,
    ),
    Rule(
        "no-held-out-data",
        "Practices",
        "No data is held out: nothing tells how well the model does on new data.",
        _unvalidated,
        True,
    ),
    Rule(
        "hard-coded-device",
        "Practices",
        "Runs on one kind of device alone: choose it once, by torch.accelerator or an option.",
        _hard_coded_device,
    ),
    Rule(
        "whole-model-saved",
        "Practices",
        "Saves the object with the paths of its classes: a renamed file makes it unreadable. Save the state_dict.",
        _whole_model_saved,
    ),
    Rule(
        "optimizer-not-saved",
        "Practices",
        "The checkpoint counts epochs but lacks the optimizer's state: a continued training begins with a jolt.",
        _optimizer_left_out,
    ),
    Rule("unread-option", "Practices", "The option is parsed and never read.", _unread_option, True),
    Rule(
        "bare-except",
        "Security and stability",
        "Catches every error, also Ctrl-C and a lack of memory: name the one that is expected.",
        _bare_except,
    ),
    Rule(
        "runs-code-of-files",
        "Security and stability",
        "Reading runs code of whoever wrote the file: use safetensors, JSON, NumPy's own format or yaml.safe_load.",
        _runs_code_of_files,
    ),
    Rule("runs-text", "Security and stability", "Runs a text as code.", _runs_text),
    Rule(
        "undocumented-shapes",
        "Code quality",
        "No docstring tells the shapes that forward takes and returns.",
        _undocumented_shapes,
    ),
    Rule("untyped-forward", "Code quality", "The arguments of forward have no type hints.", _untyped),
    Rule("magic-number", "Code quality", "A size is written out in forward: name it in __init__.", _magic_number),
    Rule(
        "long-function",
        "Code quality",
        f"Longer than {_LONGEST} lines: split it where its paragraphs begin.",
        _long_function,
    ),
    Rule("duplicated-block", "Code quality", "The same statements stand twice: make them a function.", _duplicated),
    Rule("unused-definition", "Code quality", "Nothing uses it: delete it.", _unused, True),
    Rule("unreached-code", "Code quality", "Never reached: the statement before leaves the block.", _unreached),
)


def lines_of(
    advice: Sequence[dict[str, Any]], shorten: Callable[[str], str], most: int = 3
) -> Iterator[tuple[str, str]]:
    """Each kind of advice with its places: "train.py:12 (400), 31 and 2 more".

    Args:
        advice: as `advise` returns it.
        shorten: a path as the report shows it.
        most: places of a kind.
    """
    for item in advice:
        shown, places = [], item["places"]
        for file, some in groupby(places[:most], key=lambda place: place["file"]):
            numbers = [f"{each['line']}{' (' + each['detail'] + ')' if each['detail'] else ''}" for each in some]
            shown.append(f"{shorten(file)}:{', '.join(numbers)}")
        rest = len(places) - most
        yield item["id"], f"{'; '.join(shown)}{f' and {rest} more' if rest > 0 else ''}: {item['text']}"
