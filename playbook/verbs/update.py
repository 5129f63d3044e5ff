"""update: brings a newer machine into a project, and keeps the project's own edits."""

import re
import tempfile
import tomllib
from collections.abc import Sized
from dataclasses import dataclass, fields
from pathlib import Path

from playbook import project
from playbook.command.verb import PlainVerb
from playbook.errors import UserError, nearest
from playbook.update import changelog, requirements
from playbook.update.checkout import Checkout
from playbook.update.git import printable
from playbook.update.machine import PLAYBOOK, TESTS, Machine, history, origin
from playbook.update.source import Conflict, Source, without_secrets

USAGE = "update [--from URL_OR_PATH] [--to REF] [--on_conflict stop|branch] [--dry_run]"
HELP = f"""{{command}} {USAGE}

Replaces {PLAYBOOK}/ and {TESTS}/ with those of another version and commits the change. No other file is changed.

If you never edited these folders, the commit is made on the current branch. If you did, your edits are merged with the
new version on a separate branch for you to review and merge; the current branch and your files are not changed.
If your edits conflict with the new version, nothing is changed, and the conflicts are listed.

--from URL_OR_PATH    git repository of the template. Defaults to `source` in the table [tool.playbook] of
                      pyproject.toml.
--to REF              tag, branch or commit. Defaults to the newest release, or to the default branch without releases.
--on_conflict branch  on conflicts, write a branch for `git cherry-pick`, which adds git's conflict markers.
                      Defaults to stop.
--dry_run             only print what would happen."""
CHOICES = ("stop", "branch")  # of --on_conflict
# files outside the machine's folders that its tests or its continuous integration use
NEIGHBOURS = (
    ".ci/run",
    ".github/workflows/ci.yml",
    ".pre-commit-config.yaml",
    "pyproject.toml",
    "src/__main__.py",
    "tests/conftest.py",
)


@dataclass
class Options:
    """Options of the command, by their names."""

    source: str = ""
    to: str | None = None
    on_conflict: str = CHOICES[0]
    dry_run: bool = False


@dataclass(frozen=True)
class Step:
    """From which machine to which.

    Args:
        base: version that the project's machine was made from.
        target: version to take.
        name: of the target, as the source calls it.
        edits: what the project changed in the base.
        label: of the target, as branch and commit call it.
    """

    base: Machine
    target: Machine
    name: str
    edits: list[str]
    label: str


def _read(args: list[str], command: str) -> Options:
    options = Options()
    flags = {"--from": "source", "--to": "to", "--on_conflict": "on_conflict", "--dry_run": "dry_run"}
    assert set(flags.values()) == {field.name for field in fields(Options)}
    waiting = list(args)
    while waiting:
        flag, equals, value = waiting.pop(0).partition("=")
        name = flags.get(flag.replace("-", "_").replace("__", "--", 1))
        if name is None:
            raise UserError(f"update: {flag}: no such option, expected {command} {USAGE}{nearest(flag, flags)}")
        if name == "dry_run":
            if equals:
                raise UserError(f"update {flag}: expected no value, got {value}")
            options.dry_run = True
            continue
        value = value if equals else waiting.pop(0) if waiting else ""
        if not value:
            raise UserError(f"update {flag}: expected a value, got none")
        setattr(options, name, value)
    if options.on_conflict not in CHOICES:
        raise UserError(
            f"update --on_conflict {options.on_conflict}: expected one of {', '.join(CHOICES)}"
            f"{nearest(options.on_conflict, CHOICES)}"
        )
    return options


def _configured_source(root: Path) -> str:
    """What `pyproject.toml` names; a relative path starts at the project."""
    try:
        content = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = {}
    source = content.get("tool", {}).get("playbook", {}).get("source", "")
    if not source:
        raise UserError(
            'update: expected --from URL_OR_PATH, or in pyproject.toml: [tool.playbook] source = "URL_OR_PATH"'
        )
    return str(root / source) if (root / source).exists() else source


def _plan(source: Source, own: Checkout, options: Options) -> Step | None:
    """What to do; None, and a line that says so, if there is nothing."""
    target, name = source.target(options.to)
    has_tests = bool(own.machine.tests)
    target = target if has_tests else target.without_tests()
    base = origin(source.git, own.machine, history(source.git, "--all", "HEAD", tests=has_tests))
    if base is None:
        raise UserError(
            f"update --from {source.name}: has no version similar to {PLAYBOOK}/ here; expected the template from"
            " which this project was made"
        )
    edits = source.edits(base, own.machine)
    files = f", with edits of {_files(edits)}" if edits else ""
    if target.trees in (base.trees, own.machine.trees):
        print(f"{PLAYBOOK}/ is already version {base.version}{files}: nothing to do")
        return None
    if options.to is None and source.precedes(target, base):
        print(f"{PLAYBOOK}/ is newer than {name}, the newest release{files}: nothing to do. To go back: --to {name}")
        return None
    is_release = name.removeprefix("v") == target.version
    label = target.version if is_release else f"{target.version}-{target.commit[:7]}"
    return Step(base, target, name, edits, printable(label))


