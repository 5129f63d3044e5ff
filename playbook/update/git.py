"""git, called so that nothing of a repository is executed and no question is asked."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from playbook.errors import UserError

MERGING_SINCE = (2, 38)  # the first with `git merge-tree --write-tree`
ELSEWHERE = (  # what a hook or a calling program sets, and what would lead to another repository
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
SETTINGS = {
    "core.hooksPath": "/dev/null",  # Git for Windows knows this name too
    "core.quotePath": "false",
    "fetch.negotiationAlgorithm": "noop",  # a shallow history has no ancestors to negotiate about
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.conflictStyle": "merge",
    "merge.directoryRenames": "false",  # a file that the user added stays where it is
    "merge.renames": "true",
    "merge.renormalize": "true",  # other line endings alone are no conflict
}


class Git:
    """git in one folder.

    Args:
        folder: where git is called.
        variables: additional environment variables.

    Raises:
        UserError: if git is not installed.
    """

    def __init__(self, folder: Path, variables: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE} | {
            "GIT_ALLOW_PROTOCOL": os.environ.get("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh"),  # not ext::command
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            **(variables or {}),
        }

    def run(self, *args: str, stdin: str = "", own_session: bool = False) -> tuple[int, str, str]:
        """Exit code, output and messages of one command.

        Args:
            args: what follows `git`.
            stdin: input of the command.
            own_session: keep Ctrl-C away from the command.
        """
        code, output, messages = self._run(args, stdin, own_session)
        return code, _text(output), _text(messages)

    def _run(self, args: Sequence[str], stdin: str, own_session: bool = False) -> tuple[int, bytes, bytes]:
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        try:
            process = subprocess.run(
                ["git", *settings, *args],
                cwd=self.folder,
                env=self.environment,
                input=stdin.encode("utf-8", "surrogateescape"),
                capture_output=True,
                check=False,
                start_new_session=own_session,
            )
        except FileNotFoundError as error:
            raise UserError("update: git is not installed, or not in PATH; nothing was changed") from error
        return process.returncode, process.stdout, process.stderr

    def read(self, *args: str, stdin: str = "", own_session: bool = False) -> str:
        """Output of a command that has to succeed, without the last line break.

        Raises:
            UserError: with git's own words, if it does not.
        """
        code, output, messages = self.run(*args, stdin=stdin, own_session=own_session)
        if code:
            raise UserError(f"update: git {args[0]}: {last_words(messages)}; nothing was changed")
        return output.rstrip("\n")

    def lines(self, *args: str, stdin: str = "") -> list[str]:
        """Lines of the output of a command that has to succeed."""
        return self.read(*args, stdin=stdin).splitlines()

    def paths(self, *args: str) -> list[str]:
        """Output of a command with `-z`, split."""
        return [path for path in self.read(*args).split("\0") if path]

    def find(self, *names: str) -> list[str]:
        """Ids of objects by names as in `HEAD:playbook`; "" for each that does not exist."""
        answers = self.lines("cat-file", "--batch-check=%(objectname)", stdin="".join(f"{name}\n" for name in names))
        return ["" if answer.endswith((" missing", " ambiguous")) else answer for answer in answers]

    def texts(self, *names: str) -> list[str]:
        """Contents of files by names as in `HEAD:CHANGELOG.md`; "" for each that does not exist."""
        code, output, messages = self._run(("cat-file", "--batch"), "".join(f"{name}\n" for name in names))
        assert code == 0, messages
        texts: list[str] = []
        for _ in names:
            header, _, output = output.partition(b"\n")  # <id> <type> <size>, or <name> missing
            size = int(header.split()[-1]) if header.split()[-2:-1] == [b"blob"] else None
            if size is not None:
                texts.append(_text(output[:size]))
                output = output[size + 1 :]
            else:
                texts.append("")
        return texts

    def text(self, name: str) -> str:
        """Content of one file."""
        return self.texts(name)[0]

    def version(self) -> tuple[int, ...]:
        """Of git itself."""
        match = re.search(r"\d+(\.\d+)+", self.read("version"))
        assert match, "git version printed no number"
        return tuple(map(int, match[0].split(".")))


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def last_words(messages: str) -> str:
    """The line of git's messages that says what is wrong."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()] or ["failed without a message"]
    for mark in ("fatal: ", "error: "):
        if reasons := [line.removeprefix(mark) for line in lines if line.startswith(mark)]:
            return printable(reasons[0].rstrip("."))
    return printable(lines[-1])


def printable(text: str) -> str:
    """Text of others without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
