"""Reads recordings as evaluation did in training: one channel, at one sampling rate, in windows if they are long."""

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .errors import InputError, Sample

STREAMED = 0x7FFF_F000  # sizes in a WAV header from here on are those of programs that did not know the end
WIDTH = 64  # zero crossings on each side of the sinc function that resamples
ROLLOFF = 0.9475937167399596  # share of the lower of both Nyquist frequencies that passes
BETA = 14.769656459379492  # of its Kaiser window; stop band below -140 dB
CHUNK = 4096  # outputs that are computed at once


class AudioHeader(NamedTuple):
    """What the header of a recording says.

    Args:
        num_samples: of each channel.
        sample_rate: samples per second.
        num_channels: 1 for mono, 2 for stereo.
    """

    num_samples: int
    sample_rate: int
    num_channels: int

    @property
    def seconds(self) -> float:
        return self.num_samples / self.sample_rate


class AudioReader:
    """Reads a source as the manifest's `preprocessing` says.

    Args:
        plan: `sample_rate`, to which recordings are resampled; `seconds`, the length of the longest; `overlap`, the
            share of a window of a longer one that the next window repeats.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan

    def __call__(self, source: Any) -> Sample:
        """Reads a recording: audio (T,) and length ().

        Args:
            source: path or bytes of a file; or a window of a file, as `sources` returns it.

        Raises:
            InputError: it cannot be read, has no samples, or is longer than `seconds`.
        """
        if isinstance(source, Mapping):
            audio, rate = decode_audio(Path(source["file"]), source["first"], source["stop"])
        else:
            file = source if isinstance(source, bytes) else Path(source)
            require_short(audio_header(file), self.plan["seconds"], _name_of(file))
            audio, rate = decode_audio(file)
        audio = resample(audio, rate, self.plan["sample_rate"])
        return Sample({"audio": audio, "length": np.asarray(len(audio), dtype=np.int64)})

    def sources(self, file: Path) -> list[Any]:
        """The overlapping windows of a recording; the file itself if it is short.

        Raises:
            InputError: it cannot be read.
        """
        parts = audio_windows(audio_header(file), self.plan["seconds"], self.plan["overlap"])
        if len(parts) == 1:
            return [file]
        return [{"file": file.as_posix(), "first": first, "stop": stop} for first, stop in parts]


def require_short(header: AudioHeader, seconds: float, name: str) -> None:
    """Refuses a recording that is longer than a window.

    Raises:
        InputError: it is.
    """
    if header.seconds > seconds + 1 / header.sample_rate:
        raise InputError(
            f"{name}: is {header.seconds:.2f} s long, expected at most {seconds:g} s; predict "
            "--input divides files into windows"
        )


def audio_windows(header: AudioHeader, seconds: float, overlap: float) -> list[tuple[int, int]]:
    """First sample of each window of a recording, and the one after its last; the last window ends with the recording.

    Args:
        header: of the recording.
        seconds: length of a window; a shorter recording is one window.
        overlap: smallest share of a window that the next one repeats, in [0, 1).
    """
    size = max(round(seconds * header.sample_rate), 1)
    last = header.num_samples - size
    if last <= 0:
        return [(0, header.num_samples)]
    starts = [*range(0, last, max(int(size * (1 - overlap)), 1)), last]
    return [(start, start + size) for start in starts]


def audio_header(source: Path | bytes) -> AudioHeader:
    """Reads the header of a recording.

    Args:
        source: path or bytes of a file.

    Raises:
        InputError: it cannot be read, has no samples, or is a WAV shorter than its header says, which libsndfile reads
            without a word.
    """
    with _opened(source) as file:
        return AudioHeader(file.frames, file.samplerate, file.channels)


def decode_audio(source: Path | bytes, start: int = 0, stop: int | None = None) -> tuple[np.ndarray, int]:
    """Reads a recording, or a part of it, as one channel.

    Args:
        source: path or bytes of a file.
        start: first sample of the part.
        stop: the sample after the part. Defaults to the end.

    Returns:
        The mean of the channels (T,), as a rule in [-1, 1], and the samples per second.

    Raises:
        InputError: as `audio_header`, or samples are damaged or not finite.
    """
    name = _name_of(source)
    with _opened(source) as file:
        rate, expected = file.samplerate, min(stop or file.frames, file.frames) - start
        file.seek(start)
        samples = file.read(expected, dtype="float32", always_2d=True)  # (T, channels)
    if not len(samples):
        raise InputError(f"{name}: is damaged: no sample after {start / rate:.2f} s can be read")
    if len(samples) < expected and not name.lower().endswith(".mp3"):  # whose header only estimates the length
        raise InputError(f"{name}: is truncated: {len(samples):,} of {expected:,} samples can be read")
    if not np.isfinite(samples).all():
        raise InputError(f"{name}: has samples that are not finite")
    return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1), rate


def resample(audio: np.ndarray, old_rate: int, new_rate: int) -> np.ndarray:
    """Changes the sampling rate of audio (T,), by a sinc function in a Kaiser window (Smith 2011)."""
    if old_rate == new_rate:
        return audio
    common = math.gcd(old_rate, new_rate)
    step, num_phases = old_rate // common, new_rate // common
    cutoff = ROLLOFF * min(1.0, num_phases / step)  # zero crossings in a sample
    reach = math.ceil(WIDTH / cutoff)
    taps = np.arange(-reach, reach + 2)
    crossings = (taps - np.arange(num_phases)[:, None] / num_phases) * cutoff  # (phases, taps)
    window = np.i0(BETA * np.sqrt(np.clip(1 - (crossings / WIDTH) ** 2, 0, None))) / np.i0(BETA)
    weights = np.sinc(crossings) * window * (np.abs(crossings) <= WIDTH) * cutoff
    around = np.lib.stride_tricks.sliding_window_view(np.pad(audio, (reach, reach + 2)), len(taps))
    places = np.arange(-(-len(audio) * num_phases // step)) * step  # of the outputs, in samples times phases
    parts = [
        np.einsum("st,st->s", around[part // num_phases], weights[part % num_phases])
        for part in np.split(places, range(CHUNK, len(places), CHUNK))
    ]
    return np.concatenate(parts).astype(audio.dtype)


@contextmanager
def _opened(source: Path | bytes) -> Iterator[Any]:
    """Opens a recording with libsndfile.

    Raises:
        InputError: as `audio_header`; also for what fails while it is open.
    """
    name = _name_of(source)
    try:
        import soundfile  # an extra
    except (ImportError, OSError) as error:  # OSError without libsndfile
        raise InputError("audio needs soundfile: uv sync --extra audio, or pip install soundfile") from error
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
            if shortage := _shortage_of_wav(stream):
                raise InputError(f"{name}: {shortage}")
            stream.seek(0)
            # by its path, libsndfile reads a file three times as fast as through Python
            with soundfile.SoundFile(stream if isinstance(source, bytes) else source) as file:
                if file.frames < 1:
                    raise InputError(f"{name}: has no samples")
                yield file
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except (RuntimeError, ValueError, TypeError) as error:  # libsndfile's own error is a RuntimeError
        reason = str(getattr(error, "error_string", None) or error).strip().rstrip(".")
        raise InputError(f"{name}: cannot be read as audio: {reason}") from error


def _shortage_of_wav(file: BinaryIO) -> str:
    """What is missing of the samples that the header of a WAV announces; empty for a whole one and other formats."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(12)
    if not size:
        return "is empty"
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return ""
    while len(chunk := file.read(8)) == 8:
        announced = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data":
            present = size - file.tell()
            if present < announced < STREAMED:
                return f"is truncated: its header announces {announced:,} bytes of samples, the file has {present:,}"
            return ""
        file.seek(announced + announced % 2, io.SEEK_CUR)
    return "is truncated: it ends before its samples"


def _name_of(source: Path | bytes) -> str:
    return "the recording" if isinstance(source, bytes) else str(source)
