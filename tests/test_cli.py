"""The life of a run through the real command line."""

from tests.conftest import CNN_DIGITS, Cli


def test_fit_then_test_then_predict(cli: Cli) -> None:
    done = cli("fit", "--config", CNN_DIGITS, "--run_dir", "run", "--trainer.max_epochs", "2")
    assert done.code == 0, done.err
    assert "Architecture" in done.out
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    predicted = cli("predict", "--ckpt_path", "run")
    assert predicted.code == 0, predicted.err
