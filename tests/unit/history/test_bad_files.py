"""Files that are not histories, are newer, or were cut off: refused with one line, or opened as far as they go."""

from __future__ import annotations

import random
import sqlite3
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.support.histories import contents, incident
from tests.support.watched import T0, columns_of, partition, table_of

from barnabas.history.errors import HistoryError
from barnabas.history.id_columns import IdColumns, packed_columns, unpacked_columns
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.history.schema import COLUMNS
from barnabas.monitor.delta import Delta, Source
from barnabas.monitor.table import ClusterTable

PAGE = 4_096


def refused(file: Path, words: str) -> None:
    for action in (lambda: History.open(file), lambda: Recorder(file, ClusterTable())):
        with pytest.raises(HistoryError, match=words) as raised:
            action()
        assert "\n" not in str(raised.value)
    assert not file.with_name(f"{file.name}-lock").exists()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="there is no such file"):
        History.open(tmp_path / "none.db")


@pytest.mark.parametrize("content", [b"not a database", b"x" * 10_000, b"SQLite format 3\0" + b"\1" * 5_000])
def test_another_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "h.db").write_bytes(content)
    refused(tmp_path / "h.db", "not a history file|malformed|damaged")
    assert (tmp_path / "h.db").read_bytes() == content


def test_an_empty_file_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "h.db").touch()
    with pytest.raises(HistoryError, match="not a history file"):
        History.open(tmp_path / "h.db")


def test_another_database_is_one_line(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "h.db")
    connection.execute("CREATE TABLE moments(seq)")
    connection.commit()
    connection.close()
    refused(tmp_path / "h.db", "not a history file")


def test_a_newer_file_is_one_line(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close()
    connection = sqlite3.connect(tmp_path / "h.db")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    refused(tmp_path / "h.db", r"written by a later version \(schema 9; this one reads up to 1\)")


def recorded(file: Path) -> dict[int, object]:
    """Records 1,500 changes of 40 partitions. Returns the contents of the table by time, for some of them."""
    table = table_of(*(partition(f"topic-{index}") for index in range(40)))
    recorder = Recorder(file, table)
    draw = random.Random(5)
    live: dict[int, object] = {}
    for number in range(1_500):
        index = draw.randrange(40)
        isr = tuple(draw.sample((1, 2, 3), draw.randint(1, 3)))
        state = partition(f"topic-{index}", leader=isr[0], epoch=number + 1, isr=isr)
        columns = columns_of([state], is_complete=False)
        table.apply(Delta(T0 + number * 500, Source.METADATA_LOG, partitions=columns))
        if number % 100 == 0:
            live[T0 + number * 500] = contents(table)
    recorder.close()
    return live


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[int, object]]:
    file = tmp_path_factory.mktemp("long") / "h.db"
    live = recorded(file)
    return file.read_bytes(), live


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(
    tmp_path: Path, long_file: tuple[bytes, dict[int, object]]
) -> None:
    whole, live = long_file
    reached = []
    for part in (0.99, 0.9, 0.75, 0.5):
        file = tmp_path / f"{part}.db"
        file.write_bytes(whole[: int(len(whole) * part)])
        with History.open(file) as history:
            assert history.problem is not None
            assert history.problem.startswith("the file is cut off: it can be read until 2023-")
            last_ms = history.span()[1]
            reached.append(last_ms)
            for time_ms in (time_ms for time_ms in live if time_ms <= last_ms):
                assert contents(history.at(time_ms)) == live[time_ms]
            assert history.partition("topic", 0)
            assert history.events(limit=5, newest=True)
        with pytest.raises(HistoryError):
            Recorder(file, ClusterTable())
    assert reached == sorted(reached, reverse=True)
    assert reached[0] > T0 + 600_000, reached
    assert reached[-1] < T0 + 400_000, reached


