"""Members of groups over bare sockets, many at the same time in one process: none of them waits or retries by itself.

An exchange is a generator: it yields one request after the other and is sent the answers. An `ExchangeRunner` runs many
exchanges at the same time, each on a connection of its own.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

import wire
from barnabas.protocol.codec import encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_REBALANCE_IN_PROGRESS = 27
_MEMBER_ID_REQUIRED = 79
_JOIN_VERSION, _SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION = 5, 3, 3, 7
#: The longest session that a broker allows: no member sends heartbeats during the preparation.
_SESSION_MS = 1_800_000
_TIMEOUT_S = 120.0


class Call(NamedTuple):
    request: Message
    version: int
    answer: type[Message]


Exchange = Generator[Call, Any, None]


class ExchangeRunner:
    """Exchanges in progress. An error code that an exchange does not expect ends all of them with an exception."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._left = 0

    def begin(self, link: wire.Link, exchange: Exchange) -> None:
        """Sends the first request of the exchange."""
        self._left += 1
        call = next(exchange)
        self._selector.register(link, selectors.EVENT_READ, (link, exchange, call))
        link.send(wire.framed(call.request, call.version))

    def finish(self) -> float:
        """Runs until all exchanges are over, and returns the time when the last answer arrived."""
        last_at = time.monotonic()
        while self._left:
            ready = self._selector.select(1.0)
            if not ready and time.monotonic() > last_at + _TIMEOUT_S:
                raise RuntimeError(f"{self._left} members wait for an answer since {_TIMEOUT_S:.0f} s")
            for key, _ in ready:
                last_at = self._answered(key)
        return last_at

    def _answered(self, key: selectors.SelectorKey) -> float:
        link, exchange, call = key.data
        data = link.receive()
        at = time.monotonic()
        try:
            following = exchange.send(wire.decoded(call.request, call.version, call.answer, data))
        except StopIteration:
            self._selector.unregister(link)
            self._left -= 1
        else:
            self._selector.modify(link, selectors.EVENT_READ, (link, exchange, following))
            link.send(wire.framed(following.request, following.version))
        return at


def run_exchanges(exchanges: Iterable[tuple[wire.Link, Exchange]]) -> float:
    """Runs all exchanges at the same time until the last is over, and returns that time."""
    runner = ExchangeRunner()
    for link, exchange in exchanges:
        runner.begin(link, exchange)
    return runner.finish()


class Member:
    """One member of a classic group that consumes the partitions of one topic with its peers."""

    def __init__(self, group: str, topic: str, partitions: int) -> None:
        self._group, self._topic, self._partitions = group, topic, partitions
        subscription = ConsumerProtocolSubscription(topics=[topic])
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=_blob(subscription))
        self._protocols = [protocol]
        self.member_id = ""
        self.generation = -1
        #: The assignment as in the answer to SyncGroup.
        self.assignment = b""

    def introduce(self) -> Exchange:
        """Requests a member id (KIP-394)."""
        answer = yield self._join()
        _expect(answer.error_code, _MEMBER_ID_REQUIRED)
        self.member_id = answer.member_id

    def join(self) -> Exchange:
        """Joins the next generation; ends when the assignment has arrived."""
        answer = yield self._join()
        _expect(answer.error_code)
        self.generation = answer.generation_id
        names = [member.member_id for member in answer.members] if answer.leader == self.member_id else []
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=self._share(index, len(names)))
                for index, name in enumerate(names)
            ],
        )
        synced = yield Call(sync, _SYNC_VERSION, SyncGroupResponse)
        _expect(synced.error_code)
        self.assignment = synced.assignment

    def rejoin(self) -> Exchange:
        """Learns of the rebalance by a heartbeat, and joins again."""
        yield from self._beat(_REBALANCE_IN_PROGRESS)
        yield from self.join()

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id)

    def beat(self) -> Exchange:
        yield from self._beat(0)

    def commit(self) -> Exchange:
        """Commits an offset for each partition of the topic."""
        request = commit_request(self._group, self._topic, self._partitions, self.generation, self.member_id)
        answer = yield Call(request, COMMIT_VERSION, OffsetCommitResponse)
        check_committed(answer)

    def _beat(self, expected: int) -> Exchange:
        answer = yield Call(self.heartbeat(), HEARTBEAT_VERSION, HeartbeatResponse)
        _expect(answer.error_code, expected)

    def _join(self) -> Call:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=self._protocols,
        )
        return Call(request, _JOIN_VERSION, JoinGroupResponse)

    def _share(self, index: int, members: int) -> bytes:
        indexes = list(range(index, self._partitions, members))
        mine = ConsumerProtocolAssignment.TopicPartition(topic=self._topic, partitions=indexes)
        return _blob(ConsumerProtocolAssignment(assigned_partitions=[mine] if indexes else []))


def commit_request(
    group: str, topic: str, partitions: int, generation: int = -1, member_id: str = ""
) -> OffsetCommitRequest:
    """Returns a commit; without generation and member it is that of a client outside the group."""
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=7)
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )


def check_committed(answer: OffsetCommitResponse) -> None:
    for topic in answer.topics:
        for row in topic.partitions:
            _expect(row.error_code)


def one_after_the_other(exchanges: Sequence[Exchange]) -> Exchange:
    """Returns an exchange that runs these exchanges one after the other on one connection."""
    for exchange in exchanges:
        yield from exchange


def _expect(code: int, expected: int = 0) -> None:
    if code != expected:
        raise RuntimeError(f"a member was answered with error {code}, not {expected}")


def _blob(message: Message) -> bytes:
    """Returns a message as the consumer protocol encodes it: version and content."""
    return b"\0\0" + bytes(encode(message, 0))
