"""Features of nodes: columns of a table, rows of numbers, degrees, or the node itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from playbook import UserError, category_of, is_missing, number_of
from src.data.graphs.rows import GraphRows

LARGEST_DEGREE = 10  # that has a feature of its own; larger ones share it
MOST_CATEGORIES = 50  # of a column
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
Plan = Mapping[str, Any]  # plain values, saved with the weights


def learn_features(graphs: Sequence[GraphRows], normalise: bool = False) -> dict[str, Any]:
    """How the nodes of graphs become features.

    Columns of numbers are scaled by mean and standard deviation, those of words become one-hot, one feature for each
    word. Without columns, the degree is one-hot, up to 10 (Xu et al. 2019).

    Args:
        graphs: of the training.
        normalise: whether rows of numbers are divided by their sum, as the papers on Cora do.

    Raises:
        UserError: a column has too many words.
    """
    first = graphs[0]
    if first.matrix is not None:
        return {"kind": "rows", "width": first.matrix.shape[1], "normalise": normalise}
    if not first.columns:
        return {"kind": "degree", "largest": LARGEST_DEGREE}
    return {"kind": "columns", "columns": [_learn_column(name, graphs) for name in first.columns]}


def _learn_column(name: str, graphs: Sequence[GraphRows]) -> dict[str, Any]:
    values = [value for rows in graphs for value in rows.columns[name]]
    try:
        numbers = np.array([number_of(value, MISSING) for value in values])
    except ValueError:  # InputError of the runtime
        words = sorted({category_of(value, MISSING) for value in values})
        if len(words) > MOST_CATEGORIES:
            text = f"{len(words):,} different words, expected numbers or at most {MOST_CATEGORIES} words"
            raise UserError(f"--data.root: column {name} of the nodes has {text}; --data.leave_out {name}") from None
        return {"name": name, "words": words}
    finite = numbers[np.isfinite(numbers)]
    deviation = float(finite.std()) if len(finite) else 0.0
    return {"name": name, "mean": float(finite.mean()) if len(finite) else 0.0, "std": deviation or 1.0}


def count_features(plan: Plan) -> int:
    """The number of features D."""
    if plan["kind"] == "rows":
        return plan["width"]
    if plan["kind"] == "degree":
        return plan["largest"] + 1
    if plan["kind"] == "node":
        return len(plan["nodes"])
    return sum(len(column["words"]) if "words" in column else 1 for column in plan["columns"])


def encode_features(plan: Plan, rows: GraphRows, edges: Tensor, option: str) -> Tensor:
    """The features of a graph's nodes (N, D).

    Args:
        plan: returned by `learn_features`.
        rows: the graph.
        edges: as messages pass them (2, E).
        option: that names the data, for messages.

    Raises:
        UserError: a column is missing, a value cannot be read, or there are more or fewer features.
    """
    if plan["kind"] == "degree":
        degrees = edges[1].bincount(minlength=len(rows.nodes))  # (N,)
        return one_hot(degrees.clamp(max=plan["largest"]), plan["largest"] + 1).float()
    if plan["kind"] == "node":
        numbers = {name: number for number, name in enumerate(plan["nodes"])}
        if unknown := [name for name in rows.nodes if name not in numbers]:
            raise UserError(f"{option}: {rows.name}: the net knows its nodes by name, and none is called {unknown[0]}")
        return torch.eye(len(numbers))[[numbers[name] for name in rows.nodes]]
    if plan["kind"] == "rows":
        return _encode_rows(plan, rows, option)
    columns = [_encode_column(column, rows, option) for column in plan["columns"]]
    return torch.cat(columns, dim=1)  # (N, D)


def _encode_rows(plan: Plan, rows: GraphRows, option: str) -> Tensor:
    matrix = rows.matrix
    if matrix is None:  # a table whose columns are called 0, 1, …
        names = [{"name": str(number), "mean": 0.0, "std": 1.0} for number in range(plan["width"])]
        matrix = torch.cat([_encode_column(name, rows, option) for name in names], dim=1)
    if matrix.shape[1] != plan["width"]:
        got = f"expected {plan['width']:,} features, as in training, got {matrix.shape[1]:,}"
        raise UserError(f"{option}: {rows.name}: {got}")
    if not matrix.isfinite().all():
        number = int((~matrix.isfinite()).any(dim=1).nonzero()[0])
        raise UserError(f"{option}: {rows.node_place(number)}: expected finite features")
    total = matrix.sum(dim=1, keepdim=True)  # (N, 1)
    return matrix / torch.where(total == 0, 1, total) if plan["normalise"] else matrix


def _encode_column(column: Mapping[str, Any], rows: GraphRows, option: str) -> Tensor:
    name = column["name"]
    if name not in rows.columns:
        has = ", ".join(list(rows.columns)[:5]) or "none"
        raise UserError(f"{option}: {rows.name}: expected a column {name} of the nodes, got {has}")
    values = rows.columns[name]
    if "words" in column:
        numbers = {word: number for number, word in enumerate(column["words"])}
        words = [category_of(value, MISSING) for value in values]
        codes = torch.tensor([numbers.get(word, -1) for word in words], dtype=torch.int64)
        return (codes[:, None] == torch.arange(len(numbers))).float()  # all zero for a word that training did not have
    parsed = torch.empty(len(values), 1, dtype=torch.float64)
    for number, value in enumerate(values):
        try:
            parsed[number] = torch.nan if is_missing(value, MISSING) else number_of(value, MISSING)
        except ValueError:
            parsed[number] = torch.nan
        if not parsed[number].isfinite():
            raise UserError(f"{option}: {rows.node_place(number)}: {name}: expected a finite number, got {value!r:.40}")
    return ((parsed - column["mean"]) / column["std"]).float()
