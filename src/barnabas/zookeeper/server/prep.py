"""Turns each write request into a transaction, or into an error that is stored as one (`PrepRequestProcessor`). Each
write, refused or not, gets the next zxid. It is checked against the tree and the transactions that are not applied yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.host import Clock
from barnabas.zookeeper.server.outstanding_changes import OutstandingChanges, RequestError
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.tree import acls
from barnabas.zookeeper.tree.data_tree import SPECIAL_PATHS, DataTree
from barnabas.zookeeper.tree.owners import CONTAINER_OWNER, TTL_MS_MAX, is_session, ttl_owner
from barnabas.zookeeper.tree.tree_quotas import StatsTrack, limits_path, stats_path
from barnabas.zookeeper.tree.znode import Node, int32
from barnabas.zookeeper.txns import (
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    SingleTxn,
    Txn,
    TxnDigest,
    TxnEntry,
    TxnHeader,
    TxnPart,
)
from barnabas.zookeeper.wire.codes import ANY_VERSION, ErrorCode, OpCode
from barnabas.zookeeper.wire.records import (
    CheckVersionRequest,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    Id,
    SetAclRequest,
    SetDataRequest,
)
from barnabas.zookeeper.znode_paths import parent_of, problem_of

#: The version of the rule by which digests are computed.
DIGEST_VERSION: Final = 2


class CreateMode(NamedTuple):
    """The meaning of the flags of a creation."""

    ephemeral: bool = False
    sequential: bool = False
    container: bool = False
    ttl: bool = False


CREATE_MODES: Final = (
    CreateMode(),
    CreateMode(ephemeral=True),
    CreateMode(sequential=True),
    CreateMode(ephemeral=True, sequential=True),
    CreateMode(container=True),
    CreateMode(ttl=True),
    CreateMode(sequential=True, ttl=True),
)


class Client(NamedTuple):
    """The session and the number of a request, and the identities of its connection. The server itself has session
    0.
    """

    session_id: int
    cxid: int
    identities: Sequence[Id] = ()


Write = CreateRequest | CreateTtlRequest | DeleteRequest | SetDataRequest | SetAclRequest | CheckVersionRequest


class Prep:
    """Turns each write request into a transaction or an error, with the next zxid. `last_zxid` is the zxid of the
    newest one.
    """

    def __init__(
        self, tree: DataTree, changes: OutstandingChanges, settings: ServerSettings, clock: Clock, zxid: int
    ) -> None:
        self._tree = tree
        self._changes = changes
        self._settings = settings
        self._clock = clock
        self.last_zxid = zxid

    # -- one transaction each

    def write(self, op: int, request: Write, client: Client) -> TxnEntry:
        """Returns the entry of a single write."""
        header = self._header(op, client)
        try:
            txn: Txn = self._decide(op, request, header, client)
        except RequestError as error:
            return self._refused(header, error.code)
        return self._entry(header, txn)

    def refused(self, op: int, client: Client, code: ErrorCode) -> TxnEntry:
        """Returns the entry of a write that is refused without a check."""
        return self._refused(self._header(op, client), code)

    def reconfig(self, client: Client) -> TxnEntry:
        """Refuses a change of the ensemble, because this server is standalone."""
        enabled = self._settings.reconfig_enabled
        return self.refused(
            OpCode.RECONFIG, client, ErrorCode.UNIMPLEMENTED if enabled else ErrorCode.RECONFIG_DISABLED
        )

    def multi(self, requests: Sequence[tuple[int, Write]], client: Client) -> TxnEntry:
        """Returns the entry of a multi, whose writes take effect all together or not at all. In a refused multi, the
        part that failed has its error code, those after it have RUNTIME_INCONSISTENCY, and those before it keep their
        transactions, which are not applied.
        """
        header = self._header(OpCode.MULTI, client)
        mark = self._changes.mark()
        parts: list[TxnPart] = []
        failed = False
        for op, request in requests:
            code = ErrorCode.RUNTIME_INCONSISTENCY
            if not failed:
                try:
                    parts.append(TxnPart(op, self._decide(op, request, header, client)))
                    continue
                except RequestError as error:
                    failed, code = True, error.code
                    self._changes.rollback(mark)
            parts.append(TxnPart(OpCode.ERROR, ErrorTxn(int(code))))
        return self._entry(header, MultiTxn(tuple(parts)))

    def create_session(self, session_id: int, timeout_ms: int) -> TxnEntry:
        return self._entry(self._header(OpCode.CREATE_SESSION, Client(session_id, 0)), CreateSessionTxn(timeout_ms))

    def close_session(self, session_id: int, cxid: int) -> TxnEntry:
        """Returns the entry for the end of a session and the deletion of its ephemeral nodes."""
        header = self._header(OpCode.CLOSE_SESSION, Client(session_id, cxid))
        paths = tuple(self._changes.ephemerals(session_id))
        for path in paths:
            self._delete_change(path, header.zxid)
        return self._entry(header, CloseSessionTxn(paths))

    def delete_container(self, path: str) -> TxnEntry:
        """Returns the entry for the deletion of a container or TTL node; an error if it has children by now."""
        header = self._header(OpCode.DELETE_CONTAINER, Client(0, 0))
        found = self._changes.get(path)
        if path in SPECIAL_PATHS or found is None:
            return self._refused(header, ErrorCode.NO_NODE if found is None else ErrorCode.BAD_ARGUMENTS)
        node, child_count = found
        if child_count:
            return self._refused(header, ErrorCode.NOT_EMPTY)
        if self._is_ephemeral(node):
            return self._refused(header, ErrorCode.BAD_VERSION)
        self._delete_change(path, header.zxid)
        return self._entry(header, DeleteTxn(path))

    # -- single writes

    def _decide(self, op: int, request: Write, header: TxnHeader, client: Client) -> SingleTxn:
        """Returns the transaction of one write, and adds its changes. Raises RequestError."""
        match request:
            case SetDataRequest():
                return self._set_data(request, header, client)
            case CheckVersionRequest():
                _validate(request.path)
                node, _ = self._changes.require(request.path)
                self._allow(node, acls.READ, client)
                return CheckVersionTxn(request.path, _next_version(node.version, request.version))
            case CreateRequest() | CreateTtlRequest():
                return self._create(op, request, header, client)
            case DeleteRequest():
                return self._delete(request, header, client)
            case SetAclRequest():
                return self._set_acl(request, header, client)

    def _set_data(self, request: SetDataRequest, header: TxnHeader, client: Client) -> SetDataTxn:
        path, data = request.path, request.data
        _validate(path)
        node, child_count = self._changes.require(path)
        self._allow(node, acls.WRITE, client)
        if self._settings.enforce_quota:
            self._check_quota(path, (len(data) if data else 0) - (len(node.data) if node.data else 0), 0)
        version = _next_version(node.version, request.version)
        node = node.copy()
        node.version = version
        node.mtime_ms = header.time_ms
        node.mzxid = header.zxid
        node.data = data
        self._changes.put(header.zxid, path, node, child_count)
        return SetDataTxn(path, data, version)

    def _create(
        self, op: int, request: CreateRequest | CreateTtlRequest, header: TxnHeader, client: Client
    ) -> CreateTxn | CreateTtlTxn | CreateContainerTxn:
        ttl_ms = request.ttl_ms if isinstance(request, CreateTtlRequest) else -1
        mode = self._mode(op, request.flags, ttl_ms)
        path, data = request.path, request.data
        if "/" not in path or "\0" in path:
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        acl = acls.fixed_up(request.acl, client.identities, digest_scheme=self._settings.digest_scheme)
        if acl is None:
            raise RequestError(ErrorCode.INVALID_ACL)
        parent_path = parent_of(path)
        parent, child_count = self._changes.require(parent_path)
        self._allow(parent, acls.CREATE, client)
        if mode.sequential:
            path += f"{parent.cversion:010d}"
        _validate(path)
        if self._changes.get(path) is not None:
            raise RequestError(ErrorCode.NODE_EXISTS)
        if self._is_ephemeral(parent):
            raise RequestError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        if self._settings.enforce_quota:
            self._check_quota(path, len(data) if data else 0, 1)
        cversion = int32(parent.cversion + 1)
        txn: CreateTxn | CreateTtlTxn | CreateContainerTxn
        if op == OpCode.CREATE_CONTAINER:
            owner, txn = CONTAINER_OWNER, CreateContainerTxn(path, data, acl, cversion)
        elif op == OpCode.CREATE_TTL:
            owner, txn = ttl_owner(ttl_ms), CreateTtlTxn(path, data, acl, cversion, ttl_ms)
        else:
            owner = client.session_id if mode.ephemeral else 0
            txn = CreateTxn(path, data, acl, mode.ephemeral, cversion)
        parent = parent.copy()
        parent.cversion = cversion
        parent.pzxid = header.zxid
        self._changes.put(header.zxid, parent_path, parent, child_count + 1)
        self._changes.put(header.zxid, path, Node(data, acl, owner, header.zxid, header.time_ms), 0)
        return txn

    def _mode(self, op: int, flags: int, ttl_ms: int) -> CreateMode:
        """Returns the meaning of the flags of a creation. Raises RequestError if they do not fit the operation or its
        time to live.
        """
        if not 0 <= flags < len(CREATE_MODES):
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        mode = CREATE_MODES[flags]
        if mode.ttl and not self._settings.extended_types:
            raise RequestError(ErrorCode.UNIMPLEMENTED)
        lives = op == OpCode.CREATE_TTL or mode.ttl
        if lives and not (mode.ttl and 0 < ttl_ms <= TTL_MS_MAX):
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        return mode

    def _delete(self, request: DeleteRequest, header: TxnHeader, client: Client) -> DeleteTxn:
        path = request.path
        if "/" not in path or "\0" in path or path in SPECIAL_PATHS:
            raise RequestError(ErrorCode.BAD_ARGUMENTS)
        parent, _ = self._changes.require(parent_of(path))
        self._allow(parent, acls.DELETE, client)
        node, child_count = self._changes.require(path)
        _next_version(node.version, request.version)
        if child_count:
            raise RequestError(ErrorCode.NOT_EMPTY)
        self._delete_change(path, header.zxid)
        return DeleteTxn(path)

    def _set_acl(self, request: SetAclRequest, header: TxnHeader, client: Client) -> SetAclTxn:
        path = request.path
        _validate(path)
        acl = acls.fixed_up(request.acl, client.identities, digest_scheme=self._settings.digest_scheme)
        if acl is None:
            raise RequestError(ErrorCode.INVALID_ACL)
        node, child_count = self._changes.require(path)
        self._allow(node, acls.ADMIN, client)
        version = _next_version(node.aversion, request.version)
        node = node.copy()
        node.acl = acl
        node.aversion = version
        self._changes.put(header.zxid, path, node, child_count)
        return SetAclTxn(path, acl, version)

    # -- parts

    def _delete_change(self, path: str, zxid: int) -> None:
        parent_path = parent_of(path)
        found = self._changes.get(parent_path)
        assert found is not None
        parent, child_count = found
        parent = parent.copy()
        parent.pzxid = zxid
        self._changes.put(zxid, parent_path, parent, child_count - 1)
        self._changes.put(zxid, path, None, 0)

    def _allow(self, node: Node, permission: int, client: Client) -> None:
        if not self._settings.skip_acl and not acls.is_allowed(node.acl, permission, client.identities):
            raise RequestError(ErrorCode.NO_AUTH)

    def _is_ephemeral(self, node: Node) -> bool:
        return is_session(node.owner, self._settings.extended_types)

    def _check_quota(self, path: str, size: int, count: int) -> None:
        """Raises RequestError if the write would exceed a hard quota limit, according to the counts of the applied
        state.
        """
        prefix = self._tree.quotas.longest_prefix(path)
        if prefix is None:
            return
        limits_node, stats_node = self._tree.nodes.get(limits_path(prefix)), self._tree.nodes.get(stats_path(prefix))
        if limits_node is None or stats_node is None:
            return
        try:
            limits, figures = StatsTrack(limits_node.data), StatsTrack(stats_node.data)
        except ValueError:
            return
        too_many = count and -1 < limits.count_hard_limit < figures.count + count
        too_large = size and -1 < limits.byte_hard_limit < figures.size + size
        if too_many or too_large:
            raise RequestError(ErrorCode.QUOTA_EXCEEDED)

    def _header(self, op: int, client: Client) -> TxnHeader:
        self.last_zxid += 1
        return TxnHeader(client.session_id, client.cxid, self.last_zxid, self._clock.wall_ms(), int(op))

    def _entry(self, header: TxnHeader, txn: Txn) -> TxnEntry:
        digest = TxnDigest(DIGEST_VERSION, self._changes.digest) if self._settings.digests else None
        return TxnEntry(header, txn, digest)

    def _refused(self, header: TxnHeader, code: ErrorCode) -> TxnEntry:
        return self._entry(header._replace(type=int(OpCode.ERROR)), ErrorTxn(int(code)))


def _validate(path: str) -> None:
    if problem_of(path) is not None:
        raise RequestError(ErrorCode.BAD_ARGUMENTS)


def _next_version(current: int, expected: int) -> int:
    """Returns the next version of a node. Raises RequestError unless the client expects the current version, or any."""
    if expected not in (ANY_VERSION, current):
        raise RequestError(ErrorCode.BAD_VERSION)
    return int32(current + 1)
