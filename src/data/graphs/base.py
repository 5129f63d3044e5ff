"""The base of data modules of graphs: splits, batches, and inputs without a target."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from playbook import Data, UserError
from src.data.graphs.features import count_features, encode_features, learn_features
from src.data.graphs.graph import UNKNOWN, Graph, clean_edges, collate_graphs
from src.data.graphs.inputs import SUFFIXES, graph_of, group_inputs, pairs_of, read_object
from src.data.graphs.links import divide_links, with_negatives
from src.data.graphs.neighbours import SeedNodes
from src.data.graphs.rows import GraphRows, join_known, number_pairs
from src.data.graphs.sets import GraphSet, LinkSet, NodeSet, asked_nodes
from src.data.notices import warn
from src.ops.graph_batches import Level
from src.ops.graph_pictures import graph_image

SPLITS = ("train", "val", "test")
COUNTED = ("equal_edges", "loops", "isolated_nodes")  # that are told
WHAT = {"node": "nodes", "graph": "graphs", "link": "pairs"}
UNNAMED = ("degree", "node")  # kinds of features that need no table


class Content(NamedTuple):
    """What a data set has, before it is divided into samples.

    Args:
        name: of the data set, in messages.
        level: what is predicted.
        graphs: as they are listed.
        labels: for level node, the class of each node of each graph (N,), -1 where it is unknown; for level graph, the
            class of each graph. Empty for level link.
        splits: for level node, numbers of the nodes of train, val and test if there is one graph; numbers of the graphs
            otherwise. Empty for level link.
        classes: their names.
    """

    name: str
    level: Level
    graphs: Sequence[GraphRows]
    labels: Sequence[Tensor] | Sequence[int] = ()
    splits: Mapping[str, Sequence[int]] = {}
    classes: Sequence[str] = ()


class GraphData(Data):
    """Batches of graphs, padded to the largest; a subclass reads their content in `load`.

    Args:
        directed: whether messages go from source to target alone.
        fan_outs: for level node, largest number of neighbours of each node, of these neighbours, and so on, which are
            drawn anew in every epoch; batches are then of nodes.
        val_share: share of the links used for validation, for level link.
        test_share: share of the links used for testing.
        split_seed: seed of that division.
        batch_size: samples per batch and process.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with edges that cannot be used: stop or skip.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        bucket: number of training batches whose graphs are sorted by size together.

    Raises:
        ValueError: a value is out of range.
    """

    formats = SUFFIXES
    columns = ("edges",)  # an object with these is an input too
    collate = staticmethod(collate_graphs)

    def __init__(
        self,
        directed: bool = False,
        fan_outs: list[int] | None = None,
        val_share: float = 0.05,
        test_share: float = 0.1,
        split_seed: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        bucket: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, bucket=bucket)
        if fan_outs is not None and (not fan_outs or min(fan_outs) < 1):
            raise ValueError(f"fan_outs: expected numbers of at least 1, got {fan_outs}")
        if not 0 <= test_share < 1:
            raise ValueError(f"test_share: expected a share in [0, 1), got {test_share:g}")
        if not 0 < val_share < 1 - test_share:
            raise ValueError(f"val_share: expected above 0 and below 1 - test_share {test_share:g}, got {val_share:g}")
        self.directed = directed
        self.fan_outs = fan_outs
        self.val_share, self.test_share, self.split_seed = val_share, test_share, split_seed
        self._extra: set[str] = set()  # columns of inputs that were told of
        self._known: tuple[GraphRows, Graph] | None = None  # the graph that new nodes are linked to

    @property
    def picture(self) -> Any:
        """What pictures of classes of graphs are drawn on; tasks of nodes draw the graph themselves."""
        return graph_picture if self.facts.get("level") == "graph" else None

    def load(self) -> Content:
        """Reads the data set."""
        raise NotImplementedError

    def learn(self, graphs: Sequence[GraphRows]) -> dict[str, Any]:
        """How nodes become features, from the graphs of the training."""
        return learn_features(graphs)

    def setup(self, stage: str) -> None:
        if hasattr(self, "test_set"):  # Lightning asks for every stage
            return
        content = self.load()
        if not any(len(rows.nodes) for rows in content.graphs):
            raise UserError(f"--data: {content.name}: expected at least one node, got an empty graph")
        if "features" not in self.facts:  # of a checkpoint
            train = content.splits.get("train", ()) if len(content.graphs) > 1 else ()
            own = [content.graphs[number] for number in train] or content.graphs
            self.facts |= {"level": content.level, "directed": self.directed, "features": self.learn(own)}
            self.facts["num_features"] = count_features(self.facts["features"])
            if content.classes:
                self.facts["classes"] = list(content.classes)
        elif self.facts["level"] != content.level:
            raise UserError(f"--data.level: expected {self.facts['level']}, as in training, got {content.level}")
        if self.fan_outs is not None and content.level != "node":
            raise UserError(f"--data.fan_outs: expected classes of nodes, but {content.name} has level {content.level}")
        graphs = [self._graph(rows, "--data") for rows in content.graphs]
        make = {"node": self._node_sets, "graph": self._graph_sets, "link": self._link_sets}[content.level]
        sets = make(content, graphs)
        for split in ("train", "val"):
            if not len(sets.get(split, ())):
                raise UserError(f"--data: {content.name} has no {split} {WHAT[content.level]}")
        self.train_set, self.val_set, self.test_set = sets["train"], sets["val"], sets.get("test")
        if content.level == "graph":
            self.count_classes()
        self._tell(content, graphs)

    def train_dataloader(self) -> DataLoader:
        self._spread()
        return super().train_dataloader()

    def val_dataloader(self) -> DataLoader:
        self._spread()
        return super().val_dataloader()

    def test_dataloader(self) -> DataLoader:
        self._spread()
        return super().test_dataloader()

    def predict_dataloader(self) -> DataLoader:
        self._spread()
        return super().predict_dataloader()

    def _spread(self) -> None:
        """Divides the targets of few graphs, so that every process has a sample: a graph with some of them."""
        world = 1 if self.trainer is None else self.trainer.world_size
        for name in ("train_set", "val_set", "test_set", "predict_set"):
            dataset = getattr(self, name, None)
            if isinstance(dataset, NodeSet | LinkSet) and len(dataset) < world:
                setattr(self, name, dataset.divided(-(-world // len(dataset))))

    def ids(self, dataset: Any) -> list[str]:
        """Names of the graphs of a data set."""
        return dataset.ids

    # splits

    def _graph(self, rows: GraphRows, option: str) -> Graph:
        """The graph of some rows; what is left out is counted."""
        outside = rows.outside()
        for number in outside.tolist():
            place, text = rows.edge_place(number), rows.fault(number)
            if self.on_error == "stop" or option == "--input":
                hint = "; --data.on_error skip leaves such edges out" if option != "--input" else ""
                raise UserError(f"{option}: {rows.name}: {place}: {text}{hint}")
            self._skip(f"{rows.name}: {place}", f"{rows.name}: {place}: {text}")
        pairs = np.delete(rows.edges, outside, axis=0)
        cleaned = clean_edges(pairs, len(rows.nodes), self.facts["directed"])
        if option != "--input":
            for name, count in zip(COUNTED, cleaned[1:], strict=True):
                self.counts |= {name: self.counts.get(name, 0) + count} if count else {}
        features = encode_features(self.facts["features"], rows, cleaned.edges, option)
        return Graph(rows.name, rows.nodes, features, cleaned.edges)

    def _graph_sets(self, content: Content, graphs: Sequence[Graph]) -> dict[str, Any]:
        labels: Any = content.labels
        return {
            split: GraphSet([graphs[number] for number in numbers], [int(labels[number]) for number in numbers])
            for split, numbers in content.splits.items()
            if len(numbers)
        }

    def _node_sets(self, content: Content, graphs: Sequence[Graph]) -> dict[str, Any]:
        labels: Any = content.labels
        if self.fan_outs is not None and len(graphs) > 1:
            raise UserError(f"--data.fan_outs: expected one graph, got {len(graphs):,}, which are batches already")
        targets: dict[str, tuple[list[Graph], list[Tensor]]] = {}
        for split, numbers in content.splits.items():
            if len(graphs) > 1:
                targets[split] = [graphs[number] for number in numbers], [labels[number] for number in numbers]
            elif len(numbers):
                target = torch.full_like(labels[0], UNKNOWN)
                target[list(numbers)] = labels[0][list(numbers)]
                targets[split] = [graphs[0]], [target]
        sets: dict[str, Any] = {split: NodeSet(*parts) for split, parts in targets.items()}
        if "test" in targets:
            self.predict_set = NodeSet(*targets["test"], is_prediction=True)
        if len(graphs) == 1:
            self._share_inputs(sets)
        if self.fan_outs is not None:
            sets["train"] = SeedNodes(graphs[0], content.splits.get("train", ()), labels[0])
            self.augment = self._draw_neighbours
        labelled = torch.cat(targets["train"][1]) if "train" in targets else torch.empty(0, dtype=torch.int64)
        self.facts["class_counts"] = labelled[labelled != UNKNOWN].bincount(minlength=len(content.classes)).tolist()
        return sets

    def _draw_neighbours(self, sample: tuple[int, int]) -> tuple[dict[str, Tensor], Tensor]:
        train: Any = self.train_set
        return train.around(*sample, self.fan_outs or ())

    def _link_sets(self, content: Content, graphs: Sequence[Graph]) -> dict[str, Any]:
        parts = [self._divided(graph) for graph in graphs]
        # the links of validation and test pass no messages, in no split
        passing = [graph._replace(edges=part["messages"]) for graph, part in zip(graphs, parts, strict=True)]
        sets: dict[str, Any] = {}
        self.augment = partial(with_negatives, directed=self.facts["directed"])
        for split in SPLITS:
            pairs, linked = zip(*[part[split] for part in parts], strict=True)
            if any(map(len, linked)):
                sets[split] = LinkSet(passing, pairs, linked)
        if "test" in sets:
            self.predict_set = LinkSet(passing, sets["test"].pairs, sets["test"].linked, is_prediction=True)
        self._share_inputs(sets)
        return sets

    def _share_inputs(self, sets: Mapping[str, Any]) -> None:
        """Gives all sets of the same graphs the same tensors, so that their edges are sorted once."""
        for own in [*sets.values(), self.predict_set]:
            if own is not None:
                own.inputs = next(iter(sets.values())).inputs

    def _divided(self, graph: Graph) -> dict[str, Any]:
        return divide_links(graph, self.val_share, self.test_share, self.split_seed, self.facts["directed"])

    def _tell(self, content: Content, graphs: Sequence[Graph]) -> None:
        if not self.speaks:
            return
        size = f"{len(graphs):,} graphs, " if len(graphs) > 1 else ""
        size += f"{sum(len(graph.features) for graph in graphs):,} nodes"
        kind = "directed edges" if self.facts["directed"] else "edges, each direction counted"
        notes = "".join(f", {self.counts[name]:,} {name.replace('_', ' ')}" for name in COUNTED if name in self.counts)
        text = f"{content.name}: {size}, {sum(graph.edges.shape[1] for graph in graphs):,} {kind}{notes}"
        sizes = [f"{size:,} {split}" for split in SPLITS if (size := _num_targets(getattr(self, f"{split}_set")))]
        print(f"{text}, {self.facts['num_features']:,} features; {WHAT[content.level]}: {', '.join(sizes)}", flush=True)

    # inputs without a target

    def expand(self, names: Sequence[str], places: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """Puts the tables of an input together, for `predict --input`: an object for each graph.

        Args:
            names: of the files.
            places: path or bytes of each.
        """
        groups = group_inputs(names, places, partial(warn, self))
        return [name for name, _ in groups], [content for _, content in groups]

    def read(self, source: Any) -> dict[str, Tensor]:
        """Reads one graph: features (N, D), edges (2, E) and num_nodes (); see `unlabelled`."""
        return self.unlabelled(source)[0]

    def unlabelled(self, source: Any) -> tuple[dict[str, Tensor], Any]:
        """The sample of one graph, of new nodes in the graph of the training, or of pairs of its nodes.

        Args:
            source: path or bytes of a table of edges or of a JSON file, or an object: `edges`, pairs of names; `nodes`,
                objects with a `node` and its columns; in their place `features`, a list for each node, whose names are
                0, 1, …; for level link, `pairs` of names.

        Raises:
            UserError: an edge names a node that is not there, features have another width, or there is no node.
        """
        content = read_object(source)
        rows = graph_of(content)
        self._tell_extra(rows)
        if self.facts["level"] == "link":
            return self._asked_pairs(content, rows)
        graph, asked = self._asked_nodes(rows)
        return graph.inputs, UNKNOWN if self.facts["level"] == "graph" else asked_nodes(graph.nodes, asked)

    def _tell_extra(self, rows: GraphRows) -> None:
        """Says once which columns of an input training did not have."""
        plan = self.facts["features"]
        expected = {column["name"] for column in plan.get("columns", ())} | set(self.facts.get("unread", ()))
        extra = set(rows.columns) - expected - self._extra if plan["kind"] != "rows" else set()
        if extra:
            self._extra |= extra
            warn(self, f"--input: {rows.name}: left out columns that training did not have: {', '.join(sorted(extra))}")

    def _asked_nodes(self, rows: GraphRows) -> tuple[Graph, Tensor]:
        """The graph, and which of its nodes are asked for (N,)."""
        is_unnamed = self.facts["features"]["kind"] in UNNAMED
        if self.facts["level"] == "graph" or (len(rows.nodes) and not len(rows.outside())):
            if is_unnamed and not len(rows.nodes):  # features need no table
                nodes = list(dict.fromkeys(end for pair in rows.pairs or () for end in pair))
                rows = rows._replace(nodes=nodes, edges=number_pairs(rows.pairs or (), nodes))
            if not len(rows.nodes):
                hint = "" if is_unnamed else ", which needs a table of nodes"
                raise UserError(f"--input: {rows.name}: expected at least one node, got an empty graph{hint}")
            return self._graph(rows, "--input"), torch.ones(len(rows.nodes), dtype=torch.bool)
        if not rows.pairs:
            raise UserError(f"--input: {rows.name}: expected at least one node, got an empty graph")
        known, _ = self._training_graph()
        joined, own = join_known(known, rows, adds_nodes=self.facts["features"]["kind"] == "degree")
        graph = self._graph(joined, "--input")
        asked = torch.arange(len(joined.nodes)) >= len(known.nodes)
        if not asked.any():  # no new node: those that the edges name
            asked[torch.from_numpy(own).unique()] = True
        return graph, asked

    def _asked_pairs(self, content: Mapping[str, Any], rows: GraphRows) -> tuple[dict[str, Tensor], Any]:
        """The graph, and the pairs (2, P) of its nodes that are asked for."""
        if "pairs" in content:
            graph, pairs = self._graph(rows, "--input"), pairs_of(content["pairs"], rows.name)
        else:
            graph, pairs = self._training_graph()[1], list(rows.pairs or ())
        if not pairs:
            raise UserError(f"--input: {rows.name}: expected pairs of nodes, got none")
        asked = GraphRows(rows.name, graph.nodes, {}, None, number_pairs(pairs, graph.nodes), pairs, rows.places)
        if len(outside := asked.outside()):
            number = int(outside[0])
            raise UserError(f"--input: {rows.name}: {asked.edge_place(number)}: {asked.fault(number)}")
        target = {"pairs": torch.from_numpy(asked.edges.T.copy()), "linked": torch.full((len(pairs),), UNKNOWN)}
        return graph.inputs, target | {"names": list(graph.nodes)}

    def _training_graph(self) -> tuple[GraphRows, Graph]:
        """The only graph of the training, as it is listed and as messages pass it."""
        if self._known is None:
            content = self.load()
            if len(content.graphs) != 1:
                raise UserError("--input: edges name nodes that its table of nodes lacks; expected a row for each")
            graph = self._graph(content.graphs[0], "--data")
            if self.facts["level"] == "link":
                graph = graph._replace(edges=self._divided(graph)["messages"])
            self._known = content.graphs[0], graph
        return self._known


def graph_picture(source: Any) -> Tensor:
    """A picture (3, H, W) of a graph, or of what `unlabelled` takes."""
    if isinstance(source, Graph):
        return graph_image(source.edges, source.nodes)
    rows = graph_of(read_object(source))
    nodes = rows.nodes or list(dict.fromkeys(end for pair in rows.pairs or () for end in pair))
    return graph_image(torch.from_numpy(number_pairs(rows.pairs or (), nodes).T.copy()), nodes)


def _num_targets(dataset: Any) -> int:
    if isinstance(dataset, NodeSet):
        return sum(int((target != UNKNOWN).sum()) for target in dataset.node_targets)
    if isinstance(dataset, LinkSet):
        return sum(map(len, dataset.linked))
    return 0 if dataset is None else len(dataset)
