"""Where a newer machine comes from: a copy of the source in a temporary folder, and the merge that happens there."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from playbook.errors import UserError, nearest
from playbook.update.git import MERGING_SINCE, Git, last_words, printable
from playbook.update.machine import PLAYBOOK, TESTS, Machine, machines

RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")  # of tags; those of release candidates are passed over
AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {"NAME": "playbook", "EMAIL": "playbook@localhost", "DATE": "2000-01-01T00:00:00Z"}.items()
}
TAKEN = "refs/playbook/taken"  # what the project takes from here


@dataclass(frozen=True)
class Conflict:
    """A file that was changed in the project and in the source.

    Args:
        path: of the file.
        lines: of the project's file, where the changes meet; empty if the file as a whole is concerned.
    """

    path: str
    lines: tuple[int, ...]

    def __str__(self) -> str:
        places = f":{','.join(map(str, self.lines))}" if self.lines else ""
        return f"{self.path}{places}"


class Source:
    """A copy of the source, which can also read the project's objects; the project's repository is not written to.

    Args:
        place: URL, or path of a repository or bundle.
        folder: where the copy is made; it exists and is empty.
        objects: folder of the project's objects.

    Raises:
        UserError: if there is nothing to copy.
    """

    def __init__(self, place: str, folder: Path, objects: Path) -> None:
        self.name = without_secrets(place)
        self.git = Git(folder, AUTHOR)
        self._made_trees: dict[tuple[str, str], str] = {}
        path = Path(place).expanduser()
        is_remote = "://" in place or (":" in place and not path.exists())
        if place.startswith("-") or not (is_remote or path.exists()):
            raise UserError(f"update --from {self.name}: expected a URL or a folder; there is no such folder")
        if path.is_dir() and not ((path / ".git").exists() or (path / "objects").is_dir()):
            raise UserError(
                f"update --from {self.name}: expected a git repository; without history, your edits cannot be told from"
                " its changes"
            )
        self._clone(place if is_remote else str(path.absolute()))
        (folder / "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info/attributes").write_text("* text=auto\n")  # lets a merge see that only line endings differ

    def _clone(self, place: str) -> None:
        # --no-local: objects are checked and copied, as from any other host
        code, _, messages = self.git.run("clone", "--quiet", "--bare", "--no-local", "--template=", "--", place, ".")
        if code:
            raise UserError(f"update --from {self.name}: {without_secrets(last_words(messages))}")
        if not self.git.find("HEAD")[0] and not self.tags:
            raise UserError(f"update --from {self.name}: expected a repository with commits, this one is empty")

    @property
    def tags(self) -> list[str]:
        """Tags, as they are called in `--to`."""
        return [
            ref.removeprefix("refs/tags/") for ref in self.git.lines("for-each-ref", "--format=%(refname)", "refs/tags")
        ]

    def target(self, ref: str | None) -> tuple[Machine, str]:
        """The machine to take, and what the source calls it.

        Args:
            ref: tag, branch or commit; None for the newest release, or the default branch where there is none.

        Raises:
            UserError: if there is no such machine.
        """
        if ref is None:
            return self._newest()
        names = [] if ref.startswith("-") else [f"refs/tags/{ref}", f"refs/tags/v{ref}", f"refs/heads/{ref}", ref]
        commits = self.git.find(*(f"{name}^{{commit}}" for name in names))
        chosen = next(((name, commit) for name, commit in zip(names, commits, strict=True) if commit), None)
        if chosen is None:
            heads = self.git.lines("for-each-ref", "--format=%(refname)", "refs/heads")
            choices = [*self.tags, *(head.removeprefix("refs/heads/") for head in heads)]
            raise UserError(
                f"update --to {ref}: expected a tag, a branch or a commit of {self.name}{nearest(ref, choices)}"
            )
        name, commit = chosen
        machine = machines(self.git, [commit])[0]
        if not machine.playbook:
            raise UserError(f"update --to {ref}: has no {PLAYBOOK}/; expected a version with this folder")
        return machine, re.sub(r"^refs/(tags|heads)/", "", name)

    def _newest(self) -> tuple[Machine, str]:
        releases = [(match[1], tag) for tag in self.tags if (match := RELEASE.fullmatch(tag))]
        releases.sort(key=lambda release: tuple(map(int, release[0].split("."))), reverse=True)
        tagged = self.git.find(*(f"refs/tags/{tag}^{{commit}}" for _, tag in releases))
        for machine, (_, tag) in zip(machines(self.git, tagged), releases, strict=True):
            if machine.playbook:
                return machine, tag
        head = self.git.find("HEAD")[0]
        machine = machines(self.git, [head])[0] if head else Machine("", "", "")
        if not machine.playbook:
            raise UserError(f"update --from {self.name}: has no {PLAYBOOK}/ on its default branch; use --to")
        branch = self.git.run("symbolic-ref", "--quiet", "--short", "HEAD")[1].strip()
        return machine, branch or "HEAD"

    def precedes(self, earlier: Machine, later: Machine) -> bool:
        """Whether one commit of the source is an ancestor of another."""
        return not self.git.run("merge-base", "--is-ancestor", earlier.commit, later.commit)[0]

    def edits(self, base: Machine, own: Machine) -> list[str]:
        """What the project changed in its machine: one line a file."""
        words = {"A": "added", "D": "deleted", "R": "renamed"}
        fields = self.git.paths("diff-tree", "-r", "-z", "-M", "--name-status", self._tree(base), self._tree(own))
        lines = []
        while fields:
            status, path = fields.pop(0), fields.pop(0)
            renamed = f" to {fields.pop(0)}" if status.startswith("R") else ""
            lines.append(f"{words.get(status[0], 'edited'):<8} {path}{renamed}")
        return lines

    def merge(self, base: Machine, own: Machine, target: Machine) -> tuple[Machine, list[Conflict]]:
        """The target's machine with the project's edits, and what stands in the way of it.

        Raises:
            UserError: if the installed git cannot merge without a working tree.
        """
        version = self.git.version()
        if version < MERGING_SINCE:
            needed, present = (".".join(map(str, number)) for number in (MERGING_SINCE, version))
            raise UserError(f"update: merging edited files needs git {needed} or newer, this is {present}")
        common = self._commit(self._tree(base))
        ours, theirs = (self._commit(self._tree(machine), common) for machine in (own, target))
        empty = self.git.folder / "empty"  # git cannot look up attributes without a working tree
        empty.mkdir()
        options = ("--write-tree", "--name-only", "--no-messages", "-z")
        code, output, messages = self.git.run(
            "--git-dir=.", f"--work-tree={empty}", "merge-tree", *options, ours, theirs
        )
        if code not in (0, 1):  # 1: conflicts
            raise UserError(f"update: git merge-tree: {last_words(messages)}; nothing was changed")
        tree, *paths = output.rstrip("\0").split("\0")
        conflicts = [
            Conflict(path, _meeting_lines(self.git.text(f"{tree}:{path}"), self.git.text(f"{ours}:{path}")))
            for path in paths
        ]
        playbook, tests = self.git.find(f"{tree}:{PLAYBOOK}", f"{tree}:{TESTS}")
        return Machine("", playbook, tests, target.version), conflicts

    def offer(self, *offered: Machine) -> str:
        """Stores machines under one ref, from which the project takes their files; returns the ref."""
        commit = ""
        for machine in offered:
            commit = self._commit(self._tree(machine), *([commit] if commit else []))
        self.git.read("update-ref", TAKEN, commit)
        return TAKEN

    def _tree(self, machine: Machine) -> str:
        """A tree with the machine's folders alone."""
        if machine.trees not in self._made_trees:
            entries = {"playbook": machine.playbook}
            if machine.tests:
                entries["tests"] = self.git.read("mktree", stdin=f"040000 tree {machine.tests}\tplaybook\n")
            text = "".join(f"040000 tree {tree}\t{name}\n" for name, tree in entries.items() if tree)
            self._made_trees[machine.trees] = self.git.read("mktree", stdin=text)
        return self._made_trees[machine.trees]

    def _commit(self, tree: str, *parents: str) -> str:
        options = [word for parent in parents for word in ("-p", parent)]
        return self.git.read("commit-tree", tree, *options, "-m", "Machine")


def without_secrets(place: str) -> str:
    """A URL without user name and password, on one line."""
    return printable(re.sub(r"//[^/@\s]*@", "//", place))


def _meeting_lines(merged: str, own: str) -> tuple[int, ...]:
    """First line of each conflict, counted in the project's file.

    Args:
        merged: text with git's conflict markers.
        own: text of the project's file.
    """
    own_lines = own.splitlines()
    numbers: list[int] = []
    chunk: list[str] | None = None
    position = 0
    for line in merged.splitlines():
        if line.startswith("<<<<<<< "):
            chunk = []
        elif line == "=======" and chunk is not None:
            starts = range(position, len(own_lines) - len(chunk) + 1)
            position = next((start for start in starts if own_lines[start : start + len(chunk)] == chunk), position)
            numbers.append(position + 1)
            position += len(chunk)
            chunk = None
        elif chunk is not None:
            chunk.append(line)
    return tuple(numbers)
