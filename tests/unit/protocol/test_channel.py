"""A channel against a scripted peer: its requests, their versions, and the results for its callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer, LinkCondition, LinkEnd, PeerLink
from barnabas.common.kerberos import NoKerberos
from barnabas.protocol import codec
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.index import request_class
from barnabas.simulation.host import DeferredWork, RaisedFaults, SeededRandom, VirtualTime

M = TypeVar("M", bound=Message)

TIMES = ChannelTimes(request_timeout_ms=1000, setup_timeout_ms=500, backoff_ms=50, backoff_ms_max=200)
API_VERSIONS, FIND_COORDINATOR, HEARTBEAT = 18, 10, 63


class ScriptedPeer(PeerLink):
    """The other end of one dial."""

    def __init__(self, end: LinkEnd) -> None:
        self.end = end
        self.network: LinkCondition | None = None
        self.sent = bytearray()
        self.is_closed = False
        self.is_aborted = False

    def write(self, chunks: Sequence[Buffer]) -> None:
        assert not self.is_closed
        for chunk in chunks:
            self.sent += chunk

    @property
    def unsent_bytes(self) -> int:
        return 0

    def condition(self) -> LinkCondition | None:
        return self.network

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def requests(self) -> list[tuple[int, int, int, Message]]:
        """Returns (API key, version, correlation id, request) of the requests since the last call."""
        found = []
        while self.sent:
            size = int.from_bytes(self.sent[:4], "big")
            frame = memoryview(bytes(self.sent[4 : 4 + size]))
            del self.sent[: 4 + size]
            api_key, version, correlation_id, client_id, position = decode_request_header(frame)
            assert client_id == "node 7"
            message, end = codec.decode(request_class(api_key), version, frame, position)
            assert end == len(frame)
            found.append((api_key, version, correlation_id, message))
        return found

    def give(self, data: bytes, piece: int = 1 << 30) -> None:
        while data:
            room = self.end.get_buffer()
            count = min(len(room), len(data), piece)
            room[:count] = data[:count]
            self.end.received(count)
            data = data[count:]

    def answer(self, correlation_id: int, response: Message, version: int, *, piece: int = 1 << 30) -> None:
        self.give(frame_of(correlation_id, response, version), piece)

    def negotiate(self, ranges: dict[int, tuple[int, int]]) -> None:
        ((api_key, version, correlation_id, _),) = self.requests()
        assert api_key == API_VERSIONS
        self.answer(correlation_id, versions_answer(ranges), version)


def frame_of(correlation_id: int, response: Message, version: int) -> bytes:
    assert response.API_KEY is not None
    head = correlation_id.to_bytes(4, "big") + b"\0" * response_header_version(response.API_KEY, version)
    body = head + bytes(codec.encode(response, version))
    return len(body).to_bytes(4, "big") + body


def versions_answer(ranges: dict[int, tuple[int, int]]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges.items()
        ]
    )


class World:
    """`common.host`'s ports, as far as a channel needs them; it dials into this list."""

    def __init__(self) -> None:
        self.clock = self.timers = self.time = VirtualTime()
        self.random = SeededRandom(1)
        self.links = self
        self.faults = RaisedFaults()
        self.kerberos = NoKerberos()
        self.tickets = DeferredWork(self.time)
        self.dials: list[ScriptedPeer] = []
        self.channel = Channel(self, ReceiveArea(), ("peer", 9093), "node 7", TIMES)
        self.answers: list[Message | None] = []

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        assert (host, port) == ("peer", 9093)
        self.dials.append(ScriptedPeer(end))
        return self.dials[-1]

    def send(self, request: Message) -> None:
        self.channel.send(request, self.answers.append)

    @property
    def peer(self) -> ScriptedPeer:
        return self.dials[-1]

    def connected(self, ranges: dict[int, tuple[int, int]] | None = None) -> ScriptedPeer:
        self.peer.end.connected()
        self.peer.negotiate(ranges or {FIND_COORDINATOR: (0, 6), HEARTBEAT: (0, 1)})
        return self.peer


