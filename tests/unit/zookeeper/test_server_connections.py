"""Connections: bad input ends one of them only; limits, authentication, throttling and slow readers."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode

import pytest
from tests.support.zookeeper_client import Answer
from tests.support.zookeeper_world import World

from barnabas.simulation.host import MemoryLink
from barnabas.zookeeper.server.connection import Address
from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import ErrorCode, OpCode


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0x100000),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_a_malformed_first_frame_ends_its_connection_only(data: bytes) -> None:
    world = World()
    other, client = world.session(), world.client()
    client.send(data)
    assert client.link.is_closed
    assert not client.link.sent
    assert other.exists("/").error == 0


@pytest.mark.parametrize("data", [struct.pack(">i", -5), struct.pack(">i", 1 << 30), struct.pack(">i", 7) + b"1234567"])
def test_a_malformed_later_frame_ends_its_connection_and_not_its_session(data: bytes) -> None:
    world = World()
    client = world.session()
    client.send(data)
    assert client.link.is_closed
    again = world.client()
    assert again.connect(5000, client.session_id, client.password) == 5000


def test_a_frame_as_long_as_the_limit_is_served_byte_by_byte() -> None:
    world = World(frame_bytes_max=300)
    client = world.session()
    request = r.CreateRequest("/a", b"x" * 251, r.OPEN_ACL, 0)
    frame = frames.request_frame(100, OpCode.CREATE, request)
    assert len(frame) - 4 == 300
    for at in range(len(frame)):
        client.send(frame[at : at + 1])
    assert client.stat("/a").data_length == 251


def test_an_unknown_operation_is_unimplemented_and_closes() -> None:
    client = World().session()
    client.send(struct.pack(">iii", 8, 7, 55))
    answers = client.take()
    assert answers == [Answer(7, -1, ErrorCode.UNIMPLEMENTED)]
    assert client.link.is_closed


def test_a_short_body_is_a_marshalling_error() -> None:
    client = World().session()
    for op in (OpCode.GET_DATA, OpCode.CREATE, OpCode.MULTI, OpCode.MULTI_READ, OpCode.SYNC, OpCode.SET_WATCHES):
        client.send(struct.pack(">iiii", 12, 7, op, 1000))
        assert [each.error for each in client.take() if isinstance(each, Answer)] == [ErrorCode.MARSHALLING_ERROR]
    assert client.exists("/").error == 0


def test_connections_of_one_address_are_limited() -> None:
    world = World(client_connections_max=2)
    first = world.client("10.0.0.1")
    world.client("10.0.0.1")
    assert world.server.accept(MemoryLink(), Address("10.0.0.1", 1)) is None
    assert world.server.accept(MemoryLink(), Address("10.0.0.2", 1)) is not None
    first.core.closed()
    assert world.server.accept(MemoryLink(), Address("10.0.0.1", 1)) is not None


def test_a_connection_that_asks_for_nothing_is_closed() -> None:
    world = World()
    idle, client = world.client(), world.session(20_000)
    world.run_for(10_100)
    assert idle.link.is_closed
    assert not client.link.is_closed


def test_an_unknown_scheme_fails_and_closes() -> None:
    client = World().session()
    client.begin(OpCode.AUTH, r.AuthPacket(0, "kerberos", b""))
    assert client.take() == [Answer(1, 0, ErrorCode.AUTH_FAILED)]
    assert client.link.is_closed


def test_acls_are_checked_by_identity() -> None:
    digest = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # the digest of "super:admin"
    world = World(super_digest=digest)
    owner, other = world.session(), world.session()
    assert owner.create("/a", acl=r.CREATOR_ALL_ACL).error == ErrorCode.INVALID_ACL
    assert owner.call(OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p")).error == 0
    assert owner.create("/a", b"x", acl=r.CREATOR_ALL_ACL).error == 0
    shown = owner.call(OpCode.GET_ACL, r.PathRequest("/a")).body.acl
    password = b64encode(hashlib.sha1(b"u:p").digest()).decode()
    assert shown == (r.Acl(31, r.Id("digest", f"u:{password}")),)
    for answer in (
        other.get("/a"),
        other.exists("/a"),
        other.children("/a"),
        other.set("/a", b""),
        other.create("/a/b"),
        other.call(OpCode.GET_ACL, r.PathRequest("/a")),
        other.call(OpCode.SET_ACL, r.SetAclRequest("/a", r.OPEN_ACL, -1)),
    ):
        assert answer.error == ErrorCode.NO_AUTH
    other.call(OpCode.AUTH, r.AuthPacket(0, "digest", b"super:admin"))
    assert other.get("/a").body.data == b"x"
    assert other.call(OpCode.WHO_AM_I).body.clients[-1] == r.ClientInfo("digest", "super")


def test_passwords_can_be_digested_with_another_algorithm() -> None:
    world = World(digest_algorithm="sha3_256")
    owner = world.session()
    assert owner.call(OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p")).error == 0
    owner.create("/a", acl=r.CREATOR_ALL_ACL)
    shown = owner.call(OpCode.GET_ACL, r.PathRequest("/a")).body.acl
    password = b64encode(hashlib.sha3_256(b"u:p").digest()).decode()
    assert shown == (r.Acl(31, r.Id("digest", f"u:{password}")),)


def test_without_the_digest_scheme_nobody_authenticates_and_no_acl_names_it() -> None:
    world = World(digest_scheme=False)
    client, other = world.session(), world.session()
    acl = (r.Acl(31, r.Id("digest", "u:hash")),)
    assert other.create("/a", acl=acl).error == ErrorCode.INVALID_ACL
    assert other.create("/a").error == 0
    assert other.call(OpCode.SET_ACL, r.SetAclRequest("/a", acl, -1)).error == ErrorCode.INVALID_ACL
    client.begin(OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p"))
    assert client.take() == [Answer(1, 0, ErrorCode.AUTH_FAILED)]
    assert client.link.is_closed


def test_addresses_are_allowed_by_network() -> None:
    world = World()
    acl = (r.Acl(31, r.Id("ip", "10.1.0.0/16")),)
    inside, outside = world.client("10.1.2.3"), world.client("10.2.0.1")
    inside.connect()
    outside.connect()
    assert inside.create("/a", acl=acl).error == 0
    assert inside.get("/a").error == 0
    assert outside.get("/a").error == ErrorCode.NO_AUTH
    assert inside.create("/b", acl=(r.Acl(31, r.Id("ip", "10.1.0.0/33")),)).error == ErrorCode.INVALID_ACL


def test_a_connection_is_not_read_while_too_many_requests_wait() -> None:
    world = World(outstanding_max=10)
    client = world.session()
    world.log.holds_syncs = True
    create = r.CreateRequest("/n", b"", r.OPEN_ACL, 2)
    client.send(b"".join(frames.request_frame(xid, OpCode.CREATE, create) for xid in range(1, 31)))
    assert not client.link.reading
    assert len(world.server.pipeline) < 15
    world.log.holds_syncs = False
    world.log.finish_sync()
    world.run_for(100)
    assert client.link.reading
    assert [each.xid for each in client.take() if isinstance(each, Answer)] == list(range(1, 31))


def test_a_client_that_does_not_read_its_answers_is_not_served() -> None:
    world = World()
    client = world.session()
    client.core.pause_writing()
    client.begin(OpCode.EXISTS, r.WatchedRequest("/", False))
    assert not client.take()
    assert not client.link.reading
    client.core.resume_writing()
    world.run_for(1)
    assert len(client.take()) == 1
    assert client.link.reading


def test_many_requests_of_one_read_leave_turns_to_others() -> None:
    world = World()
    client = world.session()
    read = r.WatchedRequest("/", False)
    client.send(b"".join(frames.request_frame(xid, OpCode.GET_DATA, read) for xid in range(1, 3001)))
    world.run_for(10)
    assert [each.xid for each in client.take() if isinstance(each, Answer)] == list(range(1, 3001))
