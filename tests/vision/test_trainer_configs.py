"""Every file in configs/trainer, stacked on the ViT through the command line: what it sets arrives, and it trains."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from playbook.command import discovery
from playbook.testing.command import Cli
from tests.conftest import CNN_DIGITS, ROOT

PARTIALS = {Path(e.path).stem: e.path for e in discovery.partials() if Path(e.path).parent.name == "trainer"}
SEVERAL_PROCESSES = {"num_nodes", "strategy"}  # what sets one of these trains in test_distributed.py, test_sharded.py
SLOW = {"compile", "cuda-graphs"}  # a compiler takes longer than ten seconds
VIT_DIGITS = ("--config", str(ROOT / "configs/vision/vit-digits.yaml"))
SMALL = ("--model.net.depth", "2", "--model.net.dim", "16", "--data.shift", "0")
SHORT = tuple(f"--trainer.limit_{stage}_batches=2" for stage in ("train", "val", "test"))
SHORT = (*SHORT, "--trainer.max_epochs", "1", "--run_dir", "run")

PROBE = """
import json
from pathlib import Path

import torch
from lightning.pytorch import Callback

class Probe(Callback):
    def on_train_start(self, trainer, module):
        parameter = next(module.parameters())
        seen = json.dumps(
            {
                "precision": trainer.precision,
                "accumulate_grad_batches": trainer.accumulate_grad_batches,
                "gradient_clip_val": trainer.gradient_clip_val,
                "gradient_clip_algorithm": trainer.gradient_clip_algorithm,
                "matmul": torch.get_float32_matmul_precision(),
                "weights": str(parameter.dtype),
                "callbacks": [type(callback).__name__ for callback in trainer.callbacks],
                "compiled": any(part._compiled_call_impl is not None for part in module.modules()),
                "wrapped": sum("forward" in vars(part) for part in module.modules()),
            }
        )
        Path("seen.json").write_text(seen)
