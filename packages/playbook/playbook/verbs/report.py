"""report: rebuilds the report of a run, or compares several."""

from pathlib import Path

from playbook.command.verb import PlainVerb
from playbook.errors import UserError, nearest
from playbook.project import current
from playbook.runs.directory import Run

USAGE = "report RUN [RUN …] [--output FILE]"
HELP = """RUN is a run directory, or a folder of them. One run: its report.html and report.md, anew from its files.
Several: a page that compares them, comparison.html or the FILE of --output."""
COMPARISON = "comparison.html"


class Report(PlainVerb):
    """Writes pages from the files of runs, without torch."""

    name = "report"
    summary = "Rebuild the report of a run, or compare several runs."
    examples = ("runs/cnn-digits/<date-time>", "runs/cnn-digits runs/vit-digits")

    def answer(self, args: list[str]) -> int:
        """Writes the report or the comparison, and prints where it is."""
        if {"-h", "--help"} & set(args):
            print(f"{current().command} {USAGE}\n{HELP}")
            return 0
        names, output = _read(args)
        runs = list({run.path.absolute(): run for name in names for run in _runs(name)}.values())
        if len(runs) == 1:
            if output:
                raise UserError("report: --output: of one run, the page is report.html in its directory")
            from playbook.insight.report.write import write

            print(write(runs[0]).as_posix())
            return 0
        from playbook.insight.report.compare import compare

        path = Path(output or COMPARISON)
        try:
            print(compare(runs, path))
        except OSError as error:
            raise UserError(f"report: --output {path.as_posix()}: {error.strerror or error}") from error
        print(f"\nreport  {path.as_posix()}")
        return 0


def _read(args: list[str]) -> tuple[list[str], str]:
    """The runs, and the file of --output, empty without one."""
    names, output, rest = [], "", list(args)
    while rest:
        arg = rest.pop(0)
        name, is_joined, value = arg.partition("=")
        if name == "--output":
            output = value if is_joined else rest.pop(0) if rest else ""
            if not output:
                raise UserError("report: --output: expected a file")
        elif arg.startswith("-"):
            raise UserError(f"report: {arg}: no such option, expected {current().command} {USAGE}")
        else:
            names.append(arg)
    if not names:
        raise UserError(f"report: expected a run directory: {current().command} {USAGE}")
    return names, output


def _runs(name: str) -> list[Run]:
    """The run of that directory, or those below it.

    Raises:
        UserError: there is none.
    """
    path = Path(name)
    if not path.is_dir():
        siblings = [entry.as_posix() for entry in path.parent.glob("*")] if path.parent.is_dir() else []
        raise UserError(f"report: {name}: no such run directory{nearest(name, siblings)}")
    if _is_run(path):
        return [Run(path)]
    below = sorted({file.parent for file in path.rglob("config.yaml") if _is_run(file.parent)})
    if not below:
        raise UserError(
            f"report: {name}: expected a run directory, with metrics.csv or metrics.json, or a folder of them"
        )
    return [Run(folder) for folder in below]


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in ("metrics.csv", "metrics.json"))


VERB = Report()
ORDER = 8
