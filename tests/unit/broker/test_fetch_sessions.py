"""Incremental fetch sessions (KIP-227): ids, epochs, eviction, and the partitions that an incremental answer omits."""

from __future__ import annotations

from tests.support.finished import finished

from barnabas.broker.fetching.fetch_sessions import Session, SessionCache, next_epoch, update_item
from barnabas.common.errors import ErrorCode
from barnabas.replication.fetch_items import FetchItem, FetchResult, Reader
from barnabas.replication.partition import Isolation
from barnabas.simulation.host import SeededRandom


def result(high_watermark: int = 5, data: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> FetchResult:
    made = FetchResult(error)
    made.high_watermark, made.log_start_offset, made.data = high_watermark, 0, data
    return made


def session_of(*indexes: int) -> Session:
    session = Session(1, False, 0)
    for index in indexes:
        session.keep(FetchItem("orders", b"", index))
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
    session.changed(list(session.active), [result(data=b"x"), result(), result()])
    assert [item.index for item in session.active] == [1, 2, 0]


def begin(cache: SessionCache, now_ms: int, *, size: int = 1, is_follower: bool = False) -> int:
    told = [(FetchItem("orders", b"", index), result()) for index in range(size)]
    reader = Reader(Isolation.LOG_END, 2) if is_follower else Reader(Isolation.READ_UNCOMMITTED)
    return finished(cache.begin(told, uses_topic_ids=False, now_ms=now_ms, reader=reader))


def test_a_request_must_carry_the_epoch_that_is_due() -> None:
    cache = SessionCache(10, SeededRandom(1), finished)
    session_id = begin(cache, 0)
    assert session_id > 0
    assert cache.find(session_id, 2, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session_id, 1, True, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session = cache.find(session_id, 1, False, 0)
    assert isinstance(session, Session)
    assert cache.find(session_id, 1, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session_id, 2, False, 0) is session
    assert cache.find(12345, 1, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_wraps_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 0x7FFFFFFE, 0x7FFFFFFF)] == [1, 2, 0x7FFFFFFF, 1]


def test_a_full_cache_evicts_what_was_idle_for_long() -> None:
    cache = SessionCache(2, SeededRandom(1), finished)
    old, young = begin(cache, 0), begin(cache, 50_000)
    assert begin(cache, 120_000) == 0
    assert begin(cache, 120_001) > 0
    assert cache.find(old, 1, False, 120_001) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(cache.find(young, 1, False, 120_001), Session)
    assert len(cache) == 2
    assert cache.evictions == 1


def test_a_larger_session_takes_the_slot_of_a_smaller_one_that_had_its_time() -> None:
    cache = SessionCache(2, SeededRandom(1), finished)
    small, large = begin(cache, 0, size=2), begin(cache, 0, size=9)
    for session_id in (small, large):
        assert isinstance(cache.find(session_id, 1, False, 110_000), Session)
    assert begin(cache, 119_000, size=5) == 0, "both are young"
    assert begin(cache, 121_000, size=1) == 0, "none is smaller"
    assert begin(cache, 122_000, size=5) > 0
    assert cache.find(small, 2, False, 122_000) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(cache.find(large, 2, False, 122_000), Session)


def test_a_followers_session_takes_a_consumers_slot_at_once_and_is_not_taken() -> None:
    cache = SessionCache(1, SeededRandom(1), finished)
    consumer = begin(cache, 0, size=50)
    follower = begin(cache, 1_000, size=1, is_follower=True)
    assert follower > 0
    assert cache.find(consumer, 1, False, 1_000) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for now_ms in range(10_000, 200_000, 10_000):
        assert isinstance(cache.find(follower, now_ms // 10_000, False, now_ms), Session)
    assert begin(cache, 200_000, size=50) == 0


class RequestedPartition:
    partition, last_fetched_epoch, log_start_offset, partition_max_bytes = 0, -1, 0, 1

    def __init__(self, epoch: int, offset: int) -> None:
        self.current_leader_epoch, self.fetch_offset = epoch, offset


def test_a_follower_in_another_epoch_or_truncated_is_answered_again() -> None:
    """The follower has dropped the pending answer; nothing has to have changed since."""
    session = session_of(0)
    item = session.items["orders", 0]
    for requested, expected in [
        (RequestedPartition(1, 10), [0]),
        (RequestedPartition(1, 10), []),
        (RequestedPartition(1, 12), []),
        (RequestedPartition(2, 12), [0]),
        (RequestedPartition(2, 12), []),
        (RequestedPartition(2, 11), [0]),
    ]:
        update_item(item, requested)
        assert told(session, [result()]) == expected


def test_the_hw_next_to_a_diverging_epoch_is_sent_again() -> None:
    """The follower cut off an epoch without records, asks from the same offset, and has not heard the HW."""
    session = session_of(0)
    parted = result()
    parted.diverging = (0, 34)
    assert told(session, [parted]) == [0]
    assert told(session, [result()]) == [0]
    assert told(session, [result()]) == []


def test_a_large_session_begins_and_ends_in_steps() -> None:
    """A session of 50,000 partitions began in one turn of 110 ms, and was forgotten in one of 65 ms."""
    cache_of: list[int] = []
    cache = SessionCache(1, SeededRandom(1), lambda work: cache_of.append(len(list(work))))
    told = [(FetchItem("orders", b"", index), result()) for index in range(1_000)]
    assert len(list(cache.begin(told, uses_topic_ids=False, now_ms=0))) == 9
    (session,) = cache._sessions.values()
    assert len(session.items) == 1_000
    cache.remove(session.session_id)
    assert cache_of == [10]
    assert all(item.session is None for item, _ in told)
