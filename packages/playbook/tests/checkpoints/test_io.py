"""Checkpoint files survive crashes and full disks, tell damage, and never run what is in them."""

import builtins
import os
import pickle
import random
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook.checkpoints import io as checkpoints
from playbook.checkpoints import single
from playbook.checkpoints.io import AtomicCheckpointIO, damage, describe, first_valid, load, misfits, weights_of
from playbook.errors import UserError
from running import python_path

FORMER = {"state_dict": {"w": torch.arange(1000.0)}, "epoch": 1}
LARGE = {"state_dict": {"w": torch.zeros(2_000_000)}, "epoch": 2}  # 8 MB


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A checkpoint that later saves must not lose."""
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(FORMER, path)
    return path


def assert_untouched(path: Path) -> None:
    assert [file.name for file in path.parent.iterdir()] == [path.name], "a temporary file is left"
    assert load(path)["epoch"] == 1
    assert torch.equal(load(path)["state_dict"]["w"], FORMER["state_dict"]["w"])


def test_round_trip(former: Path) -> None:
    assert_untouched(former)
    AtomicCheckpointIO().save_checkpoint(LARGE, str(former))
    assert AtomicCheckpointIO().load_checkpoint(str(former))["state_dict"]["w"].shape == (2_000_000,)
    assert len(list(former.parent.iterdir())) == 1
    meta = load(former, map_location="meta")["state_dict"]["w"]
    assert meta.device.type == "meta"


@pytest.fixture
def limited_file_size() -> Iterator[None]:
    """Files of this process cannot grow beyond 1 MB, as on a full disk."""
    resource = pytest.importorskip("resource", reason="this system limits no file sizes")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_that_fails_half_way(former: Path, limited_file_size: None) -> None:
    with pytest.raises(OSError, match=r"File too large|No space left"):
        AtomicCheckpointIO().save_checkpoint(LARGE, former)
    assert_untouched(former)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"there is no mount here: {error}")
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk(full_disk: Path) -> None:
    path = full_disk / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(FORMER, path)
    for _ in range(3):  # what one attempt leaves must not stand in the way of the next
        with pytest.raises(OSError, match="No space left on device"):
            AtomicCheckpointIO().save_checkpoint(LARGE, path)
        assert_untouched(path)
    AtomicCheckpointIO().save_checkpoint(FORMER | {"epoch": 3}, path)
    assert load(path)["epoch"] == 3


class Interrupts:
    """Ctrl-C while it is being saved."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_ctrl_c_while_saving(former: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        AtomicCheckpointIO().save_checkpoint({"w": torch.ones(1000), "x": Interrupts()}, former)
    assert_untouched(former)


def test_what_cannot_be_saved(former: Path) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        AtomicCheckpointIO().save_checkpoint({"f": lambda: None}, former)
    assert_untouched(former)


def test_what_could_not_be_loaded_again(former: Path) -> None:
    with pytest.raises(UserError, match=r"a checkpoint of this run could not be loaded again: it contains \S*Path"):
        AtomicCheckpointIO().save_checkpoint({"folder": former.parent}, former)
    assert_untouched(former)


class Fails:
    """Has an error of its own while it is being saved."""

    def __reduce__(self) -> Any:
        raise RuntimeError("a bug in a state_dict")


