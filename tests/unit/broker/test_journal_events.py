"""The journal's events of changes that a real controller decided."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.controller_world import ControllerWorld
from tests.support.isr_requests import isr_request

from barnabas.common.bulk_events import BULK_KIND, is_bulk, unpacked
from barnabas.common.errors import ErrorCode
from barnabas.controller.requests import brokers, configs, elections, partitions, reassignments, topics
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.journal import bulk
from barnabas.journal.causes import CAUSES, cause_of_change
from barnabas.journal.event_record import record_of
from barnabas.journal.events import Event, MetadataChange, events_of
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.replication.isr_reasons import REASON_TAG, encode_reason
from barnabas.replication.leadership import Leadership

NODE = 9


def as_json(events: list[Event]) -> list[Event]:
    """Returns the events as a reader gets them."""
    return [json.loads(record_of(event).value or b"") for event in events]


def unpacked_by_id(events: list[Event]) -> dict[str, Event]:
    found = [each for event in as_json(events) for each in (unpacked(event) if is_bulk(event) else (event,))]
    assert len({event["id"] for event in found}) == len(found)
    return {event["id"]: event for event in found}


class TellingWorld(ControllerWorld):
    """Decides, and tells what was decided."""

    def __init__(self, brokers_: int = 3) -> None:
        super().__init__()
        for broker_id in range(1, brokers_ + 1):
            self.add_broker(broker_id)

    def tell(self, result: Result[Any], *, forget_cause: bool = False) -> list[Event]:
        before = self.image
        self.apply(result)
        return self.told(before, None if forget_cause else result.cause, result)

    def told(self, before: MetadataImage, cause: Cause | None, result: Result[Any]) -> list[Event]:
        delta = MetadataDelta(before)
        for record, _ in result.records:
            delta.replay(record)
        change = MetadataChange(delta, self.image, cause)
        told = [event for _, event in events_of(change, self.view(), NODE)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk, "UNPACKED_MAX", 0)
            in_bulk = [event for _, event in events_of(change, self.view(), NODE)]
        assert unpacked_by_id(in_bulk) == unpacked_by_id(told)
        return told

    def create(self, name: str, *replicas: list[int], **configs_: str) -> list[Event]:  # type: ignore[override]
        rows = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ]
        set_configs = [CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs_.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=set_configs
        )
        return self.tell(topics.create_topics(self.view(), CreateTopicsRequest(topics=[topic]), "User:ann"))

    def fence(  # type: ignore[override]
        self, broker_id: int, why: ControllerEvent = ControllerEvent.SESSION_EXPIRED, **options: bool
    ) -> list[Event]:
        records = brokers.fence(self.view(), self.image.brokers[broker_id]).records
        return self.tell(Result(records, None, Cause(why, "controller", f"broker {broker_id}")), **options)


@pytest.fixture
def world() -> TellingWorld:
    return TellingWorld()


def one(events: list[Event], kind: str) -> Event:
    found = [event for event in events if event["kind"] == kind]
    assert len(found) == 1, [event["kind"] for event in events]
    return found[0]


def test_a_new_topic_with_its_places(world: TellingWorld) -> None:
    event = one(world.create("t", [1, 2, 3], [2, 3, 1]), "topic-created")
    assert event["replicas"] == [(1, 2, 3), (2, 3, 1)]
    assert (event["leaders"], event["isrs"]) == ([1, 2], [(1, 2, 3), (2, 3, 1)])
    assert (event["first_partition"], event["partitions"], event["min_isr"]) == (0, 2, 1)
    assert (event["cause"], event["actor"], event["text"]) == ("create-asked", "User:ann", "User:ann created t")
    assert (event["v"], event["node"], event["metadata_offset"]) == (1, NODE, world.image.offset)


def test_many_partitions_are_written_in_parts(world: TellingWorld) -> None:
    events = world.create("t", *[[1, 2, 3]] * 450)
    assert [(event["first_partition"], event["partitions"]) for event in events] == [(0, 200), (200, 200), (400, 50)]
    assert len({event["id"] for event in events}) == 3


def test_a_fenced_leader(world: TellingWorld) -> None:
    world.create("t", [1, 2, 3])
    events = world.fence(1, ControllerEvent.PROCESS_GONE)
    assert [event["kind"] for event in events] == ["broker-fenced", "leader-change"]
    fenced, change = events
    assert (fenced["broker"], fenced["before"]["fenced"], fenced["after"]["fenced"]) == (1, False, True)
    assert (change["changes"], change["cause"]) == (["leader-change", "isr-shrink"], "broker-gone")
    assert change["text"].startswith("broker 1 was fenced: ")
    assert change["before"] == {
        "leader": 1,
        "leader_epoch": 0,
        "isr": (1, 2, 3),
        "replicas": (1, 2, 3),
        "partition_epoch": 0,
    }
    assert (change["after"]["leader"], change["after"]["leader_epoch"], change["after"]["isr"]) == (2, 1, (2, 3))
    assert change["id"] == f"{world.image.offset}:t-0"


def test_every_event_of_a_change_has_an_id_of_its_own(world: TellingWorld) -> None:
    world.create("t", *[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 5)
    events = world.fence(2)
    assert len(events) == 16
    assert len({event["id"] for event in events}) == 16


def test_a_large_decision_is_written_in_bulk(world: TellingWorld) -> None:
    """A few events have all partitions of the decision, in its order; each bulk is a record of its own."""
    for name in ("t", "u"):
        world.create(name, *[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 75)
    events = world.fence(2)
    bulks = [event for event in events if event["kind"] == BULK_KIND]
    assert [event["kind"] for event in events] == ["broker-fenced", *[BULK_KIND] * 3]
    assert [len(event["partition"]) for event in bulks] == [200, 200, 50]
    assert [[topic[0] for topic in event["topics"]] for event in bulks] == [["t"], ["t", "u"], ["u"]]
    assert [topic[3] for event in bulks for topic in event["topics"]] == [200, 25, 175, 50]
    assert all(len(event["transitions"]) == 3 for event in bulks)
    singles = [each for event in as_json(bulks) for each in unpacked(event)]
    assert len({each["id"] for each in singles}) == 450
    assert {each["cause"] for each in singles} == {"session-expired"}
    assert [each["partition"] for event in as_json(bulks) for each in unpacked(event, _only_u)] == list(range(225))


def _only_u(topic: str) -> frozenset[int] | None:
    return None if topic == "u" else frozenset()


def test_a_controller_that_did_not_decide_writes_the_same_event_except_for_the_cause() -> None:
    told = []
    for forget_cause in (False, True):
        world = TellingWorld()
        world.create("t", [1, 2, 3])
        told.append(world.fence(1, forget_cause=forget_cause))
    for known, inferred in zip(*told, strict=True):
        assert "inferred" not in known
        assert inferred.pop("inferred") is True
        assert inferred["cause"] == "broker-fenced"
        for field in ("cause", "text", "actor", "topic_id"):
            known.pop(field, None)
            inferred.pop(field, None)
        assert known == inferred


def leadership_of(world: TellingWorld) -> Leadership:
    return Leadership(1, world.partition("t"), 0, 1_000)


def test_a_lagging_follower_as_its_leader_saw_it(world: TellingWorld) -> None:
    world.create("t", [1, 2, 3])
    leadership = leadership_of(world)
    leadership.on_fetch(3, 40, 0, -1, 40, 5_000)
    leadership.propose((1, 2))
    request = isr_request(world.image, [1, 2])
    request.topics[0].partitions[0].unknown_tags = encode_reason(leadership, 100, 36_000)
    event = one(world.tell(partitions.alter_partition(world.view(), request, 3)), "isr-shrink")
    assert (event["cause"], event["actor"]) == ("follower-lagged", "broker 1")
    assert event["seen"] == {"leader_leo": 100, "members": [{"broker_id": 3, "leo": 40, "lag_ms": 31_000}]}
    assert event["text"] == (
        "broker 3 fell behind leader 1 for longer than replica.lag.time.max.ms: log end offset 40, last caught up with "
        "the leader 31000 ms before; the leader's log end offset 100"
    )


def test_a_follower_that_caught_up(world: TellingWorld) -> None:
    world.create("t", [1, 2, 3])
    world.fence(3)
    world.beat(3)
    leadership = leadership_of(world)
    leadership.on_fetch(3, 100, 0, -1, 100, 5_000)
    leadership.propose((1, 2, 3))
    request = isr_request(world.image, [1, 2, 3])
    request.topics[0].partitions[0].unknown_tags = encode_reason(leadership, 100, 5_000)
    event = one(world.tell(partitions.alter_partition(world.view(), request, 3)), "isr-expand")
    assert event["cause"] == "follower-caught-up"
    assert event["text"] == "broker 3 caught up with leader 1: log end offset 100, the leader's 100"


@pytest.mark.parametrize(
    "tags", [(), ((REASON_TAG, b""),), ((REASON_TAG, b"x" * 9),), ((3, b"abc"),), ((REASON_TAG, bytes(1 << 20)),)]
)
def test_a_leader_that_says_nothing_readable(world: TellingWorld, tags: tuple[tuple[int, bytes], ...]) -> None:
    """Kafka's brokers send no such field, and anybody may send any."""
    world.create("t", [1, 2, 3])
    request = isr_request(world.image, [1, 2])
    request.topics[0].partitions[0].unknown_tags = tags
    event = one(world.tell(partitions.alter_partition(world.view(), request, 3)), "isr-shrink")
    assert "seen" not in event
    assert event["text"] == "broker 3 fell behind leader 1 for longer than replica.lag.time.max.ms"


