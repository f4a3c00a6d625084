"""Incremental fetch sessions (KIP-227): ids, epochs, eviction, and what an incremental answer leaves out."""

from __future__ import annotations

from barnabas.broker.fetch_sessions import Session, SessionCache
from barnabas.common.errors import ErrorCode
from barnabas.replication.fetching import FetchItem, FetchResult
from barnabas.simulation.host import SeededRandom


def result(high_watermark: int = 5, data: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> FetchResult:
    made = FetchResult(error)
    made.high_watermark, made.log_start_offset, made.data = high_watermark, 0, data
    return made


def session_of(*indexes: int) -> Session:
    session = Session(1, False, 0)
    session.items = {("orders", index): FetchItem("orders", b"", index) for index in indexes}
    return session


def told(session: Session, results: list[FetchResult]) -> list[int]:
    return [item.index for item, _ in session.changed(list(session.items.values()), results)]


def test_an_incremental_answer_says_only_what_changed() -> None:
    session = session_of(0, 1)
    assert told(session, [result(), result()]) == [0, 1]
    assert told(session, [result(), result()]) == []
    assert told(session, [result(high_watermark=6), result()]) == [0]
    assert told(session, [result(high_watermark=6), result(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)]) == [1]
    assert told(session, [result(high_watermark=6), result()]) == [1], "an error that went away is a change"


def test_partitions_with_data_go_behind_the_others() -> None:
    session = session_of(0, 1, 2)
    session.changed(list(session.items.values()), [result(data=b"x"), result(), result()])
    assert [item.index for item in session.items.values()] == [1, 2, 0]


def test_a_request_must_carry_the_epoch_that_is_due() -> None:
    cache = SessionCache(10, SeededRandom(1))
    session = cache.create(False, 0)
    assert session is not None
    assert session.session_id > 0
    assert cache.find(session.session_id, 2, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session.session_id, 1, True, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.find(session.session_id, 1, False, 0) is session
    assert cache.find(session.session_id, 1, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session.session_id, 2, False, 0) is session
    assert cache.find(12345, 1, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_wraps_to_one() -> None:
    session = Session(1, False, 0)
    session.epoch = 0x7FFFFFFF
    session.advance()
    assert session.epoch == 1


def test_a_full_cache_evicts_only_what_was_idle_for_long() -> None:
    cache = SessionCache(2, SeededRandom(1))
    old, young = cache.create(False, 0), cache.create(False, 50_000)
    assert old is not None
    assert young is not None
    assert cache.create(False, 60_000) is None
    third = cache.create(False, 120_000)
    assert third is not None
    assert cache.find(old.session_id, 1, False, 120_000) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.find(young.session_id, 1, False, 120_000) is young
    assert len(cache) == 2
    assert cache.evictions == 1
