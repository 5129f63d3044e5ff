"""LSTM (Hochreiter & Schmidhuber 1997) and GRU (Cho et al. 2014), for series."""

from typing import Literal

import torch
from torch import Tensor, nn

from src.ops.reversible_norm import ReversibleNorm
from src.ops.series_inputs import check_inputs, input_shapes

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentForecaster(nn.Module):
    """Reads the past step by step, all channels together, and forecasts every step directly from the last state.

    The last state and the static features are mapped to a context for each step; a small MLP, the same for every step,
    turns the context and the known covariates of the step into the forecast (MQ-RNN, Wen et al. 2017).

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_channels: number of series that are forecast together, C.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.
        num_quantiles: values for each step and channel, Q; above 1 for the quantile loss.
        normalise: none; last, subtracts the last value; revin, standardises each window. Undone in the forecast.
        kind: lstm or gru.
        hidden: features of a state.
        num_layers: number of layers, at least 1.
        context: features of a step's context, and units of the MLP.
        dropout: probability of dropping a feature between layers and of the last state, in [0, 1).

    Shapes:
        past (B, L, C), past_covariates (B, L, P), known_covariates (B, H, F), static (B, S) → (B, H, C), or
        (B, H, C, Q) for Q above 1.

    Raises:
        ValueError: an argument is out of range, or an input is missing, superfluous or of another shape.
    """

    def __init__(
        self,
        look_back: int = 96,
        horizon: int = 24,
        num_channels: int = 1,
        num_past_covariates: int = 0,
        num_known_covariates: int = 0,
        num_static: int = 0,
        num_quantiles: int = 1,
        normalise: Literal["none", "last", "revin"] = "revin",
        kind: Literal["lstm", "gru"] = "lstm",
        hidden: int = 64,
        num_layers: int = 1,
        context: int = 16,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        counts = {"num_quantiles": num_quantiles, "hidden": hidden, "num_layers": num_layers, "context": context}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.shapes = input_shapes(
            look_back, horizon, num_channels, num_past_covariates, num_known_covariates, num_static
        )
        self.horizon = horizon
        self.size = (num_channels, num_quantiles)
        self.norm = ReversibleNorm(num_channels, normalise)
        self.layers = KINDS[kind](
            num_channels + num_past_covariates,
            hidden,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(dropout)
        self.contexts = nn.Linear(hidden + num_static, horizon * context)
        self.head = nn.Sequential(
            nn.Linear(context + num_known_covariates, context),
            nn.ReLU(),
            nn.Linear(context, num_channels * num_quantiles),
        )
        self._initialise()

    def _initialise(self) -> None:
        """Orthogonal recurrent weights (Saxe et al. 2014), Glorot & Bengio 2010 elsewhere, zero biases.

        The forget gate's bias is 1, so that an LSTM remembers at first (Jozefowicz et al. 2015).
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        hidden = self.layers.hidden_size
        for name, parameter in self.layers.named_parameters():
            if name.startswith("weight"):
                scheme = nn.init.orthogonal_ if "_hh_" in name else nn.init.xavier_uniform_
                for gate in parameter.detach().split(hidden):
                    scheme(gate)
            else:
                nn.init.zeros_(parameter)
                if isinstance(self.layers, nn.LSTM) and "_ih_" in name:
                    nn.init.ones_(parameter.detach()[hidden : 2 * hidden])  # gates are input, forget, cell, output

    def forward(
        self,
        past: Tensor,
        past_covariates: Tensor | None = None,
        known_covariates: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        given = {"past_covariates": past_covariates, "known_covariates": known_covariates, "static": static}
        check_inputs(self.shapes, past=past, **given)
        x, level, scale = self.norm(past)  # (B, L, C)
        if past_covariates is not None:
            x = torch.cat([x, past_covariates], dim=-1)  # (B, L, C + P)
        states, _ = self.layers(x)  # (B, L, hidden)
        state = self.dropout(states[:, -1])  # (B, hidden)
        if static is not None:
            state = torch.cat([state, static], dim=-1)  # (B, hidden + S)
        steps = self.contexts(state).relu().unflatten(-1, (self.horizon, -1))  # (B, H, context)
        if known_covariates is not None:
            steps = torch.cat([steps, known_covariates], dim=-1)  # (B, H, context + F)
        y = self.head(steps).unflatten(-1, self.size)  # (B, H, C, Q)
        y = self.norm.restore(y, level, scale)
        return y.squeeze(-1) if self.size[1] == 1 else y
