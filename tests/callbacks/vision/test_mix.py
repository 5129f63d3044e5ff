"""What is mixed against closed forms, in the right shares, and the same when a run is continued."""

import pytest

from playbook.testing.command import Cli
from playbook.testing.resume import BATCHES, assert_same_ending, cut, fit, resume
from tests.conftest import CNN_DIGITS


@pytest.mark.slow
def test_command_line_mixes_training_alone_and_continues_exactly(cli: Cli) -> None:
    args = ("--trainer.callbacks+=Mix", "--trainer.callbacks.probability=0.7")
    assert fit(cli, CNN_DIGITS, "whole", *args).code == 0
    cut(cli, CNN_DIGITS, "cut", BATCHES + 3, "--checkpoint.every_n_steps", "1", *args)
    done = resume(cli, CNN_DIGITS, "cut", *args)
    assert done.code == 0, done.err
    assert_same_ending("cut", "whole")
    assert fit(cli, CNN_DIGITS, "plain").code == 0
    with pytest.raises(AssertionError, match="differs after resuming"):
        assert_same_ending("plain", "whole")