def test_error_of_somebody_else_is_no_full_disk(former: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug in a state_dict"):
        AtomicCheckpointIO().save_checkpoint({"f": Fails()}, former)
    assert_untouched(former)


def test_what_does_not_read_back_replaces_nothing(former: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_disk(path: Path) -> str | None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
        return damage(path)

    monkeypatch.setattr(checkpoints, "damage", broken_disk)
    with pytest.raises(OSError, match="does not read back: corrupted"):
        AtomicCheckpointIO().save_checkpoint(LARGE, former)
    monkeypatch.undo()
    assert_untouched(former)


KILLED = """
import os, random, signal, sys, time, torch
from pathlib import Path
from playbook.checkpoints.io import AtomicCheckpointIO, damage, load

folder, draw, io = Path(sys.argv[1]), random.Random(0), AtomicCheckpointIO()
path, whole = folder / "last.ckpt", 4 * 4_000_000
io.save_checkpoint({"w": torch.zeros(4_000_000), "n": 0}, path)
cut = attempt = 0
while cut < 4 and attempt < 100:
    attempt += 1
    former, share = load(path)["n"], draw.random()
    child = os.fork()
    if child == 0:
        for n in range(former + 1, former + 100):
            io.save_checkpoint({"w": torch.full((4_000_000,), float(n)), "n": n}, path)
        os._exit(0)
    beside, end = folder / f".last.ckpt.{child}", time.monotonic() + 20
    while time.monotonic() < end and not (beside.exists() and beside.stat().st_size > share * whole):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    cut += beside.exists() and damage(beside) is not None
    assert damage(path) is None, attempt
    found = load(path)
    assert found["n"] >= former, (found["n"], former)
    assert torch.equal(found["w"], torch.full((4_000_000,), float(found["n"]))), "a mixture of two checkpoints"
    beside.unlink(missing_ok=True)
print(cut, "of", attempt)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the process that is killed")
def test_kill_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """Killed at random shares of a 16 MB file, until four kills came in the middle of a write."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 "), f"{done.stdout.strip()} kills came in the middle of a write"


def changed(path: Path, position: int, bits: int = 255) -> Path:
    """A copy with one byte changed."""
    content = bytearray(path.read_bytes())
    content[position] ^= bits
    copy = path.with_name("changed.ckpt")
    copy.write_bytes(content)
    return copy


def test_truncated_at_any_length(former: Path) -> None:
    whole = former.read_bytes()
    cut = former.with_name("cut.ckpt")
    missed = []
    for length in {*range(0, len(whole), 13), *range(len(whole) - 200, len(whole))}:
        cut.write_bytes(whole[:length])
        if not (damage(cut) or "").startswith("truncated"):
            missed.append(length)
    assert not missed


@pytest.mark.slow
def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    """Of every byte of the file: tensors, the archive's own tables, and the checksum itself."""
    path = tmp_path / "small.ckpt"
    AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.arange(9.0)}, "epoch": 1}, path)
    size = path.stat().st_size
    missed = [at for at in range(size) if damage(changed(path, at, bits=1 << at % 8)) is None]
    assert size > 1000
    assert not missed
    assert damage(path) is None


@pytest.mark.parametrize("mmap", [False, True])
def test_others_read_past_the_checksum(former: Path, mmap: bool) -> None:
    with zipfile.ZipFile(former) as archive:
        assert archive.comment.startswith(b"sha256 ")
        assert archive.testzip() is None
    assert torch.load(former, mmap=mmap, weights_only=True)["epoch"] == 1


