"""The state that results from the transactions: the tree, the open sessions with their timeouts, and the last zxid
(`ZKDatabase`).

The log stores transactions, `apply` executes them, after the sync or in recovery; nothing else changes the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.zookeeper.tree.data_tree import DataTree, TxnError
from barnabas.zookeeper.tree.owners import CONTAINER_OWNER, ttl_owner
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
    TxnHeader,
)
from barnabas.zookeeper.wire.codes import ErrorCode, OpCode
from barnabas.zookeeper.wire.records import Stat

#: The word `hash` shows the digest at every multiple of this zxid, and at most this many digests.
_DIGEST_INTERVAL: Final = 128
_DIGESTS_MAX: Final = 1024


class TxnResult(NamedTuple):
    """The result of a transaction: its type, an error code or 0, the path that it names, the Stat afterwards (not of
    plain creations and deletions), and the results of its parts.
    """

    type: int
    error: int = 0
    path: str | None = None
    stat: Stat | None = None
    parts: tuple[TxnResult, ...] = ()


class Database:
    """The state of a server. `sessions` are timeouts in milliseconds by session id, as snapshots store them."""

    def __init__(self, tree: DataTree | None = None, sessions: Mapping[int, int] | None = None, zxid: int = 0) -> None:
        self.tree = DataTree() if tree is None else tree
        self.sessions: dict[int, int] = dict(sessions or {})
        #: The greatest known id of a session, open or ended; 0 without any.
        self.session_id_max = max(self.sessions, default=0)
        #: The zxid of the last applied transaction.
        self.last_zxid = zxid
        #: (zxid, digest of the tree after it), the oldest first.
        self.digests: list[tuple[int, int]] = []

    def apply(self, header: TxnHeader, txn: Txn | None) -> TxnResult:
        """Applies a transaction. It raises no error: the result contains the error code."""
        if type(txn) is MultiTxn:
            result = self._apply_multi(header, txn)
        else:
            assert not isinstance(txn, MultiTxn)
            result = self._apply_one(header, header.type, txn)
        if header.zxid > self.last_zxid:
            self.last_zxid = header.zxid
            if not header.zxid % _DIGEST_INTERVAL:
                self.digests.append((header.zxid, self.tree.digest))
                del self.digests[:-_DIGESTS_MAX]
        return result

    def end_dead_sessions(self) -> None:
        """Deletes ephemeral nodes whose session does not exist, at the end of recovery."""
        for session_id in self.tree.ephemerals.keys() - self.sessions.keys():
            self.tree.close_session(session_id, None, self.last_zxid)

    def _apply_multi(self, header: TxnHeader, txn: MultiTxn) -> TxnResult:
        """Applies all parts, or none if one of them is an error: parts before the error have the result 0, and those
        after it RUNTIME_INCONSISTENCY.
        """
        if OpCode.ERROR in [part.type for part in txn.parts]:
            results = _failed_parts(txn)
        else:
            results = [self._apply_one(header, part.type, part.txn) for part in txn.parts]
        error = next((result.error for result in results if result.error), 0)
        return TxnResult(OpCode.MULTI, error, None, None, tuple(results))

    def _apply_one(self, header: TxnHeader, op: int, txn: SingleTxn | None) -> TxnResult:
        try:
            match txn:
                case SetDataTxn():
                    stat = self.tree.set_data(txn.path, txn.data, txn.version, header.zxid, header.time_ms)
                    return TxnResult(op, 0, txn.path, stat)
                case CheckVersionTxn():
                    return TxnResult(op, 0, txn.path)
                case CreateTxn() | CreateTtlTxn() | CreateContainerTxn():
                    return self._create(header, op, txn)
                case DeleteTxn():
                    self.tree.delete(txn.path, header.zxid)
                    return TxnResult(op, 0, txn.path)
                case SetAclTxn():
                    return TxnResult(op, 0, txn.path, self.tree.set_acl(txn.path, txn.acl, txn.version))
                case ErrorTxn():
                    return TxnResult(op, txn.error)
                case CreateSessionTxn():
                    self.sessions[header.session_id] = txn.timeout_ms
                    self.session_id_max = max(self.session_id_max, header.session_id)
                case CloseSessionTxn() | None if op == OpCode.CLOSE_SESSION:
                    self.sessions.pop(header.session_id, None)
                    paths = None if txn is None else txn.paths
                    self.tree.close_session(header.session_id, paths, header.zxid)
        except TxnError as error:
            return TxnResult(op, int(error.code), getattr(txn, "path", None))
        return TxnResult(op)

    def _create(self, header: TxnHeader, op: int, txn: CreateTxn | CreateTtlTxn | CreateContainerTxn) -> TxnResult:
        match txn:
            case CreateTxn():
                owner = header.session_id if txn.ephemeral else 0
            case CreateTtlTxn():
                owner = ttl_owner(txn.ttl_ms)
            case CreateContainerTxn():
                owner = CONTAINER_OWNER
        node = self.tree.create(txn.path, txn.data, txn.acl, owner, txn.parent_cversion, header.zxid, header.time_ms)
        return TxnResult(op, 0, txn.path, None if op == OpCode.CREATE else node.stat(self.tree.extended_types))


def _failed_parts(txn: MultiTxn) -> list[TxnResult]:
    results: list[TxnResult] = []
    past = False
    for part in txn.parts:
        code = ErrorCode.RUNTIME_INCONSISTENCY if past else 0
        if isinstance(part.txn, ErrorTxn):
            past = True
            code = part.txn.error
        results.append(TxnResult(OpCode.ERROR, int(code)))
    return results