@pytest.fixture
def world() -> World:
    return World()


def heartbeat(offset: int = 0) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=1, broker_epoch=2, current_metadata_offset=offset)


def test_dials_with_the_first_request_and_asks_in_the_best_common_version(world: World) -> None:
    assert world.dials == []
    world.send(heartbeat())
    assert len(world.dials) == 1
    peer = world.connected({HEARTBEAT: (0, 0), FIND_COORDINATOR: (1, 99)})
    ((key, version, first, _),) = peer.requests()
    assert (key, version) == (HEARTBEAT, 0)
    world.send(FindCoordinatorRequest(coordinator_keys=["a"]))
    ((key, version, second, request),) = peer.requests()
    assert (key, version) == (FIND_COORDINATOR, FindCoordinatorRequest.VERSIONS[1])
    assert isinstance(request, FindCoordinatorRequest)
    assert request.coordinator_keys == ["a"]
    peer.answer(first, BrokerHeartbeatResponse(is_fenced=False), 0, piece=3)
    peer.answer(second, FindCoordinatorResponse(), version)
    assert world.answers == [BrokerHeartbeatResponse(is_fenced=False), FindCoordinatorResponse()]
    assert len(world.dials) == 1


def test_requests_that_waited_for_the_link_go_out_in_order_and_their_answers_come_in_one_piece(world: World) -> None:
    for offset in range(5):
        world.send(heartbeat(offset))
    peer = world.connected()
    requested = peer.requests()
    assert [
        entry[3].current_metadata_offset for entry in requested if isinstance(entry[3], BrokerHeartbeatRequest)
    ] == [
        0,
        1,
        2,
        3,
        4,
    ]
    peer.give(
        b"".join(frame_of(entry[2], BrokerHeartbeatResponse(throttle_time_ms=entry[2]), 1) for entry in requested)
    )
    assert [a.throttle_time_ms for a in world.answers if isinstance(a, BrokerHeartbeatResponse)] == [
        entry[2] for entry in requested
    ]


def test_a_peer_that_knows_only_old_versions_names_them_in_version_0(world: World) -> None:
    world.send(heartbeat())
    world.peer.end.connected()
    ((_, version, correlation_id, _),) = world.peer.requests()
    assert version == 3
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    world.peer.answer(correlation_id, refusal, 0)
    ((_, version, correlation_id, request),) = world.peer.requests()
    assert (version, request) == (0, ApiVersionsRequest())
    world.peer.answer(correlation_id, versions_answer({HEARTBEAT: (0, 0)}), 0)
    assert [(entry[0], entry[1]) for entry in world.peer.requests()] == [(HEARTBEAT, 0)]


def test_what_the_peer_does_not_offer_is_answered_with_none(world: World) -> None:
    world.send(heartbeat())
    peer = world.connected({FIND_COORDINATOR: (0, 6)})
    assert world.answers == []
    world.time.run_for(0)
    assert world.answers == [None]
    assert peer.requests() == []
    assert world.channel.is_ready


