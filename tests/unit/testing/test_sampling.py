"""The sample of cases that `make test` runs of a test with many (`support.sampling`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sampling import left_out


@given(st.integers(1, 200), st.integers(1, 200))
def test_as_many_are_taken_as_requested_and_the_first_is_among_them(total: int, count: int) -> None:
    omitted = left_out(total, count)
    assert len(omitted) == max(0, total - count)
    assert 0 not in omitted
    taken = sorted(set(range(total)) - set(omitted))
    gaps = [after - before for before, after in zip(taken, [*taken[1:], total], strict=True)]
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [*range(6), pytest.param(6, marks=pytest.mark.full)])
def test_the_other_cases_are_full(request: pytest.FixtureRequest, case: int) -> None:
    assert (request.node.get_closest_marker("full") is None) is (case in (0, 3))
