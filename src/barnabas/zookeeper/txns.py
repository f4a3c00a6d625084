"""The transactions of ZooKeeper 3.8.4: what its log stores and what the data tree applies.

    entry     TxnHeader | transaction of the header's type | TxnDigest (3.6 and later)
    multi     a vector of (type int, transaction as a buffer)

A failed multi is stored too: from the part that failed on, its parts are `ErrorTxn`. Two types share `CreateTxn`
(create, create2) and two `DeleteTxn` (delete, deleteContainer): the type stands in the header or in the part of the
multi, not in the transaction. `files/txn_entries.py` has the bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.zookeeper.wire.records import Acl


class TxnHeader(NamedTuple):
    """The session and request that a transaction comes from, its zxid, its time (wall clock, ms), its op code."""

    session_id: int
    cxid: int
    zxid: int
    time_ms: int
    type: int


class TxnDigest(NamedTuple):
    """The digest of the tree after the transaction: the sum of the nodes' digests, 64 bits, signed."""

    version: int
    tree_digest: int


class CreateTxn(NamedTuple):
    """The creation of a node. `parent_cversion` is the parent's count of creations after this one; -1 (ZooKeeper 3.3)
    means one more than before.
    """

    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    ephemeral: bool
    parent_cversion: int


class CreateTtlTxn(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    parent_cversion: int
    ttl_ms: int


class CreateContainerTxn(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    parent_cversion: int


class DeleteTxn(NamedTuple):
    path: str


class SetDataTxn(NamedTuple):
    """A change of a node's data. `version` is the version that the node has afterwards."""

    path: str
    data: bytes | None
    version: int


class CheckVersionTxn(NamedTuple):
    path: str
    version: int


class SetAclTxn(NamedTuple):
    """A change of a node's ACL. `version` is the ACL version that the node has afterwards."""

    path: str
    acl: tuple[Acl, ...] | None
    version: int


class CreateSessionTxn(NamedTuple):
    timeout_ms: int


class CloseSessionTxn(NamedTuple):
    """The end of a session. `paths` are the ephemeral nodes to delete; None, in logs of ZooKeeper before 3.6, means all
    nodes that the session owns.
    """

    paths: tuple[str, ...] | None


class ErrorTxn(NamedTuple):
    error: int


class TxnPart(NamedTuple):
    """An operation of a multi."""

    type: int
    txn: SingleTxn


class MultiTxn(NamedTuple):
    parts: tuple[TxnPart, ...]


SingleTxn = (
    CreateTxn
    | CreateTtlTxn
    | CreateContainerTxn
    | DeleteTxn
    | SetDataTxn
    | CheckVersionTxn
    | SetAclTxn
    | CreateSessionTxn
    | CloseSessionTxn
    | ErrorTxn
)
Txn = SingleTxn | MultiTxn


class TxnEntry(NamedTuple):
    """An entry of the log; without a digest if its writer was older than 3.6 or had digests switched off."""

    header: TxnHeader
    txn: Txn
    digest: TxnDigest | None
