"""Samples of tar shards by their index, in the order of the files and shuffled, against webdataset's own reader.

    python packages/playbook/benchmarks/shards.py [ROUNDS]

100,000 members, 50,000 samples of 2 kB and a caption, in ten shards of a temporary folder; bytes alone, nothing is
decoded. One process; alternating, medians of the wall time and of the CPU time.
"""

import io
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
from webdataset.tariterators import group_by_keys, tar_file_expander

from src.data.multimodal.image_text_shards import Sample, samples_of
from src.data.multimodal.tar_index import members_of, read_headers

NUM_SHARDS, NUM_SAMPLES, SIZE = 10, 5_000, 2_000


def write(folder: Path) -> list[Path]:
    content = np.random.default_rng(0).bytes(SIZE)
    shards = [folder / f"{number:03d}.tar" for number in range(NUM_SHARDS)]
    for number, shard in enumerate(shards):
        with tarfile.open(shard, "w") as archive:
            for index in range(NUM_SAMPLES):
                name = f"{number * NUM_SAMPLES + index:08d}"
                for extension, data in (("jpg", content), ("txt", name.encode())):
                    info = tarfile.TarInfo(f"{name}.{extension}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return shards


def by_webdataset(shards: list[Path]) -> Iterator[int]:
    for shard in shards:
        with shard.open("rb") as stream:
            for sample in group_by_keys(tar_file_expander([{"url": str(shard), "stream": stream}])):
                yield len(sample["jpg"]) + len(sample["txt"])


def by_index(samples: list[Sample]) -> Iterator[int]:
    for sample in samples:
        yield sum(len(member.read()) for member in sample.members.values())


def timed(read: Callable[[], Iterator[int]]) -> tuple[float, float]:
    """Seconds of wall and of CPU time for all samples."""
    start, cpu = time.perf_counter(), time.process_time()
    total = sum(read())
    assert total == NUM_SHARDS * NUM_SAMPLES * (SIZE + 8), total
    return time.perf_counter() - start, time.process_time() - cpu


def main(rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        shards = write(Path(name))
        start = time.process_time()
        count = sum(1 for shard in shards for _ in read_headers(shard))
        print(f"index of {count:,} members: {time.process_time() - start:.2f} s of CPU time, once")
        for shard in shards:
            members_of(shard)
        start = time.process_time()
        samples = [sample for shard in shards for sample in samples_of(members_of(shard))]
        print(f"index read again, and grouped into {len(samples):,} samples: {time.process_time() - start:.2f} s")
        shuffled = [samples[index] for index in np.random.default_rng(1).permutation(len(samples))]
        readers: dict[str, Callable[[], Iterator[int]]] = {
            "webdataset, in order": lambda: by_webdataset(shards),
            "index, in order": lambda: by_index(samples),
            "index, shuffled": lambda: by_index(shuffled),
        }
        times: dict[str, list[tuple[float, float]]] = {reader: [] for reader in readers}
        for _ in range(rounds):
            for reader, read in readers.items():
                times[reader].append(timed(read))
    for reader, values in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{reader}: {len(samples) / wall:,.0f} samples/s, {1e6 * cpu / len(samples):.1f} µs of CPU time each")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
