"""Pickles of arrays, sparse matrices and lists of neighbours, read without running code."""

import io
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from playbook import UserError

try:  # numpy renamed the module that pickles name
    from numpy._core.multiarray import _reconstruct
except ImportError:
    from numpy.core.multiarray import _reconstruct  # type: ignore[no-redef]

# by module and name as Python 2 and 3, and older and newer versions, write them; nothing else is looked up
ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): sparse.csr_matrix,
    ("scipy.sparse._csr", "csr_matrix"): sparse.csr_matrix,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("collections", "defaultdict"): defaultdict,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array and is not run") from None


def load_pickle(file: Path) -> Any:
    """Reads a pickle of Python 2 or 3 that holds arrays, sparse matrices, lists and dicts alone.

    Raises:
        UserError: it is damaged, or names anything else.
    """
    try:
        return _Unpickler(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a damaged one may raise anything
        text = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"--data.root: {file.as_posix()}: expected a pickle of arrays: {text}") from error
