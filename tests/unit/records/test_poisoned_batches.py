"""Batches with a right checksum and wrong contents: one table of the answers, by each of the walks."""

from __future__ import annotations

import contextlib
import gc

import pytest
from tests.support.poisoned import NOW_MS, PACKED, batch, forms, record
from tests.support.twins import walkers

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records import walk
from barnabas.records.append_rules import LoopBudget, RecordLimits, ValidationDeferred
from barnabas.records.batch import decode_batch, has_valid_crc, read_header
from barnabas.records.compression import Codec
from barnabas.records.deferred import DeferredValidation
from barnabas.records.validate import AppendRules, stamp, validate_for_append

FORMS = forms()
PARTITION = TopicPartition("orders", 3)


def rules(limits: RecordLimits | None = None, **config: object) -> AppendRules:
    return AppendRules(LogConfig(**config), PARTITION, limits or RecordLimits())  # type: ignore[arg-type]


@pytest.fixture(params=sorted(walkers()))
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(walk, "WALKER", walkers()[request.param])
    return str(request.param)


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, walker: str) -> None:
    form = FORMS[name]
    try:
        valid = validate_for_append(memoryview(bytearray(form.batch)), rules(), wall_ms=NOW_MS)
    except RecordsRejected as rejected:
        code = rejected.code
    else:
        code = ErrorCode.NONE
    assert code is form.ours
    if code is not ErrorCode.NONE:
        return
    header, stamped = stamp(valid, 100, 1)
    assert has_valid_crc(stamped, 0, read_header(stamped))
    made = decode_batch(stamped)
    assert [each.offset for each in made] == list(range(100, 100 + header.record_count))
    assert max(-1, *(each.timestamp for each in made)) == header.max_timestamp


def test_no_form_is_let_in_that_apache_kafka_refuses() -> None:
    assert len(FORMS) >= 55
    for name, form in FORMS.items():
        assert (form.ours is not ErrorCode.NONE) >= (form.kafka is not ErrorCode.NONE), name


def test_a_batch_has_at_most_so_many_records() -> None:
    limits = RecordLimits(batch_records_max=2)
    for count, codec in ((3, Codec.NONE), (3, Codec.GZIP), (1 << 30, Codec.ZSTD)):
        with pytest.raises(RecordsRejected, match=r"barnabas\.max\.batch\.records") as rejected:
            validate_for_append(batch(record(), count, codec=codec), rules(limits), wall_ms=NOW_MS)
        assert rejected.value.code is ErrorCode.MESSAGE_TOO_LARGE
    two = batch(record() + record(1), 2)
    assert validate_for_append(two, rules(limits), wall_ms=NOW_MS).header.record_count == 2


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_unpacks_to_at_most_so_many_bytes(codec: Codec) -> None:
    limits = RecordLimits(decompressed_bytes_max=10_000)
    within, beyond = (batch(record(value=bytes(size)), 1, codec=codec) for size in (9_900, 10_100))
    assert validate_for_append(within, rules(limits), wall_ms=NOW_MS).header.record_count == 1
    with pytest.raises(RecordsRejected, match=r"barnabas\.max\.decompressed\.batch\.bytes") as rejected:
        validate_for_append(beyond, rules(limits), wall_ms=NOW_MS)
    assert rejected.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_of_a_packed_batch_has_at_most_so_many_bytes() -> None:
    limits = RecordLimits(record_bytes_max=600)
    large, small = record(value=bytes(600)), record(value=bytes(500)) + record(1, value=bytes(500))
    with pytest.raises(RecordsRejected, match=r"max\.decompressed\.message\.bytes") as rejected:
        validate_for_append(batch(large, 1, codec=Codec.GZIP), rules(limits), wall_ms=NOW_MS)
    assert rejected.value.code is ErrorCode.INVALID_RECORD
    for taken in (batch(small, 2, codec=Codec.GZIP), batch(large, 1)):
        validate_for_append(taken, rules(limits), wall_ms=NOW_MS)


