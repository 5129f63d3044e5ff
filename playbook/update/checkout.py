"""The project's own repository: what it must be like for an update, and how a new machine gets in."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playbook.errors import UserError
from playbook.update.git import Git, last_words
from playbook.update.machine import PLAYBOOK, TESTS, Machine, machines

IN_PROGRESS = {  # file in the git folder: what it is a sign of
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
MAX_NAMES = 3  # of files in a message of one line


class Checkout:
    """A project in git, or one folder of a repository.

    Args:
        root: folder of the project.

    Raises:
        UserError: if the machine cannot be replaced without losing something.
    """

    def __init__(self, root: Path) -> None:
        if not (root / PLAYBOOK).is_dir():
            raise UserError(
                f"update: there is no {PLAYBOOK}/ in {root}; where {PLAYBOOK} is an installed package, upgrade that"
            )
        code, output, messages = Git(root).run("rev-parse", "--show-toplevel", "--show-prefix")
        if code and "not a git repository" not in messages:
            raise UserError(f"update: {last_words(messages)}")
        if code:
            raise UserError(
                "update: expected a git repository, which can undo an update: git init, add and commit first"
            )
        top, prefix = output.split("\n")[:2]
        self.prefix = prefix
        self.git = Git(Path(top))
        names = ("objects", *IN_PROGRESS)
        options = [word for name in names for word in ("--git-path", name)]
        self.objects, *marks = (self.git.folder / path for path in self.git.lines("rev-parse", *options))
        for mark, act in zip(marks, IN_PROGRESS.values(), strict=True):
            if mark.exists():
                raise UserError(f"update: {act} is in progress; finish or abort it first")
        head = self.git.find("HEAD")[0]
        self.machine = machines(self.git, [head], prefix)[0] if head else Machine("", "", "")
        kinds = {self.git.run("cat-file", "-t", tree)[1].strip() for tree in self.machine.trees if tree}
        if not self.machine.playbook or kinds != {"tree"}:  # a link or submodule is none
            raise UserError(f"update: {PLAYBOOK}/ is not a committed folder of this repository; commit it first")
        self.head = head
        self._refuse_changes()

    @property
    def folders(self) -> list[str]:
        """Of the machine, as they are called in the repository."""
        return [self.prefix + folder for folder in (PLAYBOOK, TESTS)]

    @property
    def branch(self) -> str:
        """The current one; empty if HEAD is detached."""
        return self.git.run("symbolic-ref", "--quiet", "--short", "HEAD")[1].strip()

    def texts(self, *paths: str) -> list[str]:
        """Committed texts of files of the project; "" for each that does not exist."""
        return self.git.texts(*(f"{self.head}:{self.prefix}{path}" for path in paths))

    def _refuse_changes(self) -> None:
        status = self.git.paths(
            "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *self.folders
        )
        # files that git was told not to look at: lower case for assume-unchanged
        flagged = [line for line in self.git.paths("ls-files", "-v", "-z", "--", *self.folders) if line[0].islower()]
        if changed := [line.removeprefix(line[:2]).strip() for line in [*status, *flagged]]:
            names = ", ".join(changed[:MAX_NAMES]) + (
                f" and {len(changed) - MAX_NAMES} more" if changed[MAX_NAMES:] else ""
            )
            raise UserError(f"update: uncommitted changes in {names}; commit or stash them first")
        if self.git.run("var", "GIT_COMMITTER_IDENT")[0]:
            raise UserError("update: git has no name for commits; set it: git config user.name, git config user.email")

    def take(self, place: Path, ref: str) -> str:
        """Copies the files of a commit into this repository's objects; returns the commit's id."""
        self.git.read(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", str(place), ref
        )
        return Git(place).read("rev-parse", ref)

    def commit(self, machine: Machine, message: str, parent: str) -> str:
        """A commit of the last one's files with another machine; no branch leads to it yet."""
        with tempfile.TemporaryDirectory() as folder:
            git = Git(self.git.folder, {"GIT_INDEX_FILE": str(Path(folder) / "index")})
            git.read("read-tree", parent)
            git.read("rm", "-r", "-f", "--cached", "--quiet", "--ignore-unmatch", "--", *self.folders)
            for name, tree in zip(self.folders, machine.trees, strict=True):
                if tree:
                    git.read("read-tree", f"--prefix={name}/", tree)
            return git.read("commit-tree", git.read("write-tree"), "-p", parent, "-m", message)

    def create_branch(self, name: str, commit: str) -> None:
        """A new branch; the current one stays checked out."""
        self.git.read("update-ref", "-m", "update: created", f"refs/heads/{name}", commit, "0" * len(commit))

    def has_branch(self, name: str) -> bool:
        """Whether there is a branch of this name."""
        return bool(self.git.find(f"refs/heads/{name}")[0])

    def advance(self, commit: str) -> None:
        """Puts a child of the last commit into branch, index and working tree, or leaves all three.

        Other changes, staged or not, stay as they are.
        """
        added = self.git.paths("diff-tree", "-r", "-z", "--diff-filter=A", "--name-only", self.head, commit)
        for path in added:
            if (self.git.folder / path).exists():
                raise UserError(
                    f"update: {path}: this ignored file would be overwritten; move it away; nothing was changed"
                )
        self.git.run("update-index", "-q", "--refresh")
        with _signals_held():
            try:
                self.git.read("read-tree", "-m", "-u", self.head, commit, own_session=True)
                self.git.read("update-ref", "-m", "update", "HEAD", commit, self.head, own_session=True)
            except UserError:
                self._restore(added)
                raise

    def _restore(self, added: list[str]) -> None:
        """The machine's files and their index as in the last commit."""
        for path in added:
            (self.git.folder / path).unlink(missing_ok=True)
        names = "".join(f"{path}\0" for path in added)
        self.git.run("update-index", "--force-remove", "-z", "--stdin", stdin=names, own_session=True)
        former = [name for name, tree in zip(self.folders, self.machine.trees, strict=True) if tree]
        self.git.run("checkout", "--quiet", "--force", self.head, "--", *former, own_session=True)


@contextmanager
def _signals_held() -> Iterator[None]:
    """A short time in which Ctrl-C and SIGTERM do nothing: less than a second for the files of the machine."""
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handlers = {name: signal.signal(getattr(signal, name), signal.SIG_IGN) for name in names}
    try:
        yield
    finally:
        for name, handler in handlers.items():
            signal.signal(getattr(signal, name), handler)
