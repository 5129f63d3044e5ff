"""Recordings in folders and tables: splits, labels, lengths, what is told, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.audio.audio_folder import AudioFolder
from tests.data.audio.files import RATE, tone, write, write_folder


def set_up(root: Path, **options: Any) -> Any:
    data = AudioFolder(str(root), **options)
    data.setup("fit")
    return data


def names_of(data: Any) -> dict[str, list[str]]:
    return {split: list(data.ids(getattr(data, f"{split}_set"))) for split in ("train", "val", "test")}


# splits and labels


def test_a_folder_for_each_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_folder(tmp_path, {"9": 20, "10": 20})
    data = set_up(tmp_path)
    names = names_of(data)
    assert [len(own) for own in names.values()] == [32, 4, 4]
    assert sorted(name for own in names.values() for name in own) == sorted(
        file.relative_to(tmp_path).as_posix() for file in files
    )
    assert data.facts["classes"] == ["9", "10"], "by number"
    assert (data.facts["sample_rate"], data.facts["multilabel"]) == (RATE, False)
    assert data.facts["seconds"] == max((800 + 40 * int(Path(name).stem)) / RATE for name in names["train"])
    for split, own in names.items():
        for index, name in enumerate(own):
            inputs, target = getattr(data, f"{split}_set")[index]
            assert target == ["9", "10"].index(name.partition("/")[0])
            size = min(800 + 40 * int(Path(name).stem), round(data.facts["seconds"] * RATE))
            assert len(inputs["audio"]) == int(inputs["length"]) == size
    assert data.facts["class_counts"] == [sum(n.startswith(f"{c}/") for n in names["train"]) for c in (9, 10)]
    assert "40 clips (32 train, 4 val, 4 test), 8,000 Hz, at most " in capsys.readouterr().out


def test_official_splits(tmp_path: Path) -> None:
    for split, count in {"train": 10, "dev": 2, "test": 3}.items():
        write_folder(tmp_path / split, {"a": count, "b": count})
    data = set_up(tmp_path)
    for split, own in names_of(data).items():
        assert {name.partition("/")[0] for name in own} == {"dev" if split == "val" else split}
    shutil.rmtree(tmp_path / "dev")
    data = set_up(tmp_path, val_share=0.2)
    assert [len(own) for own in names_of(data).values()] == [16, 4, 6]
    (tmp_path / "dev").mkdir()
    (tmp_path / "valid").mkdir()
    with pytest.raises(UserError, match="holds dev and valid, expected one folder for val"):
        set_up(tmp_path)


def test_no_test_split(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 10, "b": 10})
    data = set_up(tmp_path, test_share=0)
    assert data.test_set is None
    assert len(data.train_set) + len(data.val_set) == 20


def table(root: Path, rows: str, name: str = "list.csv") -> Path:
    for number in range(10):
        write(root / "wav" / f"{number}.wav", tone(8000, 200.0 + 50 * number))
    (root / name).write_text(rows)
    return root / name


def test_a_table_of_files_and_labels(tmp_path: Path) -> None:
    rows = "".join(f"wav/{number}.wav,{'ab'[number % 2]}\n" for number in range(10))
    data = set_up(table(tmp_path, f"path,class\n{rows}"), val_share=0.2, test_share=0.2)
    names = names_of(data)
    assert [len(own) for own in names.values()] == [6, 2, 2]
    for split, own in names.items():
        assert [getattr(data, f"{split}_set").targets[i] for i in range(len(own))] == [int(name[4]) % 2 for name in own]


def test_parts_of_files(tmp_path: Path) -> None:
    """Parts have their samples, and those of a file stay in one split."""
    rows = [(number, start, label) for number in range(10) for start, label in ((0, "a"), (0.25, "b"), (0.5, "a"))]
    text = "".join(f"wav/{number}.wav,{start},{start + 0.25},{label}\n" for number, start, label in rows)
    data = set_up(table(tmp_path, f"file,start,end,label\n{text}"))
    names = names_of(data)
    assert [len(own) for own in names.values()] == [24, 3, 3]
    files = {split: {name.partition("@")[0] for name in own} for split, own in names.items()}
    assert not files["train"] & files["val"]
    assert not files["train"] & files["test"]
    index = next(i for i, name in enumerate(names["train"]) if name.endswith("@0.25-0.5"))
    number = int(names["train"][index][4])
    audio = data.train_set[index][0]["audio"]
    assert torch.equal(audio, data.train_set[index][0]["audio"])
    torch.testing.assert_close(audio, tone(8000, 200.0 + 50 * number)[2000:4000], atol=1e-4, rtol=0)
    assert data.facts["seconds"] == 0.25


def test_several_labels(tmp_path: Path) -> None:
    """Of a file in several rows, and separated in a field."""
    rows = "".join(f"wav/{number}.wav,{label}\n" for number in range(10) for label in ("xy", "x", "zx")[number % 3])
    first = set_up(table(tmp_path, f"file,label\n{rows}"))
    fields = "".join(f"wav/{number}.wav,{' ; '.join(('xy', 'x', 'zx')[number % 3])}\n" for number in range(10))
    second = set_up(table(tmp_path, f"file,label\n{fields}"), label_separator=";")
    for data in (first, second):
        assert (data.facts["classes"], data.facts["multilabel"]) == (["x", "y", "z"], True)
        targets = data.train_set.targets
        expected = [
            [float(c in ("xy", "x", "zx")[int(name[4]) % 3]) for c in "xyz"] for name in names_of(data)["train"]
        ]
        assert targets.tolist() == expected
        assert data.facts["label_counts"] == targets.sum(dim=0).tolist()
        assert data.facts["num_samples"] == len(targets)
        batch = next(iter(data.val_dataloader()))
        assert batch[1].shape == (1, 3)
    none = set_up(
        table(tmp_path, "file,label\n" + fields.replace(" ; ", ";").replace(",x\n", ",\n")), label_separator=";"
    )
    assert [0.0, 0.0, 0.0] in none.train_set.targets.tolist()
    with pytest.raises(UserError, match=r"--data.multilabel false: wav/.\.wav: expected one label, got x, y"):
        set_up(table(tmp_path, f"file,label\n{rows}"), multilabel=False)


def test_one_label_as_targets_of_several(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 10, "b": 10})
    data = set_up(tmp_path, multilabel=True)
    assert set(map(tuple, data.train_set.targets.tolist())) == {(1.0, 0.0), (0.0, 1.0)}


def test_tables_of_splits(tmp_path: Path) -> None:
    rows = "".join(f"wav/{number}.wav,{'ab'[number % 2]}\n" for number in range(6))
    table(tmp_path, f"file,label\n{rows}", "train.csv")
    (tmp_path / "test.csv").write_text("file,label\nwav/8.wav,a\nwav/9.wav,b\n")
    names = names_of(set_up(tmp_path, val_share=0.4))
    assert [len(own) for own in names.values()] == [4, 2, 2]
    assert names["test"] == ["wav/8.wav", "wav/9.wav"]


# lengths and rates


def test_batches_are_padded_and_sorted_by_length(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 40, "b": 40}, start=100)
    data = set_up(tmp_path, batch_size=8, bucket=8, shift=0, gain=0)
    assert data.train_set.lengths == [len(data.train_set[index][0]["audio"]) for index in range(64)]
    spreads = []
    for inputs, target in data.train_dataloader():
        assert inputs["audio"].shape == (len(target), int(inputs["length"].max()))
        for audio, length in zip(inputs["audio"], inputs["length"].tolist(), strict=True):
            assert not audio[length:].any()
            assert audio[:length].any()
        spreads.append(int(inputs["length"].max() - inputs["length"].min()))
    assert sum(spreads) / len(spreads) < 400, "of 1,560 in all"


def test_other_rates_and_stereo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, {"a": 8, "b": 8})
    loud = torch.stack([tone(9600), torch.zeros(9600)], dim=1)
    write(tmp_path / "a/stereo.wav", loud, 48_000)
    data = set_up(tmp_path, seconds=1)
    out = capsys.readouterr().out
    assert "1 of 17 files have another sampling rate than 8,000 Hz and are resampled, such as " in out
    assert f"1 of 17 files have several channels, which are averaged, such as {tmp_path.as_posix()}/a/stereo.wav" in out
    inputs = data.read(tmp_path / "a/stereo.wav")
    assert int(inputs["length"]) == len(inputs["audio"]) == 1600
    assert inputs["audio"].abs().max() == pytest.approx(0.125, abs=0.01)
    doubled = set_up(tmp_path, sample_rate=16_000, seconds=1)
    assert doubled.facts["sample_rate"] == 16_000
    assert int(doubled.read(tmp_path / "a/stereo.wav")["length"]) == 3200


def test_long_clips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evaluation takes the middle, training a random part that the epoch decides."""
    for label in "ab":
        for number in range(10):
            write(tmp_path / label / f"{number}.wav", torch.linspace(0, 0.5, 1600))
    data = set_up(tmp_path, seconds=0.1, shift=0, gain=0)
    assert "20 of 20 clips are longer than 0.1 s, such as " in capsys.readouterr().out
    assert data.counts["cut_clips"] == 20
    torch.testing.assert_close(data.val_set[0][0]["audio"], torch.linspace(0, 0.5, 1600)[400:1200], atol=1e-4, rtol=0)
    firsts = [float(inputs["audio"][:, 0].min()) for inputs, _ in data.train_dataloader()]
    assert firsts == [float(inputs["audio"][:, 0].min()) for inputs, _ in data.train_dataloader()]
    [(inputs, _)] = list(data.train_dataloader())
    assert len(set(inputs["audio"][:, 0].tolist())) > 10, "each at its own place"
    assert set(inputs["length"].tolist()) == {800}


