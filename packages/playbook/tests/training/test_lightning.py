"""What Playbook takes from Lightning's inside exists, does what it is taken for, and is taken in one folder alone."""

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import lightning
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loops.optimization import automatic
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics import Metric

from playbook.testing.command import UNSAVED
from playbook.training.lightning import epoch_loop, hooks, loaders, optimization, position, restart, results, settings
from running import ROOT

FOLDER = ROOT / "playbook/training/lightning"
FOLDER_NAME = "playbook.training.lightning."
PARTS = (epoch_loop, hooks, loaders, optimization, position, restart, results, settings)
inside = SimpleNamespace(**{name: value for part in PARTS for name, value in vars(part).items()})
NUM_BATCHES = 4


class Probe(LightningModule):
    """Logs a value at every step and over the epoch; validates in the middle of its epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.log("size", float(batch_idx), on_step=True, on_epoch=True, batch_size=len(batch))
        self.log("largest", float(batch_idx), on_step=False, on_epoch=True, reduce_fx="max", batch_size=len(batch))
        return self.layer(batch).sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("val", 1.0)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def train_dataloader(self) -> Any:
        return DataLoader(torch.ones(NUM_BATCHES * 2, 1), batch_size=2)  # type: ignore[arg-type]  # it has a length

    val_dataloader = train_dataloader


class Live(NamedTuple):
    """Objects as they are in the hooks that use them."""

    trainer: Trainer
    result: Any  # of self.log
    closure: Any  # of a batch
    wandb: WandbLogger


def hyperparameters() -> LightningModule:
    """A module that has saved some."""
    module = Probe()
    module.save_hyperparameters({"width": 1})
    return module


def fit(*callbacks: Callback, **options: Any) -> Trainer:
    options = {"max_epochs": 1, "num_sanity_val_steps": 0, "log_every_n_steps": 1, **UNSAVED, **options}
    trainer = Trainer(**options, callbacks=list(callbacks))
    trainer.fit(Probe())
    return trainer


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    results: list[Any] = []

    class Look(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            results.extend(trainer.fit_loop.epoch_loop._results.values())

    trainer = fit(Look())
    closure = automatic.Closure(lambda: automatic.ClosureResult(None))
    return Live(trainer, results[0], closure, WandbLogger(save_dir=tmp_path_factory.mktemp("wandb"), offline=True))


class Use(NamedTuple):
    """A name of Lightning that it does not publish, where it is, and what it is used for."""

    name: str
    owner: str  # an expression over `live` and what this file imports
    function: str
    purpose: str


LOOP = "live.trainer.fit_loop"
HPARAMS = "lightning.pytorch.core.mixins.hparams_mixin"
UTILITIES = "lightning.pytorch.utilities.data"
OVERRIDES = "lightning.pytorch.overrides.distributed"
EPOCH_LOOP = f"{LOOP}.epoch_loop"
PRECISION = "lightning.pytorch.plugins.precision.Precision"
CONNECTOR = "live.trainer._data_connector"
USES = [
    Use("_num_ready_batches_reached", EPOCH_LOOP, "ends_epoch", "the last batch of an epoch"),
    Use("_should_accumulate", LOOP, "gradients_accumulate", "whether an optimizer step is due"),
    Use("_batches_that_stepped", EPOCH_LOOP, "_as_at_batch_end", "the step that loggers count"),
    Use("_batches_that_stepped", EPOCH_LOOP, "logged_step", "the step that loggers count"),
    Use("ready", f"{EPOCH_LOOP}.batch_progress.current", "position", "the position in the epoch"),
    Use("started", f"{EPOCH_LOOP}.batch_progress.current", "set_batch", "the position in the epoch"),
    Use("processed", f"{LOOP}.epoch_progress.current", "set_epoch", "the number of the epoch"),
    Use("completed", f"{EPOCH_LOOP}.batch_progress.total", "at_batch_start", "where a checkpoint continues"),
    Use("is_last_batch", f"{EPOCH_LOOP}.batch_progress", "at_validation_start", "where a checkpoint continues"),
    Use("total", f"{EPOCH_LOOP}.val_loop.batch_progress", "count_validation_from_its_start", "a stopped validation"),
    Use("_restarting", LOOP, "end_restart", "plateau schedules of a continued epoch"),
    Use("_restarting", EPOCH_LOOP, "end_restart_between_epochs", "continuing with the next epoch"),
    Use("_restarting", f"{EPOCH_LOOP}.val_loop", "end_restart_between_epochs", "continuing with the next epoch"),
    Use("_restarting", f"{EPOCH_LOOP}.automatic_optimization", "end_restart_between_epochs", "the next epoch"),
    Use("reset_restart_stage", EPOCH_LOOP, "end_restart_between_epochs", "continuing with the next epoch"),
    Use("_has_run", f"{EPOCH_LOOP}.val_loop", "has_validated", "monitored metrics that nothing logs"),
    Use("_results", "live.trainer", "logged_names", "monitored metrics that nothing logs"),
    Use("_results", EPOCH_LOOP, "epoch_sums", "the sums of self.log in checkpoints"),
    Use("value", "live.result", "epoch_sums", "the sums of self.log in checkpoints"),
    Use("cumulated_batch_size", "live.result", "epoch_sums", "the sums of self.log in checkpoints"),
    Use("is_tensor", "live.result", "epoch_sums", "the sums of self.log in checkpoints"),
    Use("is_max_reduction", "live.result.meta", "add_epoch_sums", "largest values in checkpoints"),
    Use("is_min_reduction", "live.result.meta", "add_epoch_sums", "smallest values in checkpoints"),
    Use("reduce_fx", "live.result.meta", "add_epoch_sums", "largest and smallest values in checkpoints"),
    Use("_combined_loader", LOOP, "training_loaders", "adapting third-party loaders"),
    Use("flattened", f"{LOOP}._combined_loader", "training_loaders", "adapting third-party loaders"),
    Use("_data_fetcher", LOOP, "restart_fetching", "the position in third-party loaders"),
    Use("_signal_connector", "live.trainer", "leave_signals_alone", "stopping on a signal"),
    Use("register_signal_handlers", "live.trainer._signal_connector", "leave_signals_alone", "stopping on a signal"),
    Use(
        "_check_on_train_epoch_end",
        'EarlyStopping("loss")',
        "checks_after_training_epochs",
        "early stopping where validation runs every few epochs",
    ),
    Use("_ddp_kwargs", "DDPStrategy()", "finds_unused_parameters", "frozen parameters under DDP"),
    Use(
        "_data_parallel_size", "ModelParallelStrategy()", "set_data_parallel_size", "devices left by tensor parallelism"
    ),
    Use("_AutomaticOptimization", "automatic", "replace_closures", "another closure for the optimizer step"),
    Use("_make_closure", "automatic._AutomaticOptimization", "replace_closures", "another closure"),
    Use("_training_step", "automatic._AutomaticOptimization", "BatchClosure", "running a part of a batch"),
    Use("_step_fn", "live.closure", "BatchClosure", "running a part of a batch"),
    Use("_backward_fn", "live.closure", "BatchClosure", "gradients of a part of a batch"),
    Use("_zero_grad_fn", "live.closure", "BatchClosure", "clearing gradients once a step"),
    Use("_skip_backward", f"{EPOCH_LOOP}.automatic_optimization", "replace_closures", "weight averaging's batch norms"),
    Use("_optimizer_step", "automatic._AutomaticOptimization", "replace_closures", "steps without idle hooks"),
    Use("_make_backward_fn", "automatic._AutomaticOptimization", "replace_closures", "steps without idle hooks"),
    Use("_on_before_zero_grad", "automatic._AutomaticOptimization", "replace_closures", "steps without idle hooks"),
    Use("_optimizer_zero_grad", "automatic._AutomaticOptimization", "replace_closures", "steps without idle hooks"),
    Use("_TrainingEpochLoop", "lightning.pytorch.loops.training_epoch_loop", "shorten_steps", "a loop of our own"),
    Use("_DataLoaderIterDataFetcher", "lightning.pytorch.loops.fetchers", "shorten_steps", "dataloader_iter"),
    Use("_should_check_val_epoch", EPOCH_LOOP, "shorten_steps", "whether an epoch validates"),
    Use("_current_fx_name", "live.trainer.lightning_module", "StepHooks", "self.log in hooks"),
    Use("_logger_connector", "live.trainer", "shorten_steps", "what self.log collects in a step"),
    Use("_first_loop_iter", "live.trainer._logger_connector", "shorten_steps", "self.log in the first step"),
    Use("_progress_bar_metrics", "live.trainer._logger_connector", "shorten_steps", "what a progress bar shows"),
    Use("_callback_metrics", "live.trainer._logger_connector", "shorten_steps", "trainer.callback_metrics"),
    Use("_logged_metrics", "live.trainer._logger_connector", "shorten_steps", "trainer.logged_metrics"),
    Use("_wrap_closure", PRECISION, "has_plain_steps", "precisions that step in their own way"),
    Use("_after_closure", PRECISION, "has_plain_steps", "precisions that step in their own way"),
    Use("_given_hyperparameters", HPARAMS, "is_built_by_command_line", "plain values"),
    Use("_given_hyperparameters_context", HPARAMS, "configured_by", "a module that is built again"),
    Use("_data_connector", "live.trainer", "replace_preparation", "loaders with other samplers"),
    Use("_prepare_dataloader", CONNECTOR, "replace_preparation", "loaders with other samplers"),
    Use("_requires_distributed_sampler", CONNECTOR, "requires_distributed_sampler", "loaders of several processes"),
    Use("_resolve_sampler", CONNECTOR, "resolve_sampler", "loaders with other samplers"),
    Use("_dataloader_init_kwargs_resolve_sampler", UTILITIES, "training_batch_sampler", "batch samplers"),
    Use("_IndexBatchSamplerWrapper", OVERRIDES, "recorded", "indices of a prediction"),
    Use("_data_source", LOOP, "replace_fit_loaders", "overfit_batches with shuffled loaders"),
    Use("_iterator", "DataLoader([])", "with_samplers", "copies of loaders"),
    Use("_hparams", "live.trainer.lightning_module", "set_hyperparameters", "arguments as a module was given them"),
    Use("_hparams_initial", "hyperparameters()", "set_hyperparameters", "plain values for loggers"),
    Use("_checkpoint_connector", "live.trainer", "complete_checkpoints", "plain hyperparameters in checkpoints"),
    Use("dump_checkpoint", "live.trainer._checkpoint_connector", "complete_checkpoints", "plain hyperparameters"),
    Use("_wandb_init", "live.wandb", "drop_wandb_setting", "a setting that wandb no longer has"),
]


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.name}-{use.function}")
def test_name_is_there(live: Live, use: Use) -> None:
    owner = eval(use.owner, {**globals(), "live": live})  # an expression from above
    message = f"{use.name} is gone from {type(owner).__name__}; used by {use.function} for {use.purpose}"
    assert hasattr(owner, use.name), message
    assert callable(getattr(inside, use.function)), f"{use.function} is gone, and the line of {use.name} with it"


def test_every_private_name_is_listed() -> None:
    listed = {use.name for use in USES}
    tree = ast.parse("\n".join(file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.py"))))
    own = own_names(tree)
    used = {name for name, _ in private_uses(tree)} | {
        keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords if keyword.arg
    }
    missing = sorted(name for name in used if name.startswith("_") and name not in listed | own)
    assert not missing, f"USES in {Path(__file__).name} lacks {missing}"


# where private names stand


def private_uses(tree: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Private names that a file takes from others, with the expression they are taken from; None for imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr, node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if is_private(str(name)):
                yield str(name), node.args[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lightning":
            for name in (*(node.module or "").split("."), *(alias.name for alias in node.names)):
                if is_private(name):
                    yield name, None


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def own_names(tree: ast.AST) -> set[str]:
    """Names that a file defines: functions, classes, and attributes that it sets on `self`."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def names_of_lightning() -> set[str]:
    """Private names that Lightning defines, without those that modules and metrics of torch have themselves."""
    folder = Path(str(lightning.__file__)).parent
    files = [*folder.joinpath("pytorch").rglob("*.py"), *folder.joinpath("fabric").rglob("*.py")]
    defined = re.compile(r"(?:\bdef |\bclass |\bself\.)(_[A-Za-z]\w*)|^(_[A-Za-z]\w*)[ :=]", re.MULTILINE)
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = {first or second for first, second in defined.findall(text)}
    return {name for name in names if not hasattr(nn.Linear(1, 1), name) and not hasattr(Metric, name)}


