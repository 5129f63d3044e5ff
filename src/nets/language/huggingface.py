"""Pretrained models of Hugging Face's transformers, with the interface of the nets here."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from src.ops.attention import Cache, visible
from src.ops.hub import local_folder

HEADS = {
    "causal_lm": "AutoModelForCausalLM",
    "masked_lm": "AutoModelForMaskedLM",
    "sequence_classification": "AutoModelForSequenceClassification",
    "feature": "AutoModel",
}
# models that do more to the features than multiply them by the head
SCALED = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "logits_scale")
MASKED = {"full_attention", "sliding_attention"}  # kinds of layers that a mask reaches


class HuggingFace(nn.Module):
    """A pretrained model from a local directory, without network access, or from the Hugging Face hub.

    Weights are read from safetensors, or in a way that cannot run code; code that comes with a model is never run. Wrap
    the net in LoRA to train only adapters.

    Args:
        name: directory written by `save_pretrained`, or name of a repository of the hub, which is downloaded once.
        head: causal_lm, logits of the next token for every token; masked_lm, logits for every token of a bidirectional
            model; sequence_classification, logits of classes; feature, features of every token.
        num_classes: number of classes K, for sequence_classification.
        gradient_checkpointing: whether to recompute the activations of the blocks in the backward pass, which takes
            less memory and about a third more time.
        dtype: type of the weights; for training, use float32 with --trainer.precision bf16-mixed.
        attention: implementation of attention. Defaults to sdpa if the model supports it, else to eager.

    Shapes:
        tokens (B, T) → logits (B, T, V), features (B, T, D) or logits (B, K). With packed documents also documents
        (B, T), their numbers, -1 for padding, and positions (B, T), which begin at 0 in each document. For
        bidirectional models also mask (B, T), False for padding.

    Raises:
        ValueError: an argument is out of range, or the model does not support packed documents.
        UserError: there is no such model, or no network to fetch it.
    """

    def __init__(
        self,
        name: str,
        head: Literal["causal_lm", "masked_lm", "sequence_classification", "feature"] = "causal_lm",
        num_classes: int | None = None,
        gradient_checkpointing: bool = False,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        attention: Literal["sdpa", "eager"] | None = None,
    ) -> None:
        super().__init__()
        if head not in HEADS:
            raise ValueError(f"head: expected one of {', '.join(HEADS)}, got {head}")
        if head == "sequence_classification" and (num_classes is None or num_classes < 2):
            raise ValueError(f"num_classes: expected at least 2 for head sequence_classification, got {num_classes}")
        if head != "sequence_classification" and num_classes is not None:
            raise ValueError(f"num_classes: expected none for head {head}, got {num_classes}")
        folder = local_folder(name, "name:")
        try:
            import transformers
        except ImportError as error:
            raise ValueError("HuggingFace needs transformers: uv sync --extra huggingface") from error
        transformers.utils.logging.disable_progress_bar()
        options: dict[str, Any] = {} if num_classes is None else {"num_labels": num_classes}
        verbosity = transformers.utils.logging.get_verbosity()
        transformers.utils.logging.set_verbosity_error()  # new weights are told below
        try:
            self.model, loading = getattr(transformers, HEADS[head]).from_pretrained(
                folder,
                local_files_only=True,
                output_loading_info=True,
                dtype=getattr(torch, dtype),
                attn_implementation=attention,
                ignore_mismatched_sizes=num_classes is not None,
                **options,
            )
        except (OSError, ValueError) as error:
            raise ValueError(f"name: {name} cannot be loaded as {head}: {str(error).splitlines()[0]}") from None
        finally:
            transformers.utils.logging.set_verbosity(verbosity)
        self.model.train()
        self.source = name  # the weights can be read again from here
        missing = [*loading["missing_keys"], *(key[0] for key in loading["mismatched_keys"])]
        self.new_parameters = [f"model.{key}" for key in missing]  # the file has none: they begin at random
        self.kind = head
        self.vocab_size = self.model.get_input_embeddings().num_embeddings
        self.context_length: int | None = getattr(self.model.config, "max_position_embeddings", None)
        if gradient_checkpointing:
            # the name before transformers 5.23, where the default was the same
            enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
            enable()

    @property
    def head(self) -> nn.Module | None:
        """The layer that maps features to logits, or None."""
        return self.model.get_output_embeddings()

    def forward(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        cache: "_Cache | None" = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        if self.kind != "causal_lm":
            output = self.model(**self._masked(tokens, mask))
            return output.last_hidden_state if self.kind == "feature" else output.logits
        output = self.model(**self._causal(tokens, documents, positions, cache))
        if cache is not None:
            cache.filled += tokens.shape[1]
        return output.logits

    def features(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        cache: "_Cache | None" = None,
    ) -> Tensor:
        """Inputs of the head, (B, T, D); arguments as for `forward`."""
        scaling = [name for name in SCALED if getattr(self.model.config, name, None) not in (None, 1, 1.0)]
        if self.kind != "causal_lm" or scaling or getattr(self.head, "bias", None) is not None:
            why = f"has {scaling[0]}" if scaling else "has no head without bias"
            raise ValueError(f"loss_chunk: {self.source} {why}; expected 0")
        body = self.model.base_model
        x = body(**self._causal(tokens, documents, positions, cache)).last_hidden_state
        if cache is not None:
            cache.filled += tokens.shape[1]
        return x

    def make_cache(self, batch_size: int, length: int) -> "_Cache":
        """Makes a cache for generation: `forward(new tokens, cache=cache)` continues after the tokens of the last call.

        Args:
            batch_size: rows B.
            length: largest number of tokens.
        """
        return _Cache(batch_size, length)

    def _causal(
        self, tokens: Tensor, documents: Tensor | None, positions: Tensor | None, cache: "_Cache | None"
    ) -> dict[str, Any]:
        """Arguments of a causal model."""
        start, num_new = 0 if cache is None else cache.filled, tokens.shape[1]
        options: dict[str, Any] = {"input_ids": tokens, "use_cache": cache is not None}
        if cache is not None:
            documents = cache.documents(documents, num_new, tokens.device)
            options["past_key_values"] = cache.past
        if positions is not None:
            options["position_ids"] = positions
        if documents is None:
            return options
        config = self.model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        attends = getattr(self.model, "_supports_sdpa", False) or getattr(
            self.model, "_supports_attention_backend", False
        )
        if not attends or not kinds <= MASKED:
            raise ValueError(
                f"documents: {self.source} does not support packed documents; expected --data.packing false"
            )
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        full = self._additive(visible(num_new, start + num_new, None, documents, tokens.device))
        if window is None or (kinds == {"full_attention"} and getattr(config, "layer_types", None)):
            return {**options, "attention_mask": full}
        sliding = self._additive(visible(num_new, start + num_new, window, documents, tokens.device))
        if len(kinds) == 1:
            return {**options, "attention_mask": sliding}
        return {**options, "attention_mask": {"full_attention": full, "sliding_attention": sliding}}

    def _additive(self, mask: Tensor | None) -> Tensor:
        """Mask as a term of the attention scores, (B, 1, T, S): eager attention takes no boolean mask."""
        assert mask is not None, "documents always make a mask"
        dtype = self.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)

    def _masked(self, tokens: Tensor, mask: Tensor | None) -> dict[str, Any]:
        """Arguments of a bidirectional model or a classifier."""
        if mask is None:
            return {"input_ids": tokens}
        config = self.model.config
        if self.kind == "sequence_classification":
            if config.pad_token_id is None:  # decoders look for the last place that is no padding
                config.pad_token_id = 0
            tokens = tokens.masked_fill(~mask.bool(), config.pad_token_id)
        return {"input_ids": tokens, "attention_mask": mask.long()}


class _Cache(Cache):
    """Documents of all tokens, in addition to the keys and values that transformers keeps."""

    def __init__(self, batch_size: int, length: int) -> None:
        from transformers import DynamicCache

        super().__init__(batch_size, length, num_layers=0)
        self.past = DynamicCache()  # without the model's configuration: no layer forgets places that a mask counts
