"""Counts on how many programs each defect is found: a check that finds nothing but its own tests may go.

    python packages/torchdoctor/benchmarks/hits.py FOLDER [FOLDER …]

Reviews every Python file in these folders: a module whose class is called `Model` with its `Data`, anything else as a
script. Prints the defects by their number of programs, then those that no program has, and the programs that could not
be reviewed. Raw results go to hits.json.
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

from torchdoctor.registry import all_defects

RESULTS = Path(__file__).with_suffix(".json")
LIMIT_S = 300.0  # for a program


def main() -> None:
    files = sorted({file for folder in sys.argv[1:] for file in Path(folder).resolve().glob("*.py")})
    if not files:
        sys.exit(f"{' '.join(sys.argv[1:])}: expected folders with Python files")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = dict(zip(files, pool.map(review, files), strict=True))
    ids = {
        str(file.relative_to(file.parents[1])): sorted({item["id"] for item in answer["findings"]})
        for file, answer in answers.items()
        if answer is not None
    }
    counts = Counter(name for names in ids.values() for name in names)
    for name, count in counts.most_common():
        print(f"{count:5}  {name}")
    print(f"\nNone in {len(ids)} programs: {', '.join(sorted(set(all_defects()) - set(counts)))}")
    failed = [file.name for file, answer in answers.items() if answer is None]
    print(f"Not reviewed: {', '.join(failed) or 'none'}")
    RESULTS.write_text(json.dumps({"programs": len(ids), "hits": counts, "found": ids}, indent=1) + "\n")


def review(file: Path) -> dict[str, Any] | None:
    """The review of a program as JSON; None where there is none."""
    classes = {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}
    program = [str(file)]
    if "Model" in classes:
        program = ["--model", f"{file.stem}.Model"]
        program += ["--data", f"{file.stem}.Data"] if "Data" in classes else []
    path = os.pathsep.join([str(file.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "torchdoctor", "--format", "json", *program]
    try:
        done = subprocess.run(
            command,
            cwd=file.parent,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None


if __name__ == "__main__":
    main()