def strays(tree: ast.AST, lightnings: set[str], ours: set[str]) -> set[str]:
    """Private names of Lightning in a file.

    Args:
        tree: the file.
        lightnings: private names that Lightning defines.
        ours: names that the classes of this project define, which a subclass may use.
    """
    own = own_names(tree)
    modules = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.split(".")[0] != "lightning"
    }
    found = set()
    for name, owner in private_uses(tree):
        if owner is None:
            found.add(name)
            continue
        root = ast.unparse(owner).split(".")[0].split("(")[0]
        known = own | ours if root in ("self", "cls", "super") else own
        if name in lightnings and name not in known and root not in modules:
            found.add(f"{ast.unparse(owner)}.{name}")
    return found


def sources() -> dict[str, ast.AST]:
    files = sorted((ROOT / "playbook").rglob("*.py"))
    named = {file.relative_to(ROOT).as_posix(): file for file in files if file.parent != FOLDER}
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in named.items()}


@pytest.mark.slow
def test_only_one_folder_uses_private_names_of_lightning() -> None:
    trees, lightnings = sources(), names_of_lightning()
    ours = {name for tree in trees.values() for name in own_names(tree)}
    found = {name: names for name, tree in trees.items() if (names := strays(tree, lightnings, ours))}
    assert not found, f"expected in {FOLDER.name}/ alone"


