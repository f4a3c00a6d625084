"""ZooKeeper's wire records: what is written is read back, nonsense is refused by one error, and kazoo agrees."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL as KazooAcl
from kazoo.security import Id as KazooId

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.frames import FrameReader, event_frame, framed, reply_frame, request_frame
from barnabas.zookeeper.wire.operations import (
    MULTI_PARTS,
    MULTI_READ_PARTS,
    SHAPES,
    MultiRequest,
    MultiResponse,
    Part,
    Record,
    put_request,
    put_response,
    read_request,
    read_response,
)

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
ACLS = st.lists(st.builds(r.Acl, INTS, st.builds(r.Id, TEXTS, TEXTS)), max_size=3).map(tuple)
STATS = st.builds(r.Stat, LONGS, LONGS, LONGS, LONGS, INTS, INTS, INTS, LONGS, INTS, INTS, LONGS)
KINDS: dict[int, st.SearchStrategy[Any]] = {
    id(r.INT): INTS,
    id(r.LONG): LONGS,
    id(r.BOOL): st.booleans(),
    id(r.STRING): TEXTS,
    id(r.NULLABLE_STRING): st.none() | TEXTS,
    id(r.BUFFER): st.none() | st.binary(max_size=12),
    id(r.ACL): st.none() | ACLS,
    id(r.STAT): STATS,
    id(r.STRINGS): st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    id(r.CLIENTS): st.none() | st.lists(st.builds(r.ClientInfo, TEXTS, TEXTS), max_size=3).map(tuple),
    id(r.TRAILING_BOOL): st.none() | st.booleans(),
}


def record_of(kind: type[Record] | None) -> st.SearchStrategy[Record]:
    if kind is None:
        return st.just(())
    fields = [KINDS[id(field)] for field in r.LAYOUTS[kind]]
    return st.tuples(*fields).map(lambda values: kind(*values))


RECORDS = st.sampled_from(sorted(r.LAYOUTS, key=lambda kind: kind.__name__)).flatmap(record_of)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, Record]:
    op = draw(st.sampled_from(sorted(SHAPES)))
    if op not in (OpCode.MULTI, OpCode.MULTI_READ):
        return op, draw(record_of(SHAPES[op].request))
    parts = sorted(MULTI_PARTS if op == OpCode.MULTI else MULTI_READ_PARTS)
    ops = draw(st.lists(st.sampled_from(parts), max_size=3))
    return op, MultiRequest(tuple(Part(each, draw(record_of(SHAPES[each].request))) for each in ops))


@st.composite
def responses(draw: st.DrawFn) -> tuple[int, Record]:
    op = draw(st.sampled_from(sorted(SHAPES)))
    if op not in (OpCode.MULTI, OpCode.MULTI_READ):
        return op, draw(record_of(SHAPES[op].response))
    kinds = sorted(MULTI_PARTS if op == OpCode.MULTI else MULTI_READ_PARTS)
    parts = []
    for each in draw(st.lists(st.sampled_from([*kinds, OpCode.ERROR]), max_size=3)):
        result = r.ErrorResponse if each == OpCode.ERROR else SHAPES[each].response
        parts.append(Part(each, draw(record_of(result))))
    return op, MultiResponse(tuple(parts))


@given(RECORDS)
def test_a_record_is_read_back(record: Record) -> None:
    out = bytearray()
    r.put(out, record)
    reader = FieldReader(bytes(out))
    assert r.read(type(record), reader) == record
    assert reader.is_at_end


@given(requests())
def test_a_request_is_read_back(request: tuple[int, Record]) -> None:
    op, record = request
    out = bytearray()
    put_request(out, op, record)
    reader = FieldReader(bytes(out))
    assert read_request(op, reader) == record
    assert reader.is_at_end


@given(responses())
def test_a_response_is_read_back(response: tuple[int, Record]) -> None:
    op, record = response
    out = bytearray()
    put_response(out, op, record)
    reader = FieldReader(bytes(out))
    assert read_response(op, reader) == record
    assert reader.is_at_end


@given(requests(), st.data())
def test_a_cut_request_is_refused(request: tuple[int, Record], data: st.DataObject) -> None:
    op, record = request
    out = bytearray()
    put_request(out, op, record)
    if out:
        end = data.draw(st.integers(0, len(out) - 1))
        with pytest.raises(DecodeError):
            read_request(op, FieldReader(bytes(out[:end])))


@given(st.sampled_from(sorted(SHAPES)), st.binary(max_size=80))
def test_nonsense_is_read_or_refused(op: int, data: bytes) -> None:
    for read in (read_request, read_response):
        with contextlib.suppress(DecodeError):
            read(op, FieldReader(data))


@given(st.integers().filter(lambda op: op not in SHAPES))
def test_an_operation_that_does_not_exist_is_refused(op: int) -> None:
    with pytest.raises(DecodeError, match="there is no operation"):
        read_request(op, FieldReader(b""))


@given(st.lists(st.binary(max_size=30), max_size=5), st.data())
def test_frames_are_cut_wherever_the_data_is_split(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader(30)
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        found += reader.feed(stream[position : position + size])
        position += size
    assert found == bodies
    assert reader.pending_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 31, 2**31 - 1])
def test_a_frame_of_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(DecodeError, match=r"jute\.maxbuffer"):
        FrameReader(30).feed(struct.pack(">i", length))


# kazoo encodes requests and decodes responses by its own code.

#: kazoo writes "" as null, and does not return an empty path of a multi.
PATHS = TEXTS.map(lambda text: f"/{text}")
KAZOO_ACLS = st.lists(st.builds(r.Acl, INTS, st.builds(r.Id, PATHS, PATHS)), min_size=1, max_size=3).map(tuple)


def kazoo_acl(acl: tuple[r.Acl, ...]) -> list[Any]:
    return [KazooAcl(each.perms, KazooId(*each.id)) for each in acl]


@given(INTS, PATHS, st.binary(max_size=12), KAZOO_ACLS, st.integers(0, 6), INTS, st.booleans())
def test_kazoo_writes_the_same_requests(
    xid: int, path: str, value: bytes, acl: tuple[r.Acl, ...], flags: int, version: int, watch: bool
) -> None:
    watcher = (lambda event: None) if watch else None
    pairs: list[tuple[Any, int, Record]] = [
        (kazoo.Create(path, value, kazoo_acl(acl), flags), OpCode.CREATE, r.CreateRequest(path, value, acl, flags)),
        (kazoo.Create2(path, value, kazoo_acl(acl), flags), OpCode.CREATE2, r.CreateRequest(path, value, acl, flags)),
        (kazoo.Delete(path, version), OpCode.DELETE, r.DeleteRequest(path, version)),
        (kazoo.Exists(path, watcher), OpCode.EXISTS, r.WatchedRequest(path, watch)),
        (kazoo.GetData(path, watcher), OpCode.GET_DATA, r.WatchedRequest(path, watch)),
        (kazoo.SetData(path, value, version), OpCode.SET_DATA, r.SetDataRequest(path, value, version)),
        (kazoo.GetACL(path), OpCode.GET_ACL, r.PathRequest(path)),
        (kazoo.SetACL(path, kazoo_acl(acl), version), OpCode.SET_ACL, r.SetAclRequest(path, acl, version)),
        (kazoo.GetChildren(path, watcher), OpCode.GET_CHILDREN, r.WatchedRequest(path, watch)),
        (kazoo.GetChildren2(path, watcher), OpCode.GET_CHILDREN2, r.WatchedRequest(path, watch)),
        (kazoo.Sync(path), OpCode.SYNC, r.PathRequest(path)),
    ]
    for theirs, op, ours in pairs:
        frame = request_frame(xid, op, ours)
        assert theirs.type == op
        assert frame[12:] == bytes(theirs.serialize())
        assert frame[:12] == struct.pack(">iii", len(frame) - 4, xid, op)


@given(PATHS, st.binary(max_size=12), INTS)
def test_kazoo_writes_the_same_multi(path: str, value: bytes, version: int) -> None:
    theirs = kazoo.Transaction([kazoo.CheckVersion(path, version), kazoo.SetData(path, value, version)])
    ours = MultiRequest(
        (
            Part(OpCode.CHECK, r.CheckVersionRequest(path, version)),
            Part(OpCode.SET_DATA, r.SetDataRequest(path, value, version)),
        )
    )
    assert request_frame(7, OpCode.MULTI, ours)[12:] == bytes(theirs.serialize())


@given(STATS, PATHS, st.binary(min_size=1, max_size=12), INTS, LONGS)
def test_kazoo_reads_our_responses(stat: r.Stat, path: str, value: bytes, error: int, zxid: int) -> None:
    def body(op: int, response: Record) -> bytes:
        return reply_frame(3, zxid, 0, op, response)[20:]

    expected = (*stat[:7], stat.ephemeral_owner, stat.data_length, stat.num_children, stat.pzxid)
    assert tuple(kazoo.Exists.deserialize(body(OpCode.EXISTS, r.StatResponse(stat)), 0)) == expected
    data, found = kazoo.GetData.deserialize(body(OpCode.GET_DATA, r.DataResponse(value, stat)), 0)
    assert (data, tuple(found)) == (value, expected)
    header, offset = kazoo.ReplyHeader.deserialize(reply_frame(3, zxid, error), 4)
    assert (tuple(header), offset) == ((3, zxid, error), 20)
    multi = MultiResponse((Part(OpCode.CREATE, r.PathResponse(path)), Part(OpCode.SET_DATA, r.StatResponse(stat))))
    results = kazoo.Transaction.deserialize(body(OpCode.MULTI, multi), 0)
    assert results == [path, kazoo.ZnodeStat(*expected)]
    watch, _ = kazoo.Watch.deserialize(event_frame(r.WatcherEvent(1, 3, path)), 20)
    assert tuple(watch) == (1, 3, path)


@given(LONGS, INTS, LONGS, st.binary(max_size=16), st.booleans())
def test_kazoo_agrees_on_sessions(zxid: int, timeout: int, session: int, password: bytes, read_only: bool) -> None:
    theirs = kazoo.Connect(0, zxid, timeout, session, password, read_only)
    ours = r.ConnectRequest(0, zxid, timeout, session, password, read_only)
    assert framed(ours)[4:] == bytes(theirs.serialize())
    answer = framed(r.ConnectResponse(0, timeout, session, password, read_only))
    found, _ = kazoo.Connect.deserialize(answer, 4)
    assert (found.time_out, found.session_id, found.passwd, bool(found.read_only)) == (
        timeout,
        session,
        password,
        read_only,
    )
