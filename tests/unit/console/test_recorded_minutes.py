"""The minutes of a history file in which partitions were under min ISR or offline, whether anything changed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of
from tests.support.histories import MINUTE, incident
from tests.support.watched import T0, look, partition, table_of

from barnabas.console.occurrences import Occurrences
from barnabas.console.past import PastReader
from barnabas.console.recorded_minutes import RecordedMinutes
from barnabas.console.security.scope import EVERYTHING, Patterns, Scope
from barnabas.console.state import ConsoleOptions
from barnabas.console.troubled_minutes import minute_of
from barnabas.history.past_table import PastTable
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom import PhantomCluster

WELL, SHRUNK = partition("orders-0"), partition("orders-0", isr=(1,))
OTHER_SHRUNK = partition("secret-0", isr=(2,))
#: The first minute of a file.
FIRST = minute_of(T0)


def troubled(minutes: RecordedMinutes, *, only: str = "") -> dict[int, int]:
    found = minutes.troubled(0, lambda topic: only in topic)
    return {(minute - FIRST) // MINUTE: partitions for minute, partitions in found.items()}


def read(path: Path, until_ms: int | None = None) -> RecordedMinutes:
    minutes = RecordedMinutes(until_ms)
    with History.open(path) as history:
        minutes.read(history)
    return minutes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provides a file whose partitions are in trouble from the third minute to its end, five minutes later."""
    path = tmp_path / "history.db"
    table = table_of(WELL, partition("secret-0"))
    recorder = Recorder(path, table)
    table.apply(look(SHRUNK, partition("secret-0"), at_ms=T0 + 2 * MINUTE))
    table.apply(look(SHRUNK, OTHER_SHRUNK, at_ms=T0 + 4 * MINUTE))
    recorder.close(T0 + 7 * MINUTE)
    return path


def test_partitions_that_remain_in_trouble_count_in_every_minute_to_the_end(file: Path) -> None:
    minutes = read(file)
    assert troubled(minutes) == {2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2}
    assert troubled(minutes, only="secret") == {4: 1, 5: 1, 6: 1, 7: 1}
    assert set(minutes.moments(0)) == {FIRST, FIRST + 2 * MINUTE, FIRST + 4 * MINUTE}
    assert set(minutes.moments(FIRST + 3 * MINUTE)) == {FIRST + 4 * MINUTE}


def test_a_broker_that_dies_and_returns_is_the_trouble_of_its_minutes(tmp_path: Path) -> None:
    incident(tmp_path / "history.db").close(T0 + 5 * MINUTE)
    assert troubled(read(tmp_path / "history.db")) == {1: 1, 2: 1}


def test_only_the_minutes_before_a_time_are_read(file: Path) -> None:
    assert troubled(read(file, T0 + 3 * MINUTE)) == {2: 1, 3: 1}
    assert troubled(read(file, T0 - MINUTE)) == {}


def test_nothing_is_said_about_the_minutes_of_a_gap(file: Path) -> None:
    table = ClusterTable()
    table.apply(look(SHRUNK, OTHER_SHRUNK, at_ms=T0 + 12 * MINUTE))
    recorder = Recorder(file, table)
    recorder.note_gap(T0 + 2 * MINUTE + 500, T0 + 3 * MINUTE + 500, "for a test")
    recorder.close(T0 + 13 * MINUTE)
    found = troubled(read(file))
    assert {minute: found.get(minute) for minute in (2, 3, 4, 7)} == {2: 1, 3: None, 4: 2, 7: 2}
    assert not {8, 9, 10, 11} & set(found), "nothing was recorded"


def test_a_long_file_is_read_in_parts_the_newest_minutes_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr("barnabas.console.recorded_minutes.time.monotonic", lambda: clock_s[0])
    at = History.at

    def slow(history: History, when: int) -> PastTable:
        clock_s[0] += 1.0
        return at(history, when)

    monkeypatch.setattr(History, "at", slow)
    minutes, found = RecordedMinutes(), []
    with History.open(file) as history:
        for _ in range(4):
            minutes.read(history)
            found.append(troubled(minutes))
            minutes.read(history)
            assert troubled(minutes) == found[-1], "there is a pause between two parts"
            clock_s[0] += 1.0
    newest = {4: 2, 5: 2, 6: 2, 7: 2}
    assert found == [newest, newest | {2: 1, 3: 1}, newest | {2: 1, 3: 1}, newest | {2: 1, 3: 1}]


def test_a_minute_has_the_trouble_of_its_beginning(tmp_path: Path) -> None:
    table = table_of(SHRUNK)
    recorder = Recorder(tmp_path / "history.db", table)
    table.apply(look(WELL, at_ms=FIRST + 3 * MINUTE + 30_000))
    recorder.close(FIRST + 5 * MINUTE)
    assert troubled(read(tmp_path / "history.db")) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_patterns_hide_the_minutes_of_other_topics(file: Path) -> None:
    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        past = PastReader(file, "shop", "boot")
        shop = Scope.of((Patterns(topics=("orders*",)),))
        try:
            of_all = await past.about(Occurrences(), 0, EVERYTHING)
            return of_all, await past.about(Occurrences(), FIRST + 4 * MINUTE, shop)
        finally:
            await past.close()

    of_all, of_shop = asyncio.run(main())
    assert [partitions for _, _, partitions in of_all["minutes"]] == [0, 1, 1, 2, 2, 2, 2]
    assert of_shop["minutes"] == [[FIRST + each * MINUTE, 0, 1] for each in range(4, 8)]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[RunningConsole]:
    """Provides a console that continues the history of an earlier one, which ended in trouble."""
    with PhantomCluster(topics=3, partitions=2, journal=True) as phantom:
        options = ConsoleOptions(interval_s=0.1, budget_share=1.0, history=tmp_path / "history.db")
        with RunningConsole([target_of(phantom)], options) as first:
            first.filled()
            for broker in (1, 2):
                phantom.change(methodcaller("shrink_isr", "topic-00001", 0, broker))
            first.until(lambda: any(row[2] for row in first.get("history")["minutes"]), "it is in trouble")
        for broker in (1, 2):
            phantom.change(methodcaller("expand_isr", "topic-00001", 0, broker))
        with RunningConsole([target_of(phantom)], options) as second:
            second.filled()
            yield second


def test_a_console_knows_the_trouble_that_an_earlier_one_recorded(console: RunningConsole) -> None:
    assert console.get("timeline")["minutes"] == [] or not any(row[2] for row in console.get("timeline")["minutes"])
    assert any(partitions for _, _, partitions in console.get("history")["minutes"])
    assert console.get("history", **{"from": 4_000_000_000_000})["minutes"] == []
