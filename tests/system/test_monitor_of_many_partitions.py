"""`barnabas monitor` at a terminal, on three brokers with 5,000 partitions of three replicas; one of them is killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.many_partitions import (
    NAMES,
    TOTAL,
    ClusterWatch,
    address_of,
    create_many,
    is_in_sync,
    led_by_others,
    partitions,
    resident_peak_mb,
)
from tests.support.terminal import Terminal

from barnabas.testing import Cluster

pytestmark = pytest.mark.full
VICTIM: Final = 2
SURVIVOR: Final = 3
#: The limits on a quiet machine (docs/monitor.md). Brokers, monitor and other tests share two cores, so the test allows
#: for more time.
FIRST_PICTURE_S: Final = 5.0
SHOWN_S: Final = 1.0
EXPLAINED_S: Final = 4.0
RESIDENT_MB: Final = 150.0
BUSY: Final = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as started:
        create_many(started.bootstrap)
        yield started


def test_the_table_is_there_at_once_follows_a_kill_and_stays_small(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    bootstrap = cluster.bootstrap
    survivor = address_of(bootstrap, SURVIVOR)
    led = sum(each.leader_id == VICTIM for each in partitions(survivor, NAMES))
    assert led > TOTAL // 4, "leaders are spread"
    figures: dict[str, float] = {}
    with Terminal([sys.executable, "-m", "barnabas.cli", "monitor", "-b", bootstrap]) as terminal:
        first = terminal.until(r"\b5\d\d\d partitions: all in sync")
        figures["first picture after the start, s"] = first.time_s - terminal.begin_s
        time.sleep(3)

        mark = terminal.end
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("small", 1, 3)])["small"].result(60)
        created_s = time.time()
        figures["one change on screen, s"] = terminal.until(r"small +topic-created", after=mark).time_s - created_s

        mark = terminal.end
        watch = ClusterWatch(survivor, led_by_others(VICTIM))
        killed_s = time.time()
        cluster.kill(VICTIM)
        # The headline counts the partitions whose leader is silent as offline, until they have another one.
        moved = terminal.until(
            r"partitions: (?:(\d+) offline, )?\d+ at min ISR",
            after=mark,
            accept=lambda found: int(found[1] or 0) < led,
        )
        # The broker counts as out of sync as soon as it is silent, before the cluster itself knows that it is gone.
        whole = terminal.until(r"\b5\d\d\d at min ISR", after=mark)
        explained = terminal.until(rf"leader-change.*\n?.*because broker {VICTIM} was fenced", after=mark)
        watch.wait()
        figures["the cluster's first new leaders after the kill, s"] = watch.first_s - killed_s
        figures["the cluster's last new leaders after the kill, s"] = watch.last_s - killed_s
        figures["first new leaders on screen after the cluster's, s"] = moved.time_s - watch.first_s
        figures["first cause in the lines after the cluster's first new leader, s"] = explained.time_s - watch.first_s
        figures["all partitions on screen after the cluster's last, s"] = whole.time_s - watch.last_s

        back = ClusterWatch(survivor, is_in_sync)
        cluster.start_broker(VICTIM)
        back.wait()
        again = terminal.until(r"\b5\d\d\d partitions: all in sync", after=whole.end)
        figures["all in sync on screen after the cluster's last ISR, s"] = again.time_s - back.last_s
        figures["resident memory at most, MB"] = resident_peak_mb(terminal.process.pid)
    shown = {name: round(value, 2) for name, value in figures.items()}
    record_property("figures", shown)
    print(shown)
    assert figures["first picture after the start, s"] <= FIRST_PICTURE_S * BUSY, shown
    assert figures["resident memory at most, MB"] <= RESIDENT_MB, shown
    for name, value in figures.items():
        if "on screen" in name:
            assert value <= SHOWN_S * BUSY, (name, shown)
        if "cause" in name:
            assert value <= EXPLAINED_S * BUSY, (name, shown)
