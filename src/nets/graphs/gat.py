"""The graph attention network."""

from torch import Tensor, nn
from torch.nn.functional import elu

from src.ops.graph_batches import Level, Pooling, check_graphs, check_options, pool_nodes
from src.ops.graph_layers import GraphAttention
from src.ops.message_passing import adjacency


class GAT(nn.Module):
    """Nodes attend to their neighbours and themselves; ELU between the layers (Veličković et al. 2018).

    Args:
        num_classes: number of outputs K of a node or graph.
        num_features: number of features of a node, D.
        hidden: features of a node for each head in hidden layers, C; an embedding has H C.
        depth: number of layers, after which a node knows of those that many edges away; at least 1.
        dropout: probability of dropping a feature before each layer, in [0, 1).
        attention_dropout: probability of dropping the attention to a neighbour, in [0, 1).
        heads: number of heads H of the hidden layers; their outputs are joined.
        out_heads: number of heads of the last layer for level node, which are averaged.
        level: what is predicted: `node` returns K outputs for each node, `graph` pools the nodes of each graph before
            a linear layer, `link` returns an embedding of each node. Defaults to what the data has.
        pooling: over the nodes of a graph, for level graph.

    Shapes:
        features (B, N, D), edges (B, 2, E) with source and target, padded with -1, num_nodes (B,) → (B, N, K) for
        level node, (B, K) for graph, (B, N, H C) for link. B graphs of up to N nodes and E edges; messages go from
        source to target.

    Raises:
        ValueError: an option is out of range, or the features have another width.
    """

    def __init__(
        self,
        num_classes: int = 10,
        num_features: int = 16,
        hidden: int = 8,
        depth: int = 2,
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
        heads: int = 8,
        out_heads: int = 1,
        level: Level = "node",
        pooling: Pooling = "mean",
    ) -> None:
        super().__init__()
        check_options(
            level,
            pooling,
            dropout,
            num_classes=num_classes,
            num_features=num_features,
            depth=depth,
            hidden=hidden,
            heads=heads,
            out_heads=out_heads,
        )
        if not 0 <= attention_dropout < 1:
            raise ValueError(f"attention_dropout: expected a probability in [0, 1), got {attention_dropout}")
        self.num_features = num_features
        self.pooling: Pooling = pooling
        self.dropout = nn.Dropout(dropout)
        widths = [num_features, *[heads * hidden] * (depth if level != "node" else depth - 1)]
        layers = [GraphAttention(width, hidden, heads, drop=attention_dropout) for width in widths[:-1]]
        if level == "node":
            layers.append(GraphAttention(widths[-1], num_classes, out_heads, joins=False, drop=attention_dropout))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(heads * hidden, num_classes) if level == "graph" else None

    def forward(self, features: Tensor, edges: Tensor, num_nodes: Tensor) -> Tensor:
        check_graphs(features, edges, self.num_features)
        graph = adjacency(edges, num_nodes, features.shape[1], GraphAttention.keeps_loops)
        x = features.flatten(0, 1)  # (M, D), M = B N
        for number, layer in enumerate(self.layers, start=1):
            x = layer(self.dropout(x), graph)  # (M, C)
            if number < len(self.layers) or self.head is not None:
                x = elu(x)
        x = x.unflatten(0, features.shape[:2])  # (B, N, C)
        return x if self.head is None else self.head(pool_nodes(x, num_nodes, self.pooling))  # (B, K)
