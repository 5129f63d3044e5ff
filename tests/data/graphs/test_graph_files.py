"""Graphs in tables: what is read, what is left out, and inputs of predict."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.graphs.graph_files import GraphFiles

NODES = "node,age,team,label\na,30,x,red\nb,40,y,blue\nc,50,x,red\nd,35,x,blue\ne,45,y,\nf,20,y,red\ng,60,x,blue\n"
EDGES = "source,target\na,b\nb,a\na,b\nb,c\nc,c\nd,e\n"


@pytest.fixture(autouse=True)
def folder(workdir: Path) -> None:
    (workdir / "my").mkdir()


def write(**tables: str) -> None:
    for name, content in tables.items():
        Path(f"my/{name}.csv").write_text(content)


def set_up(**options: Any) -> Any:
    data = GraphFiles("my", **{"val_share": 0.34, "test_share": 0.0, **options})
    data.setup("fit")
    return data


def names(edges: torch.Tensor, nodes: Sequence[str] = "abcdefg") -> set[str]:
    return {f"{nodes[source]}{nodes[target]}" for source, target in edges.T.tolist()}


def test_one_graph_with_classes_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    write(nodes=NODES, edges=EDGES)
    data = set_up()
    inputs, target = data.train_set[0]
    assert names(inputs["edges"]) == {"ab", "ba", "bc", "cb", "cc", "de", "ed"}
    assert data.facts["classes"] == ["blue", "red"]
    ages = torch.tensor([30.0, 40, 50, 35, 45, 20, 60])
    torch.testing.assert_close(inputs["features"][:, 0], (ages - ages.mean()) / ages.std(correction=0))
    assert inputs["features"][:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]
    both = torch.stack([target, data.val_set[0][1]])
    assert both.amax(dim=0).tolist() == [1, 0, 1, 0, -1, 1, 0], "each label is of one split, and e has none"
    assert both.amin(dim=0).tolist() == [-1] * 7
    assert data.counts == {"equal_edges": 1, "loops": 1, "isolated_nodes": 2, "unlabelled_nodes": 1}
    told = capsys.readouterr().out
    assert "7 nodes, 7 edges, each direction counted, 1 equal edges, 1 loops, 2 isolated nodes, 3 features" in told


def test_a_directed_graph() -> None:
    write(nodes=NODES, edges=EDGES)
    assert names(set_up(directed=True).train_set[0][0]["edges"]) == {"ab", "ba", "bc", "cc", "de"}


def test_a_column_names_the_splits() -> None:
    splits = ["train", "val", "test", "dev", "train", "", "Train"]
    rows = [f"{line},{split}" for line, split in zip(NODES.splitlines()[1:], splits, strict=True)]
    write(nodes="\n".join(["node,age,team,label,split", *rows]), edges=EDGES)
    data = set_up()
    known = {
        split: (getattr(data, f"{split}_set")[0][1] >= 0).nonzero()[:, 0].tolist() for split in ("train", "val", "test")
    }
    assert known == {"train": [0, 6], "val": [1, 3], "test": [2]}, "e has no label, f no split"
    assert data.facts["num_features"] == 3
    write(nodes="\n".join(["node,age,team,label,split", *rows]).replace("dev", "vall"))
    with pytest.raises(UserError, match=r"nodes\.csv:5: split: expected train, val or test, got vall. Nearest: val"):
        set_up()


def test_parquet_and_edges_alone() -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"src": [1, 2, 3, 1], "dst": [2, 3, 4, 5], "weight": [0.5] * 4}), "my/edges.parquet")
    data = set_up()
    assert (data.facts["level"], data.facts["num_features"]) == ("link", 11)
    assert data.counts["left_out_columns"] == 1
    inputs, _ = data.train_set[0]
    degrees = inputs["edges"][1].bincount(minlength=5)
    assert inputs["features"].argmax(dim=1).tolist() != [], "one-hot degrees"
    assert inputs["features"].sum(dim=1).tolist() == [1] * 5
    assert len(degrees) == 5
    file = GraphFiles("my/edges.parquet", val_share=0.34, test_share=0)
    file.setup("fit")
    assert file.facts["features"] == data.facts["features"]


def many(num_graphs: int = 6) -> None:
    nodes = [f"g{g},{n},{'CN'[n % 2]}" for g in range(num_graphs) for n in range(2 + g % 3)]
    edges = [f"g{g},{n},{n + 1}" for g in range(num_graphs) for n in range(1 + g % 3)]
    labels = [f"g{g},{g % 2}" for g in reversed(range(num_graphs))]
    write(nodes="\n".join(["graph,node,atom", *nodes]), edges="\n".join(["graph,source,target", *edges]))
    write(graphs="\n".join(["graph,label", *labels]))


def test_many_graphs_with_classes() -> None:
    many()
    data = set_up(val_share=1 / 3, bucket=2, batch_size=2)
    assert (data.facts["level"], data.facts["classes"], data.facts["class_counts"]) == ("graph", ["0", "1"], [2, 2])
    for dataset in (data.train_set, data.val_set):
        for name, label, graph in zip(dataset.ids, dataset.targets, dataset.graphs, strict=True):
            assert label == int(name[1]) % 2
            assert len(graph.nodes) == 2 + int(name[1]) % 3
            assert graph.edges.shape[1] == 2 * (1 + int(name[1]) % 3)
    assert data.train_set.lengths == [len(graph.nodes) for graph in data.train_set.graphs]
    assert {tuple(batch[0]["num_nodes"].shape) for batch in data.train_dataloader()} == {(2,)}
    assert data.picture(data.val_set.places[0]).shape[0] == 3


def test_many_graphs_with_classes_of_nodes() -> None:
    many()
    text = Path("my/nodes.csv").read_text().splitlines()
    write(nodes="\n".join(["graph,node,atom,label", *[f"{line},{line[-1] == 'C'}" for line in text[1:]]]))
    data = set_up(val_share=1 / 3, level="node")
    assert data.facts["classes"] == ["false", "true"]
    assert len(data.train_set) + len(data.val_set) == 6
    for inputs, target in [*data.train_set, *data.val_set]:
        assert target.tolist() == inputs["features"][:, 0].tolist()
    with pytest.raises(UserError, match="fan_outs: expected one graph, got 6, which are batches already"):
        set_up(val_share=1 / 3, level="node", fan_outs=[2])


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ({"edges": f"{EDGES}a,q\n"}, {}, r"my: edges\.csv:8: an edge names node q, but the 7 nodes are a, b, c, …"),
        ({"nodes": "node,age,label\n"}, {}, "nodes.csv: is empty, expected rows"),
        ({"nodes": f"{NODES}a,1,x,red\n"}, {}, "my: two nodes are called a, expected different names"),
        ({"nodes": NODES.replace("40", "")}, {}, r"nodes\.csv:3: age: expected a finite number, got ''"),
        ({"nodes": NODES.replace("40", "inf")}, {}, r"nodes\.csv:3: age: expected a finite number, got 'inf'"),
        ({"nodes": NODES.replace("blue", "red")}, {}, "--data.label label: expected two or more classes, got red"),
        ({"edges": "sources,targets\na,b\n"}, {}, "expected columns source and target, got sources, targets. Nearest"),
        ({"edges": "source,target\na,\n"}, {}, r"edges\.csv:2: expected a source and a target, got a"),
        ({"nodes": NODES.replace("node,", "person,")}, {}, "expected a column node, got person, age, team, label"),
        ({}, {"label": "lable"}, "--data.label lable: expected a column of that name in the table graphs, got no such"),
        ({}, {"label": "lable", "level": "node"}, "in the table nodes, got node, age, team, label. Nearest: label"),
        ({}, {"leave_out": ["aeg"]}, "--data.leave_out aeg: the table of nodes has no such column. Nearest: age"),
        ({}, {"level": "link", "fan_outs": [3]}, "--data.fan_outs: expected classes of nodes, but my has level link"),
    ],
)
def test_bad_tables(tables: dict[str, str], options: dict[str, Any], message: str) -> None:
    write(**{"nodes": NODES, "edges": EDGES, **tables})
    if options.get("label") and "level" not in options:
        options = {**options, "level": "graph"}
    with pytest.raises(UserError, match=message):
        set_up(**options)


def test_bad_folders() -> None:
    with pytest.raises(UserError, match=r"--data\.root nowhere: no such file or folder"):
        GraphFiles("nowhere").setup("fit")
    with pytest.raises(
        UserError, match=re.escape("my: expected a table edges.csv, .tsv, .jsonl or .parquet, found nothing")
    ):
        set_up()
    Path("my/edges.txt").write_text("a b")
    with pytest.raises(UserError, match="expected a table of edges"):
        GraphFiles("my/edges.txt").setup("fit")
    write(edges=EDGES)
    Path("my/edges.tsv").write_text(EDGES)
    with pytest.raises(UserError, match=r"my holds edges\.csv and edges\.tsv, expected one table"):
        set_up()
    with pytest.raises(ValueError, match="level: expected one of node, graph, link, got edge"):
        GraphFiles("my", level="edge")  # type: ignore[arg-type]


def test_edges_to_nodes_that_are_not_there_are_skipped_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    write(nodes=NODES, edges=f"{EDGES}a,q\nq,z\n")
    data = set_up(on_error="skip")
    assert names(data.train_set[0][0]["edges"]) == {"ab", "ba", "bc", "cb", "cc", "de", "ed"}
    assert data.gather_counts()["skipped_samples"] == 2
    assert "warning: skipped my: edges.csv:8: an edge names node q" in capsys.readouterr().err


def test_a_graph_without_edges_and_tables_that_nobody_reads(capsys: pytest.CaptureFixture[str]) -> None:
    write(nodes=NODES, edges="source,target\n", others="a\n1\n")
    with pytest.raises(UserError, match=r"edges\.csv: is empty, expected rows"):
        set_up()
    write(edges="source,target\na,a\n")
    data = set_up()
    assert data.train_set[0][0]["edges"].tolist() == [[0], [0]]
    assert data.counts["isolated_nodes"] == 7
    assert "left out 1 tables of my, such as others.csv" in capsys.readouterr().err


def restored(data: GraphFiles, **options: Any) -> Any:
    """As predict has it: with the facts of a checkpoint, without setup."""
    fresh = GraphFiles("my", **options)
    fresh.facts = json.loads(json.dumps(data.facts))
    return fresh


def test_test_data_has_the_classes_of_the_training() -> None:
    write(nodes=NODES, edges=EDGES)
    data = set_up()
    again = restored(data, val_share=0.34, test_share=0.0)
    write(nodes=NODES.replace("blue", "red"))
    again.setup("test")
    assert again.train_set[0][1].max() == 1
    assert again.facts["classes"] == ["blue", "red"]
    write(nodes=NODES.replace("blue", "bleu"))
    with pytest.raises(UserError, match=r"nodes\.csv:3: training had no class bleu, but blue, red. Nearest: blue"):
        restored(data).setup("test")


NEW = "node,age,team,city\nq,33,x,Rome\nr,44,z,Oslo\n"


def test_new_nodes_join_the_graph_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up())
    Path("new").mkdir()
    Path("new/edges.csv").write_text("source,target\nq,a\nr,q\nq,r\n")
    Path("new/nodes.csv").write_text(NEW)
    for files in (["edges.csv", "nodes.csv"], ["edges.csv"]):  # a folder, or one file of it
        [name], [place] = data.expand(files, [Path("new", file) for file in files])
        assert name == "edges"
        inputs, target = data.unlabelled(place)
        nodes = target["names"]
        assert nodes == [*"abcdefg", "q", "r"]
        assert target["asked"].tolist() == [0] * 7 + [1, 1]
        assert names(inputs["edges"], nodes) == {*("ab", "ba", "bc", "cb", "cc", "de", "ed"), *("qa", "aq", "rq", "qr")}
        assert inputs["features"][8, 1:].tolist() == [0, 0], "training had no team z"
    assert capsys.readouterr().err.count("left out columns that training did not have: city") == 1


def test_a_graph_of_its_own_needs_no_training_data() -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up())
    Path("my/nodes.csv").unlink()
    inputs, target = data.unlabelled({"nodes": [{"node": "q", "age": 1, "team": "x"}], "edges": [["q", "q"]]})
    assert (inputs["num_nodes"].item(), target["asked"].tolist()) == (1, [1])
    inputs, _ = data.unlabelled({"nodes": [{"node": "q", "age": 1, "team": "x"}, {"node": 2, "age": 5, "team": "y"}]})
    assert (inputs["num_nodes"].item(), tuple(inputs["edges"].shape)) == (2, (2, 0))


def test_known_nodes_alone_are_asked_for() -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up())
    inputs, target = data.unlabelled(b"source,target\nf,g\n")
    assert target["asked"].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert {"fg", "gf"} <= names(inputs["edges"])
    assert data.read("source,target\nf,g\n")["edges"].tolist() == inputs["edges"].tolist()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"edges": [["q", "a"]]}, "graph: edge 1: an edge names node q, but the 7 nodes are a, b, c, …"),
        ({"edges": []}, "graph: expected at least one node, got an empty graph"),
        ({}, "graph: expected at least one node, got an empty graph"),
        ({"edges": [["a"]]}, r"edges: expected pairs such as \[0, 1\], got \['a'\]"),
        ({"edge": []}, "graph: expected graph, edges, nodes, features, pairs, got edge"),
        ({"nodes": [{"node": "q", "age": 1}], "edges": []}, "graph: expected a column team of the nodes, got age"),
        (
            {"nodes": [{"node": "a", "age": 1, "team": "x"}], "edges": [["a", "b"]]},
            "node a is in the training's graph already",
        ),
        ({"nodes": ["q", "q"], "edges": []}, "two nodes are called q"),
        (b"{", "graph: is not valid JSON"),
        (b"", "graph: is empty, expected edges"),
        (b"x,y\n1,2\n", "expected columns source and target, got x, y"),
    ],
)
def test_bad_inputs(source: Any, message: str) -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up())
    with pytest.raises(UserError, match=message):
        data.unlabelled(source)


def test_inputs_of_many_graphs() -> None:
    many()
    data = restored(set_up(val_share=1 / 3))
    files = [Path("my", name) for name in ("edges.csv", "graphs.csv", "nodes.csv")]
    found, places = data.expand([file.name for file in files], files)
    assert found == [f"g{g}" for g in range(6)]
    inputs, target = data.unlabelled(places[2])
    assert (inputs["num_nodes"].item(), target) == (4, -1)
    assert data.picture(places[2]).dtype == torch.uint8
    with pytest.raises(UserError, match=r"edges\.csv: expected one graph, got 6"):
        data.read(Path("my/edges.csv"))
    Path("one.json").write_text(json.dumps({"nodes": [{"node": 0, "atom": "C"}], "edges": []}))
    assert data.expand(["one.json"], [Path("one.json")])[0] == ["one.json"]
    assert data.read(Path("one.json"))["num_nodes"] == 1
    with pytest.raises(UserError, match=r"none\.json: no such file"):
        data.read(Path("none.json"))
    Path("alone").mkdir()
    Path("alone/nodes.csv").write_text("node,atom\n0,C\n1,N\n")
    [_], [place] = data.expand(["nodes.csv"], [Path("alone/nodes.csv")])
    assert data.read(place)["num_nodes"] == 2


def test_pairs_of_nodes() -> None:
    write(edges=EDGES)
    data = restored(set_up(val_share=0.3, level="link"), val_share=0.3, test_share=0)
    data.facts["level"] = "link"
    inputs, target = data.unlabelled({"edges": [["a", "e"], ["b", "d"]]})
    assert [target["names"][n] for n in target["pairs"].flatten().tolist()] == ["a", "b", "e", "d"]
    assert target["linked"].tolist() == [-1, -1]
    assert inputs["edges"].shape[1] < 7, "links of validation pass no messages"
    own = {"nodes": ["u", "v", "w"], "edges": [["u", "v"]], "pairs": [["u", "w"]]}
    inputs, target = data.unlabelled(own)
    assert (inputs["num_nodes"].item(), target["pairs"].tolist()) == (3, [[0], [2]])
    with pytest.raises(UserError, match="edge 1: an edge names node z"):
        data.unlabelled({"edges": [["a", "z"]]})
    with pytest.raises(UserError, match="graph: expected pairs of nodes, got none"):
        data.unlabelled({"edges": []})


def test_matrices_and_degrees() -> None:
    write(edges=EDGES, nodes=NODES)
    data = restored(set_up())
    data.facts["features"] = {"kind": "rows", "width": 2, "normalise": True}
    inputs = data.read({"features": [[1, 3], [0, 0]], "edges": [[0, 1]]})
    assert inputs["features"].tolist() == [[0.25, 0.75], [0, 0]]
    with pytest.raises(UserError, match="graph: expected 2 features, as in training, got 3"):
        data.read({"features": [[1, 3, 4]], "edges": []})
    with pytest.raises(UserError, match="node 0: expected finite features"):
        data.read({"features": [[float("nan"), 3]], "edges": []})
    with pytest.raises(UserError, match="features: expected a list of numbers for each node"):
        data.read({"features": [["x"]], "edges": []})
    with pytest.raises(UserError, match="features: expected 2 lists of numbers, got shape"):
        data.read({"nodes": ["a", "b"], "features": [[1, 2]], "edges": []})
    data.facts["features"] = {"kind": "degree", "largest": 2}
    data.facts["level"] = "graph"
    inputs = data.read({"edges": [["u", "v"], ["u", "w"], ["u", "x"]]})
    assert inputs["features"].argmax(dim=1).tolist() == [2, 1, 1, 1]


def test_a_column_of_too_many_words() -> None:
    rows = [f"n{n},word{n},{n % 2}" for n in range(60)]
    write(nodes="\n".join(["node,text,label", *rows]), edges="source,target\nn0,n1\n")
    with pytest.raises(UserError, match=r"column text of the nodes has 60 different words.*--data\.leave_out text"):
        set_up()
    assert set_up(leave_out=["text"]).facts["features"]["kind"] == "degree"


def test_what_a_checkpoint_and_its_data_disagree_on() -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up(), level="link")
    data.facts["level"] = "graph"
    with pytest.raises(UserError, match=r"--data\.label label: expected a column of that name in the table graphs"):
        data.setup("test")
    with pytest.raises(UserError, match="my has no val nodes"):
        set_up(val_share=0.01)
    write(edges="source,target\na,b\n")
    with pytest.raises(UserError, match="my has no train pairs"):
        set_up(level="link", val_share=0.9)


def test_rows_of_graphs_that_are_not_there() -> None:
    many()
    text = Path("my/edges.csv").read_text()
    write(edges=f"{text}\ng9,0,1")
    with pytest.raises(UserError, match=r"edges\.csv:\d+: no graph is called g9"):
        set_up()
    write(edges=text, graphs=f"{Path('my/graphs.csv').read_text()}\ng9,1")
    with pytest.raises(UserError, match="g9: expected at least one node, got an empty graph"):
        set_up()
    data = restored(set_up_of_many())
    with pytest.raises(UserError, match="graph: expected at least one node, got an empty graph, which needs a table"):
        data.unlabelled({"edges": [["0", "1"]]})


def set_up_of_many() -> Any:
    many()
    return set_up(val_share=1 / 3)


def test_new_nodes_of_several_graphs_need_a_row_each() -> None:
    many()
    text = Path("my/nodes.csv").read_text().splitlines()
    write(nodes="\n".join(["graph,node,atom,label", *[f"{line},{line[-1] == 'C'}" for line in text[1:]]]))
    data = restored(set_up(val_share=1 / 3, level="node"))
    with pytest.raises(UserError, match="edges name nodes that its table of nodes lacks; expected a row for each"):
        data.unlabelled({"nodes": [{"node": "q", "atom": "C"}], "edges": [["q", "0"]]})


def test_new_nodes_of_a_graph_without_features() -> None:
    write(nodes="node,label\n" + "".join(f"n{n},{n % 2}\n" for n in range(8)), edges="source,target\nn0,n1\nn1,n2\n")
    data = restored(set_up())
    inputs, target = data.unlabelled({"edges": [["q", "n1"], ["q", "n3"]]})
    assert target["names"][-1] == "q"
    assert target["asked"].tolist() == [0] * 8 + [1]
    assert inputs["features"].argmax(dim=1).tolist() == [1, 3, 1, 1, 0, 0, 0, 0, 2], "one-hot degrees"


def test_a_wide_table_in_place_of_a_matrix() -> None:
    write(nodes=NODES, edges=EDGES)
    data = restored(set_up())
    data.facts["features"] = {"kind": "rows", "width": 2, "normalise": False}
    assert data.read({"nodes": [{"node": "q", "0": 3, "1": "4"}]})["features"].tolist() == [[3, 4]]
    with pytest.raises(UserError, match="node q: 1: expected a finite number, got 'many'"):
        data.read({"nodes": [{"node": "q", "0": 3, "1": "many"}]})
    data.facts["features"] = {"kind": "node", "nodes": ["a", "b"]}
    with pytest.raises(UserError, match="the net knows its nodes by name, and none is called q"):
        data.read({"nodes": ["a", "q"], "edges": []})


def test_a_row_that_cannot_be_read() -> None:
    write(nodes=NODES, edges="source,target\na,b,c\n")
    with pytest.raises(UserError, match=r"edges\.csv:2: expected 2 fields"):
        set_up()
