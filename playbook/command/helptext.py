"""The help pages, answered without importing torch; `--help.all` builds the real parser and shows every option."""

from playbook import __version__, project
from playbook.command import discovery

COMMON = {
    "--config FILE": "a recipe or a partial file; later ones override earlier ones",
    "--run_dir DIR": "directory of the run [runs/<recipe>/<date-time>]",
    "--ckpt_path X": "best, last, a run directory or a checkpoint file",
    "--seed_everything N": "seed of weights, order and augmentation [0]",
    "--model CLASS": "task, by short name or full path; --model.help CLASS shows its options",
    "--data CLASS": "data module, likewise; --data.help CLASS shows its options",
    "--trainer.devices N": "devices to use [auto]",
    "--trainer.precision P": "32-true, bf16-mixed, 16-mixed, … [32-true]",
    "--debug": "show the traceback of an error",
}
FIT = {
    "--trainer.max_epochs N": "epochs in all",
    "--trainer.callbacks+ CLASS": "add a callback",
    "--model.net CLASS": "the net; --model.net.widths '[8, 16]' sets one of its arguments",
    "--model.optimizer CLASS": "optimizer; --model.optimizer.lr 1e-3 sets one of its arguments",
    "--data.batch_size N": "samples a batch",
    "--data.num_workers N": "loader processes",
    "--checkpoint.monitor NAME": "metric that decides which epoch is best.ckpt",
    "--checkpoint.mode min|max": "whether smaller or larger is better [min]",
    "--checkpoint.every_n_steps N": "steps between two saves of last.ckpt",
    "--checkpoint.every_n_minutes N": "minutes between two saves [10]",
    "--checkpoint.every_n_epochs N": "epochs between two saves [1]",
}
EXAMPLES = {
    "fit": ["--config configs/vision/cnn-digits.yaml", "--config configs/vision/cnn-digits.yaml --ckpt_path last"],
    "validate": ["--ckpt_path last"],
    "test": ["--ckpt_path best", "--ckpt_path runs/cnn-digits/<date-time>"],
    "predict": ["--ckpt_path best"],
    "find_lr": ["--config configs/vision/cnn-digits.yaml"],
    "find_batch_size": ["--config configs/vision/cnn-digits.yaml"],
    "doctor": ["--config configs/vision/cnn-digits.yaml", "--model my.Module --data my.Data --severity warning"],
    "export": ["--ckpt_path best", "--ckpt_path runs/cnn-digits/<date-time> --output cnn.safetensors"],
}


def overview(verbs: dict[str, str]) -> str:
    """The page of `python -m src --help`."""
    return "\n".join(
        [
            f"{project.current().command} VERB [options]",
            "",
            *(f"  {name:<15} {summary}" for name, summary in verbs.items()),
            "",
            f"Start with: {project.current().command} fit --config configs/vision/cnn-digits.yaml",
            f"Options of a verb: {project.current().command} VERB --help; every one of them: --help.all",
        ]
    )


def verb_page(verb: str, summary: str) -> str:
    """The page of `python -m src VERB --help`: the options most people need."""
    own = {f"--{name} {name.rpartition('_')[2].upper()}": text for name, text in discovery.verb_options(verb).items()}
    options = COMMON | own | (FIT if verb == "fit" else {})
    return "\n".join(
        [
            f"{project.current().command} {verb} [options]",
            f"{summary}",
            "",
            *(f"  {name:<32} {text}" for name, text in options.items()),
            "",
            "Examples:",
            *(f"  {project.current().command} {verb} {example}" for example in EXAMPLES.get(verb, [])),
            "",
            f"Every option: {project.current().command} {verb} --help.all",
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
