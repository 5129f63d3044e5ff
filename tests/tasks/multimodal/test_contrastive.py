"""The contrastive task: its loss, its scale, retrieval, labels, and what it refuses."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize
from torch.utils.data import DataLoader

from playbook import Trainer, UserError, build
from playbook.testing.command import UNSAVED
from src.data.multimodal.captioned_digits import CaptionedDigits
from src.nets.multimodal.clip import CLIP
from src.ops.vocabularies import Words
from src.tasks.contrastive import Contrastive
from tests.tasks.reports import report_of


class Towers(nn.Module):
    """Features are the inputs, times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(6, dtype=torch.float64))

    def encode_image(self, image: Tensor) -> Tensor:
        return normalize(image * self.factor, dim=1)

    def encode_text(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return normalize(nn.functional.one_hot(tokens[:, -1], 6) * self.factor, dim=1)

    def forward(self, image: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_image(image), self.encode_text(tokens, mask)


def batch_of(size: int = 5) -> Any:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.arange(size)[:, None] % 6
    inputs = {"image": torch.randn(size, 6, generator=generator, dtype=torch.float64), "tokens": tokens}
    return {**inputs, "mask": tokens >= 0}, torch.arange(size)[:, None].expand(-1, 2)


def loss_of(task: Contrastive, batch: Any) -> Tensor:
    task.log_step = lambda *args, **measured: None  # needs a trainer
    return task.training_step(batch, 0)


def test_infonce_is_the_mean_of_both_cross_entropies() -> None:
    task, batch = Contrastive(Towers()), batch_of()
    image, text = task(batch[0])
    similarity = image @ text.T / 0.07
    target = torch.arange(5)
    expected = (cross_entropy(similarity, target) + cross_entropy(similarity.T, target)) / 2
    torch.testing.assert_close(loss_of(task, batch), expected, rtol=1e-6, atol=1e-6)


def test_sigmoid_loss_begins_with_the_bias_of_the_paper() -> None:
    task, batch = Contrastive(Towers(), loss="sigmoid"), batch_of()
    image, text = task(batch[0])
    logits = 10 * image @ text.T - 10
    expected = binary_cross_entropy_with_logits(logits, torch.eye(5, dtype=torch.float64), reduction="sum") / 5
    torch.testing.assert_close(loss_of(task, batch), expected, rtol=1e-6, atol=1e-6)


def test_similarities_are_not_rounded_in_mixed_precision() -> None:
    task, (inputs, numbers) = Contrastive(Towers()).float(), batch_of()
    batch = {**inputs, "image": inputs["image"].float()}, numbers
    task.log_scale.data.fill_(math.log(100))
    expected = loss_of(task, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss_of(task, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def digits(**options: Any) -> CaptionedDigits:
    return CaptionedDigits(**{"num_train": 32, "num_val": 8, "num_test": 8, "batch_size": 16, **options})


def small(data: CaptionedDigits, **options: Any) -> Contrastive:
    class Small(CLIP):
        def __init__(self, image_size: int, in_channels: int, vocab_size: int, context_length: int) -> None:
            facts: dict[str, Any] = {"image_size": image_size, "in_channels": in_channels}
            facts |= {"vocab_size": vocab_size, "context_length": context_length}
            super().__init__(image_width=8, image_depth=3, embed_dim=16, text_width=16, text_depth=1, **facts)

    torch.manual_seed(0)
    task = build(Contrastive, data, net=Small, **options)
    assert isinstance(task, Contrastive)
    task.facts = data.facts
    return task


def fit(task: Contrastive, data: CaptionedDigits, **settings: Any) -> Trainer:
    trainer = Trainer(**{**UNSAVED, "max_epochs": 1, "num_sanity_val_steps": 0, **settings})
    trainer.fit(task, datamodule=data)
    return trainer


@pytest.mark.parametrize(("start", "sign"), [(math.log(100), -1.0), (0.0, 1.0)])
def test_the_scale_stays_between_1_and_100(start: float, sign: float) -> None:
    data = digits()
    task = small(data, optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1))
    with torch.no_grad():
        task.log_scale.fill_(start)
    task.log_scale.register_hook(lambda gradient: torch.full_like(gradient, sign))
    fit(task, data)
    assert task.log_scale.item() == pytest.approx(start), "it would have moved by 0.1 in each step"


@pytest.mark.slow
def test_the_loss_falls_and_retrieval_is_logged() -> None:
    data = digits(num_train=64, max_digits=1)
    task = small(data, optimizer=lambda groups: torch.optim.AdamW(groups, lr=3e-3))
    first = fit(task, data).callback_metrics["train/loss"].item()
    trainer = fit(task, data, max_epochs=15)
    assert trainer.callback_metrics["train/loss"].item() < 0.9 * first
    names = {f"val/{a}_to_{b}_recall@{k}" for a, b in (("image", "text"), ("text", "image")) for k in (1, 5, 10)}
    assert names <= trainer.callback_metrics.keys()
    assert Contrastive.monitor in names


def test_the_report_has_the_recall_of_each_sample() -> None:
    """Image 1 has two captions: one query, which counts where it occurs first."""
    inputs, numbers = batch_of(8)
    numbers = numbers.clone()
    numbers[2, 0] = 1
    inputs["image"][2] = inputs["image"][1]
    numbers[6:, 1] = numbers[:2, 1]  # the captions are the same tokens
    loader = DataLoader([(inputs, numbers)], batch_size=None)  # type: ignore[arg-type]  # a list is a data set
    report, logged, outputs = report_of(Contrastive(Towers()), loader)
    for name in logged.keys() & report.samples.keys():
        values = report.samples[name]
        assert values.nanmean().item() == pytest.approx(logged[name], abs=1e-6), name
    assert list(report.samples)[:2] == ["image_to_text_rank", "text_to_image_rank"], "shown with each sample"
    assert len(logged.keys() & report.samples.keys()) == 6
    assert report.samples["image_to_text_recall@1"].isnan().nonzero().flatten().tolist() == [2]
    assert not report.samples["text_to_image_recall@1"].isnan().any()
    similarity = outputs["image"] @ outputs["text"].T
    caption = 4  # is right for image 4 alone; so are all images but it mistakes
    rank = sum(
        float(similarity[other, caption]) >= float(similarity[4, 4]) for other in range(8) if other not in (2, 4)
    )
    ranking = report.rankings["Worst ranks, text to image"]
    assert ranking[4] == (rank or -math.inf)
    assert [row["queries"] for row in report.tables["Retrieval; the most similar candidate has rank 1"]] == [7, 8]


LABELS = ["zero", "one", "two"]


def test_labels_are_averaged_over_templates() -> None:
    data = digits()
    task = small(data, labels=LABELS, templates=["a {}", "a {} above a {}"]).eval()
    inputs, numbers = next(iter(data.val_dataloader()))
    outputs = task.predict_step((inputs, numbers), 0)
    words, net = data.facts["tokenizer"]["words"], task.net
    assert isinstance(net, CLIP)
    features = []
    for label in LABELS:
        rows = [f"a {label}".split(), f"a {label} above a {label}".split()]
        encoded = [
            net.encode_text(torch.tensor([Words(words).encode(" ".join(row))]), torch.ones(1, len(row)) > 0)
            for row in rows
        ]
        features.append(normalize(torch.cat(encoded).mean(dim=0), dim=0))
    logits = net.encode_image(inputs["image"]) @ torch.stack(features).T / 0.07
    torch.testing.assert_close(outputs["probability"], logits.softmax(dim=1), rtol=1e-4, atol=1e-5)
    answers = task.answer(outputs, data.facts, top=2)
    best = outputs["probability"][0].topk(2)
    assert answers[0] == {
        "class": LABELS[int(best.indices[0])],
        "probability": pytest.approx(best.values[0].item()),
        "class_2": LABELS[int(best.indices[1])],
        "probability_2": pytest.approx(best.values[1].item()),
    }
    assert task.postprocessing(data.facts) == {"kind": "classes", "names": LABELS, "top": 5}
    program = task.program().eval()
    exported, features = program(inputs["image"])
    torch.testing.assert_close(exported.softmax(dim=1), outputs["probability"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features, outputs["features"])
    task.use_program(program)
    torch.testing.assert_close(task(inputs)[0], outputs["features"])


def test_without_labels_the_similarity_is_answered() -> None:
    data = digits()
    task = small(data).eval()
    inputs, numbers = next(iter(data.val_dataloader()))
    outputs = task.predict_step((inputs, numbers), 0)
    image, text = task(inputs)
    torch.testing.assert_close(outputs["similarity"], (image * text).sum(dim=1))
    answers = task.answer(outputs, data.facts)
    assert answers[3] == {"similarity": outputs["similarity"][3].item()}
    assert task.postprocessing(data.facts) is None
    torch.testing.assert_close(task.program()(inputs["image"]), image)
    task.use_program(task.program())
    torch.testing.assert_close(task(inputs)[0], image)
    picture = task.draw(torch.zeros(3, 32, 32, dtype=torch.uint8), answers[3])
    assert picture.width >= 32
    assert task.draw({"image": torch.zeros(3, 32, 32)}, answers[3]).size == picture.size
    with pytest.raises(UserError, match=r"--model\.labels: images without captions need names of classes"):
        task.predict_step(({"image": inputs["image"]}, numbers), 0)
    with pytest.raises(UserError, match="top: expected at least 1 class, got 0"):
        task.answer(outputs, data.facts, top=0)


def test_labels_need_the_vocabulary_of_captions() -> None:
    data = digits()
    task = small(data, labels=LABELS)
    task.facts = {}
    with pytest.raises(UserError, match=r"--model\.labels: the data has no vocabulary"):
        task.program()


def test_accumulation_is_refused() -> None:
    data = digits()
    with pytest.raises(UserError, match=r"^--trainer.accumulate_grad_batches 2: Contrastive compares all samples of a"):
        fit(small(data), data, accumulate_grad_batches=2)


def test_a_batch_that_does_not_fit_into_memory_is_not_split() -> None:
    data = digits()
    task = small(data)

    def run_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    task.on_before_backward = run_out  # type: ignore[method-assign]  # a hook of Lightning
    with pytest.raises(UserError, match=r"^--data.batch_size: out of memory with 16 samples, and Contrastive compares"):
        fit(task, data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "triplet"}, "loss: expected one of infonce, sigmoid, got triplet"),
        ({"labels": ["a"]}, "labels: expected two or more different names, got a"),
        ({"labels": ["a", "a"]}, "labels: expected two or more different names, got a, a"),
        ({"templates": ["a photo"]}, r"templates: expected captions with \{\}.*got 'a photo'"),
        ({"templates": []}, r"templates: expected captions with"),
        ({"net": nn.Linear(2, 2)}, "net: Linear has no encode_image and encode_text; expected CLIP"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Contrastive(**{"net": Towers(), **options})
