"""Proposed replicas, as `kafka-reassign-partitions --generate` computes them."""

from __future__ import annotations

import pytest

from barnabas.decisions.proposals import propose


@pytest.mark.parametrize(
    ("picks", "expected"),
    [
        ((0, 0), [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 2, 3]]),
        ((1, 0), [[1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 1, 2], [1, 3, 0]]),
        ((0, 1), [[0, 2, 3], [1, 3, 0], [2, 0, 1], [3, 1, 2], [0, 3, 1]]),
    ],
)
def test_leaders_take_turns_and_followers_move_on_with_each_lap(
    picks: tuple[int, int], expected: list[list[int]]
) -> None:
    """Kafka's AdminUtils: the first replica of partition p is broker (p + start) of n, the others follow at a distance
    that grows by one with each lap."""
    left = list(picks)
    assert propose(dict.fromkeys(range(4)), 5, 3, lambda bound: left.pop(0)) == expected
