"""A wrong number of classes of a detection data set."""

from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.data.vision.test_detection import write_voc


@pytest.mark.slow
def test_a_run_ends_in_one_line_before_training(cli: Cli) -> None:
    """roboflow/rf-detr#1303 ended in a traceback."""
    write_voc(Path("data"))
    net = ("--model.net", "YOLO", "--model.net.num_classes", "1")
    data = ("--data", "VOCDetection", "--trainer.max_epochs", "1")
    done = cli("fit", "--model", "Detection", "--model.num_classes", "1", *net, *data, "--run_dir", "r")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(
        "error: --model.num_classes: expected 2, got 1; the data has 2 classes: cat, dog"
    )
    assert "Traceback" not in done.err
