"""Any sequence of changes, by any mix of feeds: the state rebuilt from the file at each version is the live table."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_feeds_agree import BROKERS, Moment, courses, look_at, looks
from tests.support.histories import contents

from barnabas.history.excerpts import write_excerpt
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.monitor.changes import Event
from barnabas.monitor.delta import Delta, NameRange, VolumesSeen
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.table import ClusterTable


@st.composite
def about_nodes(draw: st.DrawFn, time_ms: int) -> Delta:
    """Draws a change of brokers, their answers or the controller."""
    present = draw(st.lists(st.sampled_from(BROKERS), unique=True))
    problems = {broker: draw(st.sampled_from((None, "timed out"))) for broker in present}
    brokers = {broker: BrokerState(broker, "host", 9000 + draw(st.integers(0, 1))) for broker in present}
    return Delta(time_ms, brokers=brokers, problems=problems, controller=draw(st.sampled_from((-1, *BROKERS))))


@st.composite
def about_volumes(draw: st.DrawFn, moment: Moment) -> VolumesSeen:
    keys = [(key.topic, key.partition) for key in moment.partitions]
    sizes = {key: draw(st.integers(0, 1000)) for key in keys}
    return VolumesSeen(moment.time_ms, draw(st.sampled_from(BROKERS)), sizes=sizes, end_offsets=sizes)


def _apply(
    table: ClusterTable, journal: JournalEvents, moments: Sequence[Moment], number: int, data: st.DataObject
) -> None:
    moment = moments[number]
    if data.draw(st.booleans()):
        table.apply(data.draw(about_nodes(moment.time_ms)))
    if moment.record is not None and data.draw(st.booleans()):
        table.apply(moment.record)
    event: Event | None = moment.event
    if event is not None and data.draw(st.booleans()):
        journal.apply([event])
    for delta in data.draw(looks(moments, number)):
        table.apply(delta)
    if data.draw(st.booleans()):
        table.apply_volumes(data.draw(about_volumes(moment)))
    if moment.partitions and data.draw(st.integers(0, 3)) == 0:
        topic = next(iter(moment.partitions)).topic
        table.apply(Delta(moment.time_ms, min_isrs={topic: data.draw(st.integers(1, 3))}))


@settings(max_examples=60)
@given(courses(), st.data())
def test_the_state_at_every_version_is_that_of_the_table(moments: list[Moment], data: st.DataObject) -> None:
    table = ClusterTable()
    journal = JournalEvents(table, None, moments[0].time_ms)
    live = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.db"
        recorder = Recorder(file, table)
        interrupted = data.draw(st.sets(st.integers(1, len(moments)), max_size=2))

        def note(_: object) -> None:
            live[recorder.seq] = contents(table)

        forget = table.subscribe(note)
        for number in range(len(moments)):
            _apply(table, journal, moments, number, data)
            if number in interrupted:
                recorder.close()
                forget()
                table.apply(look_at(moments[number], moments[number].time_ms + 5_000, NameRange()))
                recorder = Recorder(file, table, sample_interval_ms=0)
                live[recorder.seq] = contents(table)
                forget = table.subscribe(note)
        recorder.close()
        assert recorder.problem is None
        live.pop(0, None)
        with History.open(file) as history:
            for seq in data.draw(st.permutations(sorted(live))):
                found = history.after(seq)
                assert contents(found) == live[seq]
                assert found.counts() == {
                    severity: sum(state.severity is severity for state in found.values()) for severity in found.counts()
                }
        if live:
            _check_excerpt(file, Path(folder) / "excerpt.db", data)


def _check_excerpt(file: Path, target: Path, data: st.DataObject) -> None:
    """A part of the history is the whole in its period, and has nothing after it."""
    with History.open(file) as whole:
        first_ms, last_ms = whole.span()
        times = whole.times(first_ms, last_ms)
        since_ms, until_ms = sorted(data.draw(st.lists(st.sampled_from(times), min_size=2, max_size=2)))
        write_excerpt(file, target, since_ms, until_ms, "about")
        with History.open(target) as part:
            assert (part.problem, part.about, whole.about) == (None, "about", None)
            assert part.span()[0] <= since_ms
            assert part.span()[1] <= until_ms
            assert part.times(since_ms, until_ms) == whole.times(since_ms, until_ms)
            assert part.times(until_ms + 1, last_ms) == []
            for time_ms in {since_ms, until_ms}:
                assert contents(part.at(time_ms)) == contents(whole.at(time_ms))
            kept, all_of_it = (each.events(since_ms, until_ms) for each in (part, whole))
            assert [(each.kind, each.subject, each.time_ms) for each in kept] == [
                (each.kind, each.subject, each.time_ms) for each in all_of_it
            ]
