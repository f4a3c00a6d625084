"""The verdict on the history of clients: planted errors, each reported."""

from __future__ import annotations

import pytest

from barnabas.simulation.history import Found, History, Leniency, TopicIncarnation, judge

PLACE = ("orders", 0)


class Told:
    """Four records of one session, acked one by one at offsets 0 to 3, a second apart."""

    def __init__(self) -> None:
        self.now_us = 0
        self.history = History(lambda: self.now_us)
        for number in range(4):
            self.now_us += 1_000_000
            value = b"p.1:%d" % number
            self.history.on_sent(value, "p.1", number, PLACE)
            self.history.on_acked(value, PLACE, number)

    def judge(self, log: list[tuple[int, bytes]], lenient: Leniency | None = None) -> list[str]:
        found: Found = {PLACE: log}
        return [problem.text for problem in judge(self.history, found, lenient or Leniency())]


TRUE = [(number, b"p.1:%d" % number) for number in range(4)]


def test_a_true_log() -> None:
    told = Told()
    for number in (0, 1):
        told.history.on_polled("c/0", PLACE, number, TRUE[number][1])
    assert told.judge(TRUE) == []


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (TRUE[:3], "lost: p.1:3"),
        ([*TRUE[:3], (5, b"p.1:3")], "moved: p.1:3"),
        ([*TRUE, (4, b"p.1:3")], "twice: p.1:3"),
        ([*TRUE, (4, b"who?")], "invented: who?"),
        ([TRUE[0], TRUE[0], *TRUE[1:]], "offsets go back"),
        ([TRUE[0], (1, b"p.1:2"), (2, b"p.1:1"), TRUE[3]], "out of order: p.1:1"),
    ],
)
def test_a_false_log(log: list[tuple[int, bytes]], problem: str) -> None:
    assert any(found.startswith(problem) for found in Told().judge(log)), Told().judge(log)


def test_false_reads() -> None:
    told = Told()
    told.history.on_polled("c/0", PLACE, 2, b"p.1:1")
    told.history.on_polled("c/0", PLACE, 1, b"p.1:1")
    problems = told.judge(TRUE)
    assert "a false read: c/0 read p.1:1 at orders-0@2, where the log has p.1:2" in problems
    assert "a consumer went back: c/0 read orders-0@1 after 2" in problems


def test_a_lossy_topic_may_lose_and_not_invent() -> None:
    lossy = Leniency(lossy=["orders"])
    assert Told().judge(TRUE[:2], lossy) == []
    assert Told().judge([(0, b"who?")], lossy) != []


def test_a_topic_that_was_replaced() -> None:
    """A topic is deleted after the second record and created again; at 3.5 s it is settled, so the fourth record
    counts."""
    lenient = Leniency(incarnations={"orders": TopicIncarnation(deleted_us=2_500_000)}, settled_us=3_500_000)
    told = Told()
    assert told.judge([TRUE[3]], lenient) == []
    assert any(problem.startswith("lost: p.1:3") for problem in told.judge([], lenient))
    assert any(problem.startswith("resurrected: p.1:1") for problem in told.judge([TRUE[1], TRUE[3]], lenient))
    # The records were acknowledged in the instant in which they were sent: nothing of them can wait at a broker.
    judged = told.judge([TRUE[1], TRUE[3]], lenient._replace(retried_us=1))
    assert any(problem.startswith("resurrected: p.1:1") for problem in judged)
    assert told.judge([TRUE[1], TRUE[3]], lenient._replace(retried_us=0)) == []
