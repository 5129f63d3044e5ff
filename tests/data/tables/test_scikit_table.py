"""The tables that scikit-learn carries, against scikit-learn."""

from typing import Any

import pytest
import torch

from src.data.tables.scikit_table import LOADERS, ScikitTable


@pytest.mark.parametrize("name", LOADERS)
def test_tables(name: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = ScikitTable(name)
    data.setup("fit")
    bunch = LOADERS[name]()
    parts: list[Any] = [data.train_set, data.val_set, data.test_set]
    rows = [int(row.partition(":")[2]) for part in parts for row in data.ids(part)]
    assert sorted(rows) == list(range(len(bunch.target)))
    targets = torch.cat([part.targets for part in parts])
    if name == "diabetes":
        assert targets.tolist() == [bunch.target[row] for row in rows]
        assert (data.facts["num_features"], data.facts["cardinalities"]) == (9, [3])
    else:
        classes = data.facts["classes"]
        assert [classes[number] for number in targets] == [bunch.target_names[bunch.target[row]] for row in rows]
        assert (data.facts["num_features"], data.facts["cardinalities"]) == (bunch.data.shape[1], [])
    assert "columns: " in capsys.readouterr().out


def test_an_unknown_table() -> None:
    with pytest.raises(ValueError, match="name: expected one of iris, wine, breast_cancer, diabetes, got digits"):
        ScikitTable("digits")  # type: ignore[arg-type]


def test_numbers_are_standardised_by_training_rows() -> None:
    data = ScikitTable("wine")
    data.setup("fit")
    rows = [int(row.partition(":")[2]) for row in data.ids(data.train_set)]
    values = torch.from_numpy(LOADERS["wine"](as_frame=False)["data"])
    expected = (values - values[rows].mean(0)) / values[rows].std(0, unbiased=False)
    numbers = data.val_set.inputs["numbers"]  # type: ignore[attr-defined]
    val_rows = [int(row.partition(":")[2]) for row in data.ids(data.val_set)]
    torch.testing.assert_close(numbers, expected[val_rows].float(), rtol=1e-5, atol=1e-5)