@pytest.mark.parametrize("pages", [1, 2, 5])
def test_a_file_without_a_state_is_one_line(
    tmp_path: Path, pages: int, long_file: tuple[bytes, dict[int, object]]
) -> None:
    (tmp_path / "h.db").write_bytes(long_file[0][: pages * PAGE])
    refused(tmp_path / "h.db", "cut off|damaged|malformed")


def test_damaged_pages_are_one_line_or_a_part(tmp_path: Path, long_file: tuple[bytes, dict[int, object]]) -> None:
    """Overwrites pages at random: each file is a history, or refused with one line."""
    whole, live = long_file
    draw = random.Random(7)
    lines = []
    for _ in range(30):
        data = bytearray(whole)
        begin = draw.randrange(PAGE, len(data) - PAGE)
        data[begin : begin + 3_000] = draw.randbytes(3_000)
        (tmp_path / "damaged.db").write_bytes(data)
        try:
            with History.open(tmp_path / "damaged.db") as history:
                for time_ms in live:
                    history.at(time_ms)
                history.events()
                history.partition("topic", 3)
        except HistoryError as error:
            lines.append(str(error))
    assert lines
    assert not [line for line in lines if "\n" in line or "damaged.db" not in line]


# -- files that another one made


def made(tmp_path: Path, *statements: str) -> Path:
    """Returns a history in which somebody changed something."""
    file = tmp_path / "made.db"
    incident(file).close()
    connection = sqlite3.connect(file)
    for each in statements:
        connection.execute(each)
    connection.commit()
    connection.close()
    return file


def read_all(file: Path) -> None:
    with History.open(file) as history:
        history.at(history.span()[1])
        history.events()
        history.partition("a", 0)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, i, 'x' FROM n"


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE gaps", f"CREATE VIEW gaps(id, begin_ms, end_ms, reason) AS {ENDLESS}"),
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM events; END",),
    ],
    ids=["view", "trigger"],
)
def test_a_file_that_would_run_something_is_refused(tmp_path: Path, statements: tuple[str, ...]) -> None:
    refused(made(tmp_path, *statements), "it has views or triggers")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO partitions VALUES (2000000000, 0, 0)",
        "UPDATE partitions SET partition = 2000000000",
        "UPDATE partitions SET partition = -5",
        "UPDATE events SET partition = 2000000000",
        "UPDATE events SET partition = -5",
    ],
)
def test_a_number_that_needs_all_memory_is_one_line(tmp_path: Path, statement: str) -> None:
    file = made(tmp_path, statement)
    with pytest.raises(HistoryError, match=r"does not exist|damaged") as raised:
        read_all(file)
    assert "\n" not in str(raised.value)


def test_columns_that_need_all_memory_are_one_line(tmp_path: Path) -> None:
    bomb = zlib.compress(b"\0" * 50_000_000)
    heads = [struct.pack("<HIB", 12, 2_000_000_000, 4) + struct.pack("<Bq", 0, 1) * 12, struct.pack("<HIB", 1, 1, 4)]
    blobs = [heads[0] + zlib.compress(b""), heads[1] + struct.pack("<Bq", 1, 0) + bomb]
    for blob in blobs:
        with pytest.raises(HistoryError, match="columns are damaged"):
            unpacked_columns(blob)
    far = IdColumns(1)
    numbers = np.array([[2_000_000_000], *([[1]] * len(COLUMNS))], np.int32)
    with pytest.raises(HistoryError, match="damaged"):
        IdColumns.unpacked(packed_columns(numbers))
    with pytest.raises(HistoryError, match="damaged"):
        far.put(numbers[0], numbers[1:].T)
    assert len(far) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_columns_of_any_width_are_what_they_were(number: int) -> None:
    draw = np.random.default_rng(number)
    for count in (0, 1, 5, 1_000):
        columns = np.vstack(
            [np.full(count, 7), draw.integers(-100, 100, count), draw.integers(-(1 << 40), 1 << 40, count)]
        )
        assert np.array_equal(unpacked_columns(packed_columns(columns)), columns)