def test_preferred_elections(world: TellingWorld) -> None:
    world.create("t", [1, 2, 3])
    world.fence(1)
    world.beat(1)
    world.apply(partitions.alter_partition(world.view(), isr_request(world.image, [2, 3, 1]), 3))
    requested = ElectLeadersRequest(election_type=elections.PREFERRED, topic_partitions=None)
    event = one(world.tell(elections.elect_leaders(world.view(), requested, "User:ann")), "preferred-election")
    assert event["text"] == "User:ann requested a preferred election"
    assert (event["before"]["leader"], event["after"]["leader"]) == (2, 1)


def test_an_unclean_election_says_whose_records_are_lost(world: TellingWorld) -> None:
    world.create("t", [1, 2], **{"unclean.leader.election.enable": "true"})
    world.apply(partitions.alter_partition(world.view(), isr_request(world.image, [1]), 3))
    event = one(world.fence(1), "unclean-election")
    assert (event["after"]["leader"], event["after"]["isr"], event["after"]["recovering"]) == (2, (2,), True)
    assert "replica 2 was neither in sync nor eligible: records only on [1] are lost" in event["text"]


def test_a_reassignment_from_begin_to_end(world: TellingWorld) -> None:
    world.add_broker(4)
    world.create("t", [1, 2, 3])

    def move(replicas: list[int] | None) -> list[Event]:
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        return world.tell(reassignments.alter_reassignments(world.view(), request, "User:ann"))

    started = one(move([1, 2, 4]), "reassignment-started")
    assert (started["after"]["adding"], started["after"]["removing"]) == ((4,), (3,))
    cancelled = one(move(None), "reassignment-cancelled")
    assert cancelled["after"]["replicas"] == (1, 2, 3)
    assert cancelled["changes"] == ["reassignment-cancelled", "leader-epoch"]
    move([1, 2, 4])
    result = partitions.alter_partition(world.view(), isr_request(world.image, [1, 2, 3, 4]), 3)
    assert result.response.error_code == ErrorCode.NONE
    ended = one(world.tell(result), "reassignment-ended")
    assert (ended["cause"], ended["after"]["replicas"]) == ("reassignment-done", (1, 2, 4))


