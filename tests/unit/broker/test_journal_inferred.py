"""The journal under a controller of Apache Kafka: causes inferred from its requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.common.types import EVENTS_TOPIC
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.simulation.worlds.replicated import log_values
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic

OWN, CONTROLLER = 2, 1
ID, EVENTS_ID = b"T" * 16, b"E" * 16
#: Leader, leader epoch, ISR, partition epoch.
State = tuple[int, int, list[int], int]
ALL = [1, 2, 3]
BEGIN: State = (3, 4, ALL, 7)


class Obedient:
    """Broker 2, which gets the requests of broker 1; that broker is a controller of Apache Kafka or of this project."""

    def __init__(self, client_id: str = str(CONTROLLER)) -> None:
        office = ZooKeeperBroker().start()
        self.broker = ZooKeeperBroker(office.tree, broker_id=str(OWN), listeners="PLAINTEXT://localhost:9094").start()
        self.broker.settle(6_000)
        assert not self.broker.broker.side.controller.is_active
        self._client = self.broker.connect(client_id)
        # A broker forgets topics without a znode when a new controller introduces itself.
        for name, topic_id, replicas in (("orders", ID, (1, 2, 3)), (EVENTS_TOPIC, EVENTS_ID, (OWN,))):
            assignment = TopicAssignment(topic_id, {0: ReplicaAssignment(replicas)})
            office.tree.set(paths.topic(name), encode_topic(assignment))
        self.update(BEGIN)
        self._lead_the_journal()

    def update(
        self,
        state: State,
        replicas: list[int] = ALL,
        live: tuple[int, ...] = (1, 2, 3),
        *,
        epoch: int = 9,
        partitions: int = 1,
    ) -> None:
        leader, leader_epoch, isr, version = state
        rows = [
            UpdateMetadataRequest.UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=epoch,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=isr,
                zk_version=version,
                replicas=replicas,
            )
            for index in range(partitions)
        ]
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="orders", topic_id=ID, partition_states=rows)
        brokers = [
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=each,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=9092, host="localhost", listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for each in live
        ]
        request = UpdateMetadataRequest(
            controller_id=CONTROLLER,
            controller_epoch=epoch,
            broker_epoch=self.broker.broker.side.broker_epoch,
            topic_states=[topic],
            live_brokers=brokers,
        )
        assert self._client.call(request, 8, UpdateMetadataResponse).error_code == 0

    def _lead_the_journal(self) -> None:
        row = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=9, leader=OWN, leader_epoch=0, isr=[OWN], replicas=[OWN], is_new=True
        )
        topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=EVENTS_TOPIC, topic_id=EVENTS_ID, partition_states=[row]
        )
        request = LeaderAndIsrRequest(
            controller_id=CONTROLLER,
            controller_epoch=9,
            broker_epoch=self.broker.broker.side.broker_epoch,
            topic_states=[topic],
        )
        assert self._client.call(request, 7, LeaderAndIsrResponse).error_code == 0

    def events(self) -> list[dict[str, Any]]:
        self.broker.settle(2_000)
        replica = self.broker.broker.replicas.find(EVENTS_TOPIC, 0)
        assert replica is not None
        return [json.loads(value) for _, value in log_values(replica) if value is not None]


@pytest.mark.parametrize(
    ("before", "after", "live", "kind", "cause", "text"),
    [
        pytest.param(
            BEGIN,
            (1, 5, [1, 2], 8),
            (1, 2),
            "leader-change",
            "broker-gone",
            "broker 3 is no longer registered in ZooKeeper",
            id="a-leader-dies",
        ),
        pytest.param(
            BEGIN,
            (3, 5, [2, 3], 8),
            (2, 3),
            "isr-shrink",
            "broker-gone",
            "broker 1 is no longer registered in ZooKeeper",
            id="a-follower-dies",
        ),
        pytest.param(
            BEGIN,
            (1, 5, [1, 2], 8),
            (1, 2, 3),
            "leader-change",
            "controlled-shutdown",
            "broker 3 is still registered, but gave up its replicas: a shutdown, or a failed log directory",
            id="a-leader-leaves",
        ),
        pytest.param(
            BEGIN,
            (1, 5, ALL, 8),
            (1, 2, 3),
            "preferred-election",
            "rebalance",
            "leadership moved back to the preferred replica",
            id="the-preferred-one-leads",
        ),
        pytest.param(
            BEGIN,
            (3, 4, [3, 1], 8),
            (1, 2, 3),
            "isr-shrink",
            "follower-lagged",
            "broker 2 fell behind leader 3 for longer than replica.lag.time.max.ms",
            id="a-follower-falls-behind",
        ),
        pytest.param(
            (3, 5, [3, 2], 8),
            (3, 5, [3, 2, 1], 9),
            (1, 2, 3),
            "isr-expand",
            "follower-caught-up",
            "broker 1 caught up with leader 3",
            id="a-follower-is-back",
        ),
        pytest.param(
            BEGIN,
            (2, 5, ALL, 8),
            (1, 2, 3),
            "leader-change",
            "controller-decided",
            "the controller decided so for a reason that it sent to no broker",
            id="no-reason-is-visible",
        ),
    ],
)
def test_causes_are_inferred_and_say_so(
    before: State, after: State, live: tuple[int, ...], kind: str, cause: str, text: str
) -> None:
    broker = Obedient()
    if before is not BEGIN:
        broker.update(before)
    broker.update(after)
    broker.update(after, live=live)  # the list of live brokers can come after the states
    *earlier, event = broker.events()
    assert len(earlier) == (before is not BEGIN)
    assert (event["kind"], event["cause"], event["text"]) == (kind, cause, text)
    assert event["inferred"] is True
    assert event["id"] == f"e9.{after[1]}.{after[3]}:orders-0"
    assert "metadata_offset" not in event


def test_moved_replicas_and_a_partition_without_a_leader() -> None:
    broker = Obedient()
    broker.update((3, 5, ALL, 8), [1, 2, 3, 4])
    broker.update((-1, 6, [3], 9), [1, 2, 3, 4], live=(1, 2))
    assert [event["cause"] for event in broker.events()] == ["reassignment-asked", "broker-gone"]
    broker.update((3, 7, [3], 10), [1, 2, 3, 4])
    event = broker.events()[-1]
    assert (event["cause"], event["text"]) == ("broker-back", "broker 3 is back and can lead")


def test_a_new_controller_is_an_event() -> None:
    broker = Obedient()
    broker.update((1, 5, [1, 2], 8), live=(1, 2), epoch=10)
    controller, change = broker.events()
    assert (controller["kind"], controller["epoch"], controller["id"]) == ("controller-change", 10, "e10:controller:1")
    assert change["id"] == "e10.5.8:orders-0"


def test_a_controller_with_a_journal_writes_its_causes_itself() -> None:
    broker = Obedient(f"broker-{CONTROLLER}")
    broker.update((1, 5, [1, 2], 8), live=(1, 2))
    assert broker.events() == []


def test_thousands_of_partitions_are_explained_in_slices() -> None:
    """A broker with 5,000 partitions dies. The watch over all tests fails turns above 50 ms of CPU; explaining all of
    them in one took 90 ms.
    """
    broker, count = Obedient(), 5_000
    broker.update(BEGIN, partitions=count)
    broker.update((1, 5, [1, 2], 8), live=(1, 2), partitions=count)
    events = broker.events()
    assert {event["cause"] for event in events} == {"broker-gone"}
    assert sorted(event["partition"] for event in events) == [*range(count)]
