"""GraphSAGE with the mean of neighbours."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import relu

from src.ops.graph_batches import Level, Pooling, check_graphs, check_options, pool_nodes
from src.ops.graph_layers import SageConvolution
from src.ops.message_passing import adjacency


class GraphSAGE(nn.Module):
    """Each layer maps a node and the mean of its neighbours, then ReLU (Hamilton et al. 2017).

    Args:
        num_classes: number of outputs K of a node or graph.
        num_features: number of features of a node, D.
        hidden: features of a node in hidden layers, and of its embedding, C.
        depth: number of layers, after which a node knows of those that many edges away; at least 1.
        dropout: probability of dropping a feature before each layer, in [0, 1).
        level: what is predicted: `node` returns K outputs for each node, `graph` pools the nodes of each graph before
            a linear layer, `link` returns an embedding of each node. Defaults to what the data has.
        pooling: over the nodes of a graph, for level graph.

    Shapes:
        features (B, N, D), edges (B, 2, E) with source and target, padded with -1, num_nodes (B,) → (B, N, K) for
        level node, (B, K) for graph, (B, N, C) for link. B graphs of up to N nodes and E edges; messages go from
        source to target.

    Raises:
        ValueError: an option is out of range, or the features have another width.
    """

    def __init__(
        self,
        num_classes: int = 10,
        num_features: int = 16,
        hidden: int = 64,
        depth: int = 2,
        dropout: float = 0.5,
        level: Level = "node",
        pooling: Pooling = "mean",
    ) -> None:
        super().__init__()
        check_options(
            level, pooling, dropout, num_classes=num_classes, num_features=num_features, depth=depth, hidden=hidden
        )
        self.num_features = num_features
        self.pooling: Pooling = pooling
        self.dropout = nn.Dropout(dropout)
        widths = [num_features, *[hidden] * (depth - 1), num_classes if level == "node" else hidden]
        self.layers = nn.ModuleList(SageConvolution(*pair) for pair in pairwise(widths))
        self.head = nn.Linear(hidden, num_classes) if level == "graph" else None

    def forward(self, features: Tensor, edges: Tensor, num_nodes: Tensor) -> Tensor:
        check_graphs(features, edges, self.num_features)
        graph = adjacency(edges, num_nodes, features.shape[1], SageConvolution.keeps_loops)
        x = features.flatten(0, 1)  # (M, D), M = B N
        for number, layer in enumerate(self.layers, start=1):
            x = layer(self.dropout(x), graph)  # (M, C)
            if number < len(self.layers) or self.head is not None:
                x = relu(x)
        x = x.unflatten(0, features.shape[:2])  # (B, N, C)
        return x if self.head is None else self.head(pool_nodes(x, num_nodes, self.pooling))  # (B, K)
