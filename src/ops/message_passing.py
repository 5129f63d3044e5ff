"""Sums over the neighbours of nodes, for a batch of graphs as one sparse matrix with a block for each graph."""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

End = Literal["source", "target"]
MOST_KEPT = 4  # batches whose matrices are kept: graphs that are the same in every step are sorted once


class Adjacency:
    """The edges of a batch of graphs, sorted by target; node n of graph b is number b N + n of M = B N nodes.

    On an ordinary device, sums are products with a matrix in CSR, whose backward pass is the product with its
    transpose, which is stored as well: 25 ms forward and backward for 50,000 nodes, 500,000 edges and 64 features on a
    CPU thread, `index_add` takes 349 ms. Where a program is traced, for export or by torch.compile, sums are
    `index_add`, edges keep their order, and those that do not count weigh 0, so that no shape depends on values.

    Args:
        edges: source and target of each edge (B, 2, E); an edge counts if both are at least 0 and below the graph's
            number of nodes, so -1 pads. Equal edges count repeatedly.
        num_nodes: of each graph (B,).
        largest: nodes that each graph is padded to, N.
        keeps_loops: whether an edge from a node to itself counts.

    Attributes:
        source: (E',), of the edges that count.
        target: (E',).
        counts: 1 for edges that count and 0 for others (E', 1); None if all do.
        degree: number of edges that end at each node (M, 1).
    """

    def __init__(self, edges: Tensor, num_nodes: Tensor, largest: int, keeps_loops: bool = True) -> None:
        self.size = edges.shape[0] * largest
        source, target = edges.long().unbind(dim=1)  # (B, E) each
        limit = num_nodes.clamp(max=largest)[:, None]  # (B, 1)
        counts = (source >= 0) & (target >= 0) & (source < limit) & (target < limit)
        if not keeps_loops:
            counts = counts & (source != target)
        first = torch.arange(edges.shape[0], device=edges.device)[:, None] * largest  # (B, 1)
        self.is_traced = is_traced()
        if self.is_traced:
            counts = counts.flatten()  # (B E,)
            self.source = torch.where(counts, (source + first).flatten(), 0)
            self.target = torch.where(counts, (target + first).flatten(), 0)
            self.counts: Tensor | None = counts[:, None].float()
            ones = self.counts[:, 0]
        else:
            self.source, self.target, self.counts = (source + first)[counts], (target + first)[counts], None  # (E',)
            order = self.target.argsort(stable=True)
            self.source, self.target = self.source[order], self.target[order]
            # of the same edges by their source; from the matrix to its transpose
            self.by_source = self.source.argsort(stable=True)
            self.rows = _pointers(self.target, self.size)
            self.rows_transposed = _pointers(self.source, self.size)
            self.columns_transposed = self.target[self.by_source]
            self.numbers = torch.arange(len(self.source), device=edges.device)
            self._matrices: dict[tuple[str, torch.dtype], Tensor] = {}
            ones = torch.ones_like(self.target, dtype=torch.float32)
        zeros = ones.new_zeros(self.size)
        self.degree = zeros.index_add(0, self.target, ones)[:, None]  # (M, 1)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of the neighbours' features, of the sources of each node's edges (M, D) → (M, D)."""
        if self.is_traced:
            assert self.counts is not None
            return torch.zeros_like(x).index_add(0, self.target, x.index_select(0, self.source) * self.counts.to(x))
        precise = x.to(torch.promote_types(x.dtype, torch.float32))  # CPUs have no product in bfloat16
        return _Product.apply(precise, self, False).to(x.dtype)

    def weighted_sum(self, x: Tensor, weight: Tensor) -> Tensor:
        """The sum of the neighbours' features times the weights of the edges, for each of H heads.

        Args:
            x: (M, H, C).
            weight: of the edges in the order of `source` (E', H), zero for those that do not count.

        Returns:
            (M, H, C).
        """
        if self.is_traced:
            messages = x.index_select(0, self.source) * weight.unsqueeze(-1)  # (E', H, C)
            return torch.zeros_like(x).index_add(0, self.target, messages)
        kind = torch.promote_types(x.dtype, torch.float32)
        return _WeightedProduct.apply(x.to(kind), weight.to(kind), self).to(x.dtype)

    def softmax(self, score: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """The softmax over the edges that end at a node and the node itself.

        Args:
            score: of the edges in the order of `source` (E', H).
            own: of each node (M, H).

        Returns:
            Weights of the edges (E', H) and of the nodes (M, H), which are 1 together at every node.
        """
        if self.counts is not None:
            score = score.masked_fill(self.counts == 0, -torch.inf)
        index = self.target[:, None].expand_as(score)  # (E', H)
        largest = own.detach().scatter_reduce(0, index, score.detach(), "amax")  # (M, H), so that exp does not overflow
        score = (score - largest.index_select(0, self.target)).exp()
        own = (own - largest).exp()
        total = own + self.to_nodes(score)
        return score / self.to_edges(total, "target"), own / total

    def to_edges(self, x: Tensor, end: End) -> Tensor:
        """Values of nodes (M, H) at the source or the target of each edge (E', H)."""
        if self.is_traced:
            return x.index_select(0, self.source if end == "source" else self.target)
        return _Gather.apply(x, self, end)

    def to_nodes(self, values: Tensor) -> Tensor:
        """The sum of the values of the edges (E', H) that end at each node (M, H)."""
        if self.is_traced:
            return values.new_zeros(self.size, values.shape[1]).index_add(0, self.target, values)
        return _Collect.apply(values, self, "target")

    def matrix(self, transposed: bool, values: Tensor) -> Tensor:
        """The matrix (M, M) in CSR with values of its entries, in the order of `source` or, transposed, by source."""
        rows = self.rows_transposed if transposed else self.rows
        return _csr(rows, self.columns_transposed if transposed else self.source, values, self.size)

    def ones(self, transposed: bool, like: Tensor) -> Tensor:
        """The matrix with ones, kept."""
        return self._kept(str(transposed), like, lambda ones: self.matrix(transposed, ones))

    def incidence(self, end: End, like: Tensor) -> Tensor:
        """The matrix (M, E') that sums over the edges with this node at one end, kept."""
        rows, columns = (self.rows_transposed, self.by_source) if end == "source" else (self.rows, self.numbers)
        return self._kept(end, like, lambda ones: _csr(rows, columns, ones, len(self.source)))

    def _kept(self, name: str, like: Tensor, build: Callable[[Tensor], Tensor]) -> Tensor:
        key = (name, like.dtype)
        if key not in self._matrices:
            self._matrices[key] = build(torch.ones_like(self.source, dtype=like.dtype))
        return self._matrices[key]


def adjacency(edges: Tensor, num_nodes: Tensor, largest: int, keeps_loops: bool = True) -> Adjacency:
    """The `Adjacency` of a batch, the same object for the same tensors, which must not be changed in between."""
    if is_traced() or edges.is_inference() or num_nodes.is_inference():
        return Adjacency(edges, num_nodes, largest, keeps_loops)
    key = (_identity(edges), _identity(num_nodes), largest, keeps_loops)
    for known, _, matrix in _RECENT:
        if known == key:
            return matrix
    with torch.inference_mode(False), torch.no_grad():  # of use in training, also if an evaluation came first
        matrix = Adjacency(edges, num_nodes, largest, keeps_loops)
    _RECENT.append((key, (edges, num_nodes), matrix))  # the tensors too: nothing else gets their addresses
    del _RECENT[:-MOST_KEPT]
    return matrix


def is_traced() -> bool:
    """Whether the code runs to be written down, by torch.export, torch.compile or torch.jit.trace."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


_RECENT: list[tuple[Any, tuple[Tensor, Tensor], Adjacency]] = []


def _identity(x: Tensor) -> tuple[Any, ...]:
    return (x.data_ptr(), tuple(x.shape), x.stride(), x.dtype, x.device, x._version)


def _pointers(numbers: Tensor, size: int) -> Tensor:
    """Where the entries of each row begin in a sorted list, and its end (size + 1,)."""
    counts = numbers.bincount(minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _csr(rows: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> Tensor:
    with warnings.catch_warnings():  # that CSR is in beta, and that its invariants are not checked
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(rows, columns, values, (len(rows) - 1, num_columns), check_invariants=False)


class _Gather(Function):
    """Values of nodes at an end of the edges; `index_select` alone would add gradients up edge by edge."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Adjacency, end: End) -> Tensor:
        ctx.edges, ctx.end = edges, end
        return x.index_select(0, edges.source if end == "source" else edges.target)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Collect.apply(gradients[0], ctx.edges, ctx.end), None, None


class _Collect(Function):
    """Sums of the values of edges over the nodes at one of their ends."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, edges: Adjacency, end: End) -> Tensor:
        ctx.edges, ctx.end = edges, end
        return edges.incidence(end, values) @ values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Gather.apply(gradients[0], ctx.edges, ctx.end), None, None


class _Product(Function):
    """The product of an adjacency or its transpose with features (M, D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Adjacency, transposed: bool) -> Tensor:
        ctx.edges, ctx.transposed = edges, transposed
        return edges.ones(transposed, x) @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Product.apply(gradients[0], ctx.edges, not ctx.transposed), None, None


class _WeightedProduct(Function):
    """The product of an adjacency whose entries are weights (E', H) with features (M, H, C), head by head."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, edges: Adjacency) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.edges = edges
        return _by_head(edges, False, weight, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        edges, [gradient] = ctx.edges, gradients
        # weight[by_source] took three times as long as index_select
        by_source = weight.index_select(0, edges.by_source)
        of_x = _by_head(edges, True, by_source, gradient) if ctx.needs_input_grad[0] else None
        return of_x, _at_edges(edges, gradient, x) if ctx.needs_input_grad[1] else None, None


def _by_head(edges: Adjacency, transposed: bool, weight: Tensor, x: Tensor) -> Tensor:
    heads = [
        edges.matrix(transposed, weight[:, h].contiguous()) @ x[:, h].contiguous() for h in range(x.shape[1])
    ]  # (M, C) each
    return torch.stack(heads, dim=1)  # (M, H, C)


def _at_edges(edges: Adjacency, at_target: Tensor, at_source: Tensor) -> Tensor:
    """Products of features (M, H, C) of the two ends of each edge (E', H); without (E', H, C) in memory, in a fifth."""
    nothing = at_target.new_zeros(len(edges.source))
    heads = [
        torch.sparse.sampled_addmm(
            edges.matrix(False, nothing), at_target[:, h].contiguous(), at_source[:, h].contiguous().T
        ).values()
        for h in range(at_target.shape[1])
    ]
    return torch.stack(heads, dim=1)  # (E', H)
