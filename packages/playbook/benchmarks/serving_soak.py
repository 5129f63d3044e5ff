"""Memory of `serve` under an hour of moderate traffic, good and bad, sent as fast as it is answered.

    python packages/playbook/benchmarks/serving_soak.py ARTEFACT FILE [REQUESTS]

ARTEFACT is an export that takes FILE, such as an image. 72,000 requests are an hour at 20 a second. Half of them are
good; the others are cut, damaged, empty, too large, of wrong types, to unknown models, or leave before their answer.
Resident memory is printed at ten points, and what was answered at the end.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
from serving import wait

PORT = 8473
NUM_CLIENTS = 8
NUM_POINTS = 10


def mixed(dice: random.Random, body: bytes, path: str) -> tuple[str, bytes, dict[str, str]]:
    """Address, body and headers of a request; every other one is good."""
    place = dice.randrange(len(body))
    kinds = {
        "good": (path, body, {}),
        "cut": (path, body[:place], {}),
        "damaged": (path, body[:place] + dice.randbytes(8) + body[place + 8 :], {}),
        "empty": (path, b"", {}),
        "large": (path, bytes(17 * 2**20), {}),
        "other type": (path, body, {"content-type": "text/html"}),
        "JSON": (path, b'{"input": [' + b"[" * dice.randrange(2000) + b"1", {"content-type": "application/json"}),
        "option": (f"{path}?top={dice.random()}", body, {}),
        "form": (path, b"--x\r\nContent-Disp", {"content-type": "multipart/form-data; boundary=x"}),
        "unknown": (f"/v1/models/{dice.randbytes(8).hex()}", body, {}),
        "page": (f"/{dice.randbytes(8).hex()}", body, {}),
    }
    weights = [{"good": 20.0, "large": 0.02}.get(name, 2.0) for name in kinds]  # a large one takes as long as a hundred
    [name] = dice.choices(list(kinds), weights)
    return kinds[name]


def resident_mib(process: subprocess.Popen) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def leave_early(body: bytes, path: str) -> None:
    """Sends half of a request."""
    _, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    writer.write(body[: len(body) // 2])
    await writer.drain()
    writer.close()


async def send(num_requests: int, seed: int, body: bytes, path: str) -> Counter[int]:
    """Sends requests over several connections; returns how often each status came."""
    statuses: Counter[int] = Counter()
    left = iter(range(num_requests))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:

        async def ask(dice: random.Random) -> None:
            for number in left:
                if number % 50 == 0:
                    await leave_early(body, path)
                address, content, headers = mixed(dice, body, path)
                response = await client.post(address, content=content, headers=headers)
                statuses[response.status_code] += 1

        await asyncio.gather(*(ask(random.Random(seed * NUM_CLIENTS + number)) for number in range(NUM_CLIENTS)))
    return statuses


def main() -> None:
    artefact, body = sys.argv[1], Path(sys.argv[2]).read_bytes()
    num_requests = int(sys.argv[3]) if len(sys.argv) > 3 else 72_000
    log = Path(f"{artefact}-soak.log")
    with log.open("w") as file:
        server = subprocess.Popen([sys.executable, "-m", "src", "serve", artefact, "--port", str(PORT)], stderr=file)
    try:
        wait(f"http://127.0.0.1:{PORT}/ready")
        name = httpx.get(f"http://127.0.0.1:{PORT}/v1/models").json()["models"][0]["name"]
        statuses, start = Counter[int](), time.perf_counter()
        print(f"{0:7,} requests  {resident_mib(server):6.1f} MiB", flush=True)
        for point in range(NUM_POINTS):
            statuses += asyncio.run(send(num_requests // NUM_POINTS, point, body, f"/v1/models/{name}"))
            print(f"{statuses.total():7,} requests  {resident_mib(server):6.1f} MiB", flush=True)
        print(f"{time.perf_counter() - start:.0f} s, statuses {dict(sorted(statuses.items()))}")
    finally:
        server.terminate()
        code = server.wait()
    print(f"exit code {code}, {log.stat().st_size} bytes of log in {log}")


if __name__ == "__main__":
    main()
