"""The recorder: what it keeps, what it leaves out and counts, and what ends it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.histories import MINUTE, contents, hour_of_sizes, incident
from tests.support.watched import T0, explained, look, partition, table_of

from barnabas.common.types import uuid_to_text
from barnabas.history import recorder as recording
from barnabas.history.errors import HistoryError
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.history.retention import DAY_MS, Bounds, drop_before
from barnabas.monitor.delta import Delta
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.table import ClusterTable
from barnabas.testing.packed_events import packed


def shrink(table: ClusterTable, number: int, *, at_ms: int, names: int = 1) -> None:
    """Changes the ISR of partitions `a-0` and so on; another one for each number."""
    isr = ((1,), (1, 2), (1, 3), (1, 2, 3))[number % 4]
    table.apply(look(*(partition(f"a-{index}", isr=isr) for index in range(names)), at_ms=at_ms))


def test_a_clean_end_leaves_one_file(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close()
    assert [file.name for file in tmp_path.iterdir()] == ["h.db"]


def test_sizes_of_the_moments_that_are_kept_are_kept(tmp_path: Path) -> None:
    """Nothing but sizes changes after a checkpoint, for longer than from one full sample to the next."""
    file = tmp_path / "h.db"
    hour_of_sizes(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert drop_before(connection, T0 + 2 * MINUTE) == 0
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)
    with History.open(file) as history:
        sizes = [history.at(T0 + minute * MINUTE).state(0).size_bytes for minute in range(2, 60)]
    assert sizes == list(range(2, 60))


def test_a_reader_does_not_hinder_the_end(tmp_path: Path) -> None:
    recorder = incident(tmp_path / "h.db")
    with History.open(tmp_path / "h.db") as history:
        assert len(history.events()) == 6
        recorder.close(T0 + 4 * MINUTE)
        assert recorder.problem is None
        assert history.span()[1] == T0 + 4 * MINUTE
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "h.db").write_bytes((tmp_path / "h.db").read_bytes())
    with History.open(tmp_path / "copy" / "h.db") as history:
        assert history.span()[1] == T0 + 4 * MINUTE


def test_what_was_committed_is_there_after_a_crash(tmp_path: Path) -> None:
    recorder = incident(tmp_path / "h.db")
    (tmp_path / "copy").mkdir()
    for name in ("h.db", "h.db-wal"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    with History.open(tmp_path / "copy" / "h.db") as history:
        assert len(history.events()) == 6
    recorder.close()


def test_an_empty_table_begins_with_its_first_version(tmp_path: Path) -> None:
    table = ClusterTable()
    recorder = Recorder(tmp_path / "h.db", table)
    recorder.tick(T0 - 5)
    table.apply(look(partition("a-0"), at_ms=T0))
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        assert (history.span(), history.events(), len(history.at(T0))) == ((T0, T0), [], 1)


def test_nothing_recorded_is_one_line(tmp_path: Path) -> None:
    Recorder(tmp_path / "h.db", ClusterTable()).close()
    with History.open(tmp_path / "h.db") as history, pytest.raises(HistoryError, match="nothing is recorded"):
        history.span()


def test_too_many_changes_in_a_second_are_merged_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "EVENTS_PER_S", 100)
    names = 30
    table = table_of(*(partition(f"a-{index}") for index in range(names)))
    recorder = Recorder(tmp_path / "h.db", table)
    for number in range(19):
        shrink(table, number, at_ms=T0 + 1_000 + number * 10, names=names)
    last = contents(table)
    shrink(table, 20, at_ms=T0 + 2_500, names=names)
    # The first 120 changes are recorded one by one; of the others each partition has its last one.
    assert recorder.merged == (19 - 4) * names - names
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        assert len(history.events(topic="a")) == (4 + 1 + 1) * names
        assert contents(history.at(T0 + 2_499)) == last
        (gap,) = history.gaps()
        assert gap.reason == "420 states of partitions were left out: more than 100 changed within a second"
        assert (gap.begin_ms, gap.end_ms) == (T0 + 1_000, T0 + 1_180)


def test_changes_of_topics_are_never_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "EVENTS_PER_S", 1)
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    for number in range(8):
        shrink(table, number, at_ms=T0 + 1_000 + number)
        created = partition(f"b{number}-0")
        table.apply(look(partition("a-0", isr=(1,)), created, at_ms=T0 + 1_000 + number))
    live = contents(table)
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        kinds = [change.kind for change in history.events() if change.topic != "a"]
        assert (kinds.count("topic-created"), kinds.count("topic-deleted")) == (8, 7)
        assert contents(history.at(history.span()[1])) == live


def test_a_checkpoint_is_written_after_some_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_CHECKPOINT_EVENTS", 5)
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    live = {}
    for number in range(40):
        shrink(table, number, at_ms=T0 + (number + 1) * 1_000)
        live[T0 + (number + 1) * 1_000] = contents(table)
    recorder.close()
    connection = sqlite3.connect(tmp_path / "h.db")
    assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (9,)
    connection.close()
    with History.open(tmp_path / "h.db") as history:
        assert {time_ms: contents(history.at(time_ms)) for time_ms in live} == live


def test_old_intervals_are_removed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_CHECKPOINT_EVENTS", 10)
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table, bounds=Bounds(days=2))
    for number in range(100):
        shrink(table, number, at_ms=T0 + number * DAY_MS // 10)
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        first_ms, last_ms = history.span()
        assert 2 * DAY_MS <= last_ms - first_ms <= 4 * DAY_MS
        assert recorder.pruned >= 60
        assert len(history.events()) < 40
        assert history.partition("a", 0)[0].kind == "begin"
        assert contents(history.at(last_ms)) == contents(table)


def test_a_file_stays_below_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_CHECKPOINT_EVENTS", 300)
    table = table_of(*(partition(f"a-{index}") for index in range(50)))
    recorder = Recorder(tmp_path / "h.db", table, bounds=Bounds(bytes=200_000))
    for number in range(150):
        shrink(table, number, at_ms=T0 + number * 5_000, names=50)
    recorder.close()
    assert (tmp_path / "h.db").stat().st_size < 300_000
    assert recorder.pruned > 2_000
    with History.open(tmp_path / "h.db") as history:
        assert contents(history.at(history.span()[1])) == contents(table)


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    said: list[str] = []
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table, on_problem=said.append)
    # SQLite reports a full disk, too, if the file reaches its maximum of pages.
    (pages,) = recorder._connection.execute("PRAGMA page_count").fetchone()
    recorder._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    for number in range(300):
        shrink(table, number, at_ms=T0 + number * 2_000)
    assert said == [f"{tmp_path / 'h.db'}: the recording ended: database or disk is full"]
    assert recorder.problem == said[0]
    version = table.version
    shrink(table, 1, at_ms=T0 + 10**8)
    assert table.version == version + 1
    recorder.tick(T0 + 10**8)
    recorder.explain([])
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        assert history.events()


@pytest.mark.parametrize("place", ["none/h.db", ""])
def test_a_file_that_cannot_be_created_is_one_line(tmp_path: Path, place: str) -> None:
    with pytest.raises(HistoryError, match=r"No such file or directory|unable to open|Is a directory"):
        Recorder(tmp_path / place, ClusterTable())


def test_another_process_or_cluster_is_refused(tmp_path: Path) -> None:
    recorder = incident(tmp_path / "h.db")
    with pytest.raises(HistoryError, match="another process records into this file"):
        Recorder(tmp_path / "h.db", ClusterTable())
    recorder.close()
    other = table_of(partition("a-0"))
    other.apply(Delta(T0, cluster_id="other"))
    with pytest.raises(HistoryError, match="this is the history of cluster watched, but this cluster is other"):
        Recorder(tmp_path / "h.db", other)
    with History.open(tmp_path / "h.db") as history:
        assert (history.cluster_id, len(history.events())) == ("watched", 6)


def test_another_cluster_that_is_known_late_ends_the_recording(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close()
    said: list[str] = []
    table = ClusterTable()
    recorder = Recorder(tmp_path / "h.db", table, on_problem=said.append)
    other = look(partition("a-0"), at_ms=T0 + 5 * MINUTE)
    other.cluster_id = "other"
    assert table.apply(other) is not None
    assert (
        said
        == [f"{tmp_path / 'h.db'}: this is the history of cluster watched, but this cluster is other"]
        == [recorder.problem]
    )


def test_a_clock_that_goes_back_does_not_reorder_the_history(tmp_path: Path) -> None:
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    for number, at_ms in enumerate((T0 + 5_000, T0 + 3_000, T0 + 6_000)):
        shrink(table, number, at_ms=at_ms)
    live = contents(table)
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        assert [change.time_ms - T0 for change in history.events()] == [5_000, 5_000, 6_000]
        assert contents(history.at(T0 + 6_000)) == live


def test_a_bulk_event_gives_the_cause_to_each_of_its_partitions(tmp_path: Path) -> None:
    table = ClusterTable()
    recorder = Recorder(tmp_path / "h.db", table)
    before = [partition(name, topic_id=b"a" * 16) for name in ("a-0", "a-1", "a-2")]
    after = [partition(str(state.key), isr=(1, 2), topic_id=b"a" * 16) for state in before]
    table.apply(look(*before, at_ms=T0))
    told = []
    for was, state in zip(before, after, strict=True):
        event = explained(7, was, state, "broker 3 was fenced", at_ms=T0 + 50)
        event["topic_id"] = uuid_to_text(b"a" * 16)
        event["before"]["partition_epoch"], event["after"]["partition_epoch"] = 6, 7
        told.append(event)
    JournalEvents(table, None, T0).apply(packed(told))
    recorder.explain_events(packed(told))
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        causes = [(str(change.subject), change.cause) for change in history.events()]
    assert causes == [(name, "broker 3 was fenced") for name in ("a-0", "a-1", "a-2")]
