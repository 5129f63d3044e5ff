"""Every recipe and partial file, shrunk, through the command line: fit, checkpoint, test from it alone, predict."""

import json
import math
from pathlib import Path

import pytest

from playbook import project
from playbook.command import arguments, discovery
from playbook.command import cli as building
from tests.conftest import CNN_DIGITS, MLP_DIGITS, ROOT, Cli
from tests.data.test_detection import write_voc
from tests.data.test_image_archive import archive, usual
from tests.data.test_masks import write_pets
from tests.data.test_vision import write_cifar10, write_cifar100, write_mnist
from tests.playbook.running import model_verb, sampled

RECIPES = [entry.path for entry in discovery.recipes()]
PARTIALS = [entry.path for entry in discovery.partials() if "/trainer/" not in entry.path]  # in test_trainer_configs.py
SMALLER = {
    "configs/language/gpt-shakespeare-10m.yaml": ("--model.net.dim", "48", "--data.batch_size", "4")
}  # for a GPU
ONE_A_NET = [  # and a task and a kind of data of its own
    "vision/airbench-cifar10-jpeg",
    "vision/cnn-digits",
    "vision/mlp-digits",
    "vision/resnet18-cifar100",
    "vision/resnet18-fashion-pruned",
    "vision/resnet9-cifar10",
    "vision/retinanet-scenes",
    "vision/unet-pets",
    "vision/vit-digits",
    "vision/yolo-n-bccd",
    "language/encoder-sst2",
    "language/gpt-questions",
    "language/gpt-shakespeare",
    "language/lora-sst2",
    "language/lstm-sst2",
    "language/mlm-sst2",
]
SHRUNK = ("--config", str(ROOT / "configs/debug/one-batch.yaml"))


@pytest.fixture
def published(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few made-up samples of every data set that is not embedded, where and as they are published."""
    for name in ("MNIST", "FashionMNIST"):
        write_mnist(Path("data"), name, num_train=600)
    archive(Path("data/cifar10_jpeg.tar.xz"), usual(size=(32, 32)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(workdir / "cache"))
    write_cifar10(Path("data"))
    write_cifar100(Path("data"))
    write_pets(Path("data"))
    write_voc(Path("data/bccd"), ("Platelets", "RBC"))
    Path("data/sst2").mkdir()
    for split in ("train", "dev", "test"):
        rows = [f"{'a good' if i % 2 else 'no'} film {'!' * (i % 7)}\t{i % 2}\n" for i in range(40)]
        Path(f"data/sst2/{split}.tsv").write_text("".join(rows))
    Path("data/aclImdb/train/unsup").mkdir(parents=True)
    for i in range(40):
        Path(f"data/aclImdb/train/unsup/{i}_0.txt").write_text(f"{'No' if i % 2 else 'A'} film.<br />It's {i}!")
    Path("data/tinyshakespeare").mkdir()
    Path("data/tinyshakespeare/input.txt").write_text(
        "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 500
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_is_parsed_and_built(workdir: Path, recipe: str) -> None:
    project.choose("src")
    args = ["--config", str(ROOT / recipe), "--run_dir", "run"]
    session = building.open_session(arguments.read(model_verb("fit"), args))
    try:
        building.build(session)
    finally:
        session.run.release()
    assert session.title == Path(recipe).stem
    assert sum(parameter.numel() for parameter in session.model.parameters()) > 0
    assert session.datamodule is not None


ONE_A_TASK = (
    "vision/cnn-digits",
    "vision/unet-scenes",
    "vision/yolo-n-scenes",
    "language/gpt-shakespeare",
    "language/lstm-sst2",
    "language/mlm-sst2",
)


@pytest.mark.parametrize("recipe", sampled(RECIPES, [f"configs/{name}.yaml" for name in ONE_A_TASK]))
@pytest.mark.usefixtures("published")
@pytest.mark.slow
def test_recipe(cli: Cli, recipe: str) -> None:
    done = cli("fit", "--config", str(ROOT / recipe), *SHRUNK, *SMALLER.get(recipe, ()), "--run_dir", "run")
    assert done.code == 0, done.err
    told = [
        line for line in done.err.splitlines() if not line.startswith(("data: ", "LoRA: ", "Pruned: "))
    ]  # layout, size
    assert told == [], "a run is calm"
    results = json.loads(Path("run/metrics.json").read_text())
    assert results["status"] == "finished"
    verb = "test" if results.get("test") else "validate"  # some data has no test
    values = results.get("test") or {k: v for k, v in results["metrics"].items() if k.startswith("val/")}
    assert values
    assert all(math.isfinite(value) for value in values.values())
    tested = cli(verb, "--ckpt_path", "run/checkpoints/best.ckpt")
    assert tested.code == 0, tested.err
    name, value = next(iter(values.items()))
    assert f"{name} {value:.4g}" in tested.out
    predicted = cli("predict", "--ckpt_path", "run")
    assert predicted.code == 0, predicted.err
    assert any(Path("run/predictions").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [f"configs/{name}.yaml" for name in ONE_A_NET])
@pytest.mark.usefixtures("published")
def test_same_seed_same_weights(cli: Cli, recipe: str) -> None:
    import torch

    for run in ("first", "second"):
        assert cli("fit", "--config", str(ROOT / recipe), *SHRUNK, *SMALLER.get(recipe, ()), "--run_dir", run).code == 0
    first, second = (
        torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in ("first", "second")
    )
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [f"configs/{name}.yaml" for name in ONE_A_NET])
@pytest.mark.usefixtures("published")
def test_recipe_passes_the_review(cli: Cli, recipe: str) -> None:
    done = cli("doctor", "--config", str(ROOT / recipe), *SMALLER.get(recipe, ()), "--format", "json")
    assert done.code == 0, done.err
    assert not json.loads(done.out)["findings"]


@pytest.mark.parametrize("partial", PARTIALS)
@pytest.mark.slow
def test_partial_stacks_on_a_recipe(cli: Cli, partial: str) -> None:
    small = ("--model.net.widths", "[4]", "--data.shift", "0")
    if "overfit" not in partial:
        small = (*small, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2")
    done = cli("fit", "--config", CNN_DIGITS, "--config", str(ROOT / partial), "--run_dir", "run", *small)
    assert done.code == 0, done.err
    assert Path("run/checkpoints/last.ckpt").is_file()


@pytest.mark.slow
def test_overfit_learns_its_batch_by_heart(cli: Cli) -> None:
    for recipe in (CNN_DIGITS, MLP_DIGITS):
        run = Path(recipe).stem
        overfit = ("--config", str(ROOT / "configs/debug/overfit.yaml"))
        assert cli("fit", "--config", recipe, *overfit, "--run_dir", run).code == 0
        loss = json.loads(Path(run, "metrics.json").read_text())["metrics"]["train/loss"]
        assert loss < 0.05, f"{recipe}: train/loss {loss:.3g} after 100 epochs on one batch"


@pytest.mark.slow
def test_profiler_writes_its_table_into_the_run(cli: Cli) -> None:
    profiler = ("--config", str(ROOT / "configs/debug/profiler.yaml"), "--trainer.max_steps", "4")
    assert cli("fit", "--config", CNN_DIGITS, *profiler, "--run_dir", "run").code == 0
    assert "run_training_batch" in Path("run/fit-profile.txt").read_text()
