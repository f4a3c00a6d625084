"""FindCoordinator: the leader of the group's partition, with its address on the listener of the request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from immutables import Map
from tests.support.group_world import GroupWorld
from tests.support.txn_world import TransactionWorld

from barnabas.broker.handlers import find_coordinator
from barnabas.broker.requests.context import Services
from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.registrations import BrokerImage, Endpoint
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.protocol import codec
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

PARTITIONS = 5


@dataclass
class FakeContext:
    api_version: int
    listener: str = "PLAINTEXT"


@dataclass
class Store:
    image: MetadataImage


@dataclass
class FakeServices:
    """The part of the broker that the handler uses."""

    metadata: Store
    groups: Any
    transactions: Any = None
    created: list[str] = field(default_factory=list)


def broker(broker_id: int, *, fenced: bool = False) -> BrokerImage:
    endpoints = (Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0), Endpoint("INTERNAL", f"in{broker_id}", 9094, 0))
    return BrokerImage(broker_id, 1, bytes(16), endpoints, fenced=fenced)


def services(
    *, exists: bool = True, fenced: bool = False, leader: int = 2, topic: str = "__consumer_offsets"
) -> FakeServices:
    topics: Map[str, TopicImage] = Map()
    if exists:
        partition = PartitionImage((leader,), (leader,), leader, 0, 0)
        topics = topics.set(topic, TopicImage(topic, bytes(16), (partition,) * PARTITIONS))
    image = MetadataImage(topics_by_name=topics, brokers=Map({2: broker(2, fenced=fenced)}))
    return FakeServices(Store(image), GroupWorld(partitions=PARTITIONS).coordinator)


def call(
    where: FakeServices, version: int, *keys: str, key_type: int = 0, listener: str = "PLAINTEXT"
) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        request.key = keys[0]
    response = find_coordinator.handle(cast(Any, FakeContext(version, listener)), request, cast(Services, where))
    codec.encode(response, version)
    return response


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_one_key_is_asked_for_before_version_4(version: int) -> None:
    found = call(services(), version, "g")
    assert (found.error_code, found.error_message, found.node_id, found.host, found.port) == (
        0,
        "NONE",
        2,
        "host2",
        9092,
    )


@pytest.mark.parametrize("version", [4, 5, 6])
def test_several_keys_are_asked_for_since_version_4(version: int) -> None:
    found = call(services(), version, "a", "b", listener="INTERNAL").coordinators
    assert [(one.key, one.node_id, one.host, one.port, one.error_code, one.error_message) for one in found] == [
        ("a", 2, "in2", 9094, 0, ""),
        ("b", 2, "in2", 9094, 0, ""),
    ]


def test_the_topic_is_created_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    where = services(exists=False)
    monkeypatch.setattr(find_coordinator, "ensure_internal_topic", lambda _, name: where.created.append(name))
    found = call(where, 6, "g").coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (15, -1, "", -1)
    assert where.created == ["__consumer_offsets"]


@pytest.mark.parametrize("where", [services(fenced=True), services(leader=-1), services(leader=9)])
def test_without_a_living_leader_there_is_no_coordinator_yet(where: FakeServices) -> None:
    assert call(where, 6, "g").coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = call(where, 3, "g")
    assert (found.error_code, found.error_message) == (15, "The coordinator is not available.")


def test_a_listener_that_the_leader_does_not_have_finds_nobody() -> None:
    assert call(services(), 6, "g", listener="OTHER").coordinators[0].error_code == 15


def test_there_is_no_coordinator_of_share_groups() -> None:
    assert call(services(), 6, "t", key_type=2).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 3, 6])
def test_a_transactional_id_is_coordinated_by_the_leader_of_its_partition(version: int) -> None:
    where = services(topic="__transaction_state")
    where.transactions = TransactionWorld(partitions=PARTITIONS).coordinator
    found = call(where, version, "t", key_type=1)
    node_id = found.coordinators[0].node_id if version >= 4 else found.node_id
    assert node_id == 2
    assert call(services(), 6, "t", key_type=0).coordinators[0].error_code == ErrorCode.NONE