def test_a_file_is_read_once_for_its_checksum(former: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(single, "archive_fault", read.append)
    for _ in range(3):
        load(former)
    assert len(read) == 1
    os.utime(former, (1, 1))
    load(former)
    assert len(read) == 2, "it may be another one now"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """As torch.save writes it: its entries have checksums, its tables none."""
    path = tmp_path / "foreign.ckpt"
    torch.save(FORMER, path)
    return path


def test_any_changed_byte_of_a_foreign_tensor(foreign: Path) -> None:
    start = foreign.read_bytes().find(FORMER["state_dict"]["w"].numpy().tobytes())
    assert start > 0
    for position in random.Random(0).sample(range(4000), 200):
        fault = damage(changed(foreign, start + position, bits=1 << position % 8))
        assert fault == "corrupted (checksum of foreign/data/0)", f"byte {position} of the tensor"


def test_changed_byte_anywhere_in_a_foreign_file_is_a_fault_or_harmless(foreign: Path) -> None:
    """Never another error, never other numbers."""
    wrong = []
    start = len(foreign.read_bytes()) - 1000  # the central directory, and before it some of the small entries
    for position in range(start, start + 1000, 3):
        copy = changed(foreign, position)
        try:
            same = torch.equal(load(copy)["state_dict"]["w"], FORMER["state_dict"]["w"])
        except UserError:
            continue
        except Exception as error:  # any other is what this test looks for
            wrong.append(f"byte {position}: {type(error).__name__}: {error}")
        else:
            wrong += [] if same else [f"byte {position}: other numbers"]
    assert not wrong


def test_another_pickle_protocol_is_calm(tmp_path: Path) -> None:
    torch.save(FORMER, tmp_path / "three.ckpt", pickle_protocol=3)
    assert torch.equal(load(tmp_path / "three.ckpt")["state_dict"]["w"], FORMER["state_dict"]["w"])


class Payload:
    """Calls something when it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> Any:
        return self.function, self.args


PAYLOADS = {
    "system": (os.system, "touch {}"),
    "eval": (builtins.eval, "open({!r}, 'w')"),
    "exec": (builtins.exec, "open({!r}, 'w')"),
    "Popen": (subprocess.Popen, ["touch", "{}"]),
    "open": (builtins.open, "{}", "w"),
    "getattr": (builtins.getattr, os, "system"),
}


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"state_dict": {"w": [x]}}], ids=["bare", "nested"])
def test_payload_is_refused_and_does_not_run(tmp_path: Path, name: str, wrap: Callable[[Any], Any]) -> None:
    mark = tmp_path / "pwned"
    function, *args = PAYLOADS[name]
    filled = [[part.format(str(mark)) for part in arg] if isinstance(arg, list) else arg for arg in args]
    filled = [arg.format(str(mark)) if isinstance(arg, str) else arg for arg in filled]
    if name == "getattr":
        filled = ["text", "upper"]  # a module does not pickle; looking up attributes is refused all the same
    torch.save(wrap(Payload(function, *filled)), tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match=rf"evil\.ckpt: refused, it contains \S*{name}\b.*could run code"):
        load(tmp_path / "evil.ckpt")
    assert not mark.exists()


def test_old_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "pwned"
    path = tmp_path / "old.ckpt"
    torch.save({"x": Payload(os.system, f"touch {mark}")}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(UserError, match="truncated, or not a checkpoint"):
        load(path)
    assert not mark.exists()


def test_archives_that_are_no_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UserError, match="a zip archive, but not a checkpoint"):
        load(path)
    torch.save(torch.ones(3), path)
    with pytest.raises(UserError, match="expected a checkpoint, found a Tensor"):
        load(path)


def test_first_valid_takes_the_first_and_says_what_it_passed_over(
    former: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, empty, second = (former.with_name(f"{name}.ckpt") for name in ("cut", "empty", "second"))
    cut.write_bytes(former.read_bytes()[:100])
    empty.touch()
    second.write_bytes(former.read_bytes())
    assert first_valid([former, second], "--x") == former
    assert capsys.readouterr().err == ""
    assert first_valid([cut, empty, second, former], "--x") == second
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line, path in zip(lines, (cut, empty), strict=True):
        assert line.startswith(f"warning: {path.as_posix()}: truncated, or not a checkpoint")
        assert line.endswith("; using second.ckpt instead")
    with pytest.raises(UserError, match=r"^--x: no valid checkpoint: \S+cut\.ckpt: truncated.*; \S+empty\.ckpt: trunc"):
        first_valid([cut, empty], "--x")


def test_weights_of_a_checkpoint_and_of_a_state_dict(tmp_path: Path) -> None:
    state = OrderedDict(w=torch.ones(2))
    assert weights_of({"state_dict": state, "epoch": 3}, tmp_path).keys() == {"w"}
    assert weights_of(state, tmp_path).keys() == {"w"}
    for content in ({}, {"epoch": 3}, {"state_dict": {}}, {"state_dict": None}, {"state_dict": {"w": 3}}):
        with pytest.raises(UserError, match="contains no weights"):
            weights_of(content, tmp_path)


def test_misfits_and_their_description() -> None:
    model = {"same": torch.ones(2), "shape": torch.ones(2, 3), "gone": torch.ones(1)}
    weights = {"same": torch.zeros(2), "shape": torch.ones(3, 2), "new": torch.ones(1)}
    found = misfits(model, weights)
    assert found == {
        "mismatched": ["shape (3, 2) in the file, (2, 3) in the model"],
        "missing": ["gone"],
        "unexpected": ["new"],
    }
    assert describe(found) == (
        "mismatched 1: shape (3, 2) in the file, (2, 3) in the model; missing 1: gone; unexpected 1: new"
    )
    assert describe(misfits(model, model)) == ""
    assert describe({"missing": list("abcd")}) == "missing 4: a, b, c, d"
    assert describe({"missing": list("abcdef")}) == "missing 6: a, b, c, d, and 2 more"
