"""Three brokers under load while faults happen: what was acknowledged exists once and in order, for consumers too.

Idempotent producers (acks=all), a consumer group and a consumer without a group work all the time; the history checker
judges all their requests and answers at the end. The longer list of faults is in test_survival_of_faults.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.survival import Load, controller_of, create_topic, in_sync, known_leader_of, leader_of, wait_until

from barnabas.testing import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        yield cluster


def all_in_sync(cluster: Cluster, topic: str = "orders") -> None:
    wait_until(lambda: in_sync(cluster, topic) == {1, 2, 3}, f"all replicas of {topic} are in sync")


@pytest.mark.full
def test_the_controller_and_a_leader_are_killed_one_after_the_other(cluster: Cluster, tmp_path: Path) -> None:
    """The victim's role does not matter: a leader, a follower, the active controller."""
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}, aio=True) as load:
        for find in (controller_of, lambda cluster: known_leader_of(cluster, "orders")):
            victim = find(cluster)
            cluster.kill(victim)
            load.go_on()
            cluster.start_broker(victim)
            all_in_sync(cluster)
        load.go_on()
    load.judge()


@pytest.mark.full
def test_a_paused_leader_comes_back_deposed(cluster: Cluster, tmp_path: Path) -> None:
    """The leader's silence (9 s by default) is the only sign of its pause. Afterwards it still regards itself as the
    leader; what it acknowledges then must have been written by the ISR.
    """
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        leader = known_leader_of(cluster, "orders")
        cluster.pause(leader)
        try:
            wait_until(lambda: leader_of(cluster, "orders") not in (-1, leader), "another one leads")
            load.go_on()
        finally:
            cluster.resume(leader)
        load.go_on()
        all_in_sync(cluster)
    load.judge()


@pytest.mark.full
def test_orderly_stops_are_hardly_noticed(cluster: Cluster, tmp_path: Path) -> None:
    """A rolling restart: leaders move before their broker goes. No client sees an error that it cannot retry."""
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}, aio=True) as load:
        stops = []
        for broker_id in (1, 2, 3):
            begin = time.monotonic()
            cluster.stop_broker(broker_id)
            stops.append((begin, time.monotonic()))
            load.go_on()
            cluster.start_broker(broker_id)
            all_in_sync(cluster)
    for process in ("p", "aio"):
        pauses = [load.longest_pause_s(*stop, process) for stop in stops]
        print(f"{process}: longest pauses of a partition in ms:", [round(pause * 1000) for pause in pauses])
        # bench/ measures how long they are; a broker that only dies is missed after 9 s.
        assert max(pauses) < 30
    load.judge()
