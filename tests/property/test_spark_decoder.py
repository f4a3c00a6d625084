"""The Spark source's decoder with random input: both parsers return what the slow reader of records returns, and both
refuse the same bytes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.batches import NOW_MS, records, simple_batch, with_right_crc
from tests.support.spark_tables import decoded, expected, parsers, rows_of

from barnabas.common.errors import RecordsRejected
from barnabas.records.batch import Record, encode_batch, encode_end_txn_marker, set_max_timestamp
from barnabas.records.header import LOG_APPEND_TIME
from barnabas.spark.batch_selection import Aborted

#: Drawing a log takes a while on a busy machine.
patient = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
each_parser = pytest.mark.parametrize("name", parsers())


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Draws batches of any codec with gaps between and inside them, some with the log append time, some control
    batches.
    """
    log, offset = bytearray(), draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 4))):
        offset += draw(st.integers(0, 3))
        if draw(st.integers(0, 7)) == 0:
            batch = encode_end_txn_marker(
                commit=draw(st.booleans()), coordinator_epoch=1, timestamp=NOW_MS, producer_id=7, producer_epoch=0
            )
            count = 1
        else:
            made = draw(records(5))
            count = len(made)
            batch = encode_batch(made, codec=draw(st.integers(0, 4)), transactional=draw(st.booleans()), producer_id=9)
            if draw(st.booleans()):
                set_max_timestamp(batch, 0, NOW_MS + 5, LOG_APPEND_TIME)
        batch[0:8] = offset.to_bytes(8, "big")
        log += batch
        offset += count
    return bytes(log)


@each_parser
@patient
@given(data=logs(), cut=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_a_table_holds_what_the_log_holds(name: str, data: bytes, cut: tuple[int, int]) -> None:
    base = int.from_bytes(data[:8], "big")
    first, end = base + cut[0] - 2, base + cut[1]
    assert rows_of(decoded(data, parsers()[name])) == expected(data)
    table = decoded(data, parsers()[name], first=max(0, first), end=end)
    assert rows_of(table) == expected(data, first=max(0, first), end=end)


@each_parser
@patient
@given(made=records(timestamps=st.integers(-(1 << 53), 1 << 53)))
def test_timestamps_far_apart(name: str, made: list[Record]) -> None:
    data = bytes(encode_batch(made))
    assert rows_of(decoded(data, parsers()[name])) == expected(data)


@patient
@given(
    data=logs(),
    place=st.floats(0, 1, exclude_max=True),
    change=st.binary(min_size=1, max_size=6),
)
def test_both_parsers_refuse_the_same_bytes(data: bytes, place: float, change: bytes) -> None:
    """A liar whose checksum fits. What is read, is read alike."""
    end = int.from_bytes(data[8:12], "big") + 12
    batch = bytearray(data[:end])
    at = 57 + int(place * (end - 57))
    batch[at : at + len(change)] = change[: end - at]
    liar = bytes(with_right_crc(batch))
    outcomes: list[Any] = []
    for parser in parsers().values():
        try:
            outcomes.append(rows_of(decoded(liar, parser)))
        except RecordsRejected as refused:
            outcomes.append(refused.code.name)
    assert all(outcome == outcomes[0] for outcome in outcomes)


@each_parser
@patient
@given(data=logs(), size=st.floats(0, 1))
def test_an_answer_may_end_anywhere(name: str, data: bytes, size: float) -> None:
    piece = data[: int(size * len(data))]
    assert rows_of(decoded(piece, parsers()[name])) == expected(piece)


@each_parser
def test_aborted_transactions_are_left_out(name: str) -> None:
    def batch(offset: int, producer: int, transactional: bool = True) -> bytes:
        return bytes(
            encode_batch(
                [Record(0, NOW_MS, None, b"%d" % producer), Record(1, NOW_MS, None, b"b")],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                transactional=transactional,
            )
        )

    def marker(offset: int, producer: int, commit: bool) -> bytes:
        made = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=NOW_MS, producer_id=producer, producer_epoch=0
        )
        made[0:8] = offset.to_bytes(8, "big")
        return bytes(made)

    log = b"".join(
        [
            batch(0, 1),
            batch(2, 2),
            marker(4, 1, False),
            batch(5, 1),
            marker(7, 2, True),
            marker(8, 1, True),
            batch(9, 1),
            batch(11, 3, transactional=False),
            marker(13, 1, False),
            batch(14, 1),
        ]
    )
    aborted = [Aborted(producer_id=1, first_offset=0), Aborted(producer_id=1, first_offset=9)]
    table = decoded(log, parsers()[name], aborted=aborted)
    assert table["offset"].to_pylist() == [2, 3, 5, 6, 11, 12, 14, 15]
    # A fetch that begins inside the second aborted transaction.
    table = decoded(log, parsers()[name], first=10, aborted=aborted[1:])
    assert table["offset"].to_pylist() == [11, 12, 14, 15]
    assert len(decoded(log, parsers()[name])) == 12


@each_parser
@pytest.mark.parametrize("codec", range(5))
def test_columns_come_as_asked(name: str, codec: int) -> None:
    data = bytes(simple_batch(300, codec=codec)) + bytes(simple_batch(300, codec=0, base_offset=300))
    table = decoded(data, parsers()[name], columns=("offset", "value"))
    assert table.column_names == ["offset", "value"]
    assert table["offset"].to_pylist() == list(range(600))
    assert table["value"][299].as_py() == b"value-299"


def test_a_wrong_checksum_is_refused() -> None:
    data = simple_batch(3)
    data[-1] ^= 1
    for parser in parsers().values():
        with pytest.raises(RecordsRejected, match="checksum"):
            decoded(bytes(data), parser)
