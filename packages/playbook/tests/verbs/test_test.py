"""The options of `test`."""

from playbook.testing.command import Cli
from running import MLP_DIGITS


def test_backtest_needs_the_callback_of_the_project(cli: Cli) -> None:
    short = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.logger", "false")
    assert cli("fit", "--config", MLP_DIGITS, *short, "--run_dir", "run").code == 0
    done = cli("test", "--ckpt_path", "run", "--backtest")
    assert (done.code, done.err) == (2, "error: --backtest: example/callbacks has no callback Backtest\n")
