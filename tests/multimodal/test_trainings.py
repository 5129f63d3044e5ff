"""Image with text: exact resume, memory that does not suffice, and two processes."""

import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.multimodal.made_up import write_folder, write_shards
from tests.trainings import HALVES, assert_resumes_exactly, assert_same_in_two_processes

# 48 training pairs, 3 steps an epoch; 16 for validation and test each
SCENES = ("--data", "CaptionedDigits", "--data.num_train", "48", "--data.num_val", "16", "--data.num_test", "16")
DIGITS = (*SCENES, "--data.batch_size", "16", "--seed_everything", "1", "--trainer.max_epochs", "2")
NET = ("--model", "Contrastive", "--model.net", "CLIP", "--model.net.embed_dim", "8", "--model.net.text_width", "8")
NET = (*NET, "--model.net.image_width", "8", "--model.net.text_depth", "1")
PATCHES = (*NET, "--model.net.image_tower", "vit", "--model.net.patch_size", "8", "--model.net.image_depth", "1")
STAGES = (*NET, "--model.net.image_tower", "resnet", "--model.net.image_depth", "2")
# 20 training pairs in batches of 8: 3 steps an epoch
FILES = ("--data.image_size", "16", "--data.batch_size", "8", "--seed_everything", "1", "--trainer.max_epochs", "2")
FILES = (*FILES, "--data.val_share", "0.1", "--data.test_share", "0.1", *STAGES)
RUNS = {
    "digits": (*DIGITS, *PATCHES, "--model.net.dropout", "0.1"),
    "sigmoid": (*DIGITS, *STAGES, "--model.loss", "sigmoid"),
    "folder": ("--data", "ImageText", "--data.root", "pairs", *FILES),
    "shards": ("--data", "ImageTextShards", "--data.root", "shards", *FILES),
}
METRICS = tuple(
    f"{stage}/{name}"
    for stage in ("val", "test")
    for name in ("loss", "image_to_text_recall@1", "image_to_text_recall@5", "text_to_image_recall@1")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_resumes_exactly(cli: Cli, name: str) -> None:
    write_folder(Path("pairs"))
    write_shards(Path("shards"))
    assert_resumes_exactly(cli, [3, 5], *RUNS[name])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
@pytest.mark.parametrize("loss", ["infonce", "sigmoid"])
def test_two_processes_are_one(workdir: Path, loss: str) -> None:
    assert_same_in_two_processes(workdir, 16, ("train/loss", *METRICS), *DIGITS, *PATCHES, "--model.loss", loss)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
def test_two_processes_with_an_uneven_last_batch(workdir: Path) -> None:
    """Of 43 pairs, the last batch has 11: 6 in one process and 5 in the other."""
    uneven = (*DIGITS, "--data.num_train", "43", *PATCHES)
    assert_same_in_two_processes(workdir, 16, ("train/loss", *METRICS), *uneven)


@pytest.mark.slow
def test_steps_that_would_have_another_loss_are_refused_in_one_line(cli: Cli) -> None:
    accumulated = cli("fit", *RUNS["sigmoid"], "--trainer.accumulate_grad_batches", "2", "--run_dir", "accumulated")
    split = cli("fit", *RUNS["sigmoid"], HALVES, "--run_dir", "split")
    for done, option in ((accumulated, "--trainer.accumulate_grad_batches 2"), (split, "--data.batch_size")):
        assert done.code == 2
        [line] = [line for line in done.err.splitlines() if line.startswith("error: ")]
        assert line.startswith(f"error: {option}: ")
        assert "Traceback" not in done.err
