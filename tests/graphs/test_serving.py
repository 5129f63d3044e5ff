"""A run of graphs behind the server: JSON of nodes and edges, and errors that name what is wrong."""

from pathlib import Path

import pytest
import torch

from playbook import build
from playbook.deploy.runtime import InputError
from playbook.deploy.served_run import ServedRun
from src.data.graphs.graph_files import GraphFiles
from src.nets.graphs.gcn import GCN
from src.tasks.node_classification import NodeClassification

NODES = "node,age,label\na,30,red\nb,40,blue\nc,50,red\nd,35,blue\n"


@pytest.mark.usefixtures("workdir")
def test_graphs_and_new_nodes_are_answered() -> None:
    Path("my").mkdir()
    Path("my/nodes.csv").write_text(NODES)
    Path("my/edges.csv").write_text("source,target\na,b\nc,d\n")
    data = GraphFiles("my", val_share=0.5, test_share=0.0)
    torch.manual_seed(0)
    model = build(NodeClassification, data, net=GCN)
    served = ServedRun(model, data, data.facts)
    alone = {"nodes": [{"node": "q", "age": 31}], "edges": []}
    linked = {"nodes": [{"node": "q", "age": 31}, {"node": "r", "age": 32}], "edges": [["q", "a"]]}
    answers = served.answer_samples([served.read(alone), served.read(linked)])
    assert [[row["node"] for row in answer["nodes"]] for answer in answers] == [["q"], ["q", "r"]]
    assert {row["class"] for answer in answers for row in answer["nodes"]} <= {"blue", "red"}
    inputs, _ = data.unlabelled(linked)
    expected = model.net(**{name: value[None] for name, value in inputs.items()})[0, 4].softmax(dim=0)
    assert answers[1]["nodes"][0]["probability"] == pytest.approx(float(expected.detach().max()), abs=1e-6)
    with pytest.raises(InputError, match="graph: edge 1: an edge names node z, but the 5 nodes are a, b, c, …"):
        served.read({"nodes": [{"node": "q", "age": 31}], "edges": [["q", "z"]]})