"""
ARRIVES: dict[str, dict[str, Any]] = {
    "cpu": {"precision": "32-true"},
    "tf32": {"precision": "32-true", "matmul": "high"},
    "bf16": {"precision": "bf16-mixed", "weights": "torch.float32"},
    "bf16-true": {"precision": "bf16-true", "weights": "torch.bfloat16"},
    "compile": {"compiled": True},
    "cuda-graphs": {"compiled": True},
    "channels-last": {},
    "activation-checkpointing": {"wrapped": 2},
    "accumulation": {"accumulate_grad_batches": 4},
    "clip-norm": {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm"},
    "clip-value": {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"},
}


def test_every_setting_that_should_arrive_is_of_a_file() -> None:
    assert ARRIVES.keys() | SLOW <= PARTIALS.keys()


def stacked(*names: str) -> tuple[str, ...]:
    return (*VIT_DIGITS, *(word for name in names for word in ("--config", str(ROOT / PARTIALS[name]))))


def settings(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / PARTIALS[name]).read_text(encoding="utf-8"))["trainer"]


def weights(run: str = "run") -> dict[str, torch.Tensor]:
    return torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture
def probe(workdir: Path) -> tuple[str, ...]:
    """Options that make a run write what arrived in it to seen.json."""
    (workdir / "probe.py").write_text(PROBE)
    return ("--trainer.callbacks+=probe.Probe",)


@pytest.mark.parametrize("name", PARTIALS)
def test_parses_on_a_recipe_and_keeps_the_rest(cli: Cli, name: str) -> None:
    done = cli("fit", *stacked(name), "--print_config")
    assert done.code == 0, done.err
    merged = yaml.safe_load(done.out)
    assert merged["model"]["init_args"]["net"]["class_path"] == "src.nets.vision.vit.ViT"
    for option, value in settings(name).items():
        if option == "callbacks+":
            found = [callback["class_path"].rpartition(".")[2] for callback in merged["trainer"]["callbacks"]]
            assert found == [callback["class_path"] for callback in value]
        elif not isinstance(value, dict | list):  # classes are written out in full
            assert merged["trainer"][option] == value


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in PARTIALS])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # the compiler's own
@pytest.mark.slow
def test_trains_with_what_it_sets(cli: Cli, name: str, probe: tuple[str, ...]) -> None:
    if settings(name).keys() & SEVERAL_PROCESSES:
        pytest.skip("needs several processes")
    if settings(name).get("accelerator") == "gpu" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    done = cli("fit", *stacked(name), *SMALL, *SHORT, *probe)
    assert done.code == 0, done.err
    seen = yaml.safe_load(Path("seen.json").read_text())
    added = [callback["class_path"] for callback in settings(name).get("callbacks+", [])]
    assert set(added) <= set(seen["callbacks"])
    expected = ARRIVES.get(name, {})
    assert {option: seen[option] for option in expected} == expected
    assert not [key for key in weights() if "_orig_mod" in key or "_checkpoint" in key]
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err


@pytest.mark.parametrize("name", [name for name in PARTIALS if settings(name).get("accelerator") == "gpu"])
def test_without_a_gpu_it_says_so_in_one_line(cli: Cli, name: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = cli("fit", *stacked(name), *SMALL, *SHORT)
    assert done.code == 2
    assert f"configs/trainer/{name}.yaml" in done.err
    assert "--trainer.accelerator: No supported gpu backend found" in done.err
    assert done.err.count("\n") == 1


def test_several_stack(cli: Cli, probe: tuple[str, ...]) -> None:
    names = ("cpu", "tf32", "bf16", "activation-checkpointing", "channels-last", "accumulation", "clip-norm")
    done = cli("fit", *stacked(*names), *SMALL, *SHORT, *probe)
    assert done.code == 0, done.err
    seen = yaml.safe_load(Path("seen.json").read_text())
    order = ["MatmulPrecision", "ActivationCheckpointing", "ChannelsLast", "Probe"]
    assert [callback for callback in seen["callbacks"] if callback in order] == order
    for name in names:
        assert {option: seen[option] for option in ARRIVES[name] if option != "precision"} == {
            option: value for option, value in ARRIVES[name].items() if option != "precision"
        }
    assert seen["precision"] == "bf16-mixed"


@pytest.mark.slow
def test_compiled_run_says_so_and_keeps_names(cli: Cli, probe: tuple[str, ...]) -> None:
    """The stage before code is generated; the generated code runs in the slow tests."""
    eager = ("--trainer.callbacks+=Compile", "--trainer.callbacks.backend=eager")
    done = cli("fit", *VIT_DIGITS, *SMALL, *SHORT, *eager, *probe)
    assert done.code == 0, done.err
    assert ", compiled, " in done.out
    compiled = weights()
    assert cli("fit", *VIT_DIGITS, *SMALL, *SHORT, "--run_dir", "plain").code == 0
    assert list(compiled) == list(weights("plain"))
    assert all(torch.equal(value, compiled[name]) for name, value in weights("plain").items())


@pytest.mark.slow
def test_accumulated_small_batches_are_one_large_batch(cli: Cli) -> None:
    """4 × 16 samples a step give the weights of 64. By SGD: to Adam, the noise in a key's bias is a gradient."""
    sgd = ("--model.optimizer", "SGD", "--model.optimizer.lr", "0.1")
    steps = (*SMALL, *sgd, "--trainer.max_steps", "3", "--trainer.limit_val_batches", "1")
    assert cli("fit", *VIT_DIGITS, *steps, "--run_dir", "whole").code == 0
    assert cli("fit", *stacked("accumulation"), *steps, "--data.batch_size", "16", "--run_dir", "parts").code == 0
    for name, value in weights("whole").items():
        if name.startswith("net."):
            torch.testing.assert_close(
                weights("parts")[name], value, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bf16", "activation-checkpointing"])
def test_a_run_continues_under_the_same_file(cli: Cli, name: str) -> None:
    """Stopped after two of three epochs and continued, or in one go: bitwise the same weights."""
    few = (*SMALL, "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1", "--trainer.limit_test_batches=1")
    schedule = ("--model.schedule", "ConstantLR")  # the cosine's length is that of the run
    for run, epochs in (("whole", "3"), ("parts", "2"), ("parts", "3")):
        more = ("--ckpt_path", "last") if run == "parts" else ()
        done = cli("fit", *stacked(name), *few, *schedule, "--trainer.max_epochs", epochs, "--run_dir", run, *more)
        assert done.code == 0, done.err
    parts = weights("parts")
    assert all(torch.equal(value, parts[key]) for key, value in weights("whole").items())


def test_pattern_of_another_net_names_the_nets_own(cli: Cli) -> None:
    partial = ("--config", str(ROOT / PARTIALS["activation-checkpointing"]))
    done = cli("fit", "--config", CNN_DIGITS, *partial, *SHORT, "--trainer.callbacks.layers=*blocks.*")
    assert done.code == 2
    assert r"layers: no module is named *blocks.*. Patterns that match: *stages.*" in done.err
