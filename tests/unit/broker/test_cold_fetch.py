"""Fetches of data outside the page cache: right answers whatever happens meanwhile, and no other request waits for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.support.cold import HeldWork, always, at_times, make_cold
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce, values_of

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.replication.partition import Partition

VALUES = [b"value-%d" % place * 10 for place in range(12)]


@pytest.fixture
def wired() -> WiredBroker:
    """`orders` has two partitions with a dozen batches each, in several segments, all of it cold."""
    wired = WiredBroker()
    wired.create_topic("orders", 2)
    client = wired.connect()
    for index in (0, 1):
        for place, value in enumerate(VALUES):
            produce(wired, client, batch_of(value), index=index)
            if place % 4 == 3:
                partition(wired, index).log.roll()
        partition(wired, index).log.segments.release()
    wired.host.time.run_for(1000)
    make_cold(wired.host.disk)
    return wired


@pytest.fixture
def held(wired: WiredBroker) -> HeldWork:
    held = HeldWork()
    wired.broker.replicas.cold_reads._blocking = held  # type: ignore[assignment]
    return held


def partition(wired: WiredBroker, index: int = 0) -> Partition:
    return wired.broker.replicas.leader("orders", index)


def fetch_both(wired: WiredBroker, *offsets: int, max_bytes: int = 1 << 20, **options: int) -> FetchRequest:
    request = fetch_request(wired, 0, 12, **options)
    request.max_bytes = max_bytes
    request.topics[0].partitions = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in enumerate(offsets)
    ]
    return request


def rows_of(message: Message) -> list[FetchResponse.PartitionData]:
    assert isinstance(message, FetchResponse)
    return [row for topic in message.responses for row in topic.partitions]


def row_of(answers: Iterable[tuple[int, Message]]) -> FetchResponse.PartitionData:
    ((_, response),) = answers
    (row,) = rows_of(response)
    return row


def answered(client: WiredClient, held: HeldWork) -> list[tuple[int, Message]]:
    assert client.received() == [], "answered before it was loaded"
    assert held.finish() > 0
    return client.received()


def rest(wired: WiredBroker) -> tuple[int, int, int]:
    """Returns what is left of fetches: reads in the queue, deadlines, watchers."""
    replicas = wired.broker.replicas
    return len(replicas.cold_reads), len(replicas.purgatory), sum(len(p._watchers) for p in replicas.partitions())


def test_cold_records_are_those_that_were_written(wired: WiredBroker) -> None:
    client, offset, values = wired.connect(), 0, []
    while offset < len(VALUES):
        response = client.call(fetch_request(wired, offset, 12), 12, FetchResponse)
        values += (found := values_of(response))
        offset += len(found)
    assert values == VALUES
    assert wired.broker.replicas.cold_reads.count > 0
    assert rest(wired) == (0, 0, 0)


def test_others_are_answered_meanwhile(wired: WiredBroker, held: HeldWork) -> None:
    reader, other = wired.connect(), wired.connect()
    reader.send(fetch_request(wired, 0, 12), 12)
    assert produce(wired, other, batch_of(b"more")) == (0, len(VALUES))
    assert other.call(MetadataRequest(topics=None), 9, MetadataResponse).topics
    assert values_of_one(answered(reader, held)) == VALUES[:4]


def values_of_one(answers: Iterable[tuple[int, Message]]) -> list[bytes | None]:
    ((_, response),) = answers
    assert isinstance(response, FetchResponse)
    return values_of(response)


def test_answers_keep_the_order_of_their_requests(wired: WiredBroker, held: HeldWork) -> None:
    client = wired.connect()
    sent = [
        client.send(fetch_request(wired, 0, 12), 12),
        client.send(MetadataRequest(topics=None), 9),
        client.send(fetch_request(wired, 4, 12), 12),
        client.send(MetadataRequest(topics=None), 9),
    ]
    assert (len(held), client.link.reading) == (1, False), "one request of a connection at a time"
    answers = []
    for _ in range(10):
        held.finish()
        wired.host.time.run_for(1)
        answers += client.received()
    assert [correlation_id for correlation_id, _ in answers] == sent
    assert [values_of(m) for _, m in answers if isinstance(m, FetchResponse)] == [VALUES[:4], VALUES[4:8]]
    assert client.link.reading


def test_few_reads_run_at_a_time(wired: WiredBroker, held: HeldWork) -> None:
    clients = [wired.connect() for _ in range(20)]
    for client in clients:
        client.send(fetch_both(wired, 0, 0), 12)
    assert len(held) <= 3
    assert len(wired.broker.replicas.cold_reads) == 20
    while len(held):
        held.perform()
        held.report()
        assert len(held) <= 3
    for client in clients:
        ((_, response),) = client.received()
        assert [len(row.records or b"") > 0 for row in rows_of(response)] == [True, True]
    assert rest(wired) == (0, 0, 0)


def test_a_connection_that_ends_meanwhile_leaves_nothing(wired: WiredBroker, held: HeldWork) -> None:
    clients = [wired.connect() for _ in range(10)]
    for client in clients:
        client.send(fetch_both(wired, 0, 0), 12)
    for client in clients:
        client.core.closed()
    held.finish()
    assert rest(wired) == (0, 0, 0)
    assert wired.broker.replicas.cold_reads.count <= 3, "what nobody waits for is not read"
    assert wired.closes.errors == []


# -- what may happen meanwhile


def lose_leadership(wired: WiredBroker) -> None:
    image = partition(wired).image
    assert image is not None
    partition(wired).become_follower(image._replace(leader=2))


def cut_and_write_anew(wired: WiredBroker) -> None:
    log = partition(wired).log
    log.truncate_to(0)
    for _ in VALUES:
        log.append_as_leader(bytearray(batch_of(b"new")), 0, wall_ms=1_735_689_600_000)


def delete_records(wired: WiredBroker) -> None:
    partition(wired).delete_records_before(8)


def compact(wired: WiredBroker) -> None:
    log = partition(wired).log
    first = log.segments[0]
    first.release()
    wired.host.disk.write(first.log_path, batch_of(*VALUES[:4]))
    wired.host.disk.write(first.index.path, b"")
    log.segments.replace([first])


def delete_topic(wired: WiredBroker) -> None:
    wired.delete_topic("orders")


def delete_and_create_topic(wired: WiredBroker) -> None:
    wired.delete_topic("orders")
    wired.create_topic("orders", 2)
    produce(wired, wired.connect(), batch_of(b"reborn"))


NEW = [b"new"] * len(VALUES)


@pytest.mark.parametrize("loaded_first", [False, True])
@pytest.mark.parametrize(
    ("event", "version", "code", "values"),
    [
        (lose_leadership, 10, ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
        (lose_leadership, 12, ErrorCode.NONE, VALUES[:4]),
        (cut_and_write_anew, 12, ErrorCode.NONE, NEW),
        (delete_records, 12, ErrorCode.OFFSET_OUT_OF_RANGE, []),
        (compact, 12, ErrorCode.NONE, VALUES[:4]),
        (delete_topic, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (delete_topic, 13, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (delete_and_create_topic, 12, ErrorCode.NONE, [b"reborn"]),
        (delete_and_create_topic, 13, ErrorCode.INCONSISTENT_TOPIC_ID, []),
    ],
)
def test_what_happens_meanwhile_counts(
    wired: WiredBroker,
    held: HeldWork,
    event: Callable[[WiredBroker], None],
    version: int,
    code: ErrorCode,
    values: list[bytes],
    loaded_first: bool,
) -> None:
    client = wired.connect()
    client.send(fetch_request(wired, 0, version), version)
    if loaded_first:
        held.perform()
    event(wired)
    answers = answered(client, held)
    row = row_of(answers)
    assert row.error_code == code
    assert values_of_one(answers)[: len(values)] == values
    assert bool(row.records) == bool(values)
    assert rest(wired) == (0, 0, 0)
    assert wired.closes.errors == []
    wired.host.time.run_for(200_000)
    assert not [name for name in wired.host.disk.list_dir("/data") if name.endswith("-delete")]


def test_a_disk_that_fails_takes_its_partitions_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    wired = WiredBroker(log_dirs="/data,/more")
    wired.create_topic("orders", 2)
    client = wired.connect()
    # The other directory holds the metadata log.
    (failing,) = (index for index in (0, 1) if partition(wired, index).log.directory.startswith("/more/"))
    produce(wired, client, batch_of(b"x"), index=failing)
    partition(wired, failing).log.segments.release()
    make_cold(wired.host.disk)
    wired.broker.replicas.cold_reads._blocking = held = HeldWork()  # type: ignore[assignment]
    request = fetch_request(wired, 0, 12)
    request.topics[0].partitions[0].partition = failing
    client.send(request, 12)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(wired.host.disk, "open", fail)
        held.perform()
    assert row_of(answered(client, held)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(wired, client, batch_of(b"x"), index=failing)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(wired, client, batch_of(b"x"), index=1 - failing)[0] == ErrorCode.NONE


def test_a_log_that_never_holds_still_is_answered(wired: WiredBroker, held: HeldWork) -> None:
    client = wired.connect()
    client.send(fetch_request(wired, 0, 12), 12)
    for _ in range(5):
        assert client.received() == []
        held.perform()
        partition(wired).log.segments[0].version += 1
        held.report()
    assert row_of(client.received()).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert rest(wired) == (0, 0, 0)


# -- several partitions, sessions, deadlines


def test_what_was_read_before_is_not_lost(wired: WiredBroker, held: HeldWork) -> None:
    looks: list[int] = []
    wired.host.disk.is_cold = lambda offset, size: looks.append(size) is not None  # type: ignore[func-returns-value]
    client = wired.connect()
    hot = values_of(client.call(fetch_both(wired, 0), 12, FetchResponse))
    partition(wired).log.segments.release()
    # The first partition's data is cached, the second one's is not.
    wired.host.disk.is_cold = lambda offset, size: not looks or looks.pop() < 0
    client.send(fetch_both(wired, 0, 4), 12)
    ((_, response),) = answered(client, held)
    first, second = rows_of(response)
    assert values_of(response) == hot == VALUES[:4]  # type: ignore[arg-type]
    assert first.records
    assert second.records


@pytest.mark.parametrize("is_cold", [None, always])
def test_the_limit_of_bytes_holds_over_cold_partitions(
    wired: WiredBroker, is_cold: Callable[[int, int], bool] | None
) -> None:
    wired.host.disk.is_cold = is_cold
    response = wired.connect().call(fetch_both(wired, 0, 0, max_bytes=200), 12, FetchResponse)
    sizes = [len(row.records or b"") for row in rows_of(response)]
    assert sizes == [200, 0]
    response = wired.connect().call(fetch_both(wired, 0, 0, max_bytes=10), 12, FetchResponse)
    first, second = rows_of(response)
    assert (len(first.records or b"") > 100, len(second.records or b"")) == (True, 0), "one whole batch"


def test_a_session_used_again_meanwhile_gets_an_error(wired: WiredBroker, held: HeldWork) -> None:
    wired.host.disk.is_cold = None
    client, other = wired.connect(), wired.connect()
    session_id = client.call(fetch_request(wired, 12, 12, session_epoch=0), 12, FetchResponse).session_id
    make_cold(wired.host.disk)
    client.send(fetch_request(wired, 0, 12, session_id=session_id, session_epoch=1), 12)
    other.send(fetch_request(wired, 4, 12, session_id=session_id, session_epoch=2), 12)
    held.finish()
    ((_, first),) = client.received()
    assert isinstance(first, FetchResponse)
    assert (first.error_code, first.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert values_of_one(other.received()) == VALUES[4:8]


def test_a_session_goes_on_with_cold_records(wired: WiredBroker) -> None:
    client = wired.connect()
    first = client.call(fetch_request(wired, 0, 12, session_epoch=0), 12, FetchResponse)
    second = client.call(fetch_request(wired, 4, 12, session_id=first.session_id, session_epoch=1), 12, FetchResponse)
    assert (values_of(first), values_of(second)) == (VALUES[:4], VALUES[4:8])


def test_a_fetch_that_waited_for_records_then_waits_for_the_disk(wired: WiredBroker, held: HeldWork) -> None:
    wired.host.disk.is_cold = None
    reader, writer = wired.connect(), wired.connect()
    reader.send(fetch_request(wired, len(VALUES), 12, max_wait_ms=500), 12)
    assert rest(wired)[1] == 1
    wired.host.disk.is_cold = always
    produce(wired, writer, batch_of(b"fresh"))
    assert values_of_one(answered(reader, held)) == [b"fresh"]
    assert rest(wired)[::2] == (0, 0)
    wired.host.time.run_for(1000)
    assert (reader.received(), wired.closes.causes) == ([], [])


def test_a_deadline_does_not_end_a_wait_for_the_disk(wired: WiredBroker, held: HeldWork) -> None:
    reader = wired.connect()
    reader.send(fetch_request(wired, 8, 12, max_wait_ms=100, min_bytes=100_000), 12)
    wired.host.time.run_for(5000)
    assert values_of_one(answered(reader, held)) == VALUES[8:]


def test_cold_records_below_min_bytes_wait_for_more(wired: WiredBroker, held: HeldWork) -> None:
    reader, writer = wired.connect(), wired.connect()
    produce(wired, writer, batch_of(b"last"))
    reader.send(fetch_request(wired, 12, 12, max_wait_ms=500, min_bytes=150), 12)
    held.finish()
    assert reader.received() == []
    produce(wired, writer, batch_of(b"more" * 20))
    wired.host.time.run_for(5)
    held.finish()
    assert values_of_one(reader.received()) == [b"last", b"more" * 20]


def test_what_comes_while_the_disk_is_waited_for_is_not_missed(wired: WiredBroker, held: HeldWork) -> None:
    reader, writer = wired.connect(), wired.connect()
    produce(wired, writer, batch_of(b"last"))
    reader.send(fetch_request(wired, 12, 12, max_wait_ms=500, min_bytes=150), 12)
    produce(wired, writer, batch_of(b"more" * 20))
    assert values_of_one(answered(reader, held)) == [b"last"], "at once, so that it asks again"


# -- other readers


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    requested = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[requested])]
    )


def found_by_time(answers: Iterable[tuple[int, Message]]) -> tuple[int, int]:
    ((_, response),) = answers
    assert isinstance(response, ListOffsetsResponse)
    row = response.topics[0].partitions[0]
    return row.error_code, row.offset


def test_offsets_by_time_are_searched_in_a_thread(wired: WiredBroker, held: HeldWork) -> None:
    client = wired.connect()
    client.send(list_offsets(1), 7)
    assert found_by_time(answered(client, held)) == (0, 0)
    client.send(list_offsets(-3), 7)
    assert found_by_time(answered(client, held)) == (0, 0)
    client.send(list_offsets(1 << 60), 7)
    assert found_by_time(client.received()) == (0, -1), "known without a look at the files"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lose_leadership, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)),
        (delete_records, (ErrorCode.NONE, 8)),
        (cut_and_write_anew, (ErrorCode.NONE, 0)),
        (delete_topic, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
    ],
)
@pytest.mark.parametrize("loaded_first", [False, True])
def test_what_happens_during_a_search_by_time_counts(
    wired: WiredBroker,
    held: HeldWork,
    event: Callable[[WiredBroker], None],
    expected: tuple[ErrorCode, int],
    loaded_first: bool,
) -> None:
    client = wired.connect()
    client.send(list_offsets(1), 7)
    if loaded_first:
        held.perform()
    event(wired)
    assert found_by_time(answered(client, held)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_cache_that_comes_and_goes_changes_nothing(seed: int) -> None:
    wired = WiredBroker()
    wired.create_topic("orders", index_interval_bytes="100")
    wired.host.disk.is_cold = at_times(seed)
    writer, reader, offset, values = wired.connect(), wired.connect(), 0, []
    written = [b"%d-" % place * 50 for place in range(300)]
    for start in range(0, 300, 3):
        produce(wired, writer, batch_of(*written[start : start + 3]))
        if start % 30 == 0:
            partition(wired).log.roll()
            partition(wired).log.segments.release()
    while offset < 300:
        response = reader.call(fetch_request(wired, offset, 12, max_wait_ms=10), 12, FetchResponse)
        found = values_of(response)
        values += found
        offset += len(found)
    assert values == written
    assert wired.closes.causes == []
