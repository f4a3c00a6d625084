"""Keys and values of `__consumer_offsets` decoded by hand equal those decoded by the schema; broken ones are
refused.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import DecodeError
from barnabas.coordinators.groups.group_records import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetKey,
    offset_record,
    parse_key,
    parse_offset,
    parse_plain_offset,
)
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.records_group import OffsetCommitKey, OffsetCommitValue

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
NAME = st.text(st.characters(codec="utf-8"), max_size=40)
OFFSETS = st.builds(
    CommittedOffset, LONG, INT, st.one_of(NAME, NAME.map(lambda text: text * 20)), LONG, st.just(NO_EXPIRY)
)


@given(NAME, NAME, INT, OFFSETS)
def test_what_is_written_is_read_as_the_schema_reads_it(
    group: str, topic: str, index: int, committed: CommittedOffset
) -> None:
    key, value = offset_record(group, topic, index, committed)
    assert value is not None
    assert parse_key(key) == OffsetKey(group, topic, index)
    assert parse_offset(value) == committed
    if len(committed.metadata.encode()) < 127:
        assert parse_plain_offset(key, value) == (OffsetKey(group, topic, index), committed)
    by_schema, _ = decode(OffsetCommitKey, 0, key, 2)
    assert (by_schema.group, by_schema.topic, by_schema.partition) == (group, topic, index)
    body, _ = decode(OffsetCommitValue, 4, value, 2)
    assert (body.offset, body.leader_epoch, body.metadata, body.commit_timestamp) == committed[:4]


@given(OFFSETS, st.data())
def test_a_flipped_or_cut_record_is_read_as_the_schema_reads_it_or_refused(
    committed: CommittedOffset, data: st.DataObject
) -> None:
    key, value = offset_record("group", "topic", 3, committed)
    assert value is not None
    for whole in (key, value):
        broken = bytearray(whole[: data.draw(st.integers(3, len(whole)))])
        broken[data.draw(st.integers(2, len(broken) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        is_key = whole is key
        _check_plain(bytes(broken), value) if is_key else _check_plain(key, bytes(broken))
        expected = _by_schema(bytes(broken), is_key)
        if expected is None:
            with pytest.raises(DecodeError):
                parse_key(bytes(broken)) if is_key else parse_offset(bytes(broken))
        elif is_key:
            assert parse_key(bytes(broken)) == expected
        else:
            assert parse_offset(bytes(broken)) == expected


def _check_plain(key: bytes, value: bytes) -> None:
    """Checks that decoding by hand equals decoding by the schema; it can refuse some input that the schema accepts."""
    plain = parse_plain_offset(key, value)
    assert plain is None or plain == (_by_schema(key, True), _by_schema(value, False))


def _by_schema(data: bytes, is_key: bool) -> tuple[object, ...] | None:
    """Returns the decoded message, or None if the schema refuses it."""
    try:
        if is_key:
            key, _ = decode(OffsetCommitKey, 0, data, 2)
            return OffsetKey(key.group, key.topic, key.partition)
        body, _ = decode(OffsetCommitValue, 4, data, 2)
    except DecodeError:
        return None
    return CommittedOffset(body.offset, body.leader_epoch, body.metadata, body.commit_timestamp, body.expire_timestamp)
