"""export: writes a checkpoint for use elsewhere."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Export(ModelVerb):
    """Writes an artefact, a folder that answers raw inputs without this repository, or the weights as one file."""

    name = "export"
    summary = "Export a checkpoint for use without this repository, or its weights, and prove it equal to the model."
    examples = (
        "--ckpt_path best --format onnx",
        "--ckpt_path runs/cnn-digits/<date-time> --format onnx --quantize int8-static --output cnn-int8",
        "--ckpt_path best --output cnn.safetensors",
        "--ckpt_path best --format onnx --output hub:USER/cnn-digits",
    )

    def before_build(self, session: "Session") -> None:
        from playbook.deploy.requests import check_options

        check_options(session.options)

    def run(
        self,
        session: "Session",
        format: str | None = None,
        quantize: str = "none",
        output: str | None = None,
        tolerance: float | None = None,
        min_agreement: float | None = None,
        max_drop: float = 0.005,
        speed: bool = True,
        opset: int | None = None,
    ) -> int | None:
        """Writes it.

        Args:
            session: the model that the checkpoint is of, and its data.
            format: torch_export, aoti (compiled for this CPU), onnx, torchscript, executorch, safetensors (weights
                alone) or all.
            quantize: for onnx, none, int8-static (calibrated, for convolutional nets), int8-dynamic (for Transformers)
                or int8-weight (only the size shrinks).
            output: folder to write, or without a format a file .safetensors or .ckpt. Defaults to
                <run>/exports/<checkpoint>-<format>, and without a format to <run>/exports/<checkpoint>.safetensors.
                hub:NAME or hub:USER/NAME writes <run>/exports/NAME with a model card, and uploads it to the Hugging
                Face hub, into a private repository if it is new, where you are logged in.
            tolerance: largest difference of an output, as a share of the largest output. Defaults to 1e-3, or no limit
                if quantized.
            min_agreement: least share of decisions that agree with the model's. Defaults to 0.999, or 0.98 if
                quantized.
            max_drop: largest loss of the metric that selects the best checkpoint, as a share of it.
            speed: whether to measure the latency and throughput of the model, compiled and exported.
            opset: for onnx, version of the operators; a lower one for an older ONNX Runtime, which README.md names.
                Defaults to the choice of PyTorch's exporter.
        """
        from playbook.deploy.hub import repository_of
        from playbook.deploy.requests import Exporter, export_all, export_file, export_one, export_to_hub

        assert session.checkpoint is not None, "a verb that requires one"
        limits = {"tolerance": tolerance, "min_agreement": min_agreement, "max_drop": max_drop}
        repository = repository_of(output)
        exporter = Exporter(session, limits, speed, repository and repository.rpartition("/")[2], opset)
        if repository is not None:
            return export_to_hub(exporter, format, quantize, repository)
        if format is None:
            return export_file(session, output)
        if format == "all":
            return export_all(exporter, quantize, output)
        return export_one(exporter, format, quantize, output)


VERB = Export()
ORDER = 8
