"""export: writes a checkpoint as one file for use elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Export(ModelVerb):
    """Writes only the weights, or everything in one plain file; no data is needed."""

    name = "export"
    summary = "Write a checkpoint as one file for use elsewhere."
    examples = ("--ckpt_path best", "--ckpt_path runs/cnn-digits/<date-time> --output cnn.safetensors")

    def run(self, session: "Session", output: str | None = None) -> None:
        """Writes the file.

        Args:
            session: the model that the checkpoint is of.
            output: name of the file, whose suffix selects the format: .safetensors for only the weights, .ckpt for
                everything in one plain file. Defaults to <run>/exports/<checkpoint>.safetensors.
        """
        from playbook.deploy.export import export

        assert session.checkpoint is not None, "a verb that requires one"
        checkpoint = session.checkpoint
        file = Path(output) if output else session.run.path / "exports" / f"{checkpoint.stem}.safetensors"
        export(session.model, checkpoint, file)
        print(f"exported  {file.as_posix()} ({file.stat().st_size / 2**20:.1f} MiB)")


VERB = Export()
ORDER = 8
