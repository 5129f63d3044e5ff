"""Pictures of batches: what is drawn is what the model took, whatever the targets are."""

from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from playbook.testing.command import Cli
from tests.conftest import CNN_DIGITS


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved."""
    saved: list[Figure] = []
    original = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: saved.append(self) or original(self, *a, **k))
    return saved


@pytest.mark.slow
def test_run_leaves_a_picture_of_its_mixed_batches(cli: Cli, figures: list[Figure]) -> None:
    mix = ("--trainer.callbacks+=Browse", "--trainer.callbacks.num_images=20", "--trainer.callbacks+=Mix")
    done = cli("fit", "--config", CNN_DIGITS, *mix, "--run_dir", "run", "--trainer.max_epochs", "1")
    assert done.code == 0, done.err
    assert done.out.count("pictures of the model's inputs: run/browse.png") == 1
    assert matplotlib.image.imread("run/browse.png").shape[:2] == (552, 1280)
    [figure] = figures
    assert sum(len(axes.images) for axes in figure.axes) == 20
    assert any(", " in axes.get_title() for axes in figure.axes), "two shares of a mixed target"


@pytest.mark.slow
def test_partial_draws_and_stops(cli: Cli) -> None:
    browse = str(Path(CNN_DIGITS).parents[1] / "debug/browse.yaml")
    done = cli("fit", "--config", CNN_DIGITS, "--config", browse, "--run_dir", "run")
    assert done.code == 0, done.err
    assert Path("run/browse.png").is_file()
