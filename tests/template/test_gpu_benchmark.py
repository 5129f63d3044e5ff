"""benchmarks/gpu.py on a CPU: every part yields its figures, and one that ends badly costs no other."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the script forks processes that have imported torch")
SCRIPT = ROOT / "packages/playbook/benchmarks/gpu.py"
LOOP = "plain loop, DataLoader"
FIGURES = {  # a few of each part, which others are made of
    "loop": [f"{LOOP}, µs", "plain loop, batches cut before, µs", "Playbook, µs", f"Playbook / {LOOP}"],
    "airbench": ["batch 16: Playbook / plain loop", "batch 32: Playbook / plain loop"],
    "gpt": [
        "operations a token, millions",
        "measured matmul, TFLOP/s",
        "Playbook, tokens/s",
        "Playbook / nanoGPT's loop",
    ],
    "attention": [
        "SDPA, 256 tokens, ms",
        "FlexAttention, 256 tokens, ms",
        "FlexAttention, window of 16, 64 tokens, ms",
    ],
    "kernels": ["float32, largest difference of losses", "float32: kernel / eager"],
    "precision": ["fp32, ms", "tf32 / fp32", "bf16, channels last / fp32", "with CUDA graphs / bf16, channels last"],
    "loading": ["resident, batches/s", "DataLoader, 1 workers / resident, time"],
    "muon": ["batched / one by one", "one by one, launches", "batched, launches"],
    "resume": ["CNN, bitwise equal after a resume", "GPT, bitwise equal after a resume"],
    "memory": ["parts a batch", "largest difference of weights"],
    "review": ["seconds with start-up", "findings"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("gpu") / "gpu.json"
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--minutes", "30", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + output.with_suffix(".log").read_text()[-5_000:]
    return json.loads(output.read_text())


@pytest.mark.slow
def test_every_part_is_listed_and_measured(results: dict[str, Any]) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(results["parts"]) == list(FIGURES)
    for name, part in results["parts"].items():
        assert (part["status"], part["error"]) == ("done", None)
        assert part["seconds"] > 0
        for figure in FIGURES[name]:
            value = part["figures"][figure]
            if isinstance(value, dict):
                assert value["n"] == len(value["values"]) > 0, figure
                assert min(value["values"]) <= value["median"] <= max(value["values"]), figure
                assert value["median"] > 0, figure
            elif " / " in figure:
                assert value > 0, figure
    assert results["device"] == "CPU"
    assert {"torch", "lightning", "cuda"} <= results.keys()


@pytest.mark.slow
def test_figures_that_do_not_depend_on_the_machine(results: dict[str, Any]) -> None:
    resume, memory, kernels, muon, gpt, review = (
        results["parts"][name]["figures"] for name in ("resume", "memory", "kernels", "muon", "gpt", "review")
    )
    for net in ("CNN", "GPT"):
        assert resume[f"{net}, bitwise equal after a resume"]
        assert not resume[f"{net}, equal without the last three steps"]
    assert memory["parts a batch"] == 2
    assert memory["largest difference of weights"] < 1e-6
    assert max(value for name, value in kernels.items() if "difference" in name) < 1e-5
    assert muon["matrices"] == 12  # of 2 blocks: query, key, value, out, up, down
    assert muon["batched, launches"] < muon["one by one, launches"]
    # 6 a weight of a block (4 D² + 3 D · 128) and of the head, and 14 T D a layer for attention
    dim, length = 32, 16
    weights = 2 * (4 * dim**2 + 3 * dim * 128) + 64 * dim
    assert gpt["operations a token, millions"] == pytest.approx((6 * weights + 2 * 14 * length * dim) / 1e6)
    assert review["findings"] == "bad-broadcast"


PARTS = {
    "fails": "yield 'before', 1\n    raise ValueError('no luck\\nat all')",
    "hangs": "yield 'before', 2\n    import time\n    time.sleep(600)",
    "dies": "yield 'before', 3\n    import os\n    os._exit(7)",
    "works": "print('heard')\n    yield 'after', 4",
}
OWN_PARTS = """
import sys
sys.path.insert(0, {folder!r})
import gpu, gpu_parts
gpu_parts.__path__.append({own!r})
gpu.LEAST_S = 0.0
gpu.PARTS = {{"fails": (60, ""), "hangs": (3, ""), "dies": (60, ""), "works": (60, "")}}
sys.exit(gpu.main(["--device", "cpu", "--only", "fails,hangs,dies,works", "--output", {output!r}, *sys.argv[1:]]))
"""


def own_parts(tmp_path: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, results and log of four parts of which only the last works."""
    for name, body in PARTS.items():
        (tmp_path / f"{name}.py").write_text(f"def measure(setting):\n    {body}\n")
    output = tmp_path / "results.json"
    program = OWN_PARTS.format(folder=str(SCRIPT.parent), own=str(tmp_path), output=str(output))
    done = subprocess.run([sys.executable, "-c", program, *options], capture_output=True, text=True, check=False)
    assert output.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(output.read_text())["parts"], output.with_suffix(".log").read_text()


@pytest.mark.slow
def test_a_part_that_ends_badly_keeps_its_figures_and_costs_no_other(tmp_path: Path) -> None:
    code, parts, log = own_parts(tmp_path)
    assert code == 1
    assert [(part["status"], part["error"], part["figures"]) for part in parts.values()] == [
        ("failed", "ValueError: no luck", {"before": 1}),
        ("out of time", None, {"before": 2}),
        ("failed", "the process ended with code 7", {"before": 3}),
        ("done", None, {"after": 4}),
    ]
    assert 3 <= parts["hangs"]["seconds"] < 30
    assert "== works\nheard" in log
    assert "ValueError: no luck" in log


@pytest.mark.slow
def test_parts_without_time_are_told(tmp_path: Path) -> None:
    code, parts, _ = own_parts(tmp_path, "--minutes", "0")
    assert code == 0
    assert {part["status"] for part in parts.values()} == {"no time"}


@pytest.mark.slow
def test_without_a_gpu_one_line_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path / "gpu.json")]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2
    assert done.stdout.count("\n") == 1, done.stdout
    assert "--device cuda: " in done.stdout
    assert "--device cpu --tiny" in done.stdout
