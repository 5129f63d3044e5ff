"""Contrastive learning of images and texts: retrieval in both directions, and classes by their names."""

import math
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize
from torchmetrics import MetricCollection

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, require_room
from src.ops.captions import caption_tokens, label_captions, padded_tokens
from src.ops.contrastive import are_pairs, gather_rows, info_nce_loss, row_counts, sigmoid_loss
from src.ops.losses import precise
from src.ops.pictures import as_image, captioned, enlarged
from src.ops.retrieval import KS, RetrievalRecall, retrieval_ranks
from src.ops.score_reports import retrieval_report
from src.ops.vocabularies import vocabulary_from

# initial scale and bias of each loss, as in the papers
INITIAL = {"infonce": (math.log(1 / 0.07), 0.0), "sigmoid": (math.log(10), -10.0)}
LARGEST_SCALE = 100.0
TEXTS = 256  # label captions that are encoded at a time
Inputs = dict[str, Tensor]
Batch = tuple[Inputs, Tensor]


class Contrastive(Task):
    """Moves each image towards its caption and away from the other captions of the batch, as CLIP and SigLIP do.

    The batch of all processes counts: features are gathered, so two processes with half of the batch each take the step
    of one process. Accumulation and smaller parts of a batch would have another loss and are refused. Samples with the
    same image or an equal caption are no mistakes for each other: all of them are targets.

    Measured are recall@1, @5 and @10 over the whole validation or test set, from images to captions and from captions
    to images; every equal caption counts as right.

    `predict` classifies images by `labels` without training on them: the class is the label whose captions are the most
    similar. `export` then writes the image tower with the labels; without labels, it writes the image tower, which
    returns features for retrieval.

    Args:
        net: encoder with `encode_image(image)` and `encode_text(tokens, mask)`, both normalised (B, D), such as CLIP.
        loss: infonce, the cross-entropy over all captions and over all images (Radford et al. 2021); sigmoid, the
            binary cross-entropy of each pair, with a learnt bias (Zhai et al. 2023).
        labels: names of classes for predict, export and serve, as in [daisy, rose].
        templates: captions with {} in place of a label, whose features are averaged, as in ["a photo of a {}"].
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.text.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.image.*, frozen: true}].

    Shapes:
        batch: inputs, a dict of image (B, C, S, S), tokens (B, T) and mask (B, T), and numbers (B, 2) of image and
        caption, which are equal where images or captions are.

    Raises:
        ValueError: the loss is unknown, a label occurs twice, a template has no {}, or the net is no such encoder.
    """

    monitor, monitor_mode = "val/image_to_text_recall@1", "max"
    can_split_batches = False

    def __init__(
        self,
        net: nn.Module,
        loss: Literal["infonce", "sigmoid"] = "infonce",
        labels: list[str] | None = None,
        templates: list[str] | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
    ) -> None:
        if loss not in INITIAL:
            raise ValueError(f"loss: expected one of {', '.join(INITIAL)}, got {loss}")
        if labels is not None and (len(labels) < 2 or len(set(labels)) < len(labels)):
            raise ValueError(f"labels: expected two or more different names, got {', '.join(labels) or 'none'}")
        templates = ["{}"] if templates is None else templates
        if wrong := [template for template in templates or [""] if "{}" not in template]:
            raise ValueError(f"templates: expected captions with {{}}, as in 'a photo of a {{}}', got {wrong[0]!r}")
        if not (hasattr(net, "encode_image") and hasattr(net, "encode_text")):
            raise ValueError(f"net: {type(net).__name__} has no encode_image and encode_text; expected CLIP")
        super().__init__(net, optimizer, schedule, MetricCollection({}), parameter_groups)
        for collection in (self.val_metrics, self.test_metrics):
            collection.add_metrics({"recall": RetrievalRecall()})
        self.loss = self.loss_name = loss
        self.labels = labels
        self.templates = templates
        scale, bias = INITIAL[loss]
        self.log_scale = nn.Parameter(torch.tensor(scale))
        self.bias = nn.Parameter(torch.tensor(bias)) if loss == "sigmoid" else None
        self.label_features: Tensor | None = None  # (K, D), of the present weights
        self.exported: nn.Module | None = None  # encodes images in place of the net
        self.program_outputs = ("features",) if labels is None else ("logits", "features")

    def setup(self, stage: str) -> None:
        require_room(self.net, self.facts)
        self.label_features = None

    def forward(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Normalised features of images and captions, (B, D) each, in float32 or better."""
        if self.exported is not None:
            return self._image_features(inputs), self._text_features(inputs)
        image, text = super().forward(inputs)
        return precise(image), precise(text)

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)
        with torch.no_grad():
            self.log_scale.clamp_(0, math.log(LARGEST_SCALE))  # or training becomes unstable (Radford et al. 2021)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _, _ = self._step("train", batch)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns: features of `image` and `text` (B, D), and the `numbers` (B, 2) of both."""
        _, image, text = self._step("test", batch)
        return {"image": image, "text": text, "numbers": batch[1]}

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Encodes images, and compares them with their captions and with the labels, if there are any.

        Returns:
            `features` (B, D); `similarity` (B,) of each image and its caption; `probability` (B, K) of the labels.
        """
        inputs, _ = batch
        image = self._image_features(inputs)
        outputs = {"features": image}
        if "tokens" in inputs:
            outputs["similarity"] = (image * self._text_features(inputs)).sum(dim=1)
        if self.labels is not None:
            if self.label_features is None:
                self.label_features = self._encode_labels()
            outputs["probability"] = self._label_logits(image, self.label_features).softmax(dim=1)
        elif "tokens" not in inputs:
            raise UserError("--model.labels: images without captions need names of classes, as in '[daisy, rose]'")
        return outputs

    def answer(self, outputs: dict[str, Tensor], facts: dict[str, Any], top: int = 5) -> list[dict[str, Any]]:
        """Names the most likely labels, or else tells the `similarity` of each image and its caption.

        Args:
            outputs: returned by predict_step.
            facts: not needed.
            top: number of labels in an answer, at least 1; the second one is `class_2` with `probability_2`.
        """
        if top < 1:
            raise UserError(f"top: expected at least 1 class, got {top}")
        if self.labels is None:
            return [{"similarity": similarity} for similarity in outputs["similarity"].tolist()]
        likeliest = outputs["probability"].topk(min(top, len(self.labels)), dim=1)
        answers = []
        for numbers, shares in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True):
            answer: dict[str, Any] = {}
            for place, (number, share) in enumerate(zip(numbers, shares, strict=True)):
                end = f"_{place + 1}" if place else ""
                answer |= {f"class{end}": self.labels[number], f"probability{end}": share}
            answers.append(answer)
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """How many candidates are more similar than the right one, and for which samples most of them.

        An image that occurs several times is one query, and counts where it occurs first.

        Args:
            outputs: of test_step, for all test samples.
            facts: not needed.
        """
        image, text = outputs["image"].float(), outputs["text"].float()
        ranks = retrieval_ranks(image, text, outputs["numbers"])
        return retrieval_report(ranks, (image * text).sum(dim=1), KS)

    def draw(self, inputs: Tensor | Inputs, answer: dict[str, Any]) -> Image.Image:
        """Writes the most likely label, or the similarity, above the image."""
        words = [f"{answer[name]:.2f}" for name in ("probability", "similarity") if name in answer]
        image = inputs["image"] if isinstance(inputs, dict) else inputs
        return captioned(enlarged(as_image(image)), " ".join([*filter(None, [answer.get("class")]), *words]))

    def program(self) -> nn.Module:
        """Image → `features` (B, D); with labels, `logits` (B, K) and `features`."""
        return _ImageProgram(self, None if self.labels is None else self._encode_labels())

    def use_program(self, program: nn.Module) -> None:
        self.exported = program

    def program_inputs(self, batch: Batch) -> dict[str, Tensor]:
        return {"image": batch[0]["image"]}

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        return None if self.labels is None else {"kind": "classes", "names": self.labels, "top": 5}

    def _step(self, stage: str, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The mean loss, and the features of images and texts (B, D)."""
        inputs, numbers = batch
        image, text = self(inputs)
        with torch.autocast(image.device.type, enabled=False):  # bf16 would round a similarity of 100 to halves
            loss = self._loss(image, text, numbers)
        retrieved = {} if stage == "train" else {"image": image, "text": text, "numbers": numbers}
        self.log_step(stage, loss, len(image), **retrieved)
        return loss, image, text

    def _loss(self, image: Tensor, text: Tensor, numbers: Tensor) -> Tensor:
        """The mean over the samples of this process, each compared with those of all processes."""
        sizes = row_counts(image)
        is_pair = are_pairs(numbers, gather_rows(numbers, sizes))  # (B, N)
        scale = self.log_scale.exp()
        from_image = scale * image @ gather_rows(text, sizes).T  # (B, N)
        if self.bias is not None:
            return sigmoid_loss(from_image + self.bias, is_pair)
        from_text = scale * text @ gather_rows(image, sizes).T  # (B, N)
        return (info_nce_loss(from_image, is_pair) + info_nce_loss(from_text, is_pair)) / 2

    def _image_features(self, inputs: Inputs) -> Tensor:
        if self.exported is None:
            return precise(self.net.encode_image(inputs["image"]))  # type: ignore[operator]  # checked above
        outputs = self.exported(inputs["image"])
        return precise(outputs if isinstance(outputs, Tensor) else outputs[-1])

    def _text_features(self, inputs: Inputs) -> Tensor:
        return precise(self.net.encode_text(inputs["tokens"], inputs["mask"]))  # type: ignore[operator]  # as above

    def _encode_labels(self) -> Tensor:
        """Features of the labels (K, D): the mean over templates, normalised again (Radford et al. 2021)."""
        assert self.labels is not None, "asked before"
        if "tokenizer" not in self.facts:
            raise UserError("--model.labels: the data has no vocabulary; expected one of captions, such as ImageText")
        vocabulary = vocabulary_from(self.facts["tokenizer"])
        captions = label_captions(vocabulary, self.labels, self.templates)
        rows = [caption_tokens(vocabulary, caption, self.facts["context_length"])[0] for caption in captions]
        parts = []
        with torch.no_grad():
            for start in range(0, len(rows), TEXTS):
                tokens, mask = (values.to(self.device) for values in padded_tokens(rows[start : start + TEXTS]))
                parts.append(self._text_features({"tokens": tokens, "mask": mask}))
        features = torch.cat(parts).unflatten(0, (len(self.labels), -1)).mean(dim=1)  # (K, D)
        return normalize(features, dim=1)

    def _label_logits(self, image: Tensor, label_features: Tensor) -> Tensor:
        """Logits (B, K) of features (B, D); the bias of the sigmoid loss is the same for all labels."""
        return self.log_scale.exp() * image @ label_features.T


class _ImageProgram(nn.Module):
    """The image tower, and the features of labels in place of a classifier."""

    label_features: Tensor | None

    def __init__(self, task: Contrastive, label_features: Tensor | None) -> None:
        super().__init__()
        self.net = task.net
        scaled = None if label_features is None else task.log_scale.detach().exp() * label_features
        self.register_buffer("label_features", scaled)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.net.encode_image(image)  # type: ignore[operator]  # (B, D)
        if self.label_features is None:
            return features
        return features @ self.label_features.T, features  # (B, K), (B, D)
