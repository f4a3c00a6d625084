"""Recordings for tests of histories, and comparable contents of tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.support.watched import T0, details, look, partition, table_of

from barnabas.history.recorder import Recorder
from barnabas.monitor.columns import unpacked
from barnabas.monitor.delta import VolumesSeen
from barnabas.monitor.table import ClusterTable

_SETS: Final = ("isr", "elr", "offline", "adding", "removing")
MINUTE: Final = 60_000


def contents(table: ClusterTable) -> dict[str, Any]:
    """Returns a table without the numbers of its rows. The order of lists that are sets does not count."""
    states = table.states
    found: dict[str, Any] = {
        "controller": table.controller,
        "silent": table.silent,
        "brokers": {number: broker[:4] for number, broker in table.brokers.items()},
        "topics": {(topic.identity, topic.count) for topic in table.topics},
    }
    for row in table.rows.tolist():
        topic = table.topic_of(row)
        found[f"{topic.name}-{states.partition[row]}"] = (
            topic.identity.topic_id,
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            int(states.min_isr[row]),
            unpacked(states.replicas[row]),
            unpacked(states.directories[row]),
            *(frozenset(unpacked(getattr(states, name)[row])) for name in _SETS),
        )
        assert table.row_of(topic.name, int(states.partition[row])) == row
    return found


def incident(file: Path) -> Recorder:
    """Records a broker that dies a minute after the beginning and is back in the ISR a minute later: `a-0` follows, and
    `b-0`, which it leads, is offline meanwhile. Returns the recorder, which is not closed.
    """
    single = partition("b-0", leader=2, replicas=(2,), isr=(2,), min_isr=1)
    table = table_of(partition("a-0"), single)
    recorder = Recorder(file, table)
    b_offline = replace(single, leader=-1, leader_epoch=1)
    a_shrunk = partition("a-0", isr=(1, 3))
    table.apply(look(a_shrunk, b_offline, at_ms=T0 + MINUTE, brokers=(1, 3)))
    back = replace(single, leader_epoch=2)
    table.apply(look(a_shrunk, back, at_ms=T0 + 2 * MINUTE))
    table.apply(look(partition("a-0"), back, at_ms=T0 + 2 * MINUTE + 500))
    recorder.tick(T0 + 3 * MINUTE)
    return recorder


def hour_of_sizes(file: Path) -> None:
    """Records an hour in which nothing but the size of a partition changes, for longer than from one full sample to the
    next: it is the minute, from the second one on.
    """
    table = table_of(partition("a-0", details=details(b1=1)))
    Recorder(file, table, sample_interval_ms=MINUTE).close(T0 + MINUTE)
    # The resumed recording begins with a second checkpoint.
    recorder = Recorder(file, table, sample_interval_ms=MINUTE)
    for minute in range(2, 60):
        table.apply_volumes(VolumesSeen(T0 + minute * MINUTE, 1, sizes={("a", 0): minute}))
        recorder.tick(T0 + minute * MINUTE)
    recorder.close(T0 + 60 * MINUTE)
