"""Kills trainings at random moments, continues them, and compares how they end with runs that were left alone.

    python packages/playbook/benchmarks/soak.py [kills] [seed] [options of fit]

100 kills take 51 minutes on 2 busy CPU cores.

Every series draws a recipe, options and moments; the unchanged command is repeated until the run is finished. On a GPU,
two runs are the same only with `--config configs/debug/deterministic.yaml`.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]  # of the template, whose recipes are measured
sys.path.insert(0, str(ROOT))

from playbook.checkpoints.io import damage, load

RECIPES = [
    ("configs/vision/cnn-digits.yaml", 8, ["--model.net.widths", "[8,16]"]),
    ("configs/vision/mlp-digits.yaml", 12, ["--model.net.widths", "[32,32]"]),
    ("configs/vision/vit-digits.yaml", 4, ["--model.net.depth", "2"]),
]
OPTIONS = [
    [],
    ["--data.num_workers", "2"],
    ["--trainer.accumulate_grad_batches", "3"],
    ["--trainer.val_check_interval", "1"],
    ["--trainer.val_check_interval", "5"],
    ["--model.schedule", "ReduceLROnPlateau", "--model.schedule.patience", "0"],
    ["--config", "configs/callbacks/ema.yaml"],
    ["--config", "configs/callbacks/mix.yaml"],
    ["--trainer.accelerator", "cpu", "--trainer.strategy", "ddp", "--trainer.devices", "2"],
]
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]


@dataclass
class Tally:
    """What is counted.

    Args:
        series: trainings that were killed again and again.
        identical: of them, those that ended with bitwise the same weights and the same metrics.csv.
        kills: signals sent to a training that ran.
        steps_lost: optimizer steps done again, over all kills.
        most_lost: the most at one kill.
        unreadable: checkpoint files whose checksum failed right after a kill.
        wrong_exits: exits after SIGTERM, SIGUSR1 or Ctrl-C with another code than 143, 138 or 130.
    """

    series: int = 0
    identical: int = 0
    kills: int = 0
    steps_lost: int = 0
    most_lost: int = 0
    unreadable: int = 0
    wrong_exits: int = 0


def command(recipe: str, epochs: int, options: list[str], run: Path) -> list[str]:
    configs = [option for option in options if option.endswith(".yaml")]
    rest = [option for option in options if option != "--config" and option not in configs]
    stacked = [argument for config in [recipe, *configs] for argument in ("--config", config)]
    return [
        sys.executable, "-m", "src", "fit", *stacked, *rest, "--trainer.max_epochs", str(epochs), "--run_dir", str(run),
        "--ckpt_path", "last", "--checkpoint.every_n_steps", "4", "--trainer.log_every_n_steps", "1",
    ]  # fmt: skip


def last_logged_step(run: Path) -> int:
    lines = (run / "metrics.csv").read_text().splitlines() if (run / "metrics.csv").exists() else []
    steps = [line.split(",")[:2] for line in lines[1:]]
    return max((int(cell) for cells in steps for cell in cells[1:] if cell.isdigit()), default=-1) + 1


def saved_step(run: Path) -> int:
    path = run / "checkpoints/last.ckpt"
    return load(path, map_location="meta")["global_step"] if path.exists() else 0


def kill_once(arguments: list[str], run: Path, after_s: float, number: signal.Signals, tally: Tally) -> bool:
    """Starts the command and kills it; whether it was still training."""
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begun = (run / "metrics.json").stat().st_mtime_ns if (run / "metrics.json").exists() else 0
    while process.poll() is None:  # until it trains: starting takes several seconds, in which there is nothing to lose
        if (run / "metrics.json").exists() and (run / "metrics.json").stat().st_mtime_ns != begun:
            break
        time.sleep(0.01)
    time.sleep(after_s)
    if process.poll() is not None:
        return False
    process.send_signal(number)
    code = process.wait()
    tally.kills += 1
    if number is not signal.SIGKILL and code not in (0, 128 + number):  # 0: the last step was done
        print(f"{number.name} ended with exit code {code}", flush=True)
        tally.wrong_exits += 1
    tally.unreadable += sum(damage(path) is not None for path in run.glob("checkpoints/*.ckpt"))
    lost = max(0, last_logged_step(run) - saved_step(run))
    tally.steps_lost += lost
    tally.most_lost = max(tally.most_lost, lost)
    return True


def same_ending(run: Path, whole: Path) -> bool:
    ours, theirs = (load(path / "checkpoints/last.ckpt")["state_dict"] for path in (run, whole))
    weights = ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)
    return weights and (run / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


def main(kills: str = "100", seed: str = "0", *further: str) -> None:
    most, draw, tally = int(kills), random.Random(int(seed)), Tally()
    folder = Path(tempfile.mkdtemp(prefix="soak"))
    while tally.kills < most:
        recipe, epochs, small = draw.choice(RECIPES)
        options = [*small, *draw.choice(OPTIONS), *further]
        whole, run = folder / f"{tally.series}-whole", folder / f"{tally.series}-killed"
        began = time.monotonic()
        subprocess.run(command(recipe, epochs, options, whole), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        seconds = json.loads((whole / "metrics.json").read_text())["train_seconds"]
        for _ in range(min(draw.randint(2, 6), most - tally.kills)):
            moment = draw.uniform(0, seconds / 3)
            if not kill_once(command(recipe, epochs, options, run), run, moment, draw.choice(SIGNALS), tally):
                break
        subprocess.run(command(recipe, epochs, options, run), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        tally.series += 1
        identical = same_ending(run, whole)
        tally.identical += identical
        print(
            f"{tally.kills:3} kills  {'same' if identical else f'DIFFERENT, kept in {folder}'}  "
            f"{Path(recipe).stem} {' '.join(options)}  {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if identical:
            shutil.rmtree(whole)
            shutil.rmtree(run)
    print(json.dumps({"seed": int(seed), **vars(tally)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
