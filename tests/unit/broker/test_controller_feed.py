"""Requests of a controller in ZooKeeper mode: the image, the roles and logs of this broker, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controller_world import make_config
from tests.support.log_world import encode_records

from barnabas.broker.zookeeper.controller_feed import LEADER_DURING_DELETE, ControllerFeed
from barnabas.broker.zookeeper.directory_assignments import UnreportedAssignments
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.common.types import TopicPartition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.topics import UNKNOWN_PARTITION
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.replication.partition import Partition, Role
from barnabas.replication.replica_manager import ReplicaManager, ReplicaPorts
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost
from barnabas.storage.log import Origin
from barnabas.storage.log_manager import LogManager

OWN, EPOCH = 1, 50
ID, OTHER_ID = b"T" * 16, b"U" * 16


class Node:
    """A broker's image and replicas, without its connections. Another node on the same disk is a restart."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.host = MemoryHost(seed=1, disk=disk)
        config = make_config()
        self.store = MetadataStore()
        self.logs = LogManager(self.host, config)
        ports = ReplicaPorts(self._send, lambda: EPOCH, self._report, UnreportedAssignments())
        self.replicas = ReplicaManager(self.host, config, self.logs, ports)
        self.logs.start(high_watermark_of=self.replicas.high_watermark_of)
        self.replicas.start(self.logs.checkpointed_high_watermarks())
        self.store.subscribe(self.replicas.on_image)
        #: The images before the first UpdateMetadata of each controller to each registration.
        self.introduced: list[MetadataImage] = []
        self.broker_epoch = EPOCH
        self.feed = ControllerFeed(
            OWN, self.store, self.replicas, self.host.clock, lambda: self.broker_epoch, self.introduced.append
        )

    def _send(self, request: Message, reply: Any) -> None:
        raise AssertionError(f"nothing is sent here: {request}")

    def _report(self, partition: Partition, what: str, facts: dict[str, int]) -> None: ...

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        found = self.replicas.find(topic, index)
        assert found is not None
        return found

    # -- requests, through their encoding

    def lead(self, *rows: Row, topic: str = "t", topic_id: bytes = ID, version: int = 7, **header: int) -> list[int]:
        """Sends LeaderAndIsr, and returns the error codes of the rows, or that of the whole."""
        states = [LeaderAndIsrRequest.LeaderAndIsrPartitionState(**row) for row in rows]
        topics = [
            LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        ]
        values: Row = {"controller_id": 3, "controller_epoch": 1, "broker_epoch": EPOCH, **header}
        request = through(LeaderAndIsrRequest(topic_states=topics, **values), version)
        response = through(whole(self.feed.leader_and_isr(request, version)), version)
        assert isinstance(response, LeaderAndIsrResponse)
        if response.error_code:
            return [response.error_code]
        rows_ = response.partition_errors or [row for each in response.topics for row in each.partition_errors]
        return [row.error_code for row in rows_]

    def update(
        self, *rows: Row, brokers: tuple[int, ...] = (1, 2, 3), topic: str = "t", topic_id: bytes = ID, **header: int
    ) -> int:
        states = [UpdateMetadataRequest.UpdateMetadataPartitionState(**row) for row in rows]
        topics = [
            UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        ]
        live = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=9092, host=f"host{broker}", listener="PLAINTEXT", security_protocol=0
                    )
                ],
                rack=f"rack{broker}",
            )
            for broker in brokers
        ]
        values: Row = {"controller_id": 3, "controller_epoch": 1, "broker_epoch": EPOCH, **header}
        request = UpdateMetadataRequest(topic_states=topics if rows else [], live_brokers=live, **values)
        return whole(self.feed.update_metadata(through(request, 8))).error_code

    def stop(self, index: int = 0, *, leader_epoch: int, delete: bool, topic: str = "t", **header: int) -> int:
        state = StopReplicaRequest.StopReplicaPartitionState(
            partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
        )
        topics = [StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=[state])]
        values: Row = {"controller_id": 3, "controller_epoch": 1, "broker_epoch": EPOCH, **header}
        response = through(
            whole(self.feed.stop_replica(through(StopReplicaRequest(topic_states=topics, **values), 4))), 4
        )
        assert isinstance(response, StopReplicaResponse)
        return response.error_code or response.partition_errors[0].error_code