def test_a_refused_dial_answers_none_and_the_next_waits_longer_each_time(world: World) -> None:
    refusal = ConnectionRefusedError("nobody")
    pauses, errors = [], []
    for _ in range(6):
        before_ms, dials = world.time.now_ms(), len(world.dials)
        world.send(heartbeat())
        while len(world.dials) == dials and world.time.now_ms() < before_ms + 999:
            world.time.run_for(1)
        pauses.append(world.time.now_ms() - before_ms)
        world.peer.end.closed(refusal)
        errors.append(world.channel.last_error)
    assert world.answers == [None] * 6
    assert errors == [refusal] * 6
    for pause, expected in zip(pauses, (0, 50, 100, 200, 200, 200), strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected


def test_a_dead_link_answers_all_with_none_and_the_next_one_starts_anew(world: World) -> None:
    world.send(heartbeat(1))
    first = world.connected()
    world.send(heartbeat(2))
    stale = first.requests()
    first.end.closed(None)
    assert world.answers == [None, None]
    world.send(heartbeat(3))
    world.time.run_for(100)
    second = world.connected()
    assert second is not first
    first.answer(stale[0][2], BrokerHeartbeatResponse(), 1)
    ((_, version, correlation_id, _),) = second.requests()
    second.answer(correlation_id, BrokerHeartbeatResponse(is_caught_up=True), version)
    assert world.answers == [None, None, BrokerHeartbeatResponse(is_caught_up=True)]


def test_no_answer_in_time_ends_the_link(world: World) -> None:
    world.send(heartbeat(1))
    peer = world.connected()
    world.time.run_for(600)
    world.send(heartbeat(2))
    world.time.run_for(399)
    assert world.answers == []
    world.time.run_for(1)
    assert world.answers == [None, None]
    assert peer.is_aborted, "its requests can be repeated now, and must not arrive after those that follow"
    assert isinstance(world.channel.last_error, TimeoutError)


@pytest.mark.parametrize("connected", [False, True])
def test_a_connection_to_a_peer_that_never_sends_its_versions_is_closed(world: World, connected: bool) -> None:
    world.send(heartbeat())
    if connected:
        world.peer.end.connected()
    world.time.run_for(499)
    assert world.answers == []
    world.time.run_for(1)
    assert world.answers == [None]
    assert world.peer.is_closed


def test_a_dial_that_does_not_connect_is_begun_anew_and_its_time_does_not_grow(world: World) -> None:
    """The system's own attempts come ever more rarely: 1, 2, 4 ... s."""
    world.channel = Channel(world, ReceiveArea(), ("peer", 9093), "node 7", ChannelTimes(backoff_ms_max=200))
    for _ in range(12):
        before = len(world.dials)
        world.send(heartbeat())
        world.time.run_for(2_000 + 240 + 1)
        assert len(world.dials) >= before + 1
    assert len(world.dials) >= 12


def test_a_peer_that_connects_and_does_not_answer_gets_twice_the_time(world: World) -> None:
    """The peer is paused, or busy: another connection would be as slow."""
    world.channel = Channel(world, ReceiveArea(), ("peer", 9093), "node 7", ChannelTimes())
    for time_ms in (2_000, 4_000, 8_000, 10_000, 10_000):
        world.send(heartbeat())
        while not world.dials or world.peer.is_closed:
            world.time.run_for(10)
        world.peer.end.connected()
        world.time.run_for(time_ms - 1)
        assert not world.peer.is_closed
        world.time.run_for(1)
        assert world.peer.is_closed
    world.send(heartbeat())
    world.time.run_for(1_200)
    world.connected()
    world.peer.end.closed(None)
    world.send(heartbeat())
    world.time.run_for(1_200)
    world.peer.end.connected()
    world.time.run_for(2_000)
    assert world.peer.is_closed, "one that has answered begins anew"


def test_a_large_answer_may_take_its_time_as_long_as_it_comes(world: World) -> None:
    world.channel.send(heartbeat(), world.answers.append, timeout_ms=1_000, renews_timeout=True)
    peer = world.connected()
    ((_, version, correlation_id, _),) = peer.requests()
    frame = frame_of(correlation_id, BrokerHeartbeatResponse(is_caught_up=True), version)
    for place in range(len(frame) - 1):
        world.time.run_for(900)
        peer.give(frame[place : place + 1])
    assert world.answers == []
    peer.give(frame[-1:])
    assert world.answers == [BrokerHeartbeatResponse(is_caught_up=True)]
    world.channel.send(heartbeat(), world.answers.append, timeout_ms=1_000, renews_timeout=True)
    world.time.run_for(999)
    assert not peer.is_closed
    world.time.run_for(1)
    assert world.answers[1:] == [None]
    assert peer.is_closed


def test_a_request_may_have_less_time_than_others(world: World) -> None:
    world.send(heartbeat())
    world.channel.send(heartbeat(), lambda _: world.answers.append(BrokerHeartbeatResponse()), timeout_ms=100)
    world.time.run_for(100)
    assert world.answers == [BrokerHeartbeatResponse()]
    assert not world.peer.is_closed


def test_a_request_that_waited_for_the_link_times_out_and_the_link_stays(world: World) -> None:
    """Connecting took longer than the timeout left: no request was ever answered (seed 47 of `test_rare_events`,
    replication)."""
    world.channel.send(heartbeat(), world.answers.append, timeout_ms=300)
    peer = world.peer
    world.time.run_for(200)
    peer.end.connected()
    peer.negotiate({HEARTBEAT: (0, 1)})
    ((_, version, correlation_id, _),) = peer.requests()
    world.time.run_for(99)
    assert world.answers == []
    world.time.run_for(1)
    assert world.answers == [None]
    assert world.channel.is_ready
    world.channel.send(heartbeat(), world.answers.append, timeout_ms=300)
    ((_, _, following_id, _),) = peer.requests()
    peer.answer(correlation_id, BrokerHeartbeatResponse(), version)
    assert world.answers == [None], "this response is late"
    response = BrokerHeartbeatResponse(is_caught_up=True)
    peer.answer(following_id, response, version)
    assert world.answers == [None, response]
    world.time.run_for(5_000)
    assert not peer.is_closed


def test_a_link_that_answers_nothing_for_the_whole_timeout_is_closed(world: World) -> None:
    world.channel.send(heartbeat(), world.answers.append, timeout_ms=300)
    peer = world.peer
    world.time.run_for(200)
    peer.end.connected()
    peer.negotiate({HEARTBEAT: (0, 1)})
    world.time.run_for(299)
    assert (world.answers, peer.is_closed) == ([None], False)
    world.time.run_for(1)
    assert (world.answers, peer.is_closed) == ([None], True)


@pytest.mark.parametrize(
    "garbage",
    [
        frame_of(999, BrokerHeartbeatResponse(), 1),
        b"\0\0\0\2ab",
        b"\xff\xff\xff\xff",
        (8).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0\xff\xff\xff",
    ],
)
def test_an_answer_that_cannot_be_read_ends_the_link(world: World, garbage: bytes) -> None:
    world.send(heartbeat())
    peer = world.connected()
    peer.requests()
    peer.give(garbage)
    assert peer.is_closed
    assert world.answers == [None]
    assert not world.channel.is_ready


def test_closed_for_good(world: World) -> None:
    world.send(heartbeat())
    peer = world.connected()
    peer.requests()
    world.channel.close()
    assert peer.is_closed
    assert not peer.is_aborted, "what was written is still sent"
    assert world.answers == [None]
    world.send(heartbeat())
    assert world.answers == [None]
    world.time.run_for(10_000)
    assert world.answers == [None, None]
    assert len(world.dials) == 1


def test_a_caller_can_repeat_a_request_in_the_callback_of_its_failure(world: World) -> None:
    def again(answer: Message | None) -> None:
        world.answers.append(answer)
        if len(world.answers) < 3:
            world.channel.send(heartbeat(), again)

    world.channel.send(heartbeat(), again)
    for _ in range(3):
        world.peer.end.closed(ConnectionResetError())
        world.time.run_for(300)
    assert world.answers == [None, None, None]
    assert len(world.dials) == 3


def test_the_peers_versions_can_be_asked_for_as_anything_else(world: World) -> None:
    """The channel's user needs them too: they contain a voter's range of kraft.version (KIP-853)."""
    question = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    world.send(question)
    peer = world.connected({API_VERSIONS: (0, 4), HEARTBEAT: (0, 1)})
    world.send(heartbeat())
    (first, second) = peer.requests()
    assert (first[0], first[1]) == (API_VERSIONS, 4)
    assert first[3] == question
    told = versions_answer({HEARTBEAT: (0, 1)})
    peer.answer(first[2], told, 4)
    peer.answer(second[2], BrokerHeartbeatResponse(is_fenced=False), 1)
    assert world.answers == [told, BrokerHeartbeatResponse(is_fenced=False)]
    world.send(question)
    peer.end.closed(None)
    assert world.answers[2:] == [None], "it is notified of the end of the link too"