@pytest.mark.parametrize(
    ("source", "stray"),
    [
        ("trainer.fit_loop._restarting = False", "trainer.fit_loop._restarting"),
        ("getattr(loop, '_results')", "loop._results"),
        ("class A(Loop):\n def f(self): self._should_accumulate()", "self._should_accumulate"),
        ("from lightning.pytorch.core.mixins.hparams_mixin import _given_hyperparameters", "_given_hyperparameters"),
        ("import lightning\nlightning.pytorch._graveyard", "lightning.pytorch._graveyard"),
        ("import torch\ntorch._foreach_norm([])", None),
        ("class A:\n def _results(self): pass\n def f(self, a): self._results(), a._results()", None),
    ],
)
def test_the_search_finds_private_names(source: str, stray: str | None) -> None:
    lightnings = names_of_lightning() | {"_graveyard"}
    assert strays(ast.parse(source), lightnings, set()) == ({stray} if stray else set())


def test_training_knows_neither_tasks_nor_data() -> None:
    for file in sorted((ROOT / "playbook/training").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            imported = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if file.parent == FOLDER:
                wrong = [name for name in imported if name.startswith("playbook") and FOLDER_NAME not in f"{name}."]
            else:
                wrong = [name for name in imported if f"{name}.".startswith(("playbook.task.", "playbook.data."))]
            assert not wrong, f"{file.relative_to(ROOT)} imports {wrong[0]}"


# what the functions say, in a training


class Record(Callback):
    """What the functions answer in each hook."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.answers.append(
            (inside.position(trainer), inside.gradients_accumulate(trainer), inside.ends_epoch(trainer))
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.answers.append((inside.has_validated(trainer), inside.logged_names(trainer)))


@pytest.mark.parametrize("validates", [True, False])
def test_position_accumulation_and_names(validates: bool) -> None:
    record = Record()
    fit(record, accumulate_grad_batches=2, limit_val_batches=1 if validates else 0)
    *batches, (has_validated, names) = record.answers
    assert [position for position, _, _ in batches] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert [accumulates for _, accumulates, _ in batches] == [True, False, True, False]
    assert [ends for _, _, ends in batches] == [False, False, False, True]
    assert has_validated is validates
    assert names == {"size", "size_step", "size_epoch", "largest"}


def test_a_limit_of_batches_ends_the_epoch() -> None:
    record = Record()
    fit(record, limit_train_batches=3, limit_val_batches=0)
    assert [ends for _, _, ends in record.answers[:3]] == [False, False, True]


class Cut(Callback):
    """Takes the sums of the first two batches, and counts them twice in the last ones."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, Any]] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if args[-1] == 1:
            sums = inside.epoch_sums(trainer)
            self.sums = deepcopy(sums)
        elif args[-1] == 2:
            inside.add_epoch_sums(trainer, self.sums)


def test_sums_are_added_once_in_their_own_way() -> None:
    cut = Cut()
    trainer = fit(cut, limit_val_batches=0)
    # batches 0 to 3 of two samples each, 0 and 1 a second time: a mean of 7 / 6; the largest stays the largest
    assert trainer.callback_metrics["size_epoch"].item() == pytest.approx(7 / 6)
    assert trainer.callback_metrics["largest"].item() == 3
    assert cut.sums == {}


def test_fetching_begins_anew() -> None:
    class Again(Callback):
        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            next(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]  # there is one now
            inside.restart_fetching(trainer)
            assert inside.training_loaders(trainer) == [trainer.train_dataloader]

    record = Record()
    trainer = fit(Again(), record, limit_val_batches=0)
    assert trainer.global_step == NUM_BATCHES


def test_the_trainer_before_a_fit_has_no_loaders() -> None:
    assert inside.training_loaders(Trainer(**UNSAVED)) == []


def test_epoch_and_batch_can_be_set() -> None:
    trainer = Trainer(**UNSAVED)
    inside.set_epoch(trainer, 7)
    assert trainer.current_epoch == 7

    trainer = fit(limit_val_batches=0)
    inside.set_batch(trainer, 2)
    assert trainer.fit_loop.batch_idx == 1, "the newest batch, counted from 0"


def test_restart_ends() -> None:
    trainer = Trainer(**UNSAVED, max_steps=5)
    trainer.fit_loop._restarting = True
    inside.end_restart(trainer)
    assert not trainer.fit_loop.restarting


def test_signal_handlers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(**UNSAVED)
    connector: Any = trainer._signal_connector
    installed: list[Any] = []
    monkeypatch.setattr(type(connector), "_register_signal", lambda *args: installed.append(args), raising=True)
    connector.register_signal_handlers()
    assert installed, "Lightning installs handlers by itself"
    installed.clear()
    inside.leave_signals_alone(trainer)
    connector.register_signal_handlers()
    assert not installed


def test_settings_of_strategies_and_loggers(tmp_path: Path) -> None:
    assert not inside.finds_unused_parameters(DDPStrategy())
    assert inside.finds_unused_parameters(DDPStrategy(find_unused_parameters=True))
    assert inside.checks_after_training_epochs(EarlyStopping("loss", check_on_train_epoch_end=True))
    assert not inside.checks_after_training_epochs(EarlyStopping("loss"))
    strategy = ModelParallelStrategy()
    inside.set_data_parallel_size(strategy, 3)
    assert strategy._data_parallel_size == 3
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    inside.drop_wandb_setting(logger, "anonymous")
    assert "anonymous" not in logger._wandb_init
