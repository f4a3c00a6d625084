"""Logs that Apache Kafka wrote, by both of the Spark source's parsers and by the slow reader."""

from __future__ import annotations

from tests.support import golden
from tests.support.spark_tables import decoded, expected, parsers, rows_of
from tests.support.twins import can_compile

from barnabas.records.batch import iter_headers

_LOGS = [(folder, log) for folder, text in golden.dumps() for log in golden.dumped_logs(text)]


def _data(folder: str, path: str) -> bytes:
    return golden.files()[f"{folder}/{path.partition('/')[2]}"]


def test_the_compiled_parser_runs_where_it_can_be_built() -> None:
    assert ("compiled" in parsers()) >= can_compile()


def test_recorded_logs_give_the_same_tables() -> None:
    rows, codecs, magics = 0, set(), set()
    for folder, log in _LOGS:
        data = _data(folder, log.path)
        codecs |= {header.codec for _, header in iter_headers(data)}
        magics |= {header.magic for _, header in iter_headers(data)}
        tables = [decoded(data, parser) for parser in parsers().values()]
        assert all(table.equals(tables[0]) for table in tables), f"{folder}: {log.path}"
        assert rows_of(tables[0]) == expected(data), f"{folder}: {log.path}"
        rows += len(tables[0])
    assert rows > 3_000
    assert codecs == {0, 1, 2, 3, 4}
    assert 2 in magics
