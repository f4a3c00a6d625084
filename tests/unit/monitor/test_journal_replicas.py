"""The order in which the replicas of the journal are asked, and how long each may take."""

from __future__ import annotations

from barnabas.monitor.journal_replicas import JournalReplicas


def test_the_leader_comes_first_and_after_a_failure_last() -> None:
    replicas = JournalReplicas()
    assert replicas.order(2, [1, 2, 3], now_s=0.0) == [2, 1, 3]
    replicas.failed(2, now_s=0.0)
    assert replicas.order(2, [1, 2, 3], now_s=1.0) == [1, 3, 2]
    replicas.failed(1, now_s=1.0)
    assert replicas.order(2, [1, 2, 3], now_s=2.0) == [3, 2, 1], "the one that failed first before the others"


def test_a_leader_is_tried_again_after_some_seconds_or_an_answer() -> None:
    replicas = JournalReplicas()
    replicas.failed(2, now_s=0.0)
    assert replicas.order(2, [1, 2], now_s=4.9) == [1, 2]
    assert replicas.order(2, [1, 2], now_s=5.0) == [2, 1]
    replicas.failed(2, now_s=5.0)
    replicas.answered(2)
    assert replicas.order(2, [1, 2], now_s=5.1) == [2, 1]


def test_a_new_leader_is_asked_at_once() -> None:
    replicas = JournalReplicas()
    replicas.failed(2, now_s=0.0)
    assert replicas.order(3, [1, 3], now_s=1.0) == [3, 1]


def test_without_a_leader_the_followers_are_asked() -> None:
    assert JournalReplicas().order(-1, [3, 1], now_s=0.0) == [1, 3]
    assert JournalReplicas().order(-1, [], now_s=0.0) == []


def test_patience_grows_with_each_round_that_nobody_answers() -> None:
    replicas = JournalReplicas()
    seen = []
    for _ in range(8):
        seen.append(replicas.patience_s(2))
        replicas.failed(1, now_s=0.0)
    assert seen == [1, 1, 2, 2, 4, 4, 8, 8]
    for _ in range(100):
        replicas.failed(1, now_s=0.0)
    assert replicas.patience_s(2) == 16
    replicas.answered(2)
    assert replicas.patience_s(2) == 1