def _report(source: Source, own: Checkout, update: Step) -> list[str]:
    """Paragraphs about what changes."""
    base, target = update.base, update.target
    backwards = source.precedes(target, base)
    direction = " (back to an older version)" if backwards else ""
    paragraphs = [f"{PLAYBOOK} {base.version} → {target.version}{direction}: {update.name} of {source.name}"]
    former, later, needs = source.git.texts(
        f"{base.commit}:CHANGELOG.md", f"{target.commit}:CHANGELOG.md", f"{target.commit}:pyproject.toml"
    )
    if backwards:
        if news := changelog.between(later, former, target.version):
            paragraphs.append(f"What you lose:\n\n{news}")
    elif news := changelog.between(former, later, base.version):
        paragraphs.append(news)
    if needed := requirements.differences(needs, *own.texts("pyproject.toml")):
        width = max(len(line) for line, _ in needed)
        lines = [f"  {line:<{width}}  {f'yours: {other}' if other else 'missing'}" for line, other in needed]
        paragraphs.append("\n".join(["pyproject.toml stays yours; the new version asks for:", *lines]))
    if neighbours := _changed_neighbours(source, own, update):
        paragraphs.append(f"Changed there as well, and left as they are here: {', '.join(neighbours)}")
    if not own.machine.tests:
        paragraphs.append(f"This project has no {TESTS}/; it stays without.")
    if update.edits:
        paragraphs.append(
            "\n".join([f"Your edits of version {base.version}:", *(f"  {edit}" for edit in update.edits)])
        )
    return [printable(paragraph) for paragraph in paragraphs]


def _changed_neighbours(source: Source, own: Checkout, update: Step) -> list[str]:
    """Neighbours that the source changed, and that the project has otherwise."""
    before, after = (
        source.git.texts(*(f"{machine.commit}:{path}" for path in NEIGHBOURS))
        for machine in (update.base, update.target)
    )
    package = project.current().package or "src"
    mine = own.texts(*(path.replace("src/", f"{package}/", 1) for path in NEIGHBOURS))
    rows = zip(NEIGHBOURS, before, after, mine, strict=True)
    return [path for path, old, new, present in rows if old != new and present not in ("", new)]


def _replace(source: Source, own: Checkout, update: Step, options: Options) -> None:
    """The machine was never edited: the new one takes its place on the current branch."""
    if not own.branch:
        raise UserError(
            "update: HEAD is detached, so the commit would belong to no branch; git switch to a branch first"
        )
    if options.dry_run:
        print(f"Dry run, nothing was changed. The update would be committed on {own.branch}.")
        return
    own.take(source.git.folder, source.offer(update.target))
    commit = own.commit(update.target, _message(source, update), own.head)
    own.advance(commit)
    print(f"Committed on {own.branch}: {commit[:10]}. To undo: git revert {commit[:10]}")


def _merge(source: Source, own: Checkout, update: Step, options: Options) -> None:
    """The machine was edited: the merge goes to a branch of its own."""
    branch = f"update-{update.label}"
    if own.has_branch(branch):
        raise UserError(f"update: branch {branch} already exists; merge or delete it first; nothing was changed")
    merged, conflicts = source.merge(update.base, own.machine, update.target)
    if conflicts:
        _stop_or_leave_to_git(source, own, update, options, branch, conflicts)
        return
    if options.dry_run:
        print(f"Dry run, nothing was changed. The merge has no conflicts and would be committed on branch {branch}.")
        return
    own.take(source.git.folder, source.offer(merged))
    own.create_branch(branch, own.commit(merged, _message(source, update), own.head))
    print(f"Merged without conflicts on branch {branch}; the current branch is unchanged.")
    print(f"To review: git diff HEAD {branch}. To take it: git merge {branch}")


def _stop_or_leave_to_git(
    source: Source, own: Checkout, update: Step, options: Options, branch: str, conflicts: list[Conflict]
) -> None:
    """Names the conflicts; with `--on_conflict branch`, writes both versions as commits that git can merge."""
    print(
        "\n".join(
            ["Both you and the new version changed:", *(f"  {printable(str(conflict))}" for conflict in conflicts)]
        )
    )
    print()
    if options.on_conflict == "stop" or options.dry_run:
        hint = "" if options.on_conflict == "branch" else "; use --on_conflict branch to resolve them with git"
        raise UserError(f"update: conflicts in {_files(conflicts)}; nothing was changed{hint}")
    own.take(source.git.folder, source.offer(update.base, update.target))
    former = own.commit(update.base, f"Restore {PLAYBOOK} {update.base.version} without edits", own.head)
    own.create_branch(branch, own.commit(update.target, _message(source, update), former))
    print(f"Branch {branch} has the new version without your edits; the current branch is unchanged.")
    print(f"To merge: git cherry-pick {branch}, resolve the conflicts, git cherry-pick --continue")


def _files(entries: Sized) -> str:
    """How many there are."""
    return f"{len(entries)} file{'s' if len(entries) > 1 else ''}"


def _message(source: Source, update: Step) -> str:
    """Of the commit."""
    words = f"{update.name} ({update.target.commit[:10]}) of {without_secrets(source.name)}"
    return re.sub(
        r"[^\S\n]+", " ", f"Update {PLAYBOOK} to {update.label}\n\nFrom version {update.base.version} to {words}.\n"
    )


class Update(PlainVerb):
    """Replaces the machine by another version, or says why not and leaves everything as it was."""

    name = "update"
    summary = "Replace playbook/ with a newer version, and keep the project's own edits."
    examples = ("--from URL_OR_PATH", "--from URL_OR_PATH --to v0.2.0 --dry_run")

    def answer(self, args: list[str]) -> int:
        """Updates, or prints what an update would do."""
        command = project.current().command
        if {"-h", "--help"} & set(args):
            print(HELP.format(command=command))
            return 0
        options = _read(args, command)
        root = project.current().root
        options.source = options.source or _configured_source(root)
        own = Checkout(root)
        with tempfile.TemporaryDirectory(prefix="playbook-update-", ignore_cleanup_errors=True) as folder:
            source = Source(options.source, Path(folder), own.objects)
            update = _plan(source, own, options)
            if update is None:
                return 0
            print("\n\n".join(_report(source, own, update)), end="\n\n")
            if update.edits:
                _merge(source, own, update, options)
            else:
                _replace(source, own, update, options)
        return 0


VERB = Update()
ORDER = 22
