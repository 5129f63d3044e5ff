"""Where the scores of a softmax come from: comparisons of two things, or the outputs of a layer."""

from torch import Tensor

from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import CONVOLUTIONS, Op
from playbook.doctor.steps import Step
from playbook.doctor.weighted import PRODUCTS, SAME_SHAPE, TIMES

_SCALES = {"add", "add_", "sub", "sub_", "__rsub__", "neg", "mul", "mul_", "div", "div_"}
_SQUASHES = {"clamp", "tanh", "relu", "leaky_relu", "elu"}
_BETWEEN = SHAPE_ONLY | SAME_SHAPE | _SCALES | _SQUASHES  # a comparison and the softmax of its scores


def are_comparisons(step: Step, scores: Tensor) -> bool:
    """Whether scores compare things from data in pairs, as q · k, or come from a layer with one output.

    No axis of such scores is made of a layer's outputs, so that each is one of the data: samples, heads, queries, keys.
    """
    todo, known = [scores], set()
    while todo:
        for maker in step.record.makers(todo.pop()):  # some return the very tensor that they get
            if maker in known:
                continue
            known.add(maker)
            if _compares(step, maker):
                return True
            if maker.name in _BETWEEN:
                todo += maker.inputs
    return False


def _compares(step: Step, op: Op) -> bool:
    if op.name == "sum":
        product = step.record.producer(op.inputs[0])
        return product is not None and product.name in TIMES and all(map(step.is_from_data, product.inputs))
    if op.name == "linear":
        return len(op.inputs[1]) == 1 and step.is_from_data(op.inputs[0])
    if op.name in CONVOLUTIONS:
        return op.outputs[0].shape[-1 - CONVOLUTIONS[op.name]] == 1 and step.is_from_data(op.inputs[0])
    if op.name not in PRODUCTS:
        return False
    learned = [leaf for leaf in op.inputs if not step.is_from_data(leaf)]
    is_vector = all(leaf.dim() == 1 or (leaf.shape[-1] == 1 and leaf is op.inputs[-1]) for leaf in learned)
    return len(learned) < len(op.inputs) and is_vector
