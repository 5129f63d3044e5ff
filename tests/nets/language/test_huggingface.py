"""Pretrained models, adapters and chat tuning: equal to transformers called directly, and without any network.

All models are random ones that the tests save.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from playbook import UserError, load_run
from playbook.testing.command import Cli
from src.data.language.chat import Chat
from src.data.language.labelled_text import LabelledText
from src.data.language.text import Text
from src.nets.language.huggingface import HuggingFace
from src.nets.lora import LoRA
from src.ops.generation import generate
from src.ops.hub import local_folder
from src.ops.vocabularies import Pretrained, vocabulary_from
from tests.conftest import ROOT

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MARKED = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {% if m['role'] == 'assistant' %}{% generation %}"
    "{{ m['content'] }}<end>{% endgeneration %}{% else %}{{ m['content'] }}<end>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")

TALK = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "what is the world?"},
    {"role": "assistant", "content": "hello"},
]


def save_model(kind: str, folder: Path, **sizes: Any) -> str:
    import transformers

    torch.manual_seed(0)
    small = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    small |= {"bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{kind}Config")(**((small if kind == "GPT2" else SIZES) | sizes))
    name = {"GPT2": "GPT2LMHeadModel", "Bert": "BertModel"}.get(kind, f"{kind}ForCausalLM")
    model = getattr(transformers, name)(config)
    with torch.no_grad():  # biases and norms too, which an initialisation leaves at 0 and 1
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return str(folder)


def save_tokenizer(folder: Path, template: str | None = UNMARKED) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "<end>"]
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["hello world what is the"], trainer)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "<end>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)
    return len(wrapped)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    size = save_tokenizer(folder)
    return save_model("Llama", folder, vocab_size=size, num_key_value_heads=2)


def tokens_of(seed: int = 0) -> Tensor:
    return torch.randint(3, 50, (2, 16), generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
@pytest.mark.parametrize("attention", [None, "eager"])
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("Llama", {"num_key_value_heads": 2}),
        ("GPT2", {}),
        ("Mistral", {"num_key_value_heads": 2, "sliding_window": 5}),
        ("Gemma2", {}),
    ],
)
def test_a_language_model_equals_the_model_itself_and_its_documents_alone(
    tmp_path: Path, kind: str, sizes: dict[str, Any], attention: Any
) -> None:
    sizes = {**sizes, "head_dim": 8, "num_key_value_heads": 2, "sliding_window": 5} if kind == "Gemma2" else sizes
    net = HuggingFace(save_model(kind, tmp_path / kind, **sizes), attention=attention).eval()
    tokens = tokens_of()
    logits = net.model(input_ids=tokens).logits
    torch.testing.assert_close(net(tokens), logits, rtol=0, atol=0)

    documents = torch.tensor([[0] * 7 + [1] * 9, [0] * 10 + [1] * 4 + [-1] * 2])
    positions = torch.tensor([[*range(7), *range(9)], [*range(10), *range(4), 0, 0]])
    packed = net(tokens, documents=documents, positions=positions)
    for row, start, end in ((0, 0, 7), (0, 7, 16), (1, 0, 10), (1, 10, 14)):
        alone = net.model(input_ids=tokens[row : row + 1, start:end]).logits[0]
        torch.testing.assert_close(packed[row, start:end], alone, rtol=0, atol=1e-5)

    cache = net.make_cache(2, 16)  # the second row begins with four places of padding
    documents = torch.tensor([[0] * 12, [-1] * 4 + [0] * 8])
    positions = torch.tensor([[*range(12)], [0] * 4 + [*range(8)]])
    parts = [net(tokens[:, :12], documents=documents, positions=positions, cache=cache)]
    for place in range(12, 16):
        parts.append(net(tokens[:, place : place + 1], positions=torch.tensor([[place], [place - 4]]), cache=cache))
    stepwise = torch.cat(parts, dim=1)
    torch.testing.assert_close(stepwise[0], logits[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(stepwise[1, 4:], net.model(input_ids=tokens[1:, 4:]).logits[0], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_features_and_head_make_the_logits(llama: str) -> None:
    net = HuggingFace(llama).eval()
    assert net.head is not None
    torch.testing.assert_close(net.head(net.features(tokens_of())), net(tokens_of()))
    assert (net.vocab_size, net.context_length) == (Pretrained(llama).size, 64)


@pytest.mark.slow
def test_generation_does_not_depend_on_the_batch(llama: str) -> None:
    net = HuggingFace(llama).eval()
    prompts = [[5, 6, 7, 8, 9], [10, 11]]
    together = generate(net, prompts, 6, temperature=0.0)
    assert together == [generate(net, [prompt], 6, temperature=0.0)[0] for prompt in prompts]
    expected = net.model.generate(
        torch.tensor(prompts[:1]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert together[0] == expected[0, 5:].tolist()


@pytest.mark.slow
def test_gradient_checkpointing_changes_no_gradient(llama: str) -> None:
    gradients = []
    for checkpoints in (False, True):
        net = HuggingFace(llama, gradient_checkpointing=checkpoints).train()
        is_on = [getattr(module, "gradient_checkpointing", False) for module in net.modules()]
        assert any(is_on) == checkpoints
        net(tokens_of()).square().mean().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_a_classifier_does_not_depend_on_padding(tmp_path: Path, kind: str) -> None:
    net = HuggingFace(save_model(kind, tmp_path / kind), "sequence_classification", num_classes=3).eval()
    assert net.new_parameters, "the file has no classifier"
    tokens = tokens_of()
    mask = torch.arange(16) < torch.tensor([[16], [9]])
    logits = net(tokens, mask=mask)
    assert logits.shape == (2, 3)
    other = tokens.masked_fill(~mask, 7)
    torch.testing.assert_close(net(other, mask=mask), logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(net(tokens[1:, :9]), logits[1:], rtol=0, atol=1e-5)
    adapted = LoRA(net, rank=2)
    trained = {name.removeprefix("net.") for name, value in adapted.named_parameters() if value.requires_grad}
    assert set(net.new_parameters) <= trained, "a classifier that begins at random must be trained"


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dora", [True, False])
def test_merged_weights_give_the_adapted_logits(tmp_path: Path, tied: bool, dora: bool) -> None:
    name = save_model("Llama", tmp_path / "llama", tie_word_embeddings=tied)
    cases: list[dict[str, Any]] = [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj", "lm_head"]},
    ]
    for options in cases:
        if tied and set(options["target_modules"]) & {"embed_tokens", "lm_head"}:
            with pytest.raises(ValueError, match="shares its weight with"):
                LoRA(HuggingFace(name), rank=4, dora=dora, **options)
            continue
        adapted, fresh = LoRA(HuggingFace(name), rank=4, dora=dora, **options).eval(), HuggingFace(name).eval()
        before = fresh(tokens_of())
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        logits = adapted(tokens_of())
        assert (logits - before).abs().max() > 1e-3, options
        torch.save(adapted.merged().state_dict(), tmp_path / "merged.pt")
        fresh.load_state_dict(torch.load(tmp_path / "merged.pt", weights_only=True))
        torch.testing.assert_close(fresh(tokens_of()), logits, rtol=0, atol=1e-5)
        fresh.model.save_pretrained(tmp_path / "merged")  # and as transformers reads it
        again = HuggingFace(str(tmp_path / "merged")).eval()
        torch.testing.assert_close(again(tokens_of()), logits, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_tokenizer(llama: str) -> None:
    vocabulary = Pretrained(llama)
    for text in ("hello world", "a  b\n", "Grüße <end> 🙂"):
        tokens = vocabulary.encode(text)
        assert vocabulary.decode(tokens) == text
        assert sum(vocabulary.num_bytes[token] for token in tokens) == len(text.encode())
    assert (vocabulary.end, vocabulary.pad, vocabulary.size) == (2, 0, len(vocabulary.num_bytes))
    again = vocabulary_from(vocabulary.plain())
    assert again.encode("hello") == vocabulary.encode("hello")
    with pytest.raises(UserError, match=r"its tokenizer .* differs"):
        vocabulary_from({**vocabulary.plain(), "digest": "0" * 16})


@pytest.mark.slow
def test_texts_of_a_classifier_are_framed_and_their_tokenizer_may_move(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    folder, moved, other = (tmp_path / name for name in ("bert", "moved", "other"))
    save_tokenizer(folder)
    tokenizer = Pretrained(str(folder)).tokenizer
    frame = TemplateProcessing(single="<s> $A <end>", special_tokens=[("<s>", 1), ("<end>", 2)])
    tokenizer.backend_tokenizer.post_processor = frame
    tokenizer.save_pretrained(folder)
    (tmp_path / "texts.csv").write_text("text,label\n" + "the world,a\nhello world what is the <end>,b\n" * 5)

    def made(vocabulary_of: Path) -> LabelledText:
        return LabelledText(str(tmp_path / "texts.csv"), vocabulary_of=str(vocabulary_of), max_length=6)

    data = made(folder)
    data.setup("fit")
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    short, long = (vocabulary.encode(text) for text in ("the world", "hello world what is the <end>"))
    expected = [[1, *short[:4], 2], [1, *long[:4], 2]]
    assert {tuple(inputs["tokens"].tolist()) for inputs, _ in data.train_set} == {*map(tuple, expected)}

    folder.rename(moved)
    save_tokenizer(other)
    again = made(moved)
    again.facts = dict(data.facts)
    again.prepare_read()
    assert again.read("the world")["tokens"].tolist() == expected[0]
    again = made(other)
    again.facts = dict(data.facts)
    with pytest.raises(UserError, match=r"--data\.vocabulary_of .*other: its tokenizer .* differs"):
        again.prepare_read()
    (tmp_path / "plain.txt").write_text("hello world what is the " * 20)
    text = Text(str(tmp_path / "plain.txt"), vocabulary_of=str(moved), context_length=8)
    text.facts = {"tokenizer": data.facts["tokenizer"]}
    text.setup("fit")
    assert text.facts["tokenizer"] == {**data.facts["tokenizer"], "name": str(moved)}
    assert text.train_tokens[:4].tolist() == vocabulary.encode("hello world what is the ")[:4]
    chat = Chat(tokenizer=str(moved))
    chat.facts = dict(data.facts, chat_template=UNMARKED, context_length=64)
    chat.prepare_read()
    assert vocabulary.decode(chat.read("the")["tokens"].tolist()).startswith("user: the")


@pytest.mark.slow
@pytest.mark.parametrize("template", [MARKED, UNMARKED])
def test_answers_alone_are_learnt_with_and_without_generation_marks(tmp_path: Path, template: str) -> None:
    save_tokenizer(tmp_path / "model", template)
    file = tmp_path / "chat.jsonl"
    file.write_text(f"{json.dumps({'messages': TALK})}\n" * 9, encoding="utf-8")
    data = Chat(str(file), str(tmp_path / "model"), packing=False)
    data.setup("fit")
    inputs, target = data.train_set[0]
    tokenizer = Pretrained(str(tmp_path / "model")).tokenizer
    text = tokenizer.decode(inputs["tokens"])
    rendered = tokenizer.apply_chat_template(TALK, tokenize=False)
    assert text == rendered.removesuffix("<end>")  # the last token is only predicted
    assert tokenizer.decode(target[target >= 0]) == "4<end>hello<end>"
    assert data.facts["stop_tokens"] == [2]
    prompt = data.read({"messages": TALK[:3]})["tokens"]
    assert tokenizer.decode(prompt) == tokenizer.apply_chat_template(
        TALK[:3], tokenize=False, add_generation_prompt=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template; expected a template file, or plain"),
        (
            "{% generation %}{{ messages }}{% endgeneration %}",
            "marks include every token of chat.jsonl:1",
        ),
        ("{% if false %}{% generation %}a{% endgeneration %}{% endif %}{{ messages }}", "no token of chat.jsonl:1"),
        ("{{ messages | length }}: {{ messages }}", "depends on later messages.*generation marks"),
        ("{{ raise_exception('no system turn') }}", "chat.jsonl:1: no system turn"),
    ],
)
def test_bad_templates(tmp_path: Path, template: str | None, message: str) -> None:
    save_tokenizer(tmp_path / "model", template)
    file = tmp_path / "chat.jsonl"
    file.write_text(f"{json.dumps({'messages': TALK})}\n" * 2, encoding="utf-8")
    write = Chat(str(file), str(tmp_path / "model"), val_share=0.5, test_share=0)
    with pytest.raises(UserError, match=message):
        write.setup("fit")


BLOCKED = """
import socket, sys
attempts = []
def refuse(*args, **kwargs):
    attempts.append(args)
    raise OSError("the network is blocked")
