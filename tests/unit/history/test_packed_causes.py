"""The causes of packed changes in a history file: those of single changes, event by event."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.watched import T0, look_at

from barnabas.history.recorder import Recorder
from barnabas.monitor.changes import Event
from barnabas.monitor.course import Course
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom_state import PhantomState

TOPICS, PARTITIONS = 300, 4


def recorded(path: Path, *, packs: bool, deletes: bool) -> list[tuple[Any, ...]]:
    """Records a kill, a start and an election. Returns the events with the texts of their causes."""
    events: list[Event] = []
    now_ms = T0
    state = PhantomState(
        topics=TOPICS,
        partitions=PARTITIONS,
        replication=3,
        brokers=3,
        now_ms=lambda: now_ms,
        on_events=lambda new: events.extend(new),
    )
    table = ClusterTable()
    table.apply(look_at(state, now_ms))
    course = Course(table, packs=packs)
    course.has_journal = True
    recorder = Recorder(path, table)
    table.subscribe(course.seen)
    for name in ("kill", "start", "elect_preferred"):
        now_ms += 5_000
        getattr(state, name)(*([] if name == "elect_preferred" else [2]))
        table.apply(look_at(state, now_ms))
        if deletes and name == "start":
            state.delete_topic("topic-00007")
            table.apply(look_at(state, now_ms + 1))
        recorder.explain(course.explained(events, now_ms + 10))
        told = course.packed()
        assert bool(told) is (packs and name != "elect_preferred")
        for each in told:
            recorder.explain_packed(each)
        events.clear()
    recorder.close(now_ms)
    assert recorder.problem is None
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT e.seq, e.partition, e.kind, e.leader, e.leader_epoch, c.code, c.text FROM events e "
        "LEFT JOIN causes c ON c.id = e.cause ORDER BY e.id"
    ).fetchall()
    connection.close()
    return found


@pytest.mark.parametrize("deletes", [False, True])
def test_packed_changes_have_the_same_causes_as_single_ones(tmp_path: Path, deletes: bool) -> None:
    packed = recorded(tmp_path / "packed.db", packs=True, deletes=deletes)
    single = recorded(tmp_path / "single.db", packs=False, deletes=deletes)
    assert packed == single
    explained = [row for row in packed if row[-1] is not None]
    assert len(explained) > 2 * TOPICS * PARTITIONS
