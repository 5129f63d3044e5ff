"""Nets of texts on several processes: sharded by their blocks, and decoders split by layers."""

import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from playbook.parallel import spread
from playbook.testing.parallel import Case, assert_equal_to_one_process
from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.nets.language.gpt import GPT
from src.nets.language.huggingface import HuggingFace
from src.nets.language.text_encoder import TextEncoder
from src.nets.lora import LoRA
from src.tasks.masked_language_modelling import MaskedLanguageModelling

pytestmark = [pytest.mark.slow, pytest.mark.process]
SIZES: dict[str, Any] = {"vocab_size": 10, "num_layers": 2, "dim": 16, "num_heads": 4, "num_kv_heads": 2}


class ByFeatures(pl.LightningModule):
    """Uses parts of its net without calling it, as a loss in chunks does."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net: Any = net

    def forward(self, tokens: Tensor) -> Tensor:
        features, weight = self.net.features(tokens), self.net.head.weight
        return features @ (weight.to_local() if isinstance(weight, DTensor) else weight).T


def next_tokens(net: nn.Module, share: int, shares: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, target = (torch.randint(10, (8, 6), generator=generator).chunk(shares)[share] for _ in range(2))
    logits = net(tokens)
    return logits, cross_entropy(logits.flatten(0, -2), target.flatten())


def hidden_tokens(task: nn.Module, share: int, shares: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, target = (torch.randint(10, (8, 6), generator=generator).chunk(shares)[share] for _ in range(2))
    logits = task({"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)})
    return logits, cross_entropy(logits.flatten(0, -2), target.flatten())


def recompute(net: nn.Module) -> None:
    ActivationCheckpointing().on_fit_start(None, nn.ModuleDict({"net": net}))  # type: ignore[arg-type]


def hugging_face(kind: str = "Llama", **options: Any) -> HuggingFace:
    import transformers

    sizes = {"vocab_size": 10, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **options}, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    weights = transformers.AutoModelForCausalLM.from_config(config).state_dict()
    with tempfile.TemporaryDirectory() as folder:  # save_pretrained writes nothing on other processes than the first
        config.to_json_file(f"{folder}/config.json")
        save_file({name: value.clone() for name, value in weights.items()}, f"{folder}/model.safetensors")
        return HuggingFace(folder)


CASES = {
    "gpt": Case(lambda: GPT(**SIZES), next_tokens),
    "gpt recomputed": Case(lambda: GPT(**SIZES), next_tokens, prepare=recompute),
    "gpt untied": Case(lambda: GPT(**SIZES, tie_weights=False, activation="relu2", window=3), next_tokens),
    "gpt by features": Case(lambda: ByFeatures(GPT(**SIZES)), next_tokens),
    "llama": Case(hugging_face, next_tokens),
    "llama tied": Case(lambda: hugging_face(tie_word_embeddings=True), next_tokens),
    "llama by features": Case(lambda: ByFeatures(hugging_face()), next_tokens),
    "adapters": Case(lambda: LoRA(GPT(**SIZES), rank=2, modules_to_save=["head"]), next_tokens),
    "adapters by features": Case(lambda: ByFeatures(LoRA(GPT(**SIZES), rank=2, dora=True)), next_tokens),
    # the features of its net, a net of its own, the embedding's weight, and a bias outside of all nets
    "masked": Case(
        lambda: MaskedLanguageModelling(TextEncoder(num_classes=0, vocab_size=10, dim=16, max_length=8)), hidden_tokens
    ),
}
REFUSED = {
    "tensor parallel": {
        "kv heads": lambda mesh: spread(GPT(num_heads=3, dim=12), mesh),
        "hidden": lambda mesh: spread(GPT(num_heads=2, dim=12, mlp_dim=7), mesh),
        "dropout": lambda mesh: spread(GPT(dropout=0.1), mesh),
        "encoder": lambda mesh: spread(TextEncoder(dropout=0.0), mesh),
        "adapters": lambda mesh: spread(LoRA(GPT(**SIZES)), mesh),
        "qwen": lambda mesh: spread(hugging_face("Qwen3"), mesh),
        "llama": lambda mesh: spread(hugging_face(num_key_value_heads=1), mesh),
        "gpt2": lambda mesh: spread(hugging_face("GPT2"), mesh),
    }
}
SPLIT_BY_LAYER = [name for name in CASES if name.startswith(("gpt", "llama"))]


def test_fsdp2_equals_one_process(tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "fsdp2", CASES, tmp_path)


def test_tensor_parallel_equals_one_process(tmp_path: Path) -> None:
    for messages in assert_equal_to_one_process(__file__, "tensor parallel", SPLIT_BY_LAYER, tmp_path):
        no_plan = "has no plan for splitting its layers; expected 1, got 2. Use data_parallel_size to shard it"
        assert messages == {
            "kv heads": "num_kv_heads: expected a multiple of tensor_parallel_size 2, got 3",
            "hidden": "blocks.0.gate.out_features: expected a multiple of tensor_parallel_size 2, got 7",
            "dropout": "dropout: expected 0 with tensor_parallel_size 2, got 0.1",
            "encoder": f"tensor_parallel_size: TextEncoder {no_plan}",
            "adapters": "tensor_parallel of GPT: blocks.0.query is a peft.tuners.lora.layer.Linear, expected a "
            "torch.nn.Linear",
            "qwen": "tp_plan of Qwen3ForCausalLM: expected colwise or rowwise for model.layers.*.self_attn.q_norm, got "
            "'replicated_with_grad_allreduce'",
            "llama": "model.num_key_value_heads: expected a multiple of tensor_parallel_size 2, got 1",
            "gpt2": f"tensor_parallel_size: HuggingFace {no_plan}",
        }


def test_fsdp2_and_tensor_parallel_equal_one_process(tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "both", SPLIT_BY_LAYER, tmp_path)
