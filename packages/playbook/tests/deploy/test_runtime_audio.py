"""Recordings: what is read of good and bad files, windows, and answers of an artefact."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from playbook.deploy.runtime import Artefact, InputError
from playbook.deploy.runtime.audio import AudioHeader, audio_header, audio_windows, decode_audio, resample
from playbook.testing.artefacts import artefact_of

RATE = 8000
PLAN = {"kind": "audio", "sample_rate": RATE, "seconds": 0.5, "overlap": 0.5}


def tone(rate: int, seconds: float = 0.25, frequency: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * math.pi * frequency * np.arange(round(seconds * rate)) / rate)


def wav(audio: np.ndarray, rate: int = RATE, **options: Any) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, audio, rate, format="WAV", **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("suffix", "tolerance"), [("wav", 1e-4), ("flac", 1e-4), ("ogg", 0.1), ("mp3", 0.1), ("aiff", 1e-4)]
)
def test_formats(tmp_path: Path, suffix: str, tolerance: float) -> None:
    file, audio = tmp_path / f"tone.{suffix}", tone(RATE)
    soundfile.write(file, audio, RATE)
    samples, rate = decode_audio(file)
    assert (rate, samples.dtype) == (RATE, np.float32)
    assert audio_header(file).num_samples == len(samples) == len(audio)
    assert np.abs(samples - audio)[200:-200].max() < tolerance
    part, _ = decode_audio(file, 500, 900)
    np.testing.assert_allclose(part, samples[500:900], atol=tolerance)


def test_channels_are_averaged() -> None:
    left, right = tone(48_000), tone(48_000, frequency=200)
    content = wav(np.stack([left, right], axis=1), 48_000, subtype="FLOAT")
    assert audio_header(content) == AudioHeader(12_000, 48_000, 2)
    np.testing.assert_allclose(decode_audio(content)[0], (left + right) / 2, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [(48_000, 16_000), (44_100, 16_000), (16_000, 44_100), (8000, 12_000)])
def test_signal_to_noise_of_a_resampled_tone(old: int, new: int) -> None:
    result, expected = resample(tone(old), old, new), tone(new)
    assert result.shape == expected.shape
    inner = slice(len(expected) // 4, -len(expected) // 4)
    snr = 10 * math.log10(np.square(expected[inner]).mean() / np.square((result - expected)[inner]).mean())
    assert snr > 150, f"{snr:.0f} dB"


def test_an_equal_rate_changes_nothing() -> None:
    audio = tone(RATE).astype(np.float32)
    assert resample(audio, RATE, RATE) is audio
    assert resample(audio, RATE, 16_000).dtype == np.float32


WHOLE = wav(tone(RATE))
BAD = {
    "empty": (b"", "is empty"),
    "text": (b"no recording", "cannot be read as audio: Format not recognised"),
    "without samples": (wav(np.zeros(0)), "has no samples"),
    "truncated": (WHOLE[:3000], "is truncated: its header announces 4,000 bytes of samples, the file has 2,956"),
    "header alone": (WHOLE[:44], "is truncated: its header announces 4,000 bytes of samples, the file has 0"),
    "half a header": (WHOLE[:30], "is truncated: it ends before its samples"),
    "not finite": (wav(np.array([0.0, np.nan, 1.0]), subtype="FLOAT"), "has samples that are not finite"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(tmp_path: Path, kind: str) -> None:
    content, message = BAD[kind]
    (tmp_path / "a.wav").write_bytes(content)
    for source, name in ((content, "the recording"), (tmp_path / "a.wav", str(tmp_path / "a.wav"))):
        with pytest.raises(InputError) as raised:
            decode_audio(source)
        assert str(raised.value) == f"{name}: {message}"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a.wav: No such file or directory"):
        audio_header(tmp_path / "a.wav")


def test_a_truncated_flac(tmp_path: Path) -> None:
    file = tmp_path / "a.flac"
    soundfile.write(file, np.random.default_rng(0).normal(0, 0.1, 20_000), RATE)
    file.write_bytes(file.read_bytes()[:9000])
    with pytest.raises(InputError, match=r"a\.flac: (is truncated|cannot be read|is damaged)"):
        decode_audio(file)


def test_a_wav_of_a_program_that_did_not_know_the_end() -> None:
    place = WHOLE.index(b"data") + 4
    for size in (0xFFFFFFFF, 0x7FFFFFFF - 36):
        content = WHOLE[:place] + size.to_bytes(4, "little") + WHOLE[place + 4 :]
        assert len(decode_audio(content)[0]) == 2000


def test_chunks_before_the_samples() -> None:
    place = WHOLE.index(b"data")
    content = WHOLE[:place] + b"LIST" + (5).to_bytes(4, "little") + b"notes\0" + WHOLE[place:]
    assert len(decode_audio(content)[0]) == 2000
    with pytest.raises(
        InputError, match="is truncated: its header announces 4,000 bytes of samples, the file has 3,900"
    ):
        decode_audio(content[:-100])


@pytest.mark.parametrize(
    ("num_samples", "seconds", "overlap", "expected"),
    [
        (10, 1.0, 0.5, [(0, 10)]),
        (30, 1.0, 0.0, [(0, 10), (10, 20), (20, 30)]),
        (20, 1.0, 0.5, [(0, 10), (5, 15), (10, 20)]),
        (23, 1.0, 0.5, [(0, 10), (5, 15), (10, 20), (13, 23)]),
        (7, 1.0, 0.5, [(0, 7)]),
        (12, 0.2, 0.99, [(n, n + 2) for n in range(11)]),
    ],
)
def test_windows(num_samples: int, seconds: float, overlap: float, expected: list[tuple[int, int]]) -> None:
    assert audio_windows(AudioHeader(num_samples, 10, 1), seconds, overlap) == expected


def levels(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The loudness, and the length in seconds."""
    audio, length = inputs["audio"], inputs["length"]
    return {"level": np.abs(audio).max(axis=1), "seconds": (length / RATE).astype(np.float32)}


def of_levels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Artefact:
    inputs = {"audio": ("float32", ["B", "T"]), "length": ("int64", ["B"])}
    plans = {"preprocessing": PLAN, "postprocessing": {"kind": "values"}}
    return artefact_of(monkeypatch, folder, levels, inputs, ["level", "seconds"], **plans)


def test_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = of_levels(tmp_path / "model", monkeypatch)
    assert model.kind == "audio"
    short, long = tmp_path / "short.wav", tmp_path / "long.wav"
    short.write_bytes(wav(tone(48_000), 48_000))
    long.write_bytes(wav(np.concatenate([tone(RATE, 0.5), 0.1 * tone(RATE, 0.5)])))
    for source in (short, str(short), short.read_bytes()):
        [answer] = model.predict(source)
        assert answer["seconds"] == pytest.approx(0.25)
        assert answer["level"] == pytest.approx(0.5, abs=0.03)
    assert model.sources(short) == [short]
    sources = model.sources(long)
    assert [(part["first"], part["stop"]) for part in sources] == [(0, 4000), (2000, 6000), (4000, 8000)]
    assert [answer["level"] for answer in model.predict(sources)] == pytest.approx([0.5, 0.5, 0.05], abs=1e-3)
    with pytest.raises(InputError, match=r"is 1.00 s long, expected at most 0.5 s"):
        model.predict(long)
    arrays = {"audio": np.zeros(100, np.float32), "length": np.asarray(100)}
    assert model.predict(arrays)[0]["level"] == 0


def test_soundfile_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(InputError, match="audio needs soundfile: uv sync --extra audio, or pip install soundfile"):
        decode_audio(WHOLE)