Row = dict[str, Any]


def through(message: Any, version: int) -> Any:
    """Returns the message as its receiver decodes it."""
    found, _ = codec.decode(type(message), version, bytes(codec.encode(message, version)), 0)
    return found


def role(leader: int = OWN, epoch: int = 0, *, index: int = 0, partition_epoch: int = 0, **more: Any) -> Row:
    """Returns a row of LeaderAndIsr for a partition on 1, 2 and 3."""
    row = {
        "partition_index": index,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": [1, 2, 3],
        "partition_epoch": partition_epoch,
        "replicas": [1, 2, 3],
    }
    return {**row, **more}


def state(leader: int = OWN, epoch: int = 0, *, index: int = 0, version: int = 0, **more: Any) -> Row:
    """Returns a row of UpdateMetadata for a partition on 1, 2 and 3."""
    row = {
        "partition_index": index,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": [1, 2, 3],
        "zk_version": version,
        "replicas": [1, 2, 3],
    }
    return {**row, **more}


@pytest.fixture
def node() -> Node:
    node = Node()
    assert node.update() == ErrorCode.NONE
    return node


def test_the_live_brokers_are_those_of_the_last_update(node: Node) -> None:
    brokers = node.store.image.brokers
    assert sorted(brokers) == [1, 2, 3]
    assert (brokers[2].rack, brokers[2].endpoints[0].host, brokers[2].fenced) == ("rack2", "host2", False)
    assert (brokers[OWN].epoch, brokers[2].epoch) == (EPOCH, -1)
    node.update(brokers=(1, 3))
    assert sorted(node.store.image.brokers) == [1, 3]
    assert node.feed.controller_id == 3


def test_only_leader_and_isr_gives_roles(node: Node) -> None:
    node.update(state())
    assert node.store.image.topics_by_name["t"].partitions[0].leader == OWN
    assert node.replicas.find("t", 0) is None
    assert node.lead(role()) == [0]
    assert (node.partition().role, node.partition().leader_epoch) == (Role.LEADER, 0)
    node.update(state(leader=2, epoch=1, version=1))
    assert node.store.image.topics_by_name["t"].partitions[0].leader == 2
    assert (node.partition().role, node.partition().leader_epoch) == (Role.LEADER, 0)
    assert node.lead(role(leader=2, epoch=1, partition_epoch=1)) == [0]
    assert (node.partition().role, node.partition().leader_epoch) == (Role.FOLLOWER, 1)


@pytest.mark.parametrize("version", range(2, 8))
def test_roles_are_given_in_every_version_with_topics(node: Node, version: int) -> None:
    assert node.lead(role(), role(leader=2, index=1), version=version) == [0, 0]
    roles = [node.partition(index=index).role for index in (0, 1)]
    assert roles == [Role.LEADER, Role.FOLLOWER]


def test_a_follower_of_nobody_waits(node: Node) -> None:
    assert node.lead(role(leader=-1, epoch=4)) == [0]
    assert (node.partition().role, node.partition().leader_epoch) == (Role.FOLLOWER, 4)


def test_a_request_for_an_earlier_life_of_the_broker_is_refused(node: Node) -> None:
    """Guard G37."""
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert node.lead(role(), broker_epoch=EPOCH - 1) == [stale]
    assert node.update(state(), broker_epoch=EPOCH - 1) == stale
    assert node.stop(leader_epoch=9, delete=True, broker_epoch=EPOCH - 1) == stale
    assert not node.store.image.topics_by_name
    assert node.lead(role(), broker_epoch=EPOCH + 1) == [0]


def test_an_old_controller_is_obeyed_by_no_request(node: Node) -> None:
    """Guard G36: the highest epoch of any of the three requests counts for all of them."""
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    assert node.stop(leader_epoch=0, delete=False, controller_epoch=5) == 0
    assert node.lead(role(), controller_epoch=4) == [stale]
    assert node.update(state(), controller_epoch=4) == stale
    assert node.update(state(), controller_epoch=6) == 0
    assert node.stop(leader_epoch=0, delete=True, controller_epoch=5) == stale
    assert node.lead(role(), controller_epoch=6) == [0]
    assert node.store.image.epoch == 6