socket.getaddrinfo = refuse
socket.socket.connect = refuse
import torch
from src.nets.language.huggingface import HuggingFace
from src.ops.generation import generate
from src.ops.vocabularies import Pretrained
from src.nets.lora import LoRA
name = sys.argv[1]
net = LoRA(HuggingFace(name))
vocabulary = Pretrained(name)
answer = generate(net, [vocabulary.encode("hello")], 3)
assert len(answer[0]) == 3
net.merged().state_dict()
print("attempts", len(attempts), attempts)
"""


@pytest.mark.slow
def test_a_local_directory_needs_no_network(llama: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, llama],
        check=False,
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "attempts 0 []" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_name_of_the_hub_without_a_network_is_told_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the network is blocked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    with pytest.raises(UserError, match=r"name: nobody/nothing: .*cannot be reached.*local folder"):
        HuggingFace("nobody/nothing")
    assert time.monotonic() - start < 20


def test_a_missing_folder_is_told_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama").mkdir()
    with pytest.raises(UserError, match=r"--x .*lama: no such folder.*llama"):
        local_folder(f"{tmp_path}/lama", "--x")
    with pytest.raises(UserError, match=r"--x .*llama: expected a folder with config\.json"):
        local_folder(f"{tmp_path}/llama", "--x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--x llama/smol: no such folder"):
        local_folder("llama/smol", "--x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "causal"}, "head: expected one of causal_lm, masked_lm"),
        ({"head": "sequence_classification"}, "num_classes: expected at least 2"),
        ({"num_classes": 3}, "num_classes: expected none for head causal_lm, got 3"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HuggingFace("anything", **options)


@pytest.mark.slow
def test_chat_tuning_from_beginning_to_end(
    llama: str, cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fit, resume, test, predict and export, without a network."""
    attempts = []

    def refuse(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        raise OSError("the network is blocked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    rows = [{"prompt": f"{a}+{b}?", "completion": str(a + b)} for a in range(5) for b in range(5)]
    Path("chat.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    model = {
        "class_path": "LanguageModelling",
        "init_args": {
            "net": {
                "class_path": "LoRA",
                "init_args": {"net": {"class_path": "HuggingFace", "init_args": {"name": llama}}, "rank": 4},
            },
            "temperature": 0.0,
            "max_new_tokens": 4,
        },
    }
    data = {
        "class_path": "Chat",
        "init_args": {"root": "chat.jsonl", "tokenizer": llama, "context_length": 48, "batch_size": 8},
    }
    Path("model.yaml").write_text(json.dumps(model), encoding="utf-8")
    Path("data.yaml").write_text(json.dumps(data), encoding="utf-8")
    options = ["--model", "model.yaml", "--data", "data.yaml", "--trainer.accelerator", "cpu", "--run_dir", "run"]

    def run(*args: str) -> Any:
        done = cli(*args)
        assert done.code == 0, done.err
        return done

    done = run("fit", *options, "--trainer.max_epochs", "1")
    assert "LoRA: trains" in done.err
    saved = torch.load("run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(".lora_" in name or name == "net.base_fingerprint" for name in saved), list(saved)[:5]
    run("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    run("test", "--ckpt_path", "run")
    Path("questions.jsonl").write_text('{"prompt": "1+1?"}\n"2+2?"\n', encoding="utf-8")
    run("predict", "--ckpt_path", "run", "--input", "questions.jsonl")
    run("export", "--ckpt_path", "run", "--output", "merged.safetensors")
    run("export", "--ckpt_path", "run", "--output", "merged.ckpt")
    adapted = load_run("run").module
    assert isinstance(adapted.net, LoRA)
    logits = adapted.net(tokens_of())
    names = torch.load("merged.ckpt", weights_only=True)["state_dict"].keys()  # of the task
    assert load_file("merged.safetensors").keys() == {name.removeprefix("net.model.") for name in names}
    for file in ("merged.safetensors", "merged.ckpt"):
        merged = load_run(file).module.net
        assert isinstance(merged, HuggingFace)
        torch.testing.assert_close(merged(tokens_of()), logits, rtol=0, atol=1e-5)
    run("test", "--ckpt_path", "merged.safetensors", "--data", "data.yaml")
    assert not attempts, attempts
