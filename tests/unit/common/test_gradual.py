"""Long lists are sorted in steps."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.finished import finished

from barnabas.common.gradual import _MERGED_PER_UNIT, _SORTED_PER_UNIT, sorted_gradually


@given(count=st.integers(0, 5 * _SORTED_PER_UNIT), seed=st.integers())
def test_the_result_is_sorted(count: int, seed: int) -> None:
    chance = random.Random(seed)
    items = [str(chance.randrange(count + 1)) for _ in range(count)]
    assert finished(sorted_gradually(iter(items))) == sorted(items)


def test_a_step_sorts_or_merges_few_elements() -> None:
    items = [f"user{number}" for number in range(50 * _SORTED_PER_UNIT)]
    units = list(sorted_gradually(items))
    assert units.count(1) > 50
    assert sum(units) > 50 + 2 * len(items) // _MERGED_PER_UNIT
    assert max(units) == 1 + len(items) // _MERGED_PER_UNIT