def test_settings_partitions_and_the_end_of_a_topic(world: TellingWorld) -> None:
    world.create("t", [1, 2, 3])
    entries = [("retention.ms", 0, "1000")]
    event = one(world.tell(configs.alter_configs(world.view(), [(2, "t", entries)], "User:ann")), "config-changed")
    assert (event["name"], event["before"], event["after"]) == ("t", {"retention.ms": None}, {"retention.ms": "1000"})
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)]
    )
    event = one(world.tell(topics.create_partitions(world.view(), grown, "User:ann")), "partitions-added")
    assert (event["first_partition"], event["partitions"]) == (1, 2)
    gone = DeleteTopicsRequest(topic_names=["t"])
    events = world.tell(topics.delete_topics(world.view(), gone, "User:ann"))
    assert [(event["kind"], event["topic"], event["partitions"]) for event in events] == [("topic-deleted", "t", 3)]


def test_secrets_are_not_written(world: TellingWorld) -> None:
    entries = [("ssl.keystore.password", 0, "hunter2"), ("log.retention.ms", 0, "5"), ("unheard.of", 0, "hunter3")]
    event = one(world.tell(configs.alter_configs(world.view(), [(4, "1", entries)], "User:ann")), "config-changed")
    assert "hunter" not in str(event)
    assert event["after"]["log.retention.ms"] == "5"


def test_every_cause_of_the_controller_has_a_sentence() -> None:
    """A cause that somebody adds to a decision must have a code of its own."""
    assert set(CAUSES) == set(ControllerEvent)
    assert len({code for code, _ in CAUSES.values()}) == len(CAUSES)


def test_the_losses_of_a_registration_do_not_hide_its_cause(world: TellingWorld) -> None:
    """The controller adds unclean elections to the detail of the decision that holds them."""
    cause = Cause(ControllerEvent.UNCLEAN_INCARNATION, "broker 1", "unclean election: t-0")
    assert cause_of_change(cause, MetadataDelta(world.image)).code == "unclean-shutdown"
