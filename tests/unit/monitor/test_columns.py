"""The columns: rows that share lists, different rows of a matrix, and members that another list lacks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.monitor import columns
from barnabas.monitor.columns import States, packed, unique_rows, without_match

_MATRICES = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(-1, 3), min_size=width, max_size=width), min_size=1, max_size=40)
)


@given(_MATRICES)
def test_different_rows_are_those_of_numpy(rows: list[list[int]]) -> None:
    matrix = np.array(rows, np.int32)
    found = unique_rows(matrix)
    wanted, first, inverse, counts = np.unique(
        matrix, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    assert found.rows.tolist() == wanted.tolist()
    assert found.first.tolist() == first.tolist()
    assert found.inverse.tolist() == inverse.reshape(-1).tolist()
    assert found.counts.tolist() == counts.tolist()


def test_rows_with_the_same_number_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_FACTORS", np.ones(64, np.uint64))
    matrix = np.array([[1, 2], [2, 1], [0, 3], [1, 2]], np.int32)
    found = unique_rows(matrix)
    assert found.rows.tolist() == [[0, 3], [1, 2], [2, 1]]
    assert (found.rows[found.inverse] == matrix).all()


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=40)
)
def test_rows_that_share_a_list_are_packed_alike(lists: list[list[int]], rows: list[int]) -> None:
    shared = [lists[row % len(lists)] for row in rows]
    assert packed(shared, 4).tolist() == packed([list(each) for each in shared], 4).tolist()


@given(_MATRICES)
def test_members_that_the_other_list_lacks(rows: list[list[int]]) -> None:
    one = np.array(rows, np.int32)
    other = np.array([list(reversed(row)) for row in rows[1:] + rows[:1]], np.int32)
    wanted = [[value != -1 and value not in others for value in row] for row, others in zip(rows, other, strict=True)]
    assert without_match(one, other).tolist() == wanted


def test_lists_that_no_row_has_take_no_memory() -> None:
    states = States.empty(1_000, 3)
    states.replicas[:] = 1
    kept = states.kept()
    assert kept.replicas is states.replicas
    for name in ("elr", "offline", "adding", "removing", "directories", "isr"):
        column = getattr(kept, name)
        assert column.strides == (0, 0), name
        assert column.tolist() == getattr(states, name).tolist()
    assert kept.take(np.array([3, 5], np.int32)).elr.strides != (0, 0), "a copy can be written to"
