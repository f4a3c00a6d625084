"""Requests of all kinds, in parts and to a broker in memory, each with what must come back.

Connections carry many requests at once, cut anywhere, with clients that read late and frames that no broker can read:
responses come in order, one for each, and also those to requests before a bad one. Groups are described with the
operations that a client may do. Other parts are in `request_parts`.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.support.request_parts import explore_errors, explore_pieces, explore_searches, explore_throttle
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce_request

from barnabas.common.host import Buffer
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryLink
from barnabas.simulation.second_decision_table import second_decisions

#: Read, delete, describe, describe-configs and alter-configs, as bits of their codes; and no operations.
_GROUP_OPERATIONS: Final = sum(1 << code for code in (3, 6, 8, 10, 11))
_NO_OPERATIONS: Final = -(1 << 31)
_GROUP_NOT_FOUND: Final = 69


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"requests: {what} is {found!r}, it should be {expected!r}")


class SlowLink(MemoryLink):
    """A link that holds the broker back from `limit` unread bytes on, until `drain`."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.core: Any = None
        self.received = b""

    def write(self, chunks: Any) -> None:
        super().write(chunks)
        if len(self.sent) > self._limit:
            self.core.pause_writing()

    def drain(self) -> None:
        self.received += self.take()
        if not self.is_closed:
            self.core.resume_writing()


class RequestExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"requests {seed}")

    def run(self) -> None:
        with second_decisions().judging():
            for explore in (explore_errors, explore_pieces, explore_searches, explore_throttle):
                explore(self._random)
            self._broker = WiredBroker()
            self._broker.create_topic("orders", 2)
            for _ in range(4):
                self._pipeline()
            if self._random.random() < 0.5:
                self._describe_groups()
            self._broker.stop()

    # -- many requests of one connection

    def _pipeline(self) -> None:
        random, broker = self._random, self._broker
        client = broker.connect()
        link = SlowLink(random.choice((200, 3_000, 1 << 30)))
        client.core._link = link
        link.core = client.core
        stream, expected, surely = bytearray(), list[int](), list[int]()
        bad_at, waits = random.choice((None, 0, 1, 3, 8)), False
        for number in range(random.choice((1, 5, 12, 40))):
            if number == bad_at:
                stream += self._bad_frame(number)
                continue
            request, version, is_answered, can_wait = self._request()
            stream += _frame(request, version, number)
            waits |= can_wait
            if is_answered and (bad_at is None or number < bad_at):
                expected.append(number)
                if not waits:
                    surely.append(number)
        is_bad = bad_at is not None and bad_at <= number
        self._send(client, link, bytes(stream))
        for _ in range(60):
            broker.host.time.run_for(10)
            link.drain()
        found = _correlation_ids(link.received)
        if is_bad and waits:
            check("the answered requests before a bad one", found, expected[: len(found)])
            check("how many requests before a bad one are answered", len(found) >= len(surely), True)
        else:
            check("the answered requests", found, expected)
        check("whether the connection is closed", (client.core.is_closed, link.is_closed), (is_bad, is_bad))
        check("the errors of a broker", broker.closes.errors, [])
        if not is_bad:
            client.core.close()

    def _send(self, client: Any, link: SlowLink, data: bytes) -> None:
        random = self._random
        piece_max = random.choice((1, 100, 5_000, 1 << 20)) if len(data) < 3_000 else random.choice((500, 1 << 20))
        position = 0
        while position < len(data) and not client.core.is_closed:
            if not link.reading:  # As a socket does: nothing more is read until the broker wants it.
                self._broker.host.time.run_for(10)
                link.drain()
                continue
            size = random.randint(1, piece_max)
            client.send_raw(data[position : position + size])
            position += size
            if random.random() < 0.1:
                self._broker.host.time.run_for(random.choice((0, 1, 20)))
                link.drain()

    def _request(self) -> tuple[Message, int, bool, bool]:
        """Returns a request with its version, whether it is answered, and whether its response can come later."""
        random, broker, kind = self._random, self._broker, self._random.random()
        if kind < 0.2:
            return ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, True, False
        if kind < 0.4:
            names = ["orders", *(f"none{place}" for place in range(random.choice((0, 3, 30))))]
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, True, False
        if kind < 0.6:
            acks = random.choice((-1, 1, 0))
            data = batch_of(b"v" * random.choice((1, 500)))
            return produce_request(broker, data, 9, acks=acks), 9, acks != 0, False
        if kind < 0.8:
            return fetch_request(broker, 0, 12), 12, True, False
        if kind < 0.9:
            return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, True, True
        request = fetch_request(broker, 0, 12, max_wait_ms=random.choice((20, 100)), min_bytes=1 << 24)
        return request, 12, True, True

    def _bad_frame(self, number: int) -> bytes:
        kind = self._random.randrange(4)
        if kind == 0:
            return b"\xff\xff\xff\xfe"
        frame = bytearray(_frame(MetadataRequest(topics=None), 9, number))
        if kind == 1:
            frame[4:6] = b"\x03\xe7"  # An unknown API.
        elif kind == 2:
            frame[6:8] = b"\x00\x63"  # An unknown version.
        else:
            body = frame[4 : -self._random.randint(1, 3)]
            return len(body).to_bytes(4, "big") + body
        return bytes(frame)

    # -- groups

    def _describe_groups(self) -> None:
        random, client = self._random, self._broker.connect()
        groups = {name: self._join(client, name) for name in random.sample(("g1", "g2", "g3"), 2)}
        for _ in range(4):
            version, wants = random.randrange(2), random.random() < 0.6
            names = random.sample([*groups, "g4", "none"], random.randint(0, 4))
            names += [f"other{place}" for place in range(random.choice((0, 0, 210)))]
            request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=wants)
            response = client.call(request, version, ConsumerGroupDescribeResponse)
            found = [
                (each.group_id, each.error_code, each.authorized_operations, [row.member_id for row in each.members])
                for each in response.groups
            ]
            shown = _GROUP_OPERATIONS if wants else _NO_OPERATIONS
            expected = [
                (name, 0, shown, [groups[name]]) if name in groups else (name, _GROUP_NOT_FOUND, _NO_OPERATIONS, [])
                for name in names
            ]
            check(f"the description of {names[:9]}", found, expected)

    def _join(self, client: Any, group_id: str) -> str:
        """Adds a member to a group, and returns its id."""
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        join = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=group_id + "-member",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        for _ in range(20):
            client.call(find, 4, FindCoordinatorResponse)
            response = client.call(join, 1, ConsumerGroupHeartbeatResponse)
            if not response.error_code:
                return response.member_id or ""
            self._broker.host.time.run_for(100)
        raise Violation(f"requests: nobody can join {group_id}: error {response.error_code}")


def _frame(request: Message, version: int, correlation_id: int) -> bytes:
    key = type(request).API_KEY
    assert key is not None, "it is a request"
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="c"
    )
    body = codec.encode(header, request_header_version(key, version))
    codec.encode_into(request, version, body)
    return len(body).to_bytes(4, "big") + bytes(body)


def _correlation_ids(data: Buffer) -> list[int]:
    found, position = [], 0
    while position < len(data):
        found.append(int.from_bytes(data[position + 4 : position + 8], "big"))
        position += 4 + int.from_bytes(data[position : position + 4], "big")
    return found
