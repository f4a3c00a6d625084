"""An internal error in any continuation of a request costs that request, or its connection, and nothing else.

Every continuation of every kind of request is made to fail in turn (`tests.support.sabotage`): each time the request is
answered or its connection ends in bounded time, requests of other clients are answered as before, the controller
continues to lead, and one line names the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.property.test_request_fuzz import PAIRS, framed, new_broker, recorded
from tests.support.cold import always
from tests.support.sabotage import Saboteur, installed
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce_request

from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.produce import ProduceResponse

Send = Callable[[WiredBroker, WiredClient], None]
#: A time longer than any wait.
WITHIN_MS = 45_000
STEP_MS = 500


def check_well(wired: WiredBroker, bystander: WiredClient) -> None:
    broker = wired.broker
    assert broker.quorum.controller.is_active
    assert broker.quorum.raft.is_leader
    assert not bystander.core.is_closed
    produced = produce_request(wired, batch_of(b"mine"), 9)
    produced.topic_data[0].name = "canary"
    row = bystander.call(produced, 9, ProduceResponse).responses[0].partition_responses[0]
    assert row.error_code == 0
    create = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="mine", num_partitions=1, replication_factor=1)],
        timeout_ms=5_000,
        validate_only=True,
    )
    assert [topic.error_code for topic in bystander.call(create, 7, CreateTopicsResponse).topics] == [0]


def fail_one(send: Send, target: int, *, after: bool, wired: WiredBroker, listener: str) -> Saboteur:
    """Sends a request, with the `target`-th of its continuations failing. Returns the saboteur, which has seen them
    all.
    """
    bystander, client = wired.connect(), wired.connect()
    if listener == "CONTROLLER":
        client.core = wired.broker.dispatcher("CONTROLLER").connect(client.link, "/127.0.0.1", listener)
    wired.closes.errors.clear()
    wired.closes.causes.clear()
    wired.closes.failures.clear()
    saboteur = Saboteur(client.core, target, after=after)
    with installed(saboteur):
        send(wired, client)
        waited_ms = 0
        while not client.link.sent and not client.core.is_closed and waited_ms < WITHIN_MS:
            wired.host.time.run_for(STEP_MS)
            waited_ms += STEP_MS
    assert client.link.sent or client.core.is_closed, f"no answer after {saboteur.kinds[target]} failed"
    if target >= 0 and saboteur.has_struck:
        told = [*wired.closes.causes, *wired.closes.failures, *(text for text, _ in wired.host.faults.reported)]
        assert told, saboteur.kinds[target]
    wired.host.time.run_for(STEP_MS)
    client.core.closed()
    check_well(wired, bystander)
    return saboteur


def fail_each(send: Send, make: Callable[[], WiredBroker], listener: str = "PLAINTEXT") -> set[str]:
    """Lets every continuation fail, before and after its work. Returns the names of all kinds."""
    wired = make()
    kinds = fail_one(send, -1, after=False, wired=wired, listener=listener).kinds
    assert wired.closes.errors == []
    assert kinds
    for after in (False, True):
        for target in range(len(kinds)):
            fail_one(send, target, after=after, wired=make(), listener=listener)
    return set(kinds)


def recorded_one(pair: tuple[int, int]) -> Send:
    body = min(recorded()[pair], key=len)
    if pair[0] == 0:
        body = max(recorded()[pair], key=len)
    return lambda wired, client: client.send_raw(framed(body))


NEWEST = [(key, offer.version_max) for key, offer in sorted(BROKER_APIS.items())]
OLDER = [pair for pair in PAIRS if pair not in NEWEST]


@pytest.mark.parametrize("pair", NEWEST)
def test_requests_of_every_kind(pair: tuple[int, int]) -> None:
    """Guard G29."""
    fail_each(recorded_one(pair), new_broker)


@pytest.mark.full
@pytest.mark.parametrize("pair", OLDER)
def test_requests_of_every_older_version(pair: tuple[int, int]) -> None:
    fail_each(recorded_one(pair), new_broker)


# -- those that wait for something


def sending(make: Callable[[WiredBroker], Message], version: int) -> Send:
    def send(wired: WiredBroker, client: WiredClient) -> None:
        client.send(make(wired), version)

    return send


def replicated() -> WiredBroker:
    """Returns a broker whose `orders` has a second replica that never fetches."""
    wired = new_broker()
    leader = wired.broker.replicas.leader("orders", 0)
    assert leader.image is not None
    epoch = leader.image.leader_epoch + 1
    image = leader.image._replace(replicas=(1, 3), isr=(1, 3), directories=(bytes(16),) * 2, leader_epoch=epoch)
    leader.become_leader(image)
    wired.broker.replicas.environment.is_alive = lambda broker_id: True  # type: ignore[method-assign]
    return wired


def with_cold_records() -> WiredBroker:
    wired = new_broker()
    client = wired.connect()
    for _ in range(3):
        client.call(produce_request(wired, batch_of(b"a", b"b"), 9), 9, ProduceResponse)
    wired.host.disk.is_cold = always
    return wired


def list_offsets(wired: WiredBroker) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=1_735_689_600_001)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[partition])]
    )


def delete_records(wired: WiredBroker) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="orders", partitions=[partition])], timeout_ms=800
    )


def join(wired: WiredBroker) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


WAITING: dict[str, tuple[Send, Callable[[], WiredBroker], str]] = {
    "produce that waits for a follower": (
        sending(lambda wired: produce_request(wired, batch_of(b"x"), 9), 9),
        replicated,
        "DelayedProduce.on_complete",
    ),
    "fetch that waits for records": (
        sending(lambda wired: fetch_request(wired, 0, 12, max_wait_ms=800), 12),
        new_broker,
        "DelayedFetch.on_complete",
    ),
    "fetch that waits in a session": (
        sending(lambda wired: fetch_request(wired, 0, 12, max_wait_ms=800, session_epoch=0), 12),
        new_broker,
        "DelayedFetch.on_complete",
    ),
    "fetch of what memory has not got": (
        sending(lambda wired: fetch_request(wired, 0, 12), 12),
        with_cold_records,
        "_PendingFetch._load.<locals>.take",
    ),
    "search by time": (sending(list_offsets, 7), with_cold_records, "_Lookups._on_searched"),
    "deletion that waits for a follower": (
        sending(delete_records, 2),
        replicated,
        "DelayedDeleteRecords.on_complete",
    ),
    "join that waits for others": (
        sending(join, 3),
        lambda: coordinating(group_initial_rebalance_delay_ms="700"),
        "Rebalancer.prepare.<locals>.<lambda>",
    ),
}


def coordinating(**properties: Any) -> WiredBroker:
    """Returns a broker with a group coordinator."""
    wired = WiredBroker(**properties)
    wired.create_topic("orders", 2)
    wired.create_topic("canary")
    for _ in range(2):
        wired.connect().call(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        wired.host.time.run_for(1_000)
    return wired


def create(wired: WiredBroker) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000)


@pytest.mark.parametrize("name", WAITING)
def test_requests_that_wait(name: str) -> None:
    """Guard G29."""
    send, make, expected = WAITING[name]
    kinds = fail_each(send, make)
    assert any(kind.endswith(expected) for kind in kinds), kinds


# -- those that only a controller decides, in an envelope of the broker's or on the controller's listener


def test_continuations_of_the_metadata_log_and_of_envelopes_are_among_them() -> None:
    """The list of kinds agrees with the code, so that the tests above cover them."""
    kinds = fail_each(sending(create, 7), new_broker)
    for expected in ("PendingRequest._on_answer", "_ForwardedRequest._answered", "envelope:handle.<locals>.answered"):
        assert any(kind.endswith(expected) for kind in kinds), (expected, kinds)
    assert any("controller.kraft" in kind for kind in kinds), kinds


@pytest.mark.parametrize("key", sorted(set(CONTROLLER_APIS) & set(BROKER_APIS) - {1, 18}))
def test_requests_on_the_controllers_listener(key: int) -> None:
    body = min(recorded()[key, CONTROLLER_APIS[key].version_max], key=len)
    fail_each(lambda wired, client: client.send_raw(framed(body)), new_broker, listener="CONTROLLER")
