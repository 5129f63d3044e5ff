"""Windows of series: a look-back and the horizon after it, gathered from one tensor of all series."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.data.series.encoding import Encoding
from src.data.series.observations import Observations
from src.ops.frequencies import names_of

Inputs = dict[str, Tensor]


class Timelines(NamedTuple):
    """All series, one after the other.

    Args:
        values: scaled target (N, C).
        covariates: known ones, then past ones (N, P).
        num_known: number of known covariates F.
        static: of each series (S_series, S).
        scales: mean and standard deviation of each series' channels (S_series, 2, C).
        owner: number of each row's series (N,).
        times: seconds since 1970 (N,).
        names: of the series.
        time_zone: offset of the times from UTC, such as +02:00, or empty.
    """

    values: Tensor
    covariates: Tensor
    num_known: int
    static: Tensor
    scales: Tensor
    owner: Tensor
    times: Tensor
    names: Sequence[str]
    time_zone: str = ""


class Windows(Dataset):
    """Windows by number; a batch is gathered at once.

    Args:
        timelines: all series.
        origins: the first forecast row of each window (N_windows,).
        look_back: rows before it, L.
        horizon: forecast rows, H.
        is_prediction: whether to add `origin`, `scale` and `steps` to the target, as unlabelled inputs have them.
    """

    def __init__(
        self, timelines: Timelines, origins: Tensor, look_back: int, horizon: int, is_prediction: bool = False
    ) -> None:
        self.timelines = timelines
        self.origins = origins
        self.look_back = look_back
        self.horizon = horizon
        self.is_prediction = is_prediction

    def __len__(self) -> int:
        return len(self.origins)

    def __getitem__(self, key: Any) -> tuple[Inputs, Any]:
        inputs, target = self.__getitems__([key])
        first = {name: value[0] for name, value in target.items()} if self.is_prediction else target[0]
        return {name: value[0] for name, value in inputs.items()}, first

    def __getitems__(self, keys: Sequence[Any]) -> list[Any]:
        index = torch.tensor([key[1] if isinstance(key, tuple) else key for key in keys])
        origin = self.origins[index]  # (B,)
        past = origin[:, None] + torch.arange(-self.look_back, 0)  # (B, L)
        future = origin[:, None] + torch.arange(self.horizon)  # (B, H)
        lines, owner = self.timelines, self.timelines.owner[origin]
        known = lines.covariates[future, : lines.num_known]  # (B, H, F)
        inputs = inputs_of(lines.values[past], lines.covariates[past], known, lines.static[owner])
        target = lines.values[future]  # (B, H, C)
        if self.is_prediction:
            steps = torch.full_like(origin, self.horizon)
            about = {"origin": lines.times[origin - 1], "scale": lines.scales[owner], "steps": steps}
            return [inputs, {"target": target, **about}]
        return [inputs, target]

    def batches(self, size: int = 1024) -> Iterator[list[Any]]:
        """All windows in order, in batches of at most some size."""
        for start in range(0, len(self), size):
            yield self.__getitems__(range(start, min(start + size, len(self))))

    @property
    def ids(self) -> list[str]:
        """Series and last known time of each window, as `T1@2017-10-20 00:00:00`."""
        times = names_of(self.timelines.times[self.origins - 1].numpy(), self.timelines.time_zone)
        owners = self.timelines.owner[self.origins].tolist()
        return [f"{self.timelines.names[owner]}@{time}" for owner, time in zip(owners, times, strict=True)]


def inputs_of(past: Tensor, past_covariates: Tensor, known_covariates: Tensor, static: Tensor) -> Inputs:
    """Names the inputs of a net, without those that have no entries; of samples or batches."""
    optional = {"past_covariates": past_covariates, "known_covariates": known_covariates, "static": static}
    return {"past": past} | {name: value for name, value in optional.items() if value.shape[-1]}


def join_series(series: Sequence[Observations], scales: Sequence[np.ndarray], encoding: Encoding) -> Timelines:
    """Puts all series, scaled and encoded, one after the other.

    Args:
        series: at least one.
        scales: mean and standard deviation (2, C) of each one.
        encoding: of the training.
    """
    arrays = [encoding.arrays(own, scale) for own, scale in zip(series, scales, strict=True)]
    lengths = torch.tensor([len(own.times) for own in series])
    return Timelines(
        torch.from_numpy(np.concatenate([values for values, _ in arrays])).float(),
        torch.from_numpy(np.concatenate([covariates for _, covariates in arrays])).float(),
        encoding.facts["num_known_covariates"],
        torch.from_numpy(np.stack([encoding.static(own) for own in series])).float(),
        torch.from_numpy(np.stack(scales)).float(),
        torch.arange(len(series)).repeat_interleave(lengths),
        torch.from_numpy(np.concatenate([own.times for own in series])),
        [own.name for own in series],
        encoding.columns.time_zone or "",
    )
