"""A table with other columns is refused with the option that reads it."""

import pytest

from playbook import UserError
from src.data.language.columns import LABEL_COLUMNS, TEXT_COLUMNS, column_of


@pytest.mark.parametrize(
    ("row", "option", "remedy"),
    [
        ({"text": "a", "labels": "1"}, "label_column", ". Nearest: labels; expected --data.label_column labels"),
        ({"text": "a", "LABEL": "1"}, "label_column", "; expected --data.label_column LABEL"),
        ({"text": "a", "stars": "1"}, "label_column", "; expected --data.label_column stars"),
        ({"text": "a", "stars": "1", "id": "3"}, "label_column", "; name it with --data.label_column"),
        ({"text": "a"}, "label_column", "got text"),
        ({"id": "17", "body": "a long text", "n": 3}, "text_column", "; expected --data.text_column body"),
        ({"Text": "a", "label": "1"}, "text_column", "; expected --data.text_column Text"),
        ({"text;label": "a;1"}, "text_column", 'got text;label; expected --data.separator ";"'),
        ({"text\tlabel": "a\t1"}, "text_column", '; expected --data.separator "\\t"'),
        ({"1": "a|1"}, "label_column", '; expected --data.separator "|"'),
        ({"a fine film": "dull", "1": "0"}, "text_column", "; expected --data.header false where the columns have no"),
    ],
)
def test_the_remedy_is_an_option(row: dict[str, str], option: str, remedy: str) -> None:
    """As in huggingface/datasets#1773 and #2658."""
    names = TEXT_COLUMNS if option == "text_column" else LABEL_COLUMNS
    with pytest.raises(UserError) as told:
        column_of(row, names, option, ["text"] if option == "label_column" else ())
    assert remedy in str(told.value), told.value


def test_the_first_name_counts() -> None:
    assert column_of({"prompt": "a", "text": "b"}, TEXT_COLUMNS, "text_column") == "text"
    with pytest.raises(
        UserError, match=r"^expected a column labell, got text, label\. Nearest: label; .*column label$"
    ):
        column_of({"text": "", "label": ""}, ["labell"], "label_column", ["text"])
