"""Link prediction: loss and ranks over pairs, answers, exports."""

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader

from playbook import UserError
from playbook.deploy.program import build_program
from playbook.testing.command import QUIET, UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.nets.graphs.gcn import GCN
from src.tasks.link_prediction import LinkPrediction, link_scores
from tests.nets.graphs.graphs import random_graphs
from tests.tasks.reports import assert_means, report_of

P = 12
Batch = tuple[dict[str, Tensor], dict[str, Any]]


def batch(batch_size: int = 4, seed: int = 0) -> Batch:
    torch.manual_seed(seed)
    inputs = random_graphs(batch_size)
    pairs = (torch.rand(batch_size, 2, P) * inputs["num_nodes"][:, None, None]).long()
    linked = torch.randint(2, (batch_size, P))
    pairs[:, :, -2:] = linked[:, -2:] = -1
    return inputs, {"pairs": pairs, "linked": linked}


def loader(*batches: Batch) -> Any:
    return DataLoader(list(batches), batch_size=None)  # type: ignore[arg-type]  # a list is a data set


def build(**options: Any) -> LinkPrediction:
    torch.manual_seed(0)
    return LinkPrediction(GCN(num_features=4, dropout=0, level="link"), **options)


def test_scores_are_products_of_embeddings() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    pairs = torch.tensor([[[0, 4, -1], [1, 4, -1]], [[2, 3, 0], [2, 0, 1]]])
    scores = link_scores(x, pairs)
    for b, p in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:
        assert scores[b, p] == pytest.approx(float(x[b, pairs[b, 0, p]] @ x[b, pairs[b, 1, p]]))


