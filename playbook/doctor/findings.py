"""What the review can report: every defect by its id, how severe it is and what it leads to."""

import linecache
from dataclasses import dataclass
from typing import Any, NamedTuple

SEVERITIES = ("critical", "warning", "advice")


class Place(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The line itself, without its indentation."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        id: of the defect, a key of DEFECTS.
        place: the line to change, as far as it is known.
        message: what was measured, with the figures.
        fix: the change as code, in the user's own names.
    """

    id: str
    place: Place | None
    message: str
    fix: str

    def __post_init__(self) -> None:
        assert self.id in DEFECTS, self.id

    @property
    def severity(self) -> str:
        """critical, warning or advice."""
        return DEFECTS[self.id][0]

    @property
    def impact(self) -> str:
        """What the defect leads to."""
        return DEFECTS[self.id][1]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        place = self.place or Place("", 0)
        shown = {"id": self.id, "severity": self.severity, "file": place.file, "line": place.line, "code": place.code}
        return shown | {"message": self.message, "impact": self.impact, "fix": self.fix}


DEFECTS = {
    # model and graph
    "crash": ("critical", "The program ends with an error."),
    "unregistered-submodule": ("critical", "These weights are not trained, not saved and not moved to the device."),
    "missing-super-init": ("critical", "The program ends with an error when the module is built."),
    "detached-graph": ("critical", "Everything before this line stays as it was initialised."),
    "unused-parameter": ("warning", "Dead weights cost memory, and DDP ends with an error on them."),
    "parameter-not-optimized": ("critical", "These parameters stay as they were initialised."),
    "double-softmax": (
        "critical",
        "The loss cannot approach zero and its gradients are small: training is slow and poor.",
    ),
    "sigmoid-before-logits-loss": (
        "critical",
        "The loss cannot approach zero; probabilities stay between 0.5 and 0.73.",
    ),
    "activation-on-logits": ("critical", "Classes cannot get the logits they need; negative ones have no gradient."),
    "batch-mixing": ("critical", "A sample's result depends on its neighbours: metrics are wrong, serving is random."),
    "bad-broadcast": (
        "critical",
        "Every prediction is compared with every target: the optimum is the mean of all targets.",
    ),
    "input-independent": ("critical", "The model can learn the average and nothing else."),
    "causal-leak": ("critical", "The model reads the tokens it is to predict: a low loss, and useless generation."),
    "unshifted-targets": ("critical", "The model learns to copy its input instead of predicting what comes next."),
    "padding-leak": ("critical", "Results change with the length of the longest sample in the batch."),
    "eval-nondeterminism": ("critical", "Validation and predictions are noisy, and worse than the model is."),
    "stuck-in-eval": (
        "critical",
        "Dropout is off and batch norms keep their first statistics while the weights change.",
    ),
    "inplace-on-graph": ("critical", "Backward ends with an error, or takes values that have been overwritten."),
    "bias-before-norm": ("advice", "The norm subtracts the bias again: parameters and time for nothing."),
    "norm-batch-size-one": ("warning", "One value has no variance: training ends with an error at that batch."),
    "device-unsafe-tensor": ("critical", "The program ends with an error on any accelerator."),
    "dtype-promotion": ("warning", "Double precision halves the speed on CPUs and is up to 64 times slower on GPUs."),
    "python-loop-over-batch": ("warning", "The time grows with the batch, and an accelerator waits for Python."),
    # optimization
    "loss-not-decreasing": ("critical", "Nothing is learned."),
    "bad-initial-loss": ("warning", "The first epochs are spent on undoing the initialisation."),
    "learning-rate-too-high": ("critical", "Training diverges."),
    "learning-rate-too-low": ("warning", "The weights hardly move."),
    "vanishing-gradient": ("warning", "The first layers hardly learn."),
    "exploding-gradient": ("warning", "A few steps throw the weights far away."),
    "dead-units": ("warning", "Units that are zero for every input have no gradient and do not come back."),
    "non-finite": ("critical", "One NaN reaches all weights at the next step."),
    "missing-zero-grad": ("critical", "Every step follows the sum of all gradients since the start."),
    "scheduler-cadence": ("warning", "The learning rate does not follow the schedule that was meant."),
    "graph-retained": ("critical", "Memory grows with every step until it is full."),
    "non-scalar-loss": ("critical", "Backward ends with an error."),
    "adam-l2": ("advice", "Adam divides the L2 term by the gradients' size, so that weights decay unevenly."),
    "metric-misuse": ("warning", "The figures that are shown are not those of the epoch."),
    # data
    "unnormalized-input": ("warning", "Large inputs make large gradients: training is slow or unstable."),
    "non-finite-data": ("critical", "One NaN reaches all weights at the next step."),
    "label-out-of-range": (
        "critical",
        "The loss ends with an error; on an accelerator, with an assertion without a line.",
    ),
    "constant-labels": ("warning", "The model learns to answer with one class."),
    "train-val-overlap": ("critical", "Validation measures what was learned by heart."),
    "train-not-shuffled": ("warning", "Each step sees few classes and undoes what the last one learned."),
    "eval-augmentation": ("warning", "Validation is noisy and not of the data as it is."),
    "eval-drops-data": ("warning", "Part of the data is never evaluated."),
    "duplicate-worker-rng": ("warning", "Workers repeat each other's augmentation: less variety than is paid for."),
    "channel-order": ("critical", "The convolution takes rows for channels, or ends with an error."),
    "slow-loader": ("warning", "The step waits for its data most of the time."),
    "misaligned-labels": ("critical", "Labels belong to other samples: there is nothing to learn."),
    # cost and safety
    "host-sync": ("warning", "An accelerator is waited for in every step instead of being kept busy."),
    "amp-unsafe": ("warning", "Training fails or becomes NaN under mixed precision."),
    "unsafe-load": ("critical", "Whoever wrote the file can run any code when it is loaded."),
    "swallowed-error": ("warning", "Failures pass unseen: steps are lost and nobody is told."),
}
