"""Tests that would have caught the defects of a program, or would catch them later: a name and an assertion each."""

import re
from typing import NamedTuple

from torchdoctor.report import Report

_MOST = 6


class Test(NamedTuple):
    """A test to write.

    Args:
        name: of the function.
        assertion: in a line, on `model`, a batch `x, y`, and what its names say.
    """

    __test__ = False  # pytest

    name: str
    assertion: str


# by the defect that it catches, the most telling first
_TESTS = {
    "bad-broadcast": Test("test_predictions_have_the_shape_of_the_targets", "assert model(x).shape == y.shape"),
    "label-out-of-range": Test("test_labels_are_classes", "assert 0 <= y.min() and y.max() < model(x).shape[1]"),
    "train-val-overlap": Test(
        "test_no_sample_is_in_both_splits",
        "assert not {bytes(x.numpy()) for x, _ in train} & {bytes(x.numpy()) for x, _ in val}",
    ),
    "causal-leak": Test(
        "test_no_position_sees_later_ones", "assert torch.allclose(model(x)[:, :4], model(x[:, :4]), atol=1e-5)"
    ),
    "batch-mixing": Test(
        "test_samples_do_not_change_each_other",
        "assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)  # in eval mode",
    ),
    "padding-leak": Test(
        "test_padding_changes_nothing",
        "assert torch.allclose(model(x, lengths), model(F.pad(x, (0, 3)), lengths), atol=1e-5)",
    ),
    "missing-zero-grad": Test(
        "test_a_step_forgets_the_one_before",
        "assert torch.allclose(grad_after(1), grad_after(2))  # the same batch twice",
    ),
    "unused-parameter": Test(
        "test_every_weight_gets_a_gradient", "assert all(p.grad is not None for p in model.parameters())"
    ),
    "parameter-not-optimized": Test(
        "test_a_step_moves_every_weight",
        "assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters()))",
    ),
    "loss-not-decreasing": Test(
        "test_one_batch_can_be_learnt", "assert losses[-1] < 0.1 * losses[0]  # 200 steps on it"
    ),
    "bad-initial-loss": Test(
        "test_the_first_loss_is_that_of_a_guess", "assert abs(loss.item() - math.log(num_classes)) < 0.5"
    ),
    "eval-nondeterminism": Test(
        "test_evaluation_is_deterministic", "assert torch.equal(model(x), model(x))  # in eval mode"
    ),
    "stuck-in-eval": Test("test_training_goes_on_in_training_mode", "assert model.training  # after a validation"),
    "validation-changes-model": Test(
        "test_validation_changes_nothing",
        "assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())",
    ),
    "eval-drops-data": Test(
        "test_validation_reads_every_sample", "assert sum(len(y) for _, y in val_loader) == len(val)"
    ),
    "non-finite": Test("test_the_loss_is_finite", "assert torch.isfinite(loss)"),
    "device-unsafe-tensor": Test(
        "test_the_model_runs_on_another_device", 'assert model.to("meta")(x.to("meta")).is_meta'
    ),
}


def propose(report: Report) -> list[Test]:
    """Up to six: of the defects that were found first, then of those that checks have ruled out."""
    reported = [item["id"] for item in report.findings]
    ids = [name for name in _TESTS if name in reported]
    ids += [name for name in _TESTS if name in report.ruled_out and name not in (*reported, "bad-broadcast")]
    own = re.compile(r"\bmodel\b")
    tests = (_TESTS[name] for name in ids[:_MOST])
    return [test._replace(assertion=own.sub(report.model, test.assertion)) for test in tests]
