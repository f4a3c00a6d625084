"""The cases of a test that the ordinary run takes: `@pytest.mark.sampled(count)` above a test with parameters.

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("mutation", MUTATIONS)

The cases taken are the same in every run, the first one among them, and lie at equal distances. The others are marked
`full`, so that only `make test-full` runs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

MARK = "sampled"


def mark(items: Sequence[pytest.Item]) -> None:
    """Marks the cases that are left out of the ordinary run as `full`. Cases that are `full` already do not count."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(MARK) is not None and item.get_closest_marker("full") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in cases.values():
        found = of_one_test[0].get_closest_marker(MARK)
        assert found is not None
        for index in left_out(len(of_one_test), found.args[0]):
            of_one_test[index].add_marker("full")


def left_out(total: int, count: int) -> list[int]:
    """Returns the indexes of the cases that are not among `count` at equal distances."""
    count = min(count, total)
    taken = {number * total // count for number in range(count)}
    return [index for index in range(total) if index not in taken]
