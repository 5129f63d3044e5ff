"""Records what scikit-learn's scalers are fitted to."""

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

_MODULE = "sklearn.preprocessing"
_KINDS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer", "QuantileTransformer")
_LAST, _LARGEST = 20, 4_000_000  # fits that are remembered; numbers of each


class Fit(NamedTuple):
    """A fitted scaler, the line of the fit, and the fitted table (rows, columns)."""

    place: Place
    scaler: Any
    table: np.ndarray

    def scaled(self) -> np.ndarray:
        """The scaled table, in single precision."""
        return np.asarray(self.scaler.transform(self.table), dtype=np.float32)


fits: list[Fit] = []


def note_fits() -> None:
    """Records fits from now on in this process, once the program imports scikit-learn."""
    if _MODULE in sys.modules:
        _change(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """An import hook that patches the scalers."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module
            loader.exec_module = lambda module: (run(module), _change(module))
        return spec


def _change(module: Any) -> None:
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