def test_windows_of_long_inputs(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 10, "b": 10})
    data = set_up(tmp_path, seconds=0.1)
    long, short = write(tmp_path / "long.wav", tone(2000)), write(tmp_path / "short.wav", tone(500))
    (tmp_path / "bad.wav").write_text("none")
    names, places = data.expand(["long.wav", "short.wav", "bad.wav"], [long, short, tmp_path / "bad.wav"])
    windows = ["long.wav@0.00-0.10", "long.wav@0.05-0.15", "long.wav@0.10-0.20", "long.wav@0.15-0.25"]
    assert names == [*windows, "short.wav", "bad.wav"]
    assert [data.about(place) for place in places[:2]] == [{"start": 0.0, "end": 0.1}, {"start": 0.05, "end": 0.15}]
    assert data.about(places[4]) == {"start": 0.0, "end": 0.062}
    assert data.about(places[5]) == {}
    torch.testing.assert_close(data.read(places[1])["audio"], tone(2000)[400:1200], atol=1e-4, rtol=0)
    with pytest.raises(UserError, match=r"long.wav: is 0.25 s long, expected at most 0.1 s"):
        data.read(long)
    assert len(data.read(short.read_bytes())["audio"]) == 500
    assert data.expand(["-"], [b"bytes"]) == (["-"], [b"bytes"])
    assert data.preprocessing() == {"kind": "audio", "sample_rate": RATE, "seconds": 0.1, "overlap": 0.5}
    assert AudioFolder(str(tmp_path)).preprocessing() is None


