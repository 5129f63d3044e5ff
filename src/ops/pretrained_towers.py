"""Encoders of images or texts by Hugging Face's transformers, as a vector per sample."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from src.ops.hub import local_folder
from src.ops.text_pooling import pool_text


class PretrainedTower(nn.Module):
    """A pretrained encoder of images or of texts, or that half of a model of both, such as CLIP or SigLIP.

    Weights are read from safetensors, or in a way that cannot run code; code that comes with a model is never run.

    Args:
        name: directory written by `save_pretrained`, or name of a repository of the hub, which is downloaded once.
        kind: image or text.

    Shapes:
        image: (B, C, S, S) → (B, width). text: tokens (B, T) and mask (B, T) → (B, width).

    Attributes:
        width: features of a sample.
        is_aligned: whether the features are in a space of images and texts already.

    Raises:
        ValueError: the model cannot be loaded, or encodes something else.
        UserError: there is no such model, or no network to fetch it.
    """

    def __init__(self, name: str, kind: Literal["image", "text"]) -> None:
        super().__init__()
        option = f"{kind}_tower"
        folder = local_folder(name, f"{option}:")
        try:
            import transformers
        except ImportError as error:
            raise ValueError(f"{option}: {name} needs transformers: uv sync --extra huggingface") from error
        transformers.utils.logging.disable_progress_bar()
        try:
            self.model: Any = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{option}: {name} cannot be loaded: {str(error).splitlines()[0]}") from None
        self.model.train()
        self.kind = kind
        self.is_aligned = hasattr(self.model, "get_image_features") and hasattr(self.model, "get_text_features")
        config = self.model.config
        if self.is_aligned:
            config = config.vision_config if kind == "image" else config.text_config
            self._keep_half()
        needed = "image_size" if kind == "image" else "vocab_size"
        if (size := getattr(config, needed, None)) is None:
            raise ValueError(f"{option}: {name} encodes no {kind}s, its configuration has no {needed}")
        self.size: int = size  # pixels S, or tokens V
        self.in_channels: int = getattr(config, "num_channels", 3)
        self.context_length: int | None = getattr(config, "max_position_embeddings", None)
        self.width = self._width()

    def _keep_half(self) -> None:
        """Drops the other encoder; what both share has no gradient here, for which DDP would wait."""
        other = "text" if self.kind == "image" else "vision"
        for name in (f"{other}_model", "text_projection" if other == "text" else "visual_projection"):
            if hasattr(self.model, name):
                setattr(self.model, name, None)
        for parameter in self.model.parameters(recurse=False):
            parameter.requires_grad_(False)

    def _width(self) -> int:
        with torch.no_grad():
            if self.kind == "image":
                return self(torch.zeros(1, self.in_channels, self.size, self.size)).shape[1]
            tokens = torch.zeros(1, 2, dtype=torch.int64)
            return self(tokens, torch.ones_like(tokens, dtype=torch.bool)).shape[1]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.kind == "image":
            outputs = self.model.get_image_features(pixel_values=x) if self.is_aligned else self.model(pixel_values=x)
            pooled = getattr(outputs, "pooler_output", None)
            return outputs.last_hidden_state.mean(dim=1) if pooled is None else pooled.flatten(1)  # (B, width)
        assert mask is not None, "of a text"
        named = {"input_ids": x, "attention_mask": mask.long()}
        if self.is_aligned:
            return self.model.get_text_features(**named).pooler_output  # (B, width)
        return pool_text(self.model(**named).last_hidden_state, mask, "mean")  # (B, T, width) → (B, width)
