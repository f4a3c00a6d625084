"""Fetches of followers for which no session is free: they wait for records, however many partitions they read."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, topic_id

from barnabas.broker.handlers import fetch
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication import fetching
from barnabas.storage.log import Origin

COUNT = 40
FOLLOWER = 2
WALL_MS = 1_735_689_600_000
VERSION = 17


class Follower:
    """Broker 2, which follows all partitions of `orders` and asks for a session with each fetch."""

    def __init__(self, slots: int) -> None:
        self.wired = WiredBroker(max_incremental_fetch_session_cache_slots=str(slots))
        self.wired.create_topic("orders", COUNT)
        for partition in self.wired.broker.replicas.partitions():
            assert partition.image is not None
            partition.become_leader(PartitionImage((1, FOLLOWER), (1, FOLLOWER), 1, 7, 1))
        self.wired.host.time.run_for(1_500)  # followers can wait again after that
        self.client = self.wired.connect()

    def send(self) -> None:
        rows = [
            FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20, log_start_offset=0)
            for index in range(COUNT)
        ]
        topic = FetchRequest.FetchTopic(topic_id=topic_id(self.wired, "orders"), partitions=rows)
        state = FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=-1)
        request = FetchRequest(replica_state=state, max_wait_ms=500, min_bytes=1, max_bytes=1 << 25, topics=[topic])
        request.session_epoch = 0
        self.client.send(request, VERSION)

    def responses_after(self, duration_ms: int) -> list[FetchResponse]:
        self.wired.host.time.run_for(duration_ms)
        found = [response for _, response in self.client.received()]
        assert all(isinstance(each, FetchResponse) for each in found)
        return found  # type: ignore[return-value]

    def append(self, index: int) -> None:
        partition = self.wired.broker.replicas.find("orders", index)
        assert partition is not None
        partition.append(batch_of(b"value"), WALL_MS, Origin.CLIENT)


def test_a_fetch_that_is_read_in_several_turns_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such fetches were answered immediately, although nothing was new, and repeated without end."""
    monkeypatch.setattr(fetch, "_READ_AT_ONCE", 1)
    follower = Follower(slots=0)
    slices = follower.wired.broker.services.steps.slices
    follower.send()
    assert follower.responses_after(400) == []
    assert follower.wired.broker.services.steps.slices > slices
    follower.append(COUNT // 2)
    (response,) = follower.responses_after(10)
    assert response.session_id == 0
    assert [row.partition_index for row in response.responses[0].partitions if row.records] == [COUNT // 2]


def test_records_that_arrive_between_two_turns_are_returned_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_READ_AT_ONCE", 1)
    follower = Follower(slots=0)
    read = 0

    def reading(*arguments: object) -> None:
        nonlocal read
        fetching.read_more(*arguments)  # type: ignore[arg-type]
        read += 1
        if read == COUNT - 1:
            follower.append(0)

    monkeypatch.setattr(fetch, "read_more", reading)
    follower.send()
    (response,) = follower.responses_after(10)
    assert not any(row.records for row in response.responses[0].partitions), "the next fetch returns them"


@pytest.mark.parametrize(("slots", "answers"), [(0, 0), (1, 1)])
def test_a_fetch_of_very_many_partitions_is_answered_immediately_only_to_begin_a_session(
    slots: int, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such fetches were repeated without end when no session was free."""
    monkeypatch.setattr(fetch, "_WATCHED_MAX", COUNT - 1)
    follower = Follower(slots)
    follower.send()
    found = follower.responses_after(fetch._UNWATCHED_FOLLOWER_MS - 50)
    assert len(found) == answers
    found += follower.responses_after(100)
    (response,) = found
    assert bool(response.session_id) == bool(slots)
