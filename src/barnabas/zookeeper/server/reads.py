"""Reads: each method takes the frame of a request and returns the body of its answer (`FinalRequestProcessor`).

They read only the applied state, and set the watches that the requests ask for. They raise RequestError with the code
of the answer, or DecodeError for an invalid body (MARSHALLING_ERROR).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.server import answers, write_decoding
from barnabas.zookeeper.server.outstanding_changes import RequestError
from barnabas.zookeeper.server.watches import Listener, Watches, WatchMode, WatchTable
from barnabas.zookeeper.tree import acls
from barnabas.zookeeper.tree.data_tree import ROOT, DataTree
from barnabas.zookeeper.tree.znode import Node
from barnabas.zookeeper.wire.codes import ErrorCode, OpCode
from barnabas.zookeeper.wire.records import (
    OPEN_ACL,
    AddWatchRequest,
    Id,
    SetWatches2Request,
    SetWatchesRequest,
    WatchesRequest,
    decode,
)

#: The offset of a request's body, after its header.
_BODY: Final = 8
_LENGTH: Final = struct.Struct(">i")


class Client(Listener, Protocol):
    """The connection that a read comes from."""

    @property
    def identities(self) -> Sequence[Id]: ...


class Reads:
    """The reads of a server. `HANDLERS` maps each operation to its method."""

    def __init__(self, tree: DataTree, watches: Watches, skip_acl: bool) -> None:
        self._tree = tree
        self._nodes = tree.nodes
        self._watches = watches
        self._skip_acl = skip_acl
        self._extended_types = tree.extended_types

    def get_data(self, client: Client, frame: bytes) -> bytes:
        path, watch = _watched_path(frame)
        node = self._readable(path, client)
        if watch:
            self._watches.data.add(path, client)
        return self._data(node)

    def exists(self, client: Client, frame: bytes) -> bytes:
        path, watch = _watched_path(frame)
        if "\0" in path:
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        node = self._nodes.get(path or ROOT)
        if node is not None and node.acl is not OPEN_ACL:
            self._allow(node, acls.READ, client)
        if watch:
            self._watches.data.add(path, client)
        if node is None:
            raise RequestError(ErrorCode.NO_NODE)
        return answers.stat_of(node, self._extended_types)

    def get_children(self, client: Client, frame: bytes) -> bytes:
        path, watch = _watched_path(frame)
        return self._children(path, watch, client)[0]

    def get_children2(self, client: Client, frame: bytes) -> bytes:
        path, watch = _watched_path(frame)
        names, node = self._children(path, watch, client)
        return names + answers.stat_of(node, self._extended_types)

    def get_all_children_number(self, client: Client, frame: bytes) -> bytes:
        path = _reader(frame).read_string()
        self._readable(path, client)
        return answers.integer(self._tree.count_below(path))

    def get_acl(self, client: Client, frame: bytes) -> bytes:
        path = _reader(frame).read_string()
        node = self._nodes.get(path or ROOT)
        if node is None:
            raise RequestError(ErrorCode.NO_NODE)
        self._allow(node, acls.READ | acls.ADMIN, client)
        shown = node.acl
        if not self._skip_acl and not acls.is_allowed(shown, acls.ADMIN, client.identities):
            shown = acls.hidden(shown)
        return answers.acl_list(shown) + answers.stat_of(node, self._extended_types)

    def get_ephemerals(self, client: Client, frame: bytes) -> bytes:
        prefix = _reader(frame).read_string()
        paths = list(self._tree.ephemerals.get(client.session_id, ()))
        if prefix.strip() not in ("", "/"):
            paths = [path for path in paths if path.startswith(prefix)]
        return answers.strings(paths)

    def who_am_i(self, client: Client, frame: bytes) -> bytes:
        return answers.identities(client.identities)

    def multi_read(self, client: Client, frame: bytes) -> bytes:
        """Answers the reads of a multiRead one by one, each with its own error."""
        writes, reads = write_decoding.multi(frame)
        if writes:
            raise DecodeError("a write in a multiRead")
        return b"".join(self._one_of_multi(op, path, client) for op, path in reads) + answers.multi_end()

    def _one_of_multi(self, op: int, path: str, client: Client) -> bytes:
        try:
            if op == OpCode.GET_DATA:
                return answers.multi_read(op, self._data(self._readable(path, client)))
            return answers.multi_read(op, self._children(path, False, client)[0])
        except RequestError as error:
            return answers.multi_error(int(error.code))

    # -- watches

    def add_watch(self, client: Client, frame: bytes) -> bytes:
        path, mode = decode(AddWatchRequest, frame, _BODY)
        if mode not in (WatchMode.PERSISTENT, WatchMode.RECURSIVE):
            raise DecodeError(f"no such mode of a watch: {mode}")
        self._watches.add_persistent(path, client, WatchMode(mode))
        return answers.integer(0)

    def check_watches(self, client: Client, frame: bytes) -> bytes:
        path, tables = self._watched(frame)
        if not any(table.contains(path, client) for table in tables):
            raise RequestError(ErrorCode.NO_WATCHER)
        return b""

    def remove_watches(self, client: Client, frame: bytes) -> bytes:
        path, tables = self._watched(frame)
        removed = [table.remove(path, client) for table in tables]
        if not any(removed):
            raise RequestError(ErrorCode.NO_WATCHER)
        return b""

    def _watched(self, frame: bytes) -> tuple[str, list[WatchTable]]:
        path, kind = decode(WatchesRequest, frame, _BODY)
        watches = self._watches
        tables = {1: [watches.children], 2: [watches.data], 3: [watches.children, watches.data]}
        if kind not in tables:
            raise DecodeError(f"no such kind of a watch: {kind}")
        return path, tables[kind]

    def set_watches(self, client: Client, frame: bytes) -> bytes:
        request = decode(SetWatchesRequest, frame, _BODY)
        self._set_watches(client, request)
        return b""

    def set_watches2(self, client: Client, frame: bytes) -> bytes:
        request = decode(SetWatches2Request, frame, _BODY)
        self._set_watches(client, request)
        for path in request.persistent or ():
            self._watches.add_persistent(path, client, WatchMode.PERSISTENT)
        for path in request.persistent_recursive or ():
            self._watches.add_persistent(path, client, WatchMode.RECURSIVE)
        return b""

    def _set_watches(self, client: Client, request: SetWatchesRequest | SetWatches2Request) -> None:
        for path in request.data or ():
            self._watches.set_data_watch(path, request.relative_zxid, client)
        for path in request.exists or ():
            self._watches.set_exists_watch(path, client)
        for path in request.children or ():
            self._watches.set_child_watch(path, request.relative_zxid, client)

    # -- parts

    def _readable(self, path: str, client: Client) -> Node:
        """Returns a node that the client can read. Raises RequestError."""
        node = self._nodes.get(path or ROOT)
        if node is None:
            raise RequestError(ErrorCode.NO_NODE)
        if node.acl is not OPEN_ACL:
            self._allow(node, acls.READ, client)
        return node

    def _allow(self, node: Node, permission: int, client: Client) -> None:
        if not self._skip_acl and not acls.is_allowed(node.acl, permission, client.identities):
            raise RequestError(ErrorCode.NO_AUTH)

    def _data(self, node: Node) -> bytes:
        data = node.data
        return answers.buffer(data) + answers.stat_of(node, self._extended_types)

    def _children(self, path: str, watch: bool, client: Client) -> tuple[bytes, Node]:
        node = self._readable(path, client)
        if watch:
            self._watches.children.add(path, client)
        return answers.strings(node.children or ()), node


def _reader(frame: bytes) -> FieldReader:
    return FieldReader(frame, _BODY)


def _watched_path(frame: bytes) -> tuple[str, bool]:
    """Returns the fields of a getData, exists or getChildren request: the path, and whether to set a watch. Raises
    DecodeError.
    """
    if len(frame) > _BODY + _LENGTH.size:
        begin = _BODY + _LENGTH.size
        (size,) = _LENGTH.unpack_from(frame, _BODY)
        if 0 <= size < len(frame) - begin:
            end = begin + size
            return frame[begin:end].decode(errors="replace"), frame[end] != 0
    raise DecodeError("the path or the watch of a read is missing", _BODY)


Handler = Callable[[Reads, Client, bytes], bytes]

#: The reads by operation: the name that `cons` shows, and the method.
HANDLERS: Final[Mapping[int, tuple[str, Handler]]] = {
    int(op): row
    for op, row in {
        OpCode.GET_DATA: ("GETD", Reads.get_data),
        OpCode.EXISTS: ("EXIS", Reads.exists),
        OpCode.GET_CHILDREN: ("GETC", Reads.get_children),
        OpCode.GET_CHILDREN2: ("GETC", Reads.get_children2),
        OpCode.GET_ACL: ("GETA", Reads.get_acl),
        OpCode.GET_ALL_CHILDREN_NUMBER: ("GETACN", Reads.get_all_children_number),
        OpCode.GET_EPHEMERALS: ("GETE", Reads.get_ephemerals),
        OpCode.MULTI_READ: ("MLTR", Reads.multi_read),
        OpCode.ADD_WATCH: ("ADDW", Reads.add_watch),
        OpCode.CHECK_WATCHES: ("CHKW", Reads.check_watches),
        OpCode.REMOVE_WATCHES: ("REMW", Reads.remove_watches),
        OpCode.SET_WATCHES: ("SETW", Reads.set_watches),
        OpCode.SET_WATCHES2: ("STW2", Reads.set_watches2),
        OpCode.WHO_AM_I: ("HOMI", Reads.who_am_i),
    }.items()
}