def test_pictures_show_the_spectrogram(tmp_path: Path) -> None:
    """A low tone is bright at the bottom, a high one at the top; of a file, a window, or samples."""
    write_folder(tmp_path, {"a": 10, "b": 10})
    data = set_up(tmp_path, seconds=0.2)
    low, high = (write(tmp_path / f"{name}.wav", tone(4000, hz)) for name, hz in (("low", 200.0), ("high", 3000.0)))
    [_, window, *_] = data.expand(["low.wav"], [low])[1]
    for source, expected in (
        (low, range(52, 64)),
        (high, range(12)),
        (window, range(52, 64)),
        (tone(4000), range(45, 60)),
    ):
        picture = data.picture(source)
        assert picture.dtype == torch.uint8
        assert picture.shape[:2] == (3, 64)
        assert int(picture[0].float().mean(dim=1).argmax()) in expected
    assert data.picture(torch.zeros(900)).max() == 0, "silence"


# what training changes


def test_noise(tmp_path: Path) -> None:
    write_folder(tmp_path / "own", {"a": 10, "b": 10})
    write(tmp_path / "noise/hum.wav", tone(400, 50))
    for noise in ("white", str(tmp_path / "noise")):
        data = set_up(tmp_path / "own", noise=noise, snr=(20, 20), shift=0, gain=0)
        plain = set_up(tmp_path / "own", shift=0, gain=0)
        [(noisy, _)], [(clean, _)] = list(data.train_dataloader()), list(plain.train_dataloader())
        for a, b in zip(noisy["audio"], clean["audio"], strict=True):
            snr = 10 * ((b.square().sum() / (a - b).square().sum()).log10())
            assert float(snr) == pytest.approx(20, abs=0.01)
        assert torch.equal(data.val_set[0][0]["audio"], plain.val_set[0][0]["audio"])
    with pytest.raises(UserError, match=r"--data.noise .*/empty: expected white, or a folder of .wav"):
        set_up(tmp_path / "own", noise=str(tmp_path / "empty"))


