"""Pickles are read without running what they name."""

import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from playbook import UserError
from src.data.graphs.pickles import load_pickle
from tests.conftest import PUBLISHED, needs


class Attack:
    """Runs a command when it is unpickled."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def test_arrays_come_back(tmp_path: Path) -> None:
    content = {
        "matrix": sparse.csr_matrix(np.eye(3, dtype=np.float32)),
        "array": np.arange(6).reshape(2, 3),
        "graph": defaultdict(list, {0: [1], 1: [0]}),
    }
    for protocol in (3, 4, 5):
        if protocol == 5:
            content.pop("array")  # whose form in protocol 5 names another function
            content.pop("matrix")
        (tmp_path / "file").write_bytes(pickle.dumps(content, protocol=protocol))
        loaded = load_pickle(tmp_path / "file")
        assert loaded["graph"] == {0: [1], 1: [0]}
        if protocol < 5:
            assert loaded["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
            assert loaded["matrix"].toarray().tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    "attack",
    [
        Attack(os.mkdir, "harmed"),
        Attack(eval, "__import__('os').mkdir('harmed')"),
        Attack(getattr, "text", "upper"),
        {"hidden": [np.zeros(2), Attack(os.mkdir, "harmed")]},
    ],
)
@pytest.mark.usefixtures("workdir")
def test_a_pickle_that_runs_code_is_refused(attack: Any) -> None:
    Path("ind.cora.x").write_bytes(pickle.dumps(attack))
    with pytest.raises(UserError, match=r"ind\.cora\.x: expected a pickle of arrays: it names \S+, which is no array"):
        load_pickle(Path("ind.cora.x"))
    assert not Path("harmed").exists()


def test_arrays_of_objects_run_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps(np.array([Attack(os.mkdir, "harmed")], dtype=object)))
    with pytest.raises(UserError, match="which is no array"):
        load_pickle(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"nothing", pickle.dumps(np.arange(100), protocol=4)[:-40]])
def test_a_damaged_pickle(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match="file: expected a pickle of arrays: "):
        load_pickle(tmp_path / "file")


@needs("cora")
def test_pickles_of_python_2() -> None:
    raw = PUBLISHED / "cora/Cora/raw"
    assert load_pickle(raw / "ind.cora.allx").shape == (1708, 1433)
    assert len(load_pickle(raw / "ind.cora.graph")) == 2708
