"""Partitions without a leader, and what brings them back, as text."""

from __future__ import annotations

import pytest

from barnabas.cli.leaderless import SHOWN, Leaderless, lines_of, way_out

_UNCLEAN = "elect another replica with `barnabas elect --type unclean`, which can lose records"
_BOTH = "start one of the brokers 1, 2, in sync: nothing is lost"


@pytest.mark.parametrize(
    ("isr", "elr", "last_known", "expected"),
    [
        ((2,), (3,), (), "start broker 2, in sync: nothing is lost"),
        ((1, 2), (), (), _BOTH),
        ((), (3,), (1,), "start broker 3, in the ELR: nothing is lost"),
        ((), (), (1,), f"start broker 1, the last known leader, or {_UNCLEAN}"),
        ((), (), (), _UNCLEAN),
    ],
)
def test_the_way_out(isr: tuple[int, ...], elr: tuple[int, ...], last_known: tuple[int, ...], expected: str) -> None:
    assert way_out(isr, elr, last_known) == expected


def test_partitions_of_a_topic_with_the_same_way_out_share_a_line() -> None:
    same = [Leaderless("t", number, (1, 2), (1, 2)) for number in range(SHOWN + 2)]
    other = Leaderless("t", 40, (1, 2), ())
    assert lines_of([*same, other]) == [
        f"no leader: t-0,1,2,3,4,5,6,7,8,9 and 2 more: {_BOTH}",
        f"no leader: t-40: {_UNCLEAN}",
    ]
    many = [Leaderless(f"t{number}", 0, (1,), (1,)) for number in range(SHOWN + 3)]
    assert lines_of(many)[SHOWN:] == ["and 3 more topics have partitions without a leader"]
    assert lines_of([]) == []
