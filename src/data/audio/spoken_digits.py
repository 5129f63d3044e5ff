"""The Free Spoken Digit Dataset."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from playbook import UserError, nearest
from src.data.audio.audio_folder import AudioFolder
from src.data.audio.clips import Clip

NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[a-z]+)_(?P<number>\d+)\.wav")
NUM_TEST = 5  # recordings of each speaker and digit in the official test set, the first ones


class SpokenDigits(AudioFolder):
    """3,000 recordings of ten digits by six speakers at 8 kHz (Jackson et al. 2018).

    The official split tests on the first 5 of the 50 recordings of each speaker and digit, 300 in all. Validation is
    taken from the others with a fixed seed. The files are `recordings/{digit}_{speaker}_{number}.wav`.

    Args:
        root: folder that contains `recordings`.
        held_out: speaker whose recordings are the test, and in no other split. Defaults to the official split.
        shift: largest shift in time of training clips, as a share of their length, in [0, 1].
        gain: largest change of the loudness of training clips in dB, at least 0.
        noise: what is added to training clips: white, or a folder of recordings of noise. Defaults to nothing.
        snr: lowest and highest ratio of signal to that noise in dB.
        batch_size: clips per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the training files used for validation, chosen with a fixed seed, in (0, 1).
        on_error: what happens with recordings that cannot be used: `stop` ends the run, `skip` leaves them out and
            counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        bucket: number of training batches whose clips are sorted by length together; 0 turns it off.

    Shapes:
        audio (B, T), zero behind shorter clips; length (B,) in samples; target (B,), 0 to 9.

    Raises:
        ValueError: a value is out of range.
        UserError: the recordings are missing, or there is no such speaker.
    """

    def __init__(
        self,
        root: str = "data/spoken_digits",
        held_out: str | None = None,
        shift: float = 0.1,
        gain: float = 6.0,
        noise: str | None = None,
        snr: Sequence[float] = (10.0, 40.0),
        batch_size: int = 32,
        num_workers: int = 0,
        val_share: float = 0.1,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        bucket: int = 10,
    ) -> None:
        super().__init__(
            root,
            shift=shift,
            gain=gain,
            noise=noise,
            snr=snr,
            batch_size=batch_size,
            num_workers=num_workers,
            val_share=val_share,
            on_error=on_error,
            timeout_s=timeout_s,
            bucket=bucket,
        )
        self.held_out = held_out
        self.save_hyperparameters()

    def find_clips(self) -> dict[str, list[Clip]]:
        folder = self.root / "recordings"
        files = [(file, match) for file in _files(folder) if (match := NAME.fullmatch(file.name))]
        if not files:
            raise UserError(
                f"--data.root: expected {folder.as_posix()}/{{digit}}_{{speaker}}_{{number}}.wav, found none; they are "
                "published at github.com/Jakobovski/free-spoken-digit-dataset"
            )
        speakers = sorted({match["speaker"] for _, match in files})
        if self.held_out is not None and self.held_out not in speakers:
            near = nearest(self.held_out, speakers)
            raise UserError(f"--data.held_out: expected one of {', '.join(speakers)}, got {self.held_out}{near}")
        clips: dict[str, list[Clip]] = {"train": [], "test": []}
        for file, match in files:
            is_test = int(match["number"]) < NUM_TEST if self.held_out is None else match["speaker"] == self.held_out
            clips["test" if is_test else "train"].append(Clip(file, file.name, (match["digit"],)))
        return clips


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
