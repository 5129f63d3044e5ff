"""Node classification: loss and accuracy over the nodes that count, answers, pictures, exports."""

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook import UserError
from playbook.deploy.program import build_program
from playbook.testing.command import QUIET, UNSAVED, Cli
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.nets.graphs.gcn import GCN
from src.tasks.node_classification import NodeClassification
from tests.nets.graphs.graphs import SIZES, random_graphs
from tests.tasks.reports import assert_means, report_of

K = 3
Batch = tuple[dict[str, Tensor], Any]


def batch(batch_size: int = 4, seed: int = 0) -> Batch:
    torch.manual_seed(seed)
    inputs = random_graphs(batch_size)
    target = torch.randint(-1, K, (batch_size, 7))
    target[torch.arange(7) >= inputs["num_nodes"][:, None]] = -1
    return inputs, target


def loader(*batches: Batch) -> Any:
    return DataLoader(list(batches), batch_size=None)  # type: ignore[arg-type]  # a list is a data set


def build(net: nn.Module | None = None, **options: Any) -> NodeClassification:
    torch.manual_seed(0)
    return NodeClassification(net or GCN(K, 4, dropout=0), num_classes=K, **options)


def test_loss_and_accuracy_are_over_the_nodes_that_count() -> None:
    model, batches = build(macro_accuracy=True), [batch(4, 0), batch(2, 1)]
    [metrics] = Trainer(**QUIET).test(model, loader(*batches), verbose=False)
    losses: list[float] = []
    hits: list[float] = []
    by_class: dict[int, list[float]] = {number: [] for number in range(K)}
    for inputs, target in batches:
        for b, row in enumerate(model.eval()(inputs).double().tolist()):
            for logits, label in zip(row, target[b].tolist(), strict=True):
                if label >= 0:
                    losses.append(np.log(np.exp(logits).sum()) - logits[label])
                    hits.append(float(np.argmax(logits) == label))
                    by_class[label].append(hits[-1])
    assert metrics["test/loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert metrics["test/accuracy"] == pytest.approx(np.mean(hits))
    assert metrics["test/macro_accuracy"] == pytest.approx(np.mean([np.mean(own) for own in by_class.values()]))


def test_the_report_is_of_the_nodes_that_count() -> None:
    (inputs, target), second = batch(4, 0), batch(2, 1)
    nothing = torch.full_like(target, -1)
    report, logged, outputs = report_of(build(), loader((inputs, target), (inputs, nothing), second))
    assert_means(report, logged, {"accuracy", "loss"})
    assert len(outputs["target"]) == (target >= 0).sum() + (second[1] >= 0).sum()
    assert report.rankings == {}, "nodes are no samples"


def test_a_batch_without_a_node_that_counts_adds_nothing() -> None:
    model, (inputs, target) = build(), batch()
    nothing = torch.full_like(target, -1)
    assert model.weight((inputs, nothing)) == 0
    [metrics] = Trainer(**QUIET).test(model, loader((inputs, target), (inputs, nothing)), verbose=False)
    [alone] = Trainer(**QUIET).test(model, loader((inputs, target)), verbose=False)
    assert metrics == pytest.approx(alone)


def test_the_step_does_not_depend_on_how_a_batch_is_split() -> None:
    inputs, target = batch(24)
    model = build(GCN(K, 4, dropout=0).double(), optimizer=partial(torch.optim.SGD, lr=0.0))
    samples = (inputs["features"].double(), inputs["edges"], inputs["num_nodes"], target)
    splits = random_split(samples, 0, 2)
    batches, large = ([(dict(zip(inputs, own, strict=False)), own[-1]) for own in split] for split in splits)
    assert_same_steps(step_gradients(model, batches, accumulate=2), step_gradients(model, large))


@pytest.mark.slow
def test_it_learns() -> None:
    inputs, target = batch(4)
    model = build(GCN(K, 4, hidden=32, dropout=0), optimizer=partial(torch.optim.Adam, lr=0.05))
    before = Trainer(**QUIET).validate(deepcopy(model), loader((inputs, target)), verbose=False)[0]["val/loss"]
    Trainer(**UNSAVED, max_epochs=40).fit(model, loader((inputs, target)), loader((inputs, target)))
    after = Trainer(**QUIET).validate(model, loader((inputs, target)), verbose=False)[0]["val/loss"]
    assert after < 0.5 * before, (before, after)


def asked(inputs: dict[str, Tensor], target: Tensor) -> dict[str, Any]:
    names = [[f"n{node}" for node in range(size)] for size in inputs["num_nodes"].tolist()]
    chosen = (target >= 0).long()
    return {"names": names, "asked": chosen, "target": target}


def test_answers_name_the_nodes_that_are_asked_for() -> None:
    model, (inputs, target) = build().eval(), batch()
    facts = {"classes": ["red", "green", "blue"]}
    outputs = model.predict_step((inputs, asked(inputs, target)), 0)
    answers = model.answer(outputs, facts)
    probability = model(inputs).detach().softmax(dim=-1)
    for b, answer in enumerate(answers):
        wanted = [node for node in range(SIZES[b]) if target[b, node] >= 0]
        assert [row["node"] for row in answer["nodes"]] == [f"n{node}" for node in wanted]
        for node, row in zip(wanted, answer["nodes"], strict=True):
            best = int(probability[b, node].argmax())
            assert row["class"] == facts["classes"][best]
            assert row["probability"] == pytest.approx(float(probability[b, node, best]))
            assert row["target"] == facts["classes"][target[b, node]]
    plain = model.answer(model.predict_step((inputs, target), 0), {})
    assert [len(answer["nodes"]) for answer in plain] == list(SIZES), "all nodes, by number"
    assert plain[0]["nodes"][1]["node"] == "1"
    unknown = model.answer(model.predict_step((inputs, torch.full((4,), -1)), 0), facts)
    assert all("target" not in row for answer in unknown for row in answer["nodes"])


def test_a_picture_has_the_colours_of_the_answers() -> None:
    model, (inputs, target) = build().eval(), batch()
    model.facts = {"classes": ["red", "green", "blue"]}
    outputs = model.predict_step((inputs, asked(inputs, target)), 0)
    sample = {name: value[0] for name, value in {**inputs, **asked(inputs, target)}.items()}
    answer = model.answer(outputs, model.facts)[0]
    picture = np.asarray(model.draw(sample, answer))
    nothing = np.asarray(model.draw(sample, {"nodes": []}))
    assert picture.shape == nothing.shape == (700, 700, 3)

    def num_coloured(image: np.ndarray) -> int:
        return int((np.ptp(image.astype(int), axis=-1) > 50).sum())

    assert num_coloured(nothing) == 0
    assert num_coloured(picture) > 500


@pytest.mark.slow
def test_an_exported_program_takes_graphs_of_any_size() -> None:
    from playbook.deploy.formats import exported

    model = build()
    program = build_program(model, [batch(4), batch(2, 1)], {})
    assert program.shapes == {"features": ["B", "N", 4], "edges": ["B", 2, "E"], "num_nodes": ["B"]}
    module = exported(program).module()
    torch.manual_seed(3)
    features, edges, count = torch.randn(1, 50, 4), torch.randint(50, (1, 2, 200)), torch.tensor([50])
    torch.testing.assert_close(module(features, edges, count), model.eval().net(features, edges, count))


@pytest.mark.slow
@pytest.mark.parametrize("net", ["GCN", "GAT", "GraphSAGE"])
def test_every_net_is_exported_in_every_format(cli: Cli, net: str) -> None:
    options = ("--data", "KarateClub", "--model", "NodeClassification", "--model.net", net, "--trainer.max_epochs", "1")
    assert cli("fit", *options, "--run_dir", "run").code == 0
    for kind in ("onnx", "torch_export", "torchscript"):
        done = cli("export", "--ckpt_path", "run", "--format", kind, "--output", kind, "--speed", "false")
        assert done.code == 0, done.err
        assert "100.00% of the decisions agree" in done.out


def test_what_does_not_fit() -> None:
    inputs, target = batch()
    with pytest.raises(ValueError, match="num_classes: expected at least 2, got 1"):
        NodeClassification(GCN(1, 4), num_classes=1)
    with pytest.raises(UserError, match=r"expected logits of nodes \(4, 7, 3\), got \(4, 3\); see the net's num_cl"):
        Trainer(**QUIET).validate(build(GCN(K, 4, level="graph")), loader((inputs, target)))
    with pytest.raises(
        UserError, match=r"expected a class for each node, \(4, 7\), got \(4,\).*--model Classification"
    ):
        Trainer(**QUIET).validate(build(), loader((inputs, target[:, 0])))
    with pytest.raises(UserError, match=r"num_classes: labels run from . to 3, expected 0 to 2"):
        Trainer(**QUIET).validate(build(), loader((inputs, torch.full_like(target, 3))))


@pytest.mark.slow
@pytest.mark.usefixtures("workdir")
def test_new_nodes_from_the_command_line(cli: Cli) -> None:
    Path("my").mkdir()
    Path("my/nodes.csv").write_text("node,x,label\n" + "".join(f"p{n},{n % 4},{n % 2}\n" for n in range(20)))
    Path("my/edges.csv").write_text("source,target\n" + "".join(f"p{n},p{(n + 2) % 20}\n" for n in range(20)))
    Path("new").mkdir()
    Path("new/nodes.csv").write_text("node,x\nq,1\n")
    Path("new/edges.csv").write_text("source,target\nq,p1\np3,q\n")
    fit = ("--data", "GraphFiles", "--data.root", "my", "--model", "NodeClassification", "--model.net", "GCN")
    done = cli("fit", *fit, "--trainer.max_epochs", "1", "--run_dir", "run")
    assert done.code == 0, done.err
    done = cli("predict", "--ckpt_path", "run", "--input", "new", "--draw")
    assert done.code == 0, done.err
    header, row = Path("run/predictions/new/predictions.csv").read_text().splitlines()
    assert header == "id,node,class,probability"
    assert row.startswith("edges,q,")
    assert Path("run/predictions/new/drawn/edges.png").is_file()
    Path("new/edges.csv").write_text("source,target\nq,p99\n")
    done = cli("predict", "--ckpt_path", "run", "--input", "new")
    assert done.code == 2
    assert "edges.csv:2: an edge names node p99, but the 21 nodes are p0, p1, p2, …. Nearest: p9" in done.err
