"""Recordings are read as an exported model reads them."""

from pathlib import Path

import pytest
import torch

from playbook import UserError
from playbook.deploy.runtime.audio import AudioReader
from src.data.audio.recordings import inspect_recording, read_recording
from tests.data.audio.files import tone, write


@pytest.mark.parametrize("rate", [8000, 16_000, 11_025])
def test_the_same_as_an_artefact(tmp_path: Path, rate: int) -> None:
    stereo = torch.stack([tone(3000), 0.3 * torch.randn(3000)], dim=1)
    file = write(tmp_path / "a.flac", stereo, 16_000)
    sample = AudioReader({"sample_rate": rate, "seconds": 1.0, "overlap": 0.5})(file)
    audio = read_recording(file, rate)
    torch.testing.assert_close(audio, torch.from_numpy(sample.inputs["audio"]), atol=1e-5, rtol=0)
    assert sample.inputs["length"] == len(audio) == -(-3000 * rate // 16_000)


def test_errors_are_for_users(tmp_path: Path) -> None:
    file = write(tmp_path / "a.wav")
    file.write_bytes(file.read_bytes()[:100])
    for read in (inspect_recording, lambda source: read_recording(source, 8000)):
        with pytest.raises(UserError, match=r"a.wav: is truncated: its header announces 1,600 bytes"):
            read(file)
