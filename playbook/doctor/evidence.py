"""How a finding was established: measured in a run, shown by an experiment, or read from the source."""

from typing import Literal, NamedTuple


class Evidence(NamedTuple):
    """What stands behind a finding.

    Args:
        kind: measured in the program as it runs, shown by an experiment (one thing was changed, the effect compared),
            or read from the source.
        text: what was done.
    """

    kind: Literal["measured", "experiment", "source"]
    text: str


_STEP = Evidence("measured", "the calls of a training step were recorded")
_TRAINING = Evidence("measured", "a few training steps were run and watched")
_RUN = Evidence("measured", "the program was run as it is")
_LOADER = Evidence("measured", "the samples of an epoch were read and counted")
_RATES = Evidence("experiment", "the model was trained for 30 steps at several learning rates, on copies")

_EVIDENCE: dict[str, Evidence] = {
    "activation-on-logits": _STEP,
    "adam-l2": Evidence("source", "the options of the optimizer were read"),
    "amp-unsafe": Evidence("experiment", "a training step was run with the rounding of float16"),
    "bad-broadcast": _STEP,
    "bad-initial-loss": Evidence("experiment", "the first loss was compared with that of a constant prediction"),
    "batch-mixing": Evidence("experiment", "one sample was replaced, and the results of the others were compared"),
    "bias-before-norm": _STEP,
    "causal-leak": Evidence("experiment", "later tokens were changed, and the earlier predictions were compared"),
    "channel-order": _STEP,
    "constant-labels": _LOADER,
    "crash": _RUN,
    "dead-units": Evidence("measured", "the outputs of each ReLU were watched over several batches"),
    "detached-graph": _TRAINING,
    "device-unsafe-tensor": Evidence("experiment", "a step was run with the model and the batch on a simulated device"),
    "double-softmax": _STEP,
    "dtype-promotion": _STEP,
    "duplicate-worker-rng": Evidence("experiment", "the same sample was read several times in two worker processes"),
    "eval-augmentation": Evidence("experiment", "the same validation samples were read twice with other seeds"),
    "eval-drops-data": _LOADER,
    "eval-nondeterminism": Evidence("experiment", "the same batch was evaluated twice with other seeds"),
    "exploding-gradient": Evidence("measured", "the gradients were measured layer by layer over several batches"),
    "graph-retained": Evidence("measured", "the living nodes of autograd's graph were counted after each of six steps"),
    "host-sync": Evidence("measured", "the lines that read values were noted over several training steps"),
    "inplace-on-graph": Evidence("measured", "backward was run, and the versions of its tensors were noted"),
    "input-independent": Evidence("experiment", "the samples of a batch changed places, and the predictions did not"),
    "label-out-of-range": Evidence("measured", "the targets of each loss were read before it was computed"),
    "layer-in-forward": Evidence("measured", "the layers that two training steps make were noted"),
    "learning-rate-too-high": _RATES,
    "learning-rate-too-low": Evidence("measured", "the change of each weight was measured over 30 steps"),
    "loss-not-decreasing": Evidence("experiment", "the loss was compared with a plain one, or trained on 8 samples"),
    "mean-divided-again": Evidence("experiment", "the losses of a batch given once and twice were compared"),
    "metric-misuse": Evidence("measured", "two short epochs with validation were run, and what they log was compared"),
    "misaligned-labels": Evidence("experiment", "simple learners predicted the labels, with other orders of the data"),
    "misordered-targets": Evidence("experiment", "one sample was replaced, and prediction and target were compared"),
    "missing-super-init": _RUN,
    "missing-zero-grad": _TRAINING,
    "no-supervised-tokens": Evidence("measured", "the labels of several batches were counted"),
    "non-finite": Evidence("measured", "losses and gradients were checked over several batches, call by call"),
    "non-finite-data": Evidence("measured", "the values of an epoch of batches were checked"),
    "non-scalar-loss": _STEP,
    "norm-batch-size-one": Evidence("experiment", "a training step was run with a batch of one sample"),
    "padding-in-loss": Evidence("measured", "the gradient was measured at each label of a batch"),
    "padding-leak": Evidence("experiment", "padding was cut off, and the result of the same sample was compared"),
    "parameter-not-optimized": _TRAINING,
    "prompt-in-loss": Evidence("measured", "the gradient was measured at each label of a batch"),
    "python-loop-over-batch": Evidence("experiment", "a step was run on a batch and on half of it, loops were counted"),
    "same-position": _STEP,
    "scheduler-cadence": Evidence("measured", "the schedule was compared with the steps of two short epochs"),
    "shifted-causal-mask": Evidence("experiment", "the same tokens were read in one piece and in several"),
    "sigmoid-before-logits-loss": _STEP,
    "slow-loader": Evidence("measured", "batches and training steps were timed"),
    "stuck-in-eval": _TRAINING,
    "swallowed-error": Evidence("experiment", "an error was raised inside the step, and did not come out"),
    "swapped-loss-arguments": _STEP,
    "train-not-shuffled": Evidence("measured", "the labels were read in the order of the training loader"),
    "train-val-overlap": Evidence("measured", "the samples of training and validation were compared by content"),
    "unequal-accumulation": Evidence("experiment", "the gradient was compared with that of one large batch"),
    "unnormalized-input": Evidence("measured", "the inputs of the first layer were measured"),
    "unregistered-submodule": Evidence("measured", "the attributes of the module were compared with its parameters"),
    "unsafe-load": Evidence("source", "the calls that load files were read"),
    "unshifted-targets": Evidence("experiment", "later tokens were changed, and inputs were compared with targets"),
    "unused-parameter": _TRAINING,
    "vanishing-gradient": Evidence("measured", "the gradients were measured layer by layer over several batches"),
}


def evidence_of(defect: str) -> Evidence:
    """What stands behind findings of a defect; a recorded training step where nothing else is named."""
    return _EVIDENCE.get(defect, _STEP)
