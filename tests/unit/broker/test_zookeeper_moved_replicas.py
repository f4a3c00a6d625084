"""A replica that moved away without this broker's knowledge is removed when the next controller introduces itself."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredClient
from tests.support.znode_memory import MemoryTree
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.replication.partition import Role
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.wire.codes import CreateFlags, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import OPEN_ACL, CreateRequest

TOPIC_ID, OTHER_ID = b"T" * 16, b"U" * 16
_Role = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_Shown = UpdateMetadataRequest.UpdateMetadataPartitionState


class Controlled:
    """Broker 1 under the controller of broker 2, which a test plays."""

    def __init__(self) -> None:
        tree = MemoryTree({paths.BROKER_IDS: ZnodeContent(None, 0), paths.TOPICS: ZnodeContent(None, 0)})
        tree.sessions += 1
        claim = b'{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}'
        part = Part(OpCode.CREATE, CreateRequest(paths.CONTROLLER, claim, OPEN_ACL, CreateFlags.EPHEMERAL))
        assert tree.apply([part], tree.sessions).refused_part is None
        self.broker = ZooKeeperBroker(tree).start()
        self.broker.settle(6_000)
        self.client: WiredClient = self.broker.connect()

    def assign(self, *replicas: int, topic_id: bytes = TOPIC_ID, adding: tuple[int, ...] = ()) -> None:
        """Writes the assignment of the partition."""
        assignment = TopicAssignment(topic_id, {0: ReplicaAssignment(replicas, adding)})
        self.broker.tree.set(paths.topic("orders"), encode_topic(assignment))

    def lead(self, *replicas: int, leader: int = 1, leader_epoch: int = 0) -> None:
        state = _Role(
            partition_index=0,
            controller_epoch=9,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(replicas),
            replicas=list(replicas),
        )
        topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name="orders", topic_id=TOPIC_ID, partition_states=[state]
        )
        epoch = self.broker.broker.side.broker_epoch
        request = LeaderAndIsrRequest(controller_id=2, controller_epoch=9, broker_epoch=epoch, topic_states=[topic])
        assert self.client.call(request, 7, LeaderAndIsrResponse).error_code == 0

    def show(self, *replicas: int, leader_epoch: int = 1, controller_epoch: int = 10) -> None:
        state = _Shown(
            partition_index=0,
            controller_epoch=controller_epoch,
            leader=replicas[-1],
            leader_epoch=leader_epoch,
            isr=list(replicas),
            replicas=list(replicas),
        )
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name="orders", topic_id=TOPIC_ID, partition_states=[state]
        )
        request = UpdateMetadataRequest(
            controller_id=2,
            controller_epoch=controller_epoch,
            broker_epoch=self.broker.broker.side.broker_epoch,
            topic_states=[topic],
        )
        assert self.client.call(request, 8, UpdateMetadataResponse).error_code == 0

    @property
    def role(self) -> Role | None:
        partition = self.broker.broker.replicas.find("orders", 0)
        return None if partition is None else partition.role


@pytest.fixture
def controlled() -> Controlled:
    found = Controlled()
    found.lead(1, 2)
    found.assign(1, 2)
    assert found.role is Role.LEADER
    return found


def test_a_replica_that_moved_while_its_broker_was_cut_off_is_removed(controlled: Controlled) -> None:
    """The StopReplica of the controller before is lost with it; the next one names only the other brokers."""
    controlled.assign(2, 3)
    controlled.show(2, 3)
    assert controlled.role is Role.LEADER
    controlled.broker.settle(1_200)
    assert controlled.role is None
    assert not controlled.broker.host.disk.exists("/data/orders-0")


def test_a_replica_is_removed_that_the_image_shows_elsewhere_only_later(controlled: Controlled) -> None:
    controlled.show(1, 2)
    controlled.broker.settle(2_000)
    controlled.assign(2, 3)
    controlled.show(2, 3, leader_epoch=2)
    controlled.broker.settle(2_000)
    assert controlled.role is Role.LEADER
    controlled.broker.settle(8_000)
    assert controlled.role is None


@pytest.mark.parametrize(
    ("replicas", "topic_id"), [((1, 2), TOPIC_ID), ((2, 3), OTHER_ID)], ids=["assigned", "another topic"]
)
def test_a_replica_stays_unless_its_own_assignment_names_others(
    controlled: Controlled, replicas: tuple[int, ...], topic_id: bytes
) -> None:
    controlled.assign(*replicas, topic_id=topic_id)
    controlled.show(2, 3)
    controlled.broker.settle(70_000)
    assert controlled.role is Role.LEADER


@pytest.mark.parametrize("data", [None, b"{"])
def test_a_replica_stays_without_an_assignment_that_can_be_read(controlled: Controlled, data: bytes | None) -> None:
    if data is None:
        controlled.broker.tree.delete(paths.topic("orders"))
    else:
        controlled.broker.tree.set(paths.topic("orders"), data)
    controlled.show(2, 3)
    controlled.broker.settle(2_000)
    assert controlled.role is Role.LEADER
    assert controlled.broker.host.disk.exists("/data/orders-0")