# what is refused


def test_broken_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_folder(tmp_path, {"a": 10, "b": 10})
    files[3].write_bytes(files[3].read_bytes()[:300])
    files[4].write_bytes(b"")
    with pytest.raises(
        UserError, match=r"a/03.wav: is truncated: .*; --data.on_error skip leaves such recordings out \(2 of 20\)"
    ):
        set_up(tmp_path)
    data = set_up(tmp_path, on_error="skip")
    assert sum(map(len, names_of(data).values())) == 18
    assert data.gather_counts()["skipped_samples"] == 2
    err = capsys.readouterr().err
    assert "a/04.wav: is empty" in err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "file,labl\nwav/1.wav,a\n",
            r"--data.label_column: .*list.csv:2: expected a column label or .*, got file, labl. Nearest: labl",
        ),
        ("name,label\nwav/1.wav,a\n", r"--data.file_column: .*expected a column file or path .*got name, label"),
        ("file,label\nwav/1.wav,a\nwav/11.wav,b\n", r"list.csv:3: .*wav/11.wav: no such file. Nearest: 1.wav"),
        ("file,label\nwav/1.wav,a\nwav/2.wav,\n", "list.csv:3: label is empty, expected a label"),
        ("file,label\n,a\n", "list.csv:2: file is empty, expected the path of a recording"),
        ("file,label\nlist.csv,a\n", "list.csv: expected a recording of .wav"),
        ("file,start,end,label\nwav/1.wav,0.5,0.2,a\n", "expected an end after the start 0.5 s, got 0.2 s"),
        ("file,start,end,label\nwav/1.wav,x,0.2,a\n", "start: expected seconds of at least 0, got x"),
        ("file,start,end,label\nwav/1.wav,-1,0.2,a\n", "start: expected seconds of at least 0, got -1"),
        ("file,end,label\nwav/1.wav,3,a\nwav/2.wav,1,b\nwav/3.wav,1,b\n", "list.csv:2: 3 s is beyond the 1.00 s of"),
        ("file,label\nwav/1.wav,a,b\n", "expected 2 fields"),
        ("file,label\nwav/1.wav,a\nwav/2.wav,a\nwav/3.wav,a\n", "expected two or more labels in training, got a"),
        ("file,label\nwav/1.wav,a\nwav/2.wav,b\n", r"--data.val_share: 0.1 of 2 files leaves none for val"),
    ],
)
def test_bad_tables(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        set_up(table(tmp_path, rows), test_share=0, **({"val_share": 0.34} if rows.count("\n") > 3 else {}))


def test_rows_that_are_left_out(tmp_path: Path) -> None:
    rows = "".join(f"wav/{number}.wav,{'ab'[number % 2]}\n" for number in range(12))
    data = set_up(table(tmp_path, f"file,label\n{rows}"), on_error="skip")
    assert data.gather_counts()["skipped_samples"] == 2, "two files are missing"
    assert sum(map(len, names_of(data).values())) == 10


def test_labels_and_folders_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"--data.root .*/nothing: no such file or folder"):
        set_up(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"expected .*/LABEL/…, recordings of .wav, .*; found none"):
        set_up(tmp_path)
    write_folder(tmp_path / "train", {"a": 5, "b": 5})
    (tmp_path / "train/c").mkdir()
    with pytest.raises(UserError, match=r"train/c: is a label without recordings, expected files of .wav"):
        set_up(tmp_path)
    (tmp_path / "train/c").rmdir()
    (tmp_path / "train/a/notes.txt").write_text("none")
    write_folder(tmp_path / "test", {"a": 2, "bb": 1})
    with pytest.raises(UserError, match=r"test/bb/00.wav: training has no label bb, but a, b"):
        set_up(tmp_path)
    capsys.readouterr()
    data = set_up(tmp_path, on_error="skip")
    assert names_of(data)["test"] == ["test/a/00.wav", "test/a/01.wav"]
    err = capsys.readouterr().err
    assert "left out 1 file of other formats: 1 .txt" in err
    assert "are copies of training files" in err


