"""Requests for the controller while the quorum has no leader, while its leader cannot commit, and after a change of
leader.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.wired import WiredBroker

from barnabas.broker.handlers.envelope import has_not_controller_error
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.errors import ErrorCode
from barnabas.common.host import LinkEnd, PeerLink
from barnabas.common.portions import whole
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.protocol.messages.vote import VoteResponse
from barnabas.simulation.host import MemoryHost, MemoryLink


def creation(timeout_ms: int = 60_000) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def change() -> IncrementalAlterConfigsRequest:
    cls = IncrementalAlterConfigsRequest
    one = cls.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    return cls(resources=[cls.AlterConfigsResource(resource_type=2, resource_name="orders", configs=[one])])


def allow_flushes(raft: Any) -> None:
    raft._execution._flusher._is_flushing = False


def hold_back_commits(wired: WiredBroker) -> Callable[[], None]:
    """Stops flushes, so that nothing is committed, until the returned function is called."""
    raft: Any = wired.broker.quorum.raft
    raft._execution._flusher._is_flushing = True

    def release() -> None:
        allow_flushes(raft)
        raft._run(raft._core.draft.flush)

    return release


def test_a_client_whose_request_no_controller_takes_gets_an_error_on_the_same_connection() -> None:
    wired = WiredBroker()
    wired.broker.quorum.controller.resign()
    client = wired.connect()
    response = client.call(creation(), 7, CreateTopicsResponse, within_ms=60_000)
    assert [each.error_code for each in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert wired.closes.causes == []


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(0, 5_000), (8_000, 8_000), (60_000, 30_000)])
def test_it_waits_as_long_as_the_client_says_within_bounds(timeout_ms: int, waits_ms: int) -> None:
    wired = WiredBroker()
    wired.broker.quorum.controller.resign()
    client = wired.connect()
    begin_ms = wired.host.clock.now_ms()
    client.call(creation(timeout_ms), 7, CreateTopicsResponse, within_ms=60_000)
    assert waits_ms <= wired.host.clock.now_ms() - begin_ms < waits_ms + 200


def test_a_controller_of_the_same_process_that_cannot_commit_keeps_nobody_waiting_for_ever() -> None:
    wired = WiredBroker()
    client = wired.connect()
    hold_back_commits(wired)
    created = client.call(creation(10_000), 7, CreateTopicsResponse, within_ms=60_000)
    assert [each.error_code for each in created.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    changed = client.call(change(), 1, IncrementalAlterConfigsResponse, within_ms=60_000)
    assert [each.error_code for each in changed.responses] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_decision_that_came_too_late_for_its_client_is_answered_once() -> None:
    wired = WiredBroker()
    client = wired.connect()
    release = hold_back_commits(wired)
    client.call(creation(5_000), 7, CreateTopicsResponse, within_ms=60_000)
    release()
    wired.host.time.run_for(60_000)
    assert "orders" in wired.broker.metadata.image.topics_by_name
    assert wired.closes.causes == []


def test_what_a_controller_cannot_decide_any_more_is_asked_of_the_next_one() -> None:
    """The controller resigns while the decision waits, and leads again soon after: the client gets only the second
    decision.
    """
    wired = WiredBroker()
    client = wired.connect()
    hold_back_commits(wired)
    raft = wired.broker.quorum.raft
    created, changed = client.send(creation(), 7), client.send(change(), 1)
    wired.host.time.run_for(100)
    raft._run(raft.quorum.become_resigned)
    allow_flushes(raft)
    wired.host.time.run_for(10_000)
    assert raft.is_leader
    received: dict[int, Any] = dict(client.received())
    # A proposal of the first term is committed by the second, so the topic exists already.
    assert received[created].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert received[changed].responses[0].error_code == ErrorCode.NONE
    assert "orders" in wired.broker.metadata.image.topics_by_name


def test_a_report_of_directories_fails_when_the_controller_no_longer_leads() -> None:
    wired = WiredBroker()
    hold_back_commits(wired)
    wired.connect().send(creation(), 7)
    answers: list[AssignReplicasToDirsResponse] = []
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=wired.broker.quorum.lifecycle.epoch)
    wired.broker.quorum.controller.assign_replicas_to_dirs(request, answers.append)
    assert answers == []
    raft = wired.broker.quorum.raft
    raft._run(raft.quorum.become_resigned)
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_CONTROLLER]


def test_a_mistake_in_telling_one_keeps_nothing_from_the_others() -> None:
    wired = WiredBroker()
    raft = wired.broker.quorum.raft
    hold_back_commits(wired)
    told: list[str] = []

    def mistaken() -> None:
        told.append("first")
        raise ZeroDivisionError

    for failed in (mistaken, lambda: told.append("second")):
        raft.propose([(NoOpRecord(), 0)], wall_ms=0, failed=failed)
    with pytest.raises(ZeroDivisionError):
        raft._run(raft.quorum.become_resigned)
    assert told == ["first", "second"]
    allow_flushes(raft)
    wired.host.time.run_for(10_000)
    assert raft.is_leader, "it has taken up its next role, and stood again"


def test_an_answer_of_a_former_controller_is_known_by_its_errors() -> None:
    result = CreateTopicsResponse.CreatableTopicResult
    topics = [result(name="a"), result(name="b", error_code=ErrorCode.NOT_CONTROLLER)]
    assert whole(has_not_controller_error(CreateTopicsResponse(topics=topics)))
    assert not whole(has_not_controller_error(CreateTopicsResponse(topics=topics[:1])))
    assert whole(has_not_controller_error(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)))
    assert whole(has_not_controller_error(DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    # A Vote response reports this error for its own reasons.
    assert not whole(has_not_controller_error(VoteResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))


def test_a_long_response_is_searched_in_steps() -> None:
    result = CreateTopicsResponse.CreatableTopicResult
    rows = [result(name=f"t{number}") for number in range(1_000)]
    assert sum(has_not_controller_error(CreateTopicsResponse(topics=rows))) == 10


class SilentLinks:
    """Every dial is taken and nothing answered."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        self.dialled.append((host, port))
        return MemoryLink()


