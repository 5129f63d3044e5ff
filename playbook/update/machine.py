"""Versions of the machine in a history: which there are, and which of them a project has."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from playbook.update.git import Git

PLAYBOOK, TESTS = "playbook", "tests/playbook"  # the folders that are replaced
VERSION = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)", re.MULTILINE)


@dataclass(frozen=True)
class Machine:
    """The machine's folders in one commit.

    Args:
        commit: its id.
        playbook: id of the tree of `playbook/`; empty if there is none.
        tests: id of the tree of `tests/playbook/`; empty if there is none.
        version: as `playbook/__init__.py` says; empty if it says none.
    """

    commit: str
    playbook: str
    tests: str
    version: str = ""

    @property
    def trees(self) -> tuple[str, str]:
        """What makes two machines the same."""
        return self.playbook, self.tests

    def without_tests(self) -> "Machine":
        """The same machine for a project that has no `tests/playbook/`."""
        return replace(self, tests="")


def machines(git: Git, commits: Sequence[str], prefix: str = "") -> list[Machine]:
    """The machine of each commit.

    Args:
        git: of the repository.
        commits: their ids.
        prefix: folder of the project in the repository, with a slash at its end.
    """
    paths = (PLAYBOOK, TESTS, f"{PLAYBOOK}/__init__.py")
    ids = git.find(*(f"{commit}:{prefix}{path}" for commit in commits for path in paths))
    faces = [face for face in dict.fromkeys(ids[2::3]) if face]
    matches = {face: VERSION.search(text) for face, text in zip(faces, git.texts(*faces), strict=True)}
    versions = [match[1] if (match := matches.get(face)) else "" for face in ids[2::3]]
    return [Machine(*row) for row in zip(commits, ids[::3], ids[1::3], versions, strict=True)]


def history(git: Git, *revisions: str, prefix: str = "", tests: bool = True) -> list[Machine]:
    """Every machine that the revisions lead to, newest first; the newest commit of each.

    Args:
        git: of the repository.
        revisions: where to start, as `git rev-list` takes them.
        prefix: folder of the project in the repository, with a slash at its end.
        tests: include `tests/playbook/`.
    """
    commits = git.lines("rev-list", "--topo-order", *revisions, "--")
    distinct: dict[tuple[str, str], Machine] = {}
    for machine in machines(git, commits, prefix):
        if machine.playbook:
            chosen = machine if tests else machine.without_tests()
            distinct.setdefault(chosen.trees, chosen)
    return list(distinct.values())


def origin(git: Git, own: Machine, candidates: Sequence[Machine]) -> Machine | None:
    """The candidate that a project's machine was made from: the one with most files in common.

    Only candidates of the project's version compete, if there are any. Of two that are equally near, the older one
    wins: its later changes are merged once more, which is harmless. Taken too new, the project's older lines would
    look like edits and stay.

    Args:
        git: of a repository that has the trees of all.
        own: machine of the project.
        candidates: newest first.

    Returns:
        None if no candidate has a quarter of the project's files.
    """
    candidates = [machine for machine in candidates if machine.version == own.version] or candidates
    num_files = sum(len(git.lines("ls-tree", "-r", tree)) for tree in own.trees if tree)
    best, best_score = None, (ceil(num_files / 4), -sys.maxsize)  # an empty __init__.py alone proves nothing
    for candidate, (changed, absent) in zip(candidates, _distances(git, own, candidates), strict=True):
        score = (num_files - changed, -absent)
        if score >= best_score:  # not >: the older one
            best, best_score = candidate, score
    return best


def _distances(git: Git, own: Machine, candidates: Sequence[Machine]) -> list[tuple[int, int]]:
    """For each candidate: the number of the project's files that it lacks or has otherwise, and of those it adds."""
    empty = git.read("hash-object", "-t", "tree", "--stdin")
    pairs = [
        [(mine or empty, theirs or empty) for mine, theirs in zip(own.trees, candidate.trees, strict=True)]
        for candidate in candidates
    ]
    distinct = sorted({pair for both in pairs for pair in both})
    counts = {pair: [0, 0] for pair in distinct}
    pair = ("", "")
    lines = git.lines(
        "diff-tree", "--stdin", "-r", "--no-renames", stdin="".join(f"{mine} {theirs}\n" for mine, theirs in distinct)
    )
    for line in lines:
        if line.startswith(":"):
            is_additional = line.partition("\t")[0].endswith("A")
            counts[pair][is_additional] += 1
        else:  # the pair that the following lines are about
            mine, theirs = line.split()
            pair = (mine, theirs)
    return [(sum(counts[pair][0] for pair in both), sum(counts[pair][1] for pair in both)) for both in pairs]
