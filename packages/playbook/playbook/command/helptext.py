"""The help pages, answered without importing torch; `--help.all` builds the real parser and shows every option."""

from playbook import __version__, project
from playbook.command import discovery
from playbook.command.verb import ModelVerb, own_options, verbs

EXAMPLE = "configs/vision/cnn-digits.yaml"  # that the examples of the verbs name
COMMON = {
    "--config FILE": "a recipe or a partial config; later ones override earlier ones",
    "--run_dir DIR": "directory of the run [runs/<recipe>/<date-time>]",
    "--ckpt_path X": "checkpoint: best, last, a run directory or a file",
    "--seed_everything N": "seed of initialisation, data order and augmentation [0]",
    "--model CLASS": "task, by short name or full path; --model.help lists them, --model.help CLASS its options",
    "--data CLASS": "data module, likewise; --data.help CLASS lists its options",
    "--trainer.devices N": "devices to use [auto]",
    "--trainer.precision P": "32-true, bf16-mixed, 16-mixed, … [32-true]",
    "--debug": "show the traceback of every error",
}


def _with_own_recipe(text: str) -> str:
    """An example with a recipe that this project has."""
    paths = [entry.path for entry in discovery.recipes()]
    return text if EXAMPLE in paths else text.replace(EXAMPLE, paths[0] if paths else "RECIPE")


def overview() -> str:
    """The page of `python -m src --help`."""
    command = project.current().command
    return "\n".join(
        [
            f"{command} VERB [options]",
            "",
            *(f"  {verb.name:<15} {verb.summary}" for verb in verbs().values()),
            "",
            f"Start with: {command} fit --config {_with_own_recipe(EXAMPLE)}",
            f"Options of a verb: {command} VERB --help; all options: --help.all",
        ]
    )


def verb_page(verb: ModelVerb) -> str:
    """The page of `python -m src VERB --help`: the options most people need."""
    command = f"{project.current().command} {verb.name}"
    own = {f"--{name} {value}".rstrip(): text for name, value, text in own_options(verb) if text}
    options = COMMON | own | dict(verb.common)
    return "\n".join(
        [
            f"{command} [options]",
            verb.summary,
            "",
            *(f"  {name:<32} {text}" for name, text in options.items()),
            "",
            "Examples:",
            *(f"  {command} {_with_own_recipe(example)}" for example in verb.examples),
            "",
            f"Every option: {command} --help.all",
        ]
    )


def versions() -> str:
    """Versions of Playbook and of what it stands on."""
    return " · ".join([f"playbook {__version__}", *(f"{name} {_installed(name)}" for name in ("torch", "lightning"))])


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 100 ms, which other commands do without

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