def test_silent_and_clipped_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path, {"a": 10, "b": 10})
    write(tmp_path / "a/silence.wav", torch.zeros(900))
    write(tmp_path / "b/loud.wav", tone(900, level=4.0))
    data = set_up(tmp_path, check_files=True)
    err = capsys.readouterr().err
    assert "1 of 22 clips are silent, such as a/silence.wav; they are used as they are" in err
    assert "1 of 22 clips are clipped, such as b/loud.wav" in err
    assert (data.counts["silent_clips"], data.counts["clipped_clips"]) == (1, 1)
    [inputs] = [data.train_set[i][0] for i, name in enumerate(data.ids(data.train_set)) if "silence" in name] or [
        data.read(tmp_path / "a/silence.wav")
    ]
    assert not inputs["audio"].any()


def test_facts_of_a_checkpoint_stay(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 10, "b": 10})
    data: Any = AudioFolder(str(tmp_path))
    data.facts = {"classes": ["b", "x", "a"], "sample_rate": 4000, "seconds": 0.05, "multilabel": False}
    data.setup("test")
    assert set(data.train_set.targets) == {0, 2}
    assert data.train_set[0][0]["audio"].shape == (200,)
    narrow = AudioFolder(str(tmp_path))
    narrow.facts = {"classes": ["b", "x"], "sample_rate": 4000, "seconds": 0.05, "multilabel": False}
    with pytest.raises(UserError, match="training has no label a, but b, x"):
        narrow.setup("test")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("sample_rate", 0, "sample_rate: expected at least 1 sample per second, got 0"),
        ("seconds", 0.0, "seconds: expected more than 0, got 0.0"),
        ("overlap", 1.0, r"overlap: expected a share in \[0, 1\), got 1.0"),
        ("shift", 2.0, r"shift: expected a share in \[0, 1\], got 2.0"),
        ("gain", -1.0, "gain: expected at least 0 dB, got -1.0"),
        ("snr", (5, 1), r"snr: expected the lowest and the highest ratio in dB, got \[5, 1\]"),
        ("val_share", 0.0, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ("test_share", 0.95, r"test_share: expected a share in \[0, 1 - val_share\), got 0.95"),
    ],
)
def test_options_out_of_range(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AudioFolder("data", **{option: value})
