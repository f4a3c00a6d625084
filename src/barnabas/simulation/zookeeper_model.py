"""A simple model of a ZooKeeper tree, fed by the transactions of the server: one dict, no indexes, no caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.tree.owners import CONTAINER_OWNER, ttl_owner
from barnabas.zookeeper.txns import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetDataTxn,
    SingleTxn,
    TxnEntry,
    TxnHeader,
)
from barnabas.zookeeper.wire.codes import OpCode


class ModelNode(NamedTuple):
    """A znode without the fields that derive from its children."""

    data: bytes | None
    version: int
    owner: int
    czxid: int
    mzxid: int


class Change(NamedTuple):
    """A change of one znode. `before` is None for a creation, `after` for a deletion."""

    path: str
    before: ModelNode | None
    after: ModelNode | None


class TreeModel:
    """The tree after the transactions that it was fed."""

    def __init__(self, database: Database) -> None:
        self.nodes = dict(nodes_of(database))
        self.sessions = set(database.sessions)
        self.zxid = database.last_zxid

    def apply(self, entry: TxnEntry) -> list[Change]:
        """Applies a transaction. Returns its changes in their order."""
        header, txn = entry.header, entry.txn
        self.zxid = header.zxid
        if not isinstance(txn, MultiTxn):
            return self._apply_one(header, header.type, txn)
        if any(isinstance(part.txn, ErrorTxn) for part in txn.parts):
            return []
        return [change for part in txn.parts for change in self._apply_one(header, part.type, part.txn)]

    def _apply_one(self, header: TxnHeader, op: int, txn: SingleTxn) -> list[Change]:
        match txn:
            case CreateTxn():
                return [self._create(header, txn, header.session_id if txn.ephemeral else 0)]
            case CreateTtlTxn():
                return [self._create(header, txn, ttl_owner(txn.ttl_ms))]
            case CreateContainerTxn():
                return [self._create(header, txn, CONTAINER_OWNER)]
            case SetDataTxn():
                before = self.nodes[txn.path]
                return [self._put(txn.path, before._replace(data=txn.data, version=txn.version, mzxid=header.zxid))]
            case DeleteTxn():
                return [self._delete(txn.path)]
            case CreateSessionTxn():
                self.sessions.add(header.session_id)
            case CloseSessionTxn():
                assert op == OpCode.CLOSE_SESSION
                self.sessions.discard(header.session_id)
                owned = [path for path, node in self.nodes.items() if node.owner == header.session_id]
                return [self._delete(path) for path in owned]
        return []

    def _create(self, header: TxnHeader, txn: CreateTxn | CreateTtlTxn | CreateContainerTxn, owner: int) -> Change:
        return self._put(txn.path, ModelNode(txn.data, 0, owner, header.zxid, header.zxid))

    def _put(self, path: str, node: ModelNode) -> Change:
        before, self.nodes[path] = self.nodes.get(path), node
        return Change(path, before, node)

    def _delete(self, path: str) -> Change:
        return Change(path, self.nodes.pop(path), None)


def nodes_of(database: Database) -> Iterator[tuple[str, ModelNode]]:
    """Yields the znodes of a server's database, by path."""
    for path in database.tree.nodes:
        node = node_of(database, path)
        assert node is not None
        yield path, node


def node_of(database: Database, path: str) -> ModelNode | None:
    node = database.tree.nodes.get(path)
    return None if node is None else ModelNode(node.data, node.version, node.owner, node.czxid, node.mzxid)
