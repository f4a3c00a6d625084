"""Checkers of what nobody has harmed: counts that are made again, logs on sound disks, and changes without a cause."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.types import TopicPartition
from barnabas.replication.leadership import Leadership
from barnabas.replication.throttle import Throttle
from barnabas.simulation.checkers import Watch
from barnabas.simulation.history import Violation
from barnabas.simulation.needless_changes import NeedlessChanges
from barnabas.simulation.own_counts import OwnCounts
from barnabas.simulation.replication_checkers import Replicas
from barnabas.simulation.sound_logs import SoundLogs
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated


def _rig() -> Replicated:
    rig = Replicated(5)
    rig.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    for number in range(5):
        rig.produce(b"%d" % number)
    rig.await_equal()
    return rig


def _check(rig: Replicated, checker: Any) -> None:
    rig.cluster.dirty = tuple(rig.cluster.nodes.values())
    checker.check(rig.cluster)


def test_right_counts_are_accepted() -> None:
    rig, counts = _rig(), OwnCounts()
    _check(rig, counts)
    assert counts.compared > 20


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda partition: partition._commit_waiters.add(10**9, print).cancel(), ""),
        (lambda partition: setattr(partition._commit_waiters, "_cancelled", 1), "waiters of orders-0"),
        (lambda partition: setattr(partition, "high_watermark", 2), "HW of orders-0"),
    ],
    ids=["a waiter that gave up", "waiters", "HW"],
)
def test_wrong_counts_are_found(spoil: Any, found: str) -> None:
    rig = _rig()
    spoil(rig.partition(1, "orders", 0))
    if found:
        with pytest.raises(Violation, match=f"counted wrongly: {found}"):
            _check(rig, OwnCounts())
    else:
        _check(rig, OwnCounts())


def test_a_limit_that_loses_bytes_is_found() -> None:
    rig = _rig()
    throttle: Throttle = rig.broker(2).replicas.quotas.leader.throttle
    throttle.record(100, 0)
    throttle._total -= 1
    with pytest.raises(Violation, match="bytes of throttle 0 on broker2 is 99, there are 100"):
        _check(rig, OwnCounts())


def test_an_undamaged_log_that_is_called_damaged_is_found() -> None:
    rig, checker = _rig(), SoundLogs()
    rig.broker(3).logs.damaged.missing[TopicPartition("orders", 0)] = 5
    with pytest.raises(Violation, match="nothing has damaged it: orders-0 on broker3"):
        _check(rig, checker)
    assert checker.starts == len(rig.cluster.nodes)


def test_a_log_on_a_disk_that_lost_something_can_be_damaged() -> None:
    rig = _rig()
    rig.broker(3).logs.damaged.missing[TopicPartition("orders", 0)] = 5
    rig.node(3).disk.crashes += 1
    _check(rig, SoundLogs())


def _watched(rig: Replicated) -> NeedlessChanges:
    """Looks at a cluster until it has been well for longer than a recovery takes."""
    checker = NeedlessChanges(rig.cluster, lambda: 0, 1_000)
    Watch(rig.cluster, [checker, Replicas(CONTROLLER, [checker])])
    rig.run_for(3_000)
    assert checker.looks > 5
    return checker


def test_a_replica_that_leaves_its_isr_without_a_cause_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = _rig()
    _watched(rig)
    monkeypatch.setattr(Leadership, "reduced", lambda self, *_: self.isr[:-1] if len(self.isr) > 2 else None)
    with pytest.raises(Violation, match=r"healthy: \[3\] leave the ISR of orders-0"):
        rig.run_for(5_000)


def test_a_replica_that_leaves_its_isr_for_a_cause_may_do_so() -> None:
    rig = _rig()
    _watched(rig)
    rig.node(3).kill()
    rig.run_until(lambda: 3 not in rig.image().isr, "it is out", 10_000)
    rig.node(3).start()
    rig.run_until(lambda: 3 in rig.image().isr, "it is back", 10_000)
