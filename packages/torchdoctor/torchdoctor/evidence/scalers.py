"""Records what the scalers, imputers and feature selectors of scikit-learn are fitted to."""

import sys
from collections.abc import Callable
from copy import copy
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from sys import _getframe
from typing import Any, NamedTuple

import numpy as np

from torchdoctor import source
from torchdoctor.findings import Place

_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer", "QuantileTransformer")
_SELECTORS = ("SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe", "RFE", "SelectFromModel")
_KINDS = {
    "sklearn.preprocessing": _SCALERS,
    "sklearn.impute": ("SimpleImputer", "KNNImputer"),
    "sklearn.feature_selection": _SELECTORS,
}
_LAST, _LARGEST = 20, 4_000_000  # fits that are remembered; numbers of each


class Fit(NamedTuple):
    """A fitted scaler or its like, the line of the fit, and the fitted table (rows, columns)."""

    place: Place
    scaler: Any
    table: np.ndarray

    @property
    def reads_labels(self) -> bool:
        """Whether it chose by the labels of these rows."""
        return type(self.scaler).__name__ in _SELECTORS

    def scaled(self) -> np.ndarray:
        """The scaled table, in single precision."""
        return np.asarray(self.scaler.transform(self.table), dtype=np.float32)


fits: list[Fit] = []


def note_fits() -> None:
    """Records fits from now on in this process, once the program imports scikit-learn."""
    missing = [name for name in _KINDS if name not in sys.modules]
    for name in _KINDS.keys() - set(missing):
        _change(sys.modules[name])
    if missing:
        sys.meta_path.insert(0, _Finder(missing))


class _Finder(MetaPathFinder):
    """An import hook that patches the scalers.

    Args:
        missing: modules that are not imported yet.
    """

    def __init__(self, missing: list[str]) -> None:
        self.missing = missing

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self.missing:
            return None
        self.missing.remove(name)
        spec = find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module
            loader.exec_module = lambda module: (run(module), _change(module))
        return spec


def _change(module: Any) -> None:
    for kind in (getattr(module, name) for name in _KINDS[module.__name__]):
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