def test_a_leader_epoch_that_does_not_rise_gives_no_role(node: Node) -> None:
    node.lead(role(leader=2, epoch=3))
    assert node.lead(role(epoch=3)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert node.lead(role(epoch=2)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert node.partition().role is Role.FOLLOWER


def test_a_partition_that_this_broker_has_no_replica_of_is_refused(node: Node) -> None:
    assert node.lead(role(leader=2, replicas=[2, 3], isr=[2, 3])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.replicas.find("t", 0) is None


def test_another_topic_under_the_name_is_refused_while_the_log_is_there(node: Node) -> None:
    """Guard G38."""
    node.lead(role())
    assert node.lead(role(epoch=9), topic_id=OTHER_ID) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert node.partition().topic_id == ID
    assert node.stop(leader_epoch=-2, delete=True) == 0
    assert node.lead(role(), topic_id=OTHER_ID) == [0]
    assert node.partition().topic_id == OTHER_ID
    assert node.store.image.topics_by_name["t"].topic_id == OTHER_ID


def test_partitions_can_arrive_in_any_order(node: Node) -> None:
    node.update(state(index=2))
    partitions = node.store.image.topics_by_name["t"].partitions
    assert partitions[:2] == (UNKNOWN_PARTITION, UNKNOWN_PARTITION)
    assert [partition.is_known for partition in partitions] == [False, False, True]
    assert node.lead(role(index=1), role(index=4)) == [0, 0]
    node.update(state(index=0))
    known = [partition.is_known for partition in node.store.image.topics_by_name["t"].partitions]
    assert known == [True, True, True, False, True]


def test_an_update_does_not_take_an_epoch_back(node: Node) -> None:
    node.lead(role(epoch=5, partition_epoch=7))
    node.update(state(leader=2, epoch=4, version=9))
    node.update(state(leader=OWN, epoch=5, version=6, isr=[1]))
    partition = node.store.image.topics_by_name["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 5, 7, (1, 2, 3))
    node.update(state(epoch=5, version=8, isr=[1, 2]))
    assert node.store.image.topics_by_name["t"].partitions[0].isr == (1, 2)


def test_an_update_keeps_what_it_does_not_contain(node: Node) -> None:
    node.lead(role(adding_replicas=[3], removing_replicas=[2], leader_recovery_state=1))
    node.update(state(version=1, isr=[1, 2]))
    partition = node.store.image.topics_by_name["t"].partitions[0]
    assert (partition.adding_replicas, partition.removing_replicas, partition.leader_recovery_state) == ((3,), (2,), 1)
    node.update(state(version=2, epoch=1, replicas=[1, 3], isr=[1, 3]))
    partition = node.store.image.topics_by_name["t"].partitions[0]
    assert (partition.adding_replicas, partition.removing_replicas, partition.leader_recovery_state) == ((), (), 0)


def test_a_deleted_topic_keeps_its_logs_until_stop_replica(node: Node) -> None:
    node.lead(role(), role(index=1))
    node.update(state(leader=LEADER_DURING_DELETE), state(leader=LEADER_DURING_DELETE, index=1))
    assert "t" not in node.store.image.topics_by_name
    assert node.logs.get(TopicPartition("t", 0)) is not None
    assert node.stop(leader_epoch=-2, delete=False) == 0
    assert node.replicas.find("t", 0) is None
    assert node.logs.get(TopicPartition("t", 0)) is not None
    assert node.stop(leader_epoch=-2, delete=True) == 0
    assert node.logs.get(TopicPartition("t", 0)) is None
    assert node.partition(index=1).role is Role.LEADER


def test_the_deletion_of_an_earlier_topic_leaves_the_present_one(node: Node) -> None:
    node.update(state(), topic_id=OTHER_ID)
    node.update(state(leader=LEADER_DURING_DELETE))
    assert node.store.image.topics_by_name["t"].topic_id == OTHER_ID


def test_a_stop_with_an_old_leader_epoch_deletes_nothing(node: Node) -> None:
    """Guard G38."""
    node.lead(role(epoch=5))
    assert node.stop(leader_epoch=4, delete=True) == ErrorCode.FENCED_LEADER_EPOCH
    assert node.partition().role is Role.LEADER
    assert node.stop(leader_epoch=5, delete=True) == 0
    assert node.replicas.find("t", 0) is None


def test_a_stopped_replica_continues_where_it_was(node: Node) -> None:
    node.lead(role(isr=[1]))
    log = node.partition().log
    assert node.stop(leader_epoch=0, delete=False) == 0
    assert node.lead(role(epoch=1, isr=[1])) == [0]
    assert node.partition().log is log


def test_a_restarted_broker_makes_no_log_stray_and_deletes_what_is_requested(node: Node) -> None:
    node.lead(role())
    node.logs.shutdown(EPOCH)
    again = Node(node.host.disk)
    again.update()
    assert again.logs.get(TopicPartition("t", 0)) is not None
    assert again.stop(leader_epoch=-2, delete=True) == 0
    assert again.logs.get(TopicPartition("t", 0)) is None
    assert again.stop(leader_epoch=-2, delete=True) == 0


def test_followers_of_unknown_epochs_can_join(node: Node) -> None:
    assert node.replicas.environment.may_join(2, 77, bytes(16))
    assert not node.replicas.environment.may_join(4, 77, bytes(16))
    assert node.replicas.environment.may_join(OWN, EPOCH, bytes(16))
    assert not node.replicas.environment.may_join(OWN, EPOCH - 1, bytes(16))


def test_the_first_metadata_of_a_controller_or_a_registration_is_noticed() -> None:
    """A broker that starts knows no topics that a deletion can have removed, so nothing is compared."""
    node = Node()
    assert node.update(state(), controller_epoch=1) == 0
    assert node.update(state(index=1), controller_epoch=1) == 0
    assert node.introduced == []
    before = node.store.image
    assert node.update(controller_epoch=2) == 0
    assert node.update(state(), controller_epoch=2) == 0
    assert node.introduced == [before]
    # The controller knows the next registration before this broker knows its own epoch.
    assert node.update(controller_epoch=2, broker_epoch=EPOCH + 1) == 0
    node.broker_epoch = EPOCH + 1
    assert node.update(controller_epoch=2, broker_epoch=EPOCH + 1) == 0
    assert len(node.introduced) == 2
    assert node.update(controller_epoch=1, broker_epoch=EPOCH + 1) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert len(node.introduced) == 2


def shrunk_while_the_last_member_may_rejoin(node: Node) -> Partition:
    """Returns a partition whose third replica left the ISR a moment ago, and lacks the record that the others have."""
    assert node.lead(role()) == [0]
    partition = node.partition()
    partition.append(encode_records(1), 1, Origin.CLIENT)
    for replica, offset in ((2, 1), (3, 0)):
        assert partition.on_follower_fetch(replica, EPOCH, offset, 0)
    assert partition.leadership is not None
    assert partition.leadership.commit_answer((1, 2), 1)
    partition.on_isr_committed()
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)
    return partition


def test_the_high_watermark_does_not_wait_for_a_replica_whose_broker_is_gone() -> None:
    """The end of the broker comes after the change of the ISR, and the other member has nothing to fetch: nothing else
    happens to the partition.
    """
    node = Node()
    assert node.update(state()) == 0
    partition = shrunk_while_the_last_member_may_rejoin(node)
    assert node.update(brokers=(1, 2)) == 0
    assert partition.high_watermark == 1


def test_the_high_watermark_does_not_wait_for_a_replica_that_lags_by_now() -> None:
    node = Node()
    assert node.update(state()) == 0
    partition = shrunk_while_the_last_member_may_rejoin(node)
    for _ in range(30):
        node.host.time.run_for(1_000)
        assert partition.on_follower_fetch(2, EPOCH, 1, 0)
        if partition.high_watermark:
            break
    assert partition.high_watermark == 0, "the replica may still return in time"
    node.host.time.run_for(16_000)
    assert partition.high_watermark == 1
