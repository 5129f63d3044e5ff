"""Throughput and latency of `serve` against a plain FastAPI endpoint with the same model, on loopback.

    python benchmarks/serving.py ARTEFACT FILE [REQUESTS]

ARTEFACT is an ONNX export that takes FILE, such as an image. The plain endpoint reads one file and runs the same
program with the same code, one request at a time, in FastAPI's thread pool. 1 and 64 clients send the same body; rounds
take turns, and medians are printed. Memory of the server is read before and after.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx

PLAIN = """
import sys, uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from playbook.deploy.runtime import Artefact

model, app = Artefact(sys.argv[1]), FastAPI()

@app.post("/")
async def answer(request: Request):
    content = await request.body()
    return {"answers": await run_in_threadpool(model.predict, [content])}

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""
PORTS = (8471, 8472)
ROUNDS = 5


async def load(address: str, body: bytes, num_clients: int, num_requests: int) -> tuple[float, list[float]]:
    """Requests per second, and seconds of each request."""
    times: list[float] = []
    left = iter(range(num_requests))
    limits = httpx.Limits(max_connections=num_clients)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def ask() -> None:
            for _ in left:
                start = time.perf_counter()
                response = await client.post(
                    address, content=body, headers={"content-type": "application/octet-stream"}
                )
                response.raise_for_status()
                times.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(num_clients)))
        return num_requests / (time.perf_counter() - start), times


def resident_mib(process: subprocess.Popen) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def wait(address: str) -> None:
    for _ in range(100):
        try:
            httpx.get(address)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{address} does not answer")


def main() -> None:
    artefact, body = sys.argv[1], Path(sys.argv[2]).read_bytes()
    num_requests = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    ours = subprocess.Popen([sys.executable, "-m", "src", "serve", artefact, "--port", str(PORTS[0])])
    plain = subprocess.Popen([sys.executable, "-c", PLAIN, artefact, str(PORTS[1])])
    try:
        root = f"http://127.0.0.1:{PORTS[0]}"
        wait(f"{root}/ready")
        wait(f"http://127.0.0.1:{PORTS[1]}/docs")
        name = httpx.get(f"{root}/v1/models").json()["models"][0]["name"]
        addresses = {"serve": f"{root}/v1/models/{name}", "plain": f"http://127.0.0.1:{PORTS[1]}/"}
        for address in addresses.values():
            asyncio.run(load(address, body, 8, 50))
        before = resident_mib(ours)
        for num_clients in (1, 64):
            rates: dict[str, list[float]] = {name: [] for name in addresses}
            times: dict[str, list[float]] = {name: [] for name in addresses}
            for _ in range(ROUNDS):
                for name, address in addresses.items():
                    rate, own = asyncio.run(load(address, body, num_clients, num_requests))
                    rates[name].append(rate)
                    times[name] += own
            for name in addresses:
                cuts = statistics.quantiles(times[name], n=100)
                figures = f"{statistics.median(rates[name]):7.1f} requests/s, p50 {1000 * cuts[49]:7.2f} ms, p99"
                print(f"{num_clients:3d} clients  {name:6s} {figures} {1000 * cuts[98]:7.2f} ms", flush=True)
        print(f"memory {before:.0f} MiB before, {resident_mib(ours):.0f} MiB after")
    finally:
        for process in (ours, plain):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
