"""The base of all tasks: optimizer and schedule, calling the net on a batch, metrics at the end of an epoch."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import MeanMetric, MetricCollection

from playbook.batches import named_inputs, num_samples
from playbook.data.classes import count_classes, targets_of
from playbook.errors import UserError
from playbook.facts import unpack
from playbook.metrics import BatchedMetrics
from playbook.optim.fused import fused_option
from playbook.optim.groups import parameter_groups, split_groups
from playbook.optim.rules import describe, freeze, hold_frozen_norms, read_rules, settings_of
from playbook.optim.schedules import keep_shares, peak_rate, scheduler_config
from playbook.training.lightning.settings import is_built_by_command_line

OptimizerFactory = Callable[[Iterable], Optimizer]
ScheduleFactory = Callable[[Optimizer], LRScheduler]


class Task(LightningModule):
    """Base of tasks: trains a net, and defines what is optimised and measured. Subclasses implement the steps.

    Metrics are objects that are read once per epoch: logging at every step made a step of a small net 18 % longer
    (benchmarks/LOG.md), and means over batches of different sizes are exact.

    A subclass may also define `answer(outputs, facts)` and `draw(inputs, answer)`, which `predict` uses. `answer` turns
    the outputs of predict_step for a batch into a readable dict per sample: text, numbers, a list of dicts, such as
    boxes, or an integer tensor (H, W), such as a mask. Its further parameters become options, such as --top. `draw`
    returns a Pillow image of one answer; `inputs` is the raw image (3, H, W) as bytes, or else the net's input. It
    raises ValueError for inputs that are no pictures.

    `report(outputs, facts)` returns a TestReport, the task's own part of the report of a run, from the concatenated
    outputs of test_step: tensors by name with an entry for each test sample. The report shows answers to a few test
    samples, to the outputs of `example_step(batch)` where a subclass defines it in place of predict_step, beside
    `target_answer(batch, facts)`, the answers that would be right: dicts as `answer` returns them, which `draw` takes.

    Args:
        net: any module, called with the inputs of the batch, by name if they are a dict.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        metrics: metrics to log in addition to the mean loss, copied for train, val and test.
        parameter_groups: rules for parameters by name, a list of mappings; for each setting, the last matching rule
            applies. Each has a `pattern`, a glob such as net.stem.* or net.head, and any of `lr_factor` (of the
            optimizer's rate), `lr` (replaces it), `layer_decay` (factor of the rate from each layer to the one below,
            in (0, 1]), `weight_decay` (norms, biases and embeddings always have none) and `frozen`.

    Attributes:
        facts: values learnt from the training data, such as the names of `classes`: those of the data during training,
            those of the checkpoint after loading. Set before `setup`.
    """

    monitor = "val/loss"  # metric that decides which epoch is best.ckpt, unless --checkpoint.monitor says otherwise
    monitor_mode = "min"  # its direction: min or max
    loss_name = ""  # name of the loss, for the summary at the end of a run
    # whether a `weight` of one's own counts samples after all; their numbers are known ahead, without communication
    weighs_samples = False
    # False if the loss compares all samples of a batch with each other: accumulation and running out of memory then end
    # the training, as the loss of parts would be another one
    can_split_batches = True
    program_outputs: tuple[str, ...] = ("output",)  # names of what `program` returns
    # dimensions of its inputs, beside the batch, that always may vary: {1: "T"}, or by input, {"edges": {2: "E"}}
    program_dims: Mapping[int, str] | Mapping[str, Mapping[int, str]] = MappingProxyType({})
    logs_collections_alone = True  # this class's on_train_epoch_end logs only names of its MetricCollections

    def __init__(
        self,
        net: nn.Module,
        optimizer: OptimizerFactory | None,
        schedule: ScheduleFactory | None,
        metrics: MetricCollection,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise ValueError(  # noqa: TRY004  # which the command line explains
                f"net: expected a module, got {net}; to fill its options: build({type(self).__name__}, data, net=…)"
            )
        # the command line hands over plain class paths; from Python these are objects, which weights_only refuses
        arguments = ["net", "optimizer", "schedule", "metrics", "parameter_groups"]
        names = [] if is_built_by_command_line() else arguments
        self.save_hyperparameters(ignore=names)
        self.net = net
        self.facts: dict[str, Any] = {}
        self.optimizer = optimizer or partial(AdamW, lr=1e-3, weight_decay=0.01)
        self.schedule = schedule
        self.parameter_rules = read_rules(parameter_groups)
        self._groups_in_words = ""
        metrics = metrics.clone()
        metrics.add_metrics({"loss": MeanMetric()})
        metrics = BatchedMetrics(metrics)
        self.train_metrics = metrics.clone(prefix="train/")
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")

    def forward(self, inputs: Tensor | dict[str, Tensor]) -> Any:
        return self.net(**inputs) if isinstance(inputs, dict) else self.net(inputs)

    def configure_model(self) -> None:
        """Freezes parameters by the rules, before a strategy looks at which parameters have a gradient."""
        if self.parameter_rules:
            freeze(self, settings_of(self, self.parameter_rules))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.facts = self.facts or unpack(checkpoint, "the checkpoint") or {}
        # a model that load_from_checkpoint has rebuilt keeps how, so that its own checkpoints rebuild it again
        if "net" not in self.hparams:
            self.hparams.update(checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {}))

    def train(self, mode: bool = True) -> "Task":
        super().train(mode)
        if any(rule.frozen for rule in self.parameter_rules):
            hold_frozen_norms(self)
        return self

    def configure_optimizers(self) -> Any:
        optimizer_class = _underlying(self.optimizer)
        settings = settings_of(self, self.parameter_rules)
        freeze(self, settings)  # again: splitting the net may have made its parameters anew
        groups = parameter_groups(self, split_hidden=getattr(optimizer_class, "splits_hidden", False))
        if not groups:
            if any(rule.frozen for rule in self.parameter_rules):
                raise ValueError("parameter_groups: every parameter is frozen, so there is nothing to optimise")
            raise ValueError("model: no parameter has requires_grad, so there is nothing to optimise")
        # LBFGS and Rprop
        if isinstance(optimizer_class, type) and "weight_decay" not in inspect.signature(optimizer_class).parameters:
            if any(rule.weight_decay is not None for rule in self.parameter_rules):
                raise ValueError(f"parameter_groups: {optimizer_class.__name__} has no weight_decay")
            groups = [{"params": [parameter for group in groups for parameter in group["params"]]}]
        groups, group_settings = split_groups(groups, settings)
        options: dict[str, Any] = fused_option(optimizer_class, self.optimizer, self._trainer)
        optimizer = self.optimizer(groups, **options)
        scheduler = None if self.schedule is None else self._build_schedule(optimizer)
        if self.parameter_rules:
            peaks = [peak_rate(group, index, scheduler) for index, group in enumerate(optimizer.param_groups)]
            shares = [setting.share(peak) for setting, peak in zip(group_settings, peaks, strict=True)]
            keep_shares(optimizer, scheduler, shares)
            rates = [peak * share for peak, share in zip(peaks, shares, strict=True)]
            self._groups_in_words = describe(self, self.parameter_rules, optimizer.param_groups, rates)
        return optimizer if scheduler is None else {"optimizer": optimizer, "lr_scheduler": scheduler_config(scheduler)}

    def on_train_start(self) -> None:
        if self.parameter_rules and self.trainer.is_global_zero:
            print(self._groups_in_words, flush=True)

    def _build_schedule(self, optimizer: Optimizer) -> LRScheduler:
        assert self.schedule is not None
        accepted = inspect.signature(_underlying(self.schedule)).parameters
        keywords = getattr(self.schedule, "keywords", {})
        if "total_steps" in accepted and not any(keywords.get(name) for name in ("total_steps", "epochs")):
            total_steps = self.trainer.estimated_stepping_batches
            if total_steps < 1:
                raise ValueError("schedule: the training has no steps; see --trainer.max_steps, .limit_train_batches")
            if total_steps == float("inf"):
                raise ValueError("schedule: needs a known end, set --trainer.max_epochs or --trainer.max_steps")
            return self.schedule(optimizer, total_steps=int(total_steps))  # type: ignore[call-arg]  # it takes it, says its signature
        return self.schedule(optimizer)

    def weight(self, batch: Any) -> Tensor | float | None:
        """The weight of a batch's mean loss: its number of samples, unless a subclass overrides this.

        The gradient of an optimizer step is the mean of its batches' gradients with these weights, so it does not
        depend on how the step is split: by accumulation, over processes, or because a batch does not fit into memory.
        Return the count by which training_step divides: tokens for a language model, labelled pixels if some are
        ignored, the sum of class weights for a weighted cross-entropy. A scalar tensor may stay on its device.

        Return None if the loss is not a mean over parts of the batch, as for the Dice loss or a contrastive loss. All
        batches of a step then have the same weight, and a message says that splitting changes the step.

        Args:
            batch: batch of training_step.
        """
        return num_samples(batch) or 1

    def class_counts(self, num_classes: int) -> list[int]:
        """Counts the training samples of each class, in `setup`: by the targets of the training set, or by the facts.

        Args:
            num_classes: number of classes K.

        Raises:
            UserError: the data has neither, or already balances its classes.
        """
        data: Any = getattr(self.trainer, "datamodule", None)
        if getattr(data, "balanced", False):
            raise UserError("class_weights: auto and --data.balanced true both compensate for rare classes; choose one")
        dataset = getattr(data, "train_set", None)
        if dataset is None and data is not None and "class_counts" not in self.facts:
            dataset = getattr(data.train_dataloader(), "dataset", None)
        targets = targets_of(dataset)
        if targets is not None:  # a checkpoint's facts may tell of other data
            return count_classes(targets, num_classes)
        if "class_counts" not in self.facts:
            name = "the DataLoader" if data is None else type(data).__name__
            raise UserError(
                f"class_weights: auto needs the number of training samples of each class, which {name} does not "
                "provide; set self.facts['class_counts'] in its setup, or weights by name, as in {daisy: 2.0}"
            )
        return self.facts["class_counts"]

    def program(self) -> nn.Module:
        """The module that `export` exports: named inputs → a tensor, or a tuple as `program_outputs` names them.

        Defaults to the net. What is before it belongs to `Data.read`, what is after it to `answer`.

        Raises:
            UserError: the net cannot be exported.
        """
        return self.net

    def program_inputs(self, batch: Any) -> dict[str, Tensor]:
        """Inputs of the program by name, from a batch."""
        return named_inputs(self.program(), batch)

    def use_program(self, program: nn.Module) -> None:
        """Evaluates with an exported program from now on, so that it is measured as the net was.

        Args:
            program: takes the inputs of `program` by name or in their order, and returns the same outputs.
        """
        self.net = program
        self.parameter_rules = []  # they name parameters of the net

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        """How `answer` reads the outputs of the exported program, in plain values, without this repository.

        playbook/deploy/runtime knows these kinds: `classes`, `values`, `mask`, `boxes`, `generate` and `gaps`.

        Args:
            facts: values learnt from the training data, such as the names of `classes`.

        Returns:
            Lists, dicts, text and numbers; None if an exported model returns its outputs as they are.
        """
        return None

    def log_step(self, stage: str, loss: Tensor, weight: Tensor | float, **measured: Tensor) -> None:
        """Adds one batch to the metrics of a stage, and logs the training loss at the logging interval.

        Args:
            stage: train, val or test.
            loss: mean over the batch, a scalar.
            weight: weight of this loss in the mean of the epoch, `weight(batch)`, or the number of samples if that is
                None.
            measured: arguments of the metrics' `update`, by name.
        """
        loss = loss.detach()
        # where nothing counts, the mean may be 0 / 0
        value = loss.masked_fill(weight == 0, 0.0) if isinstance(weight, Tensor) else loss if weight else 0.0
        getattr(self, f"{stage}_metrics").update(value=value, weight=weight, **measured)
        trainer: Any = self.trainer
        if stage == "train" and (self.global_step + 1) % trainer.log_every_n_steps == 0:
            self.log("train/loss_step", loss, batch_size=1)

    def _log_epoch(self, metrics: MetricCollection) -> None:
        self.log_dict(metrics.compute())
        metrics.reset()

    def on_train_epoch_end(self) -> None:
        self._log_epoch(self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        self._log_epoch(self.val_metrics)

    def on_test_epoch_end(self) -> None:
        self._log_epoch(self.test_metrics)


def _underlying(factory: Any) -> Any:
    """The class that a factory builds; jsonargparse passes a partial that has the class among its arguments."""
    if not isinstance(factory, partial):
        return factory
    return next((value for value in (factory.func, *factory.args) if isinstance(value, type)), factory.func)
