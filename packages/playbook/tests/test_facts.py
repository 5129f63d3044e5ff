"""Facts are plain values, versioned, and matched by the names of classes."""

import json

import numpy as np
import pytest
import torch

from playbook import UserError
from playbook.facts import KEY, abridged, pack, plain_facts, require_same_classes, unpack


def test_tensors_and_tuples_come_back_as_lists() -> None:
    facts = {"classes": ("cat", "dog"), "mean": torch.tensor([0.5, 0.25]), "shape": np.array([1, 8]), "rate": 8000}
    expected = {"classes": ["cat", "dog"], "mean": [0.5, 0.25], "shape": [1, 8], "rate": 8000}
    packed = pack(facts)
    assert unpack({KEY: packed}, "x.ckpt") == expected
    assert unpack({KEY: json.dumps(packed)}, "x.safetensors") == expected


def test_a_checkpoint_without_facts_has_none() -> None:
    assert unpack({"state_dict": {}}, "x.ckpt") is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"version": 2, "values": {}}, r"x\.ckpt: its facts have version 2, this Playbook reads up to 1"),
        ({"classes": ["a"]}, r"x\.ckpt: its facts are damaged"),
        ({"version": 1, "values": ["a"]}, r"x\.ckpt: its facts are damaged"),
        ("{", r"x\.ckpt: its facts are not valid JSON"),
        ({"version": 1, "values": {"classes": ["a", "b", "a"]}}, r"x\.ckpt: class 'a' occurs twice"),
        ({"version": 1, "values": {"classes": "ab"}}, r"x\.ckpt: facts: classes: expected a list of names, got 'ab'"),
    ],
)
def test_damaged_facts_are_told(entry: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        unpack({KEY: entry}, "x.ckpt")


def test_an_object_is_no_fact() -> None:
    with pytest.raises(
        UserError, match="--data: facts: net: expected text, numbers, lists and dicts of these, got Linear"
    ):
        plain_facts({"net": torch.nn.Linear(1, 1)})


def test_classes_are_matched_by_name() -> None:
    model = {"classes": ["cat", "dog", "owl"]}
    require_same_classes({"classes": ["cat", "dog", "owl"]}, model, "Pets")
    require_same_classes({}, model, "Pets")
    require_same_classes({"classes": ["cat"]}, {}, "Pets")
    with pytest.raises(UserError, match=r"Pets has the class dig, but the checkpoint has cat, dog, owl\. Nearest: dog"):
        require_same_classes({"classes": ["cat", "dig"]}, model, "Pets")
    with pytest.raises(UserError, match="Pets numbers its classes dog, cat, the checkpoint cat, dog, owl"):
        require_same_classes({"classes": ["dog", "cat"]}, model, "Pets")


def test_long_values_are_told_by_their_length_in_files_that_people_read() -> None:
    facts = {"classes": ["a", "b"], "tokenizer": {"kind": "bpe", "tokenizer": "x" * 60_000}, "words": ["abc"] * 20_000}
    assert abridged(facts) == {
        "classes": ["a", "b"],
        "tokenizer": {"kind": "bpe", "tokenizer": "60,000 characters, saved in the checkpoint"},
        "words": "20,000 values, saved in the checkpoint",
    }