def test_metrics_are_those_of_scikit_learn() -> None:
    model, batches = build(hits=3), [batch(4, 0), batch(3, 1)]
    [metrics] = Trainer(**QUIET).test(model, loader(*batches), verbose=False)
    scores, linked = [], []
    for inputs, target in batches:
        counts = target["linked"] >= 0
        scores.append(link_scores(model.eval()(inputs), target["pairs"])[counts].detach().double().numpy())
        linked.append(target["linked"][counts].numpy())
    score, link = np.concatenate(scores), np.concatenate(linked)
    losses = np.log1p(np.exp(-score * (2 * link - 1)))
    assert metrics["test/loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert metrics["test/auroc"] == pytest.approx(roc_auc_score(link, score), abs=1e-5)
    assert metrics["test/average_precision"] == pytest.approx(average_precision_score(link, score), abs=1e-5)
    third = np.sort(score[link == 0])[-3]
    assert metrics["test/hits@3"] == pytest.approx((score[link == 1] > third).mean())


def test_the_report_is_of_the_pairs_that_count() -> None:
    (inputs, target), second = batch(4, 0), batch(3, 1)
    nothing = {**target, "linked": torch.full_like(target["linked"], -1)}
    report, logged, outputs = report_of(build(hits=3), loader((inputs, target), (inputs, nothing), second))
    assert_means(report, logged, {"loss"})
    linked = outputs["linked"]
    assert len(linked) == (target["linked"] >= 0).sum() + (second[1]["linked"] >= 0).sum()
    assert report.samples["hits@3"].isnan().equal(linked == 0)
    assert report.samples["hits@3"].nanmean().item() == pytest.approx(logged["hits@3"])
    [rows] = report.tables.values()
    assert [row["k"] for row in rows] == [k for k in (1, 3, 5, 10, 20, 50, 100) if k <= (linked == 0).sum()]
    assert rows[1]["hits@k"] == pytest.approx(logged["hits@3"])
    _, alt = report.figures["ROC curve"]
    assert f"{logged['auroc']:.4f}" in alt


def test_the_report_of_pairs_of_one_kind_has_their_losses() -> None:
    inputs, target = batch()
    report, _, _ = report_of(build(), loader((inputs, {**target, "linked": target["linked"].clamp(max=0)})))
    assert (list(report.samples), report.figures) == (["loss"], {})


def test_ranks_of_large_scores() -> None:
    """Scores above 20 are all 1 as probabilities in float32, and still rank."""
    model = build()
    metric = model.test_metrics["ranks"]
    metric.update(scores=torch.tensor([30.0, 40.0, 50.0, 60.0]), linked=torch.tensor([0, 1, 0, 1]))
    assert metric.compute()["auroc"] == 0.75


def test_without_a_pair_of_one_kind_there_are_no_ranks() -> None:
    metric = build().test_metrics["ranks"]
    metric.update(scores=torch.zeros(2), linked=torch.ones(2, dtype=torch.int64))
    assert all(value.isnan() for value in metric.compute().values())


def test_the_step_does_not_depend_on_how_a_batch_is_split() -> None:
    inputs, target = batch(24)
    model = LinkPrediction(GCN(num_features=4, dropout=0, level="link").double(), optimizer=partial(SGD, lr=0.0))
    samples = (inputs["features"].double(), inputs["edges"], inputs["num_nodes"], target["pairs"], target["linked"])
    splits = random_split(samples, 0, 2)
    batches, large = (
        [(dict(zip(inputs, own, strict=False)), dict(zip(target, own[3:], strict=True))) for own in split]
        for split in splits
    )
    assert_same_steps(step_gradients(model, batches, accumulate=2), step_gradients(model, large))


@pytest.mark.slow
def test_it_learns() -> None:
    one = batch(4)
    model = build(optimizer=partial(Adam, lr=0.05))
    before = Trainer(**QUIET).validate(deepcopy(model), loader(one), verbose=False)[0]["val/loss"]
    Trainer(**UNSAVED, max_epochs=40).fit(model, loader(one), loader(one))
    after = Trainer(**QUIET).validate(model, loader(one), verbose=False)[0]["val/loss"]
    assert after < 0.9 * before, (before, after)


def test_a_batch_without_pairs_adds_nothing() -> None:
    inputs, target = batch()
    nothing = {**target, "linked": torch.full_like(target["linked"], -1)}
    [both] = Trainer(**QUIET).test(build(), loader((inputs, nothing), (inputs, target)), verbose=False)
    [alone] = Trainer(**QUIET).test(build(), loader((inputs, target)), verbose=False)
    assert both == pytest.approx(alone)


def test_answers_name_pairs() -> None:
    model, (inputs, target) = build().eval(), batch()
    names = [[f"n{node}" for node in range(size)] for size in inputs["num_nodes"].tolist()]
    answers = model.answer(model.predict_step((inputs, {**target, "names": names}), 0), {})
    shares = link_scores(model(inputs), target["pairs"]).detach().sigmoid()
    for b, answer in enumerate(answers):
        assert len(answer["links"]) == P - 2
        for p, row in enumerate(answer["links"]):
            source, goal = target["pairs"][b, :, p].tolist()
            assert (row["source"], row["target"]) == (f"n{source}", f"n{goal}")
            assert row["probability"] == pytest.approx(float(shares[b, p]))
            assert row["linked"] == bool(target["linked"][b, p])
    plain = model.answer(model.predict_step((inputs, {**target, "linked": -target["linked"].abs()}), 0), {})
    assert plain[0]["links"][0]["source"] == int(target["pairs"][0, 0, 0])


@pytest.mark.slow
def test_a_program_scores_pairs() -> None:
    from playbook.deploy.formats import exported

    model = build()
    program = build_program(model, [batch(4), batch(2, 1)], {})
    assert program.shapes["pairs"] == ["B", 2, "P"]
    assert program.outputs == ["scores"]
    module = exported(program).module()
    features, edges, pairs = torch.randn(1, 9, 4), torch.randint(9, (1, 2, 20)), torch.randint(9, (1, 2, 33))
    inputs = {"features": features, "edges": edges, "num_nodes": torch.tensor([9])}
    expected = link_scores(model.eval()(inputs), pairs)
    torch.testing.assert_close(module(*inputs.values(), pairs), expected)
    model.use_program(lambda **values: module(*values.values()))  # type: ignore[arg-type]
    [measured] = Trainer(**QUIET).validate(model, loader(batch()), verbose=False)
    [own] = Trainer(**QUIET).validate(build(), loader(batch()), verbose=False)
    assert measured == pytest.approx(own, rel=1e-5)


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="hits: expected at least 1, got 0"):
        build(hits=0)
    inputs, target = batch()
    with pytest.raises(UserError, match=r"targets: expected pairs of nodes; set --data\.level link"):
        Trainer(**QUIET).validate(build(), loader((inputs, target["linked"])))
