"""The internal topics as coordinators use them: whether this broker certainly leads a partition."""

from __future__ import annotations

from tests.support.wired import WiredBroker
from tests.support.wired_requests import topic_id

from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication.internal import InternalPartitions

FOLLOWER = 2
PLACE = TopicPartition("orders", 0)


def fetched(wired: WiredBroker) -> None:
    """Lets the follower fetch once."""
    rows = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20, log_start_offset=0)]
    topics = [FetchRequest.FetchTopic(topic_id=topic_id(wired, "orders"), partitions=rows)]
    state = FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=-1)
    request = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    assert wired.connect().call(request, 17, FetchResponse).responses[0].partitions[0].error_code == 0


def test_a_partition_is_followed_while_its_followers_fetch() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    partitions = InternalPartitions(wired.broker.replicas, wired.host.clock)
    assert partitions.is_followed(PLACE), "without followers there is no other leader"
    replica = wired.broker.replicas.leader("orders", 0)
    replica.become_leader(PartitionImage((1, FOLLOWER), (1, FOLLOWER), 1, 7, 1))
    assert not partitions.is_followed(PLACE)
    fetched(wired)
    assert partitions.is_followed(PLACE)
    wired.host.time.run_for(1_100)
    assert not partitions.is_followed(PLACE)
    assert not partitions.is_followed(TopicPartition("nobody", 0)), "another broker leads it, if it exists"


def test_the_time_follows_from_how_long_followers_wait() -> None:
    wired = WiredBroker(replica_fetch_wait_max_ms="900")
    wired.create_topic("orders")
    replica = wired.broker.replicas.leader("orders", 0)
    replica.become_leader(PartitionImage((1, FOLLOWER), (1, FOLLOWER), 1, 7, 1))
    fetched(wired)
    wired.host.time.run_for(1_700)
    assert replica.is_followed
    wired.host.time.run_for(200)
    assert not replica.is_followed