def test_who_waits_for_a_former_leader_asks_the_new_one_at_once() -> None:
    """A paused leader keeps its connections: nothing shows that it will not answer."""
    host: Any = MemoryHost()
    links = host.links = SilentLinks()
    leader = ("first", 9093)
    own = SimpleNamespace(is_active=False)
    access = ControllerAccess(host, ReceiveArea(), "test", lambda: -1, lambda: leader, 30_000, lambda: own)
    answers: list[Message | None] = []
    access.send(BrokerHeartbeatRequest(), answers.append)
    host.time.run_for(500)
    access.on_leader()
    host.time.run_for(500)
    assert access.channel() is access.channel()
    assert links.dialled == [("first", 9093)], "it still leads"
    leader = ("second", 9093)
    access.on_leader()
    host.time.run_for(100)
    assert links.dialled == [("first", 9093), ("second", 9093)]
    host.time.run_for(28_000)
    assert answers == []
    host.time.run_for(2_000)
    assert answers == [None]


def test_an_abandoned_request_is_not_answered() -> None:
    host: Any = MemoryHost()
    waiting: list[Callable[[Message], None]] = []
    own = SimpleNamespace(is_active=True, handle=lambda request, reply: waiting.append(reply))
    access = ControllerAccess(host, ReceiveArea(), "test", lambda: -1, lambda: None, 30_000, lambda: own)
    answers: list[Message | None] = []
    abandoned = access.begin(BrokerHeartbeatRequest(), answers.append)
    abandoned.abandon()
    waiting[0](BrokerHeartbeatResponse())
    host.time.run_for(40_000)
    assert (len(waiting), answers) == (1, [])
