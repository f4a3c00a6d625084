"""Idle partitions of a fetch session: they are not read, and every event in them makes them active again."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, topic_id

from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication import fetching
from barnabas.replication.fetching import read_more
from barnabas.replication.partition import Partition
from barnabas.storage.log import Origin

COUNT = 20
WALL_MS = 1_735_689_600_000
FOLLOWER = 2


class Reads:
    """The number of partitions that each fetch read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked_at: list[str] = []
        original = fetching._read_one

        def counting(*arguments: object) -> object:
            self.looked_at.append(str(arguments[1].index))  # type: ignore[attr-defined]
            return original(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(fetching, "_read_one", counting)
        assert read_more is fetching.read_more

    def taken(self) -> list[int]:
        found, self.looked_at = [int(index) for index in self.looked_at], []
        return found


class Reader:
    """A session over all partitions of `orders`, of a consumer or of broker 2."""

    def __init__(self, replica_id: int = -1) -> None:
        self.wired = WiredBroker()
        self.wired.create_topic("orders", COUNT)
        self.replica_id = replica_id
        if replica_id >= 0:
            for partition in self.wired.broker.replicas.partitions():
                self.lead(partition, (1, 2))
            self.wired.host.time.run_for(1_500)  # followers can wait again after that
        self.client: WiredClient = self.wired.connect()
        self.session_id = self.epoch = 0
        self.fetch(*((index, 0) for index in range(COUNT)))

    def lead(self, partition: Partition, isr: tuple[int, ...]) -> None:
        image = partition.image
        assert image is not None
        partition.become_leader(PartitionImage((1, 2), isr, 1, 7, image.partition_epoch + 1))

    def partition(self, index: int) -> Partition:
        found = self.wired.broker.replicas.find("orders", index)
        assert found is not None
        return found

    def append(self, index: int) -> None:
        self.partition(index).append(batch_of(b"value"), WALL_MS, Origin.CLIENT)
        self.wired.host.time.run_for(0)

    def request(self, *requested: tuple[int, int], max_wait_ms: int = 0) -> FetchRequest:
        rows = [
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                log_start_offset=0 if self.replica_id >= 0 else -1,
            )
            for index, offset in requested
        ]
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self.replica_id, replica_epoch=-1),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 25,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id(self.wired, "orders"), partitions=rows)] if rows else [],
        )

    def fetch(self, *requested: tuple[int, int], max_wait_ms: int = 0) -> dict[int, FetchResponse.PartitionData]:
        answer = self.client.call(self.request(*requested, max_wait_ms=max_wait_ms), 17, FetchResponse)
        assert answer.error_code == 0
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return {row.partition_index: row for topic in answer.responses for row in topic.partitions}


@pytest.fixture(params=[-1, FOLLOWER], ids=["consumer", "follower"])
def reader(request: pytest.FixtureRequest) -> Reader:
    return Reader(request.param)


def test_what_has_nothing_new_is_not_looked_at(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.fetch()
    reads = Reads(monkeypatch)
    assert reader.fetch() == {}
    assert reads.taken() == []
    reader.append(3)
    assert list(reader.fetch()) == [3]
    assert reads.taken() == [3]
    reader.fetch((3, 1))
    reader.fetch()
    reads.taken()
    assert reader.fetch() == {}
    assert reads.taken() == []


def test_a_fetch_that_waits_is_woken_by_any_of_them(reader: Reader) -> None:
    reader.fetch()
    for index in (5, 11, 5):
        offset = reader.partition(index).log.log_end_offset
        sent = reader.client.send(reader.request(max_wait_ms=60_000), 17)
        reader.wired.host.time.run_for(100)
        assert reader.client.received() == []
        reader.append(index)
        ((answered, answer),) = reader.client.received()
        assert answered == sent
        assert isinstance(answer, FetchResponse)
        assert [row.partition_index for row in answer.responses[0].partitions] == [index]
        reader.epoch += 1
        reader.fetch((index, offset + 1))


def test_another_epoch_a_lost_leadership_and_a_new_log_start_are_sent(reader: Reader) -> None:
    reader.append(1)
    assert list(reader.fetch()) == [1]
    reader.fetch((1, 1))
    reader.fetch()
    assert reader.fetch() == {}
    reader.partition(1).log.delete_records_before(1)  # as retention does
    assert {index: row.log_start_offset for index, row in reader.fetch().items()} == {1: 1}
    assert reader.fetch() == {}
    reader.partition(2).go_offline()
    assert [row.error_code for row in reader.fetch().values()] == [56]


def test_who_never_comes_again_costs_its_partitions_one_call(reader: Reader) -> None:
    reader.fetch()
    partition = reader.partition(4)
    watched = partition._end_watchers if reader.replica_id >= 0 else partition._watchers
    assert len(watched) == 1
    reader.append(4)
    assert len(watched) == 0


def test_an_evicted_session_leaves_nothing_behind(reader: Reader) -> None:
    reader.fetch()
    reader.wired.broker.services.fetch_sessions.remove(reader.session_id)
    for index in range(COUNT):
        partition = reader.partition(index)
        assert not partition._end_watchers
        assert not partition._watchers


def test_a_follower_that_has_all_stays_in_sync_as_long_as_it_fetches() -> None:
    """The follower's fetches do not name the partition for longer than `replica.lag.time.max.ms`; then a record
    arrives.
    """
    reader = Reader(FOLLOWER)
    reader.fetch()
    leadership = reader.partition(0).leadership
    assert leadership is not None
    lag_ms = reader.wired.broker.replicas.environment.lag_ms_max
    for _ in range(10):
        reader.wired.host.time.run_for(lag_ms // 3)
        assert reader.fetch() == {}
    reader.partition(0).append(batch_of(b"value"), WALL_MS, Origin.CLIENT)
    now_ms = reader.wired.host.clock.now_ms
    assert leadership.reduced(1, now_ms(), lag_ms) is None, "it fetched a moment ago"
    reader.wired.host.time.run_for(0)
    assert leadership.reduced(1, now_ms(), lag_ms) is None
    assert leadership.reduced(1, now_ms() + lag_ms + 1, lag_ms) == (1,), "but it has to come for the record"


def test_the_hw_goes_with_the_next_answer() -> None:
    reader = Reader(FOLLOWER)
    reader.append(6)
    assert list(reader.fetch()) == [6]
    rows = reader.fetch((6, 1))
    assert [row.high_watermark for row in rows.values()] == [1]
    assert reader.fetch() == {}


def test_a_follower_out_of_the_isr_is_looked_at_with_every_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(FOLLOWER)
    reader.fetch()
    reads = Reads(monkeypatch)
    reader.lead(reader.partition(9), (1,))
    for _ in range(3):
        reader.fetch()
        assert reads.taken() == [9], "it may join any time"