def test_more_records_than_the_bytes_can_hold_are_refused_before_they_are_looked_for() -> None:
    with pytest.raises(RecordsRejected, match="cannot be in"):
        validate_for_append(batch(record(), 900_000, codec=Codec.GZIP), rules(), wall_ms=NOW_MS)


def test_wrong_records_are_named_up_to_a_number() -> None:
    count = 4_000
    keyless = b"".join(record(place, key=None) for place in range(count))
    with pytest.raises(RecordsRejected) as rejected:
        validate_for_append(batch(keyless, count), rules(cleanup_policy=("compact",)), wall_ms=NOW_MS)
    assert [place for place, _ in rejected.value.record_errors] == list(range(1_000))
    assert "due to 4000 record errors in total" in rejected.value.message


# -- what the loop has time for


def deferred(data: bytes, given: AppendRules, budget: LoopBudget, wall_ms: int = NOW_MS) -> bool:
    try:
        validate_for_append(data, given, wall_ms=wall_ms, budget=budget)
    except ValidationDeferred as late:
        return late.rules is given
    return False


def bomb(codec: Codec, size: int = 8_000_000) -> bytes:
    return batch(record(value=bytes(size)), 1, codec=codec)


@pytest.mark.parametrize("codec", PACKED)
def test_a_decompression_bomb_is_checked_in_a_thread(codec: Codec) -> None:
    large = rules(max_message_bytes=10_000_000)
    data = bomb(codec)
    assert deferred(data, large, LoopBudget())
    beside = DeferredValidation(large, data, NOW_MS)
    beside.load()
    assert bytes(beside.result().batch) == data


def test_many_records_are_walked_over_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300_000
    data = batch(b"".join(record(place, key=None, value=None) for place in range(count)), count)
    large = rules(max_message_bytes=len(data))
    assert deferred(data, large, LoopBudget())
    beside = DeferredValidation(large, data, NOW_MS)
    beside.load()
    assert beside.result().header.record_count == count


def test_packing_anew_counts_as_work() -> None:
    plain = batch(record(value=bytes(300_000)), 1)
    assert not deferred(plain, rules(), LoopBudget())
    assert deferred(plain, rules(compression_type="gzip"), LoopBudget())


def test_the_loop_gives_so_much_time_in_ten_milliseconds() -> None:
    """The batches are as many small bombs as can arrive in one turn: the first ones use up the budget."""
    budget, data = LoopBudget(), bomb(Codec.LZ4, 900_000)
    verdicts = [deferred(data, rules(), budget) for _ in range(20)]
    assert 0 < verdicts.count(False) <= 8
    assert verdicts == sorted(verdicts), "once used up, it stays so"
    assert not deferred(data, rules(), budget, NOW_MS + 10)
    assert not deferred(data, rules(), budget, NOW_MS - 100_000), "the clock went back"


def test_what_was_found_too_large_is_not_tried_again_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    given, data = rules(), bomb(Codec.ZSTD)
    assert deferred(data, given, LoopBudget())

    def never(*_: object) -> bytes:
        raise AssertionError("it was unpacked")

    monkeypatch.setattr("barnabas.records.record_check.unpack", never)
    assert deferred(data, given, LoopBudget())


def test_a_refusal_found_in_a_thread_is_the_same() -> None:
    given = rules()
    beside = DeferredValidation(given, FORMS["junk as zstd"].batch, NOW_MS)
    beside.load()
    with pytest.raises(RecordsRejected) as rejected:
        beside.result()
    assert rejected.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_refusal_found_in_a_thread_leaves_nothing_to_the_collector() -> None:
    """The decompressed batch of 8 MB would wait for a garbage collection, and be freed in a turn of the loop."""

    def refused() -> None:
        validation = DeferredValidation(rules(), bomb(Codec.ZSTD)[:-20] + bytes(20), NOW_MS)
        validation.load()
        with contextlib.suppress(RecordsRejected):
            validation.result()

    def left() -> int:
        return sum(isinstance(one, DeferredValidation) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        refused()
        assert left() == before
    finally:
        gc.enable()
