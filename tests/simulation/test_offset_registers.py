"""Registers of committed offsets: which offsets can be read after a deletion."""

from __future__ import annotations

import pytest

from barnabas.simulation.offset_registers import Register

PLACE = ("shelves", 0)


@pytest.mark.parametrize("can_return", [False, True])
def test_a_deleted_offset_comes_back_only_where_tombstones_are_kept_for_a_short_time(can_return: bool) -> None:
    register = Register("g", can_expire=False, can_return=can_return)
    register.committed(PLACE, 26, expires=False)
    register.deleted(PLACE)
    problem = register.problem(PLACE, 26)
    assert (problem is None) is can_return
    assert register.problem(PLACE, 27) is not None, "an offset that was never committed"
    if can_return:
        assert register.problem(PLACE, -1) is not None, "the offset is there again"
