"""The inputs of forecasting nets: their shapes, which the nets' options state, and whether a batch has them."""

from torch import Tensor

OPTIONS = {  # that state the shape of an input
    "past": "look_back, num_channels",
    "past_covariates": "num_past_covariates",
    "known_covariates": "num_known_covariates",
    "static": "num_static",
}


def input_shapes(
    look_back: int,
    horizon: int,
    num_channels: int,
    num_past_covariates: int,
    num_known_covariates: int,
    num_static: int,
) -> dict[str, tuple[int, ...]]:
    """Shapes of a net's inputs by name, without the batch; an input that the net does not take has a 0 among them.

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_channels: number of series that are forecast together, C.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.

    Raises:
        ValueError: a count is out of range.
    """
    for name, count in {"look_back": look_back, "horizon": horizon, "num_channels": num_channels}.items():
        if count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")
    for name, count in {
        "num_past_covariates": num_past_covariates,
        "num_known_covariates": num_known_covariates,
        "num_static": num_static,
    }.items():
        if count < 0:
            raise ValueError(f"{name}: expected at least 0, got {count}")
    return {
        "past": (look_back, num_channels),
        "past_covariates": (look_back, num_past_covariates),
        "known_covariates": (horizon, num_known_covariates),
        "static": (num_static,),
    }


def check_inputs(shapes: dict[str, tuple[int, ...]], **inputs: Tensor | None) -> None:
    """Checks that a net gets the inputs that it was built for, no fewer and no more.

    Args:
        shapes: returned by `input_shapes`.
        inputs: of a batch by name, (B, …) each, or None.

    Raises:
        ValueError: an input is missing, superfluous or has another shape.
    """
    for name, value in inputs.items():
        expected = None if 0 in shapes[name] else shapes[name]
        got = None if value is None else tuple(value.shape[1:])
        if got != expected:
            raise ValueError(f"{OPTIONS[name]}: expected {name} {_in_words(expected)}, got {_in_words(got)}")


def _in_words(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else f"({', '.join(['B', *map(str, shape)])})"
