"""What every net must satisfy is in test_nets.py; here, what is particular to GPT."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from playbook.optim.groups import parameter_groups
from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.nets.language.gpt import GPT

SMALL: dict[str, Any] = {"vocab_size": 11, "context_length": 32, "num_layers": 2, "dim": 16, "num_heads": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "shared keys": {"num_kv_heads": 2},
    "window": {"window": 3},
    "untied relu2": {"tie_weights": False, "activation": "relu2", "num_kv_heads": 1},
    "gelu": {"activation": "gelu", "rope_theta": 100.0, "mlp_dim": 24},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return {"tokens": torch.randint(11, (batch_size, 12))}, {**SMALL, "num_kv_heads": 2}


def build(variant: str = "default", dtype: torch.dtype = torch.float64, **arguments: Any) -> Any:
    """A net in evaluation whose attention is far from even: as after some training."""
    torch.manual_seed(0)
    net = GPT(**{**SMALL, **VARIANTS[variant], **arguments})
    for parameter in net.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return net.to(dtype).eval()


def draw(*shape: int) -> Tensor:
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


def by_formula(net: Any, tokens: list[int], variant: str) -> Tensor:
    """Logits (T, V) of one text, with a loop over heads and places."""
    arguments = {**SMALL, "activation": "swiglu", "rope_theta": 1e4, "window": None, **VARIANTS[variant]}
    num_heads, theta, window = (arguments[name] for name in ("num_heads", "rope_theta", "window"))
    num_kv_heads, size = arguments.get("num_kv_heads", num_heads), arguments["dim"] // num_heads

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    def turn(x: Tensor, t: int) -> Tensor:
        angles = torch.tensor([t * theta ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
        z = torch.complex(x[: size // 2], x[size // 2 :]) * torch.exp(1j * angles)
        return torch.cat([z.real, z.imag])

    x = net.embedding.weight[tokens]  # (T, D)
    for block in net.blocks:
        y, mixed = norm(x, block.attention_norm.weight), torch.zeros_like(x)
        q, k, v = (y @ linear.weight.T for linear in (block.query, block.key, block.value))
        for head in range(num_heads):
            shared = head * num_kv_heads // num_heads
            own, theirs = (slice(size * number, size * (number + 1)) for number in (head, shared))
            for t in range(len(tokens)):
                first = 0 if window is None else max(0, t - window + 1)
                scores = [turn(q[t, own], t) @ turn(k[s, theirs], s) / size**0.5 for s in range(first, t + 1)]
                mixed[t, own] = torch.stack(scores).softmax(0) @ v[first : t + 1, theirs]
        x = x + mixed @ block.out.weight.T
        y = norm(x, block.mlp_norm.weight)
        hidden = y @ block.up.weight.T
        if arguments["activation"] == "swiglu":
            gate = y @ block.gate.weight.T
            hidden = gate / (1 + (-gate).exp()) * hidden
        elif arguments["activation"] == "relu2":
            hidden = hidden.clamp(min=0) ** 2
        else:
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        x = x + hidden @ block.down.weight.T
    return norm(x, net.norm.weight) @ (net.head if "untied" in variant else net.embedding).weight.T


@each_variant
@torch.no_grad()
def test_logits_are_those_of_the_formula(variant: str) -> None:
    net, tokens = build(variant), draw(2, 9)
    expected = torch.stack([by_formula(net, row, variant) for row in tokens.tolist()])
    torch.testing.assert_close(net(tokens), expected)


@each_variant
def test_logits_are_the_head_of_the_features(variant: str) -> None:
    net, tokens = build(variant), draw(2, 9)
    assert torch.equal(net(tokens), net.head(net.features(tokens)))
    assert (net.head.weight is net.embedding.weight) == ("untied" not in variant)


@each_variant
@torch.no_grad()
def test_later_tokens_change_nothing(variant: str) -> None:
    net, tokens = build(variant), draw(1, 12)
    before = net(tokens)
    tokens[:, 6] += 1
    after = net(tokens % 11)
    assert torch.equal(after[:, :6], before[:, :6])
    moved = (after - before).abs().amax((0, 2))[6:] > 1e-9
    reach = 2 * (3 - 1) + 1 if variant == "window" else 6  # a layer carries a token window - 1 places further
    assert moved.tolist() == [place < reach for place in range(6)]


def packed(lengths: list[int], num_padding: int) -> tuple[Tensor, Tensor]:
    """Numbers of documents and positions, (1, T), padding first."""
    documents = [-1] * num_padding + [number for number, length in enumerate(lengths) for _ in range(length)]
    positions = [0] * num_padding + [place for length in lengths for place in range(length)]
    return torch.tensor([documents]), torch.tensor([positions])


@each_variant
@torch.no_grad()
def test_packed_documents_are_as_alone(variant: str) -> None:
    net, lengths, tokens = build(variant), [5, 1, 7], draw(1, 16)
    documents, positions = packed(lengths, num_padding=3)
    logits = net(tokens, documents=documents, positions=positions)
    alone = [net(part) for part in tokens[:, 3:].split(lengths, dim=1)]
    torch.testing.assert_close(logits[:, 3:], torch.cat(alone, dim=1))
    assert logits.isfinite().all()
    together = net(tokens[:, 3:])
    assert (together - logits[:, 3:])[:, 6:].abs().max() > 1e-3, "documents that see each other prove nothing"


def test_padding_gets_finite_gradients() -> None:
    net = build().train()
    documents, positions = packed([4], num_padding=5)
    net(draw(1, 9), documents=documents, positions=positions)[:, 5:].square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize("lengths", [[9], [1] * 9, [5, 1, 3], [4, 5]], ids=str)
@each_variant
@torch.no_grad()
def test_cache_changes_nothing(variant: str, lengths: list[int], dtype: torch.dtype, tolerance: float) -> None:
    """However the places are divided into calls."""
    net, tokens = build(variant, dtype), draw(2, 9)
    cache = net.make_cache(2, 9)
    logits = [net(part, cache=cache) for part in tokens.split(lengths, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), net(tokens), rtol=0, atol=tolerance)


@each_variant
@torch.no_grad()
def test_left_padding_and_cache_change_nothing(variant: str) -> None:
    """Rows of 9, 6 and 2 tokens: 7 places are filled at once, then two more are added."""
    net, sizes = build(variant), [9, 6, 2]
    rows = [draw(1, 20)[:, 3 * number : 3 * number + size] for number, size in enumerate(sizes)]
    prompts = [row[:, :-2] if row.shape[1] > 2 else row[:, :0] for row in rows]
    cache, width = net.make_cache(3, 9), 7
    tokens, documents = torch.zeros(3, width, dtype=torch.long), torch.full((3, width), -1)
    positions = torch.zeros(3, width, dtype=torch.long)
    for number, prompt in enumerate(prompts):
        start = width - prompt.shape[1]
        tokens[number, start:], documents[number, start:] = prompt[0], 0
        positions[number, start:] = torch.arange(width - start)
    logits = [net(tokens, documents=documents, positions=positions, cache=cache)]
    for step in range(2):
        new = torch.cat([row[:, size - 2 + step : size - 1 + step] for row, size in zip(rows, sizes, strict=True)])
        place = torch.tensor([[size - 2 + step] for size in sizes])
        logits.append(net(new, documents=torch.zeros(3, 1, dtype=torch.long), positions=place, cache=cache))
    together = torch.cat(logits, dim=1)
    for number, row in enumerate(rows):
        torch.testing.assert_close(together[number : number + 1, 9 - row.shape[1] :], net(row))


def test_too_many_places() -> None:
    net = build()
    with pytest.raises(ValueError, match=r"^context_length: expected at most 32 tokens, got 33$"):
        net(draw(1, 33))
    with pytest.raises(ValueError, match=r"^length: expected at most context_length 32, got 33$"):
        net.make_cache(1, 33)
    cache = net.make_cache(1, 32)
    net(draw(1, 32), cache=cache)
    with pytest.raises(ValueError, match=r"^context_length: expected at most 32 tokens, got 33$"):
        net(draw(1, 1), cache=cache)
    cache = net.make_cache(1, 5)
    net(draw(1, 5), cache=cache)
    with pytest.raises(ValueError, match=r"^cache: expected at most 5 tokens, got 6$"):
        net(draw(1, 1), cache=cache)


def test_positions_keep_their_precision_in_bf16() -> None:
    """In bf16, the positions 1001 to 1012 would be three different ones."""
    net, tokens = build().bfloat16(), draw(2, 12)
    places = torch.arange(12)[None].expand(2, -1)
    near, far = (net(tokens, positions=places + shift) for shift in (0, 1001))
    assert (near - far).abs().max() < 0.1 * near.std()
    assert (near - net(tokens, positions=places * 2)).abs().max() > 0.5 * near.std(), "no position, no difference"


@pytest.mark.parametrize("tie_weights", [True, False])
@torch.no_grad()
def test_loss_at_the_beginning_is_that_of_guessing(tie_weights: bool) -> None:
    """Logits of variance 0.02² D add half of it to ln V; with tied weights, each token expects itself."""
    torch.manual_seed(0)
    net, tokens = GPT(tie_weights=tie_weights), torch.randint(65, (8, 64))
    loss = cross_entropy(net(tokens).flatten(0, 1), torch.randint(65, (8 * 64,))).item()
    assert loss == pytest.approx(math.log(65) + 0.02**2 * 384 / 2, abs=0.1 if tie_weights else 0.05)


def test_initial_deviations_are_those_of_gpt2() -> None:
    torch.manual_seed(0)
    net = GPT(vocab_size=500, num_layers=8, dim=128, num_heads=4, tie_weights=False)
    for name, parameter in net.named_parameters():
        if parameter.ndim == 1:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            expected = 0.02 / 4 if name.endswith(("out.weight", "down.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


@pytest.mark.parametrize(("dim", "num_hidden"), [(384, 1024), (96, 256), (128, 384)])
def test_hidden_units_are_a_multiple_of_64(dim: int, num_hidden: int) -> None:
    assert GPT(dim=dim, num_layers=1, num_heads=2).mlp_dim == num_hidden
    assert GPT(dim=dim, num_layers=1, num_heads=2, activation="gelu").mlp_dim == 4 * dim


@pytest.mark.parametrize("tie_weights", [True, False])
def test_muon_takes_the_matrices_of_the_blocks(tie_weights: bool) -> None:
    net = GPT(**SMALL, tie_weights=tie_weights)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    hidden, *others = [
        {names[id(parameter)] for parameter in group["params"]} for group in parameter_groups(net, split_hidden=True)
    ]
    assert hidden == {name for name in names.values() if name.startswith("blocks.") and "norm" not in name}
    undecayed = {name for name in names.values() if "norm" in name or "embedding" in name}
    assert others == ([undecayed] if tie_weights else [{"head.weight"}, undecayed])


def test_recomputed_blocks_give_the_same_gradients() -> None:
    def gradients(*, recomputed: bool) -> dict[str, Tensor]:
        net = build(dtype=torch.float32, dropout=0.2, num_kv_heads=2, window=5).train()
        if recomputed:
            callback = ActivationCheckpointing()
            callback.on_fit_start(None, nn.ModuleDict({"net": net}))  # type: ignore[arg-type]
            assert all("forward" in vars(block) for block in net.blocks)
        torch.manual_seed(2)
        documents, positions = packed([5, 6], num_padding=1)
        net(draw(1, 12), documents=documents, positions=positions).square().sum().backward()
        return {name: parameter.grad for name, parameter in net.named_parameters()}

    plain, twice = gradients(recomputed=False), gradients(recomputed=True)
    for name, gradient in plain.items():
        assert gradient.any(), name
        assert torch.equal(twice[name], gradient), name


def test_autocast_reaches_the_logits() -> None:
    net = build(dtype=torch.float32)
    expected = net(draw(2, 12))
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(draw(2, 12))
    assert logits.dtype == torch.bfloat16
    assert 0 < (logits.float() - expected).abs().max() < 0.1 * expected.std()


def test_dropout_acts_after_embedding_attention_and_mlp() -> None:
    net = build(dropout=0.25)
    assert {module.p for module in net.modules() if isinstance(module, nn.Dropout)} == {0.25}
    calls: list[Any] = []
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda *args: calls.append(args))
    net(draw(1, 4))
    assert len(calls) == 1 + 2 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 1}, "vocab_size: expected at least 2, got 1"),
        ({"context_length": 0}, "context_length: expected at least 1, got 0"),
        ({"num_layers": 0}, "num_layers: expected at least 1, got 0"),
        ({"num_heads": 0}, "num_heads: expected at least 1, got 0"),
        ({"num_kv_heads": 0}, "num_kv_heads: expected at least 1, got 0"),
        ({"mlp_dim": 0}, "mlp_dim: expected at least 1, got 0"),
        ({"window": 0}, "window: expected at least 1, got 0"),
        ({"dim": 100}, "dim: expected a multiple of 2 num_heads = 12, got 100"),
        ({"num_kv_heads": 4}, "num_kv_heads: expected a divisor of num_heads 6, got 4"),
        ({"activation": "tanh"}, "activation: expected one of swiglu, relu2, gelu, got tanh"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"rope_theta": 0.0}, "rope_theta: expected more than 0, got 0.0"),
        ({"norm_eps": -1.0}, "norm_eps: expected at least 0, got -1.0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        GPT(**arguments)


@pytest.mark.slow
@pytest.mark.parametrize("is_packed", [False, True])
def test_compiled_net_equals_eager(is_packed: bool) -> None:
    net = build(dtype=torch.float32, num_layers=1, num_kv_heads=2, window=3 if is_packed else None).train()
    compiled: Any = torch.compile(deepcopy(net))
    documents, positions = packed([5, 6], num_padding=1)
    options = {"documents": documents, "positions": positions} if is_packed else {}
    results = []
    for module in (net, compiled):
        logits = module(draw(1, 12), **options)
        logits.square().mean().backward()
        results.append([logits, *(parameter.grad for parameter in module.parameters())])
    for expected, result in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize(("family", "num_kv_heads"), [("Llama", 4), ("Llama", 2), ("Qwen3", 2)])
@torch.no_grad()
def test_logits_are_those_of_hugging_face(family: str, num_kv_heads: int, tie_weights: bool) -> None:
    """With its weights under our names; those of Qwen3's norms of queries and keys are 1."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=65,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tie_weights,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        head_dim=16,
    )
    theirs = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in theirs.named_parameters():
        if not name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (parameter.ndim == 1))
    names = {"model.embed_tokens": "embedding", "model.layers": "blocks", "model.norm": "norm", "lm_head": "head"}
    names |= {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm", "mlp.": ""}
    names |= {"self_attn.q_proj": "query", "self_attn.k_proj": "key", "self_attn.v_proj": "value"}
    names |= {"self_attn.o_proj": "out", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
    weights = {}
    for theirs_name, value in theirs.state_dict().items():
        if theirs_name.endswith(("q_norm.weight", "k_norm.weight")):
            continue
        name = theirs_name
        for old, new in names.items():
            name = name.replace(old, new)
        weights[name] = value
    ours = GPT(
        65, 128, 3, 64, 4, num_kv_heads, 192, tie_weights=tie_weights, qk_norm=1.0 if family == "Qwen3" else None
    ).eval()
    ours.load_state_dict(weights)
    tokens = torch.randint(65, (2, 100))
    expected = theirs(tokens).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-5)
