"""Throughput and latency of `serve` against a plain FastAPI endpoint with the same model, on loopback.

    python packages/playbook/benchmarks/serving.py ARTEFACT FILE [SECONDS]

FILE is an input that the model takes, such as an image. The plain endpoint reads one file and runs the same program
with the same code, one request at a time, in FastAPI's thread pool. `wrk` sends the same body by 1 and 64 connections;
its one thread leaves the processor to the servers. Rounds take turns, and medians are printed.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PLAIN = """
import sys, uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from playbook.deploy.runtime import Artefact

model, app = Artefact(sys.argv[1]), FastAPI()

@app.post("/")
async def answer(request: Request):
    return {"answers": await run_in_threadpool(model.predict, [await request.body()])}

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""
SCRIPT = """
wrk.method, wrk.body = "POST", io.open(os.getenv("BODY"), "rb"):read("*all")
wrk.headers["content-type"] = "application/octet-stream"
"""
PORTS = (8471, 8472)
ROUNDS = 5
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def load(address: str, num_clients: int, seconds: int, script: Path) -> tuple[float, float, float]:
    """Requests per second, and the 50th and 99th percentile of their milliseconds."""
    command = ["wrk", "-t1", f"-c{num_clients}", f"-d{seconds}s", "--latency", "-s", str(script), address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in shown or "Socket errors" in shown:
        raise SystemExit(f"{address} refused requests:\n{shown}")
    rate = float(re.findall(r"Requests/sec:\s+([\d.]+)", shown)[0])
    p50, p99 = (
        float(value) * UNITS[unit]
        for share in ("50", "99")
        for value, unit in re.findall(rf"{share}%\s+([\d.]+)(us|ms|s)", shown)
    )
    return rate, p50, p99


def wait(address: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=5)
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{address} does not answer")


def main() -> None:
    model, body = sys.argv[1], sys.argv[2]
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    os.environ["BODY"] = body
    ours = subprocess.Popen([sys.executable, "-m", "src", "serve", model, "--port", str(PORTS[0])])
    plain = subprocess.Popen([sys.executable, "-c", PLAIN, model, str(PORTS[1])])
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        script.write_text(SCRIPT)
        try:
            root = f"http://127.0.0.1:{PORTS[0]}"
            wait(f"{root}/ready")
            wait(f"http://127.0.0.1:{PORTS[1]}/docs")
            with urllib.request.urlopen(f"{root}/v1/models") as response:
                name = re.findall(r'"name": ?"([^"]+)"', response.read().decode())[0]
            addresses = {"serve": f"{root}/v1/models/{name}", "plain": f"http://127.0.0.1:{PORTS[1]}/"}
            for num_clients in (1, 64):
                results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in addresses}
                for _ in range(ROUNDS):
                    for name, address in addresses.items():
                        results[name].append(load(address, num_clients, seconds, script))
                for name, rounds in results.items():
                    rate, p50, p99 = map(statistics.median, zip(*rounds, strict=True))
                    figures = f"{rate:7.1f} requests/s, p50 {p50:7.2f} ms, p99 {p99:7.2f} ms"
                    print(f"{num_clients:3d} clients  {name:6s} {figures}", flush=True)
        finally:
            for process in (ours, plain):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
