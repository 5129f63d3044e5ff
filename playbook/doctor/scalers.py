"""What the scalers of scikit-learn are fitted to."""

from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib import import_module
from sys import _getframe
from typing import Any, NamedTuple

import numpy as np

from playbook.doctor import source
from playbook.doctor.findings import Place

_KINDS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer", "QuantileTransformer")
_LAST, _LARGEST = 20, 4_000_000  # fits that are remembered; numbers of each


class Fit(NamedTuple):
    """A scaler, the line that fitted it, and the table (rows, columns) that it was given."""

    place: Place
    scaler: Any
    table: np.ndarray

    def scaled(self) -> np.ndarray:
        """The table as the scaler gives it back, in single precision."""
        return np.asarray(self.scaler.transform(self.table), dtype=np.float32)


fits: list[Fit] = []


def note_fits() -> None:
    """From now on in this process, keeps what scalers are fitted to, where scikit-learn is installed."""
    try:
        module: Any = import_module("sklearn.preprocessing")
    except ImportError:
        return
    for kind in (getattr(module, name) for name in _KINDS):
        if not hasattr(kind.fit, "notes_table"):
            kind.fit = _noting(kind.fit)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def fit(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N803  # scikit-learn's name for it
        places, _ = source.callers(_getframe(1))
        table = np.array(X) if places and 0 < np.size(X) <= _LARGEST else np.zeros(0)
        result = original(self, X, *args, **kwargs)
        if table.ndim == 2 and table.dtype.kind in "iuf":
            fits.append(Fit(places[0], copy(self), table))  # it may be fitted to something else next
            del fits[:-_LAST]
        return result

    fit.notes_table = True  # type: ignore[attr-defined]  # read above
    return fit
