"""Made-up recordings in the layout of the published ones that the recipes train on."""

import random
import struct
import wave
from pathlib import Path

SPEAKERS = {"george": 1.0, "theo": 1.2}  # factors of the pitch
NUM_EACH = 8  # of each digit and speaker; the first five are for testing


def write(folder: Path) -> None:
    """Writes them where and as they are published."""
    recordings = folder / "spoken_digits/recordings"
    recordings.mkdir(parents=True)
    for digit in range(10):
        for speaker, pitch in SPEAKERS.items():
            for number in range(NUM_EACH):
                draw = random.Random(f"{digit} {speaker} {number}")
                period = round(8000 / (pitch * (120 + 40 * digit)))
                size = draw.randint(1200, 2400)
                samples = [int(6000 * (2 * (n % period) / period - 1) + draw.gauss(0, 100)) for n in range(size)]
                with wave.open(str(recordings / f"{digit}_{speaker}_{number}.wav"), "wb") as file:
                    file.setparams((1, 2, 8000, 0, "NONE", ""))
                    file.writeframes(struct.pack(f"<{size}h", *samples))
