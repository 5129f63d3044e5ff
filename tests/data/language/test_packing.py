"""Packing: every document once, no row too long, few rows."""

import random
from itertools import pairwise

import numpy as np
import pytest

from src.data.language.packing import pack
from src.data.language.windows import IGNORED, Packed


@pytest.mark.parametrize("seed", range(20))
def test_every_document_has_one_row_and_no_row_is_too_long(seed: int) -> None:
    draw = random.Random(seed)
    context_length = draw.randint(1, 40)
    lengths = [draw.randint(1, context_length) for _ in range(draw.randint(0, 200))]
    rows = pack(lengths, context_length)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    used = [sum(lengths[number] for number in row) for row in rows]
    assert all(0 < size <= context_length for size in used), used
    fewest = -(-sum(lengths) // context_length)
    assert len(rows) <= 1.23 * max(fewest, sum(2 * length > context_length for length in lengths)) + 1


def test_the_fullest_row_with_room_is_taken() -> None:
    assert pack([5, 6, 3, 2], 8) == [[1, 3], [0, 2]]


@pytest.mark.parametrize("length", [0, 9])
def test_a_length_that_fits_no_row_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match="lengths: expected 1 to 8 tokens"):
        pack([3, length], 8)


@pytest.mark.parametrize("seed", range(10))
def test_packed_rows_predict_every_token_of_every_document_once(seed: int) -> None:
    draw = random.Random(seed)
    end, context_length, number, texts = 0, 8, 1, []
    for _ in range(30):
        length = draw.randint(0, 30)
        texts.append([*range(number, number + length), end])
        number += length
    rows = Packed(np.concatenate(texts).astype(np.uint16), end, context_length, pad=9999)
    pairs, num_ends = [], 0
    for index in range(len(rows)):
        inputs, target = rows[index]
        documents, positions = inputs["documents"].tolist(), inputs["positions"].tolist()
        for place in range(context_length):
            token, following = int(inputs["tokens"][place]), int(target[place])
            if documents[place] == -1:
                assert (token, following, positions[place]) == (9999, IGNORED, 0)
                continue
            is_first = place == 0 or documents[place] != documents[place - 1]
            assert positions[place] == (0 if is_first else positions[place - 1] + 1)
            if not is_first:
                assert token == int(target[place - 1])
            num_ends += following == end
            pairs.append((token, following))
    expected = [pair for text in texts for pair in pairwise(text)]
    assert sorted(pairs) == sorted(expected)
    assert num_ends == sum(len(text) > 1 for text in texts)
    assert rows.num_cut == sum(len(text) - 1 > context_length for text in texts)
