"""The number of classes of a task against the data's: one line that lists the names."""

import pytest

from playbook.errors import UserError
from src.ops.class_counts import require_class_count


def test_too_few_classes_are_an_error_that_lists_the_names() -> None:
    names = [f"c{k}" for k in range(30)]
    with pytest.raises(UserError) as caught:
        require_class_count(2, {"classes": names})
    listed = ", ".join(names[:20])
    expected = f"--model.num_classes: expected 30, got 2; the data has 30 classes: {listed} and 10 more; set the net's"
    assert str(caught.value).startswith(expected)


def test_more_classes_than_the_data_has_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    require_class_count(3, {"classes": ["cat", "dog"]})
    assert capsys.readouterr().err == "warning: num_classes is 3, but the data has 2 classes: cat, dog\n"


@pytest.mark.parametrize("facts", [{}, {"classes": ["cat", "dog"]}])
def test_the_same_number_or_none_is_not_mentioned(
    facts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    require_class_count(2, facts)
    assert not capsys.readouterr().err
