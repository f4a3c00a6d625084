"""The port to ZooKeeper: the reads and writes of a broker, its notifications, and the three possible outcomes of a
request.

A request succeeds, is refused with an error code, or is lost: then it is unknown whether it happened. The client does
not retry by itself. A lost connection loses all requests that were made before it; those made afterwards wait for the
next connection of the session, and are lost if there is none.

Watches are one-shot, as in ZooKeeper: a read arms one, `StoreListener.changed` delivers it once, and the client sets it
again after a reconnect. All of them end with the session: `session_expired` also means that everything is read again.

A creation without an ACL gets the one that the client has for its path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.zookeeper.wire.codes import ErrorCode, EventType
from barnabas.zookeeper.wire.operations import Part, Record
from barnabas.zookeeper.wire.records import Acl, Stat

#: The error of a request whose answer was lost.
LOST: Final = ErrorCode.CONNECTION_LOSS


class ZnodeContent(NamedTuple):
    """A znode when it was read: its data and its data version."""

    data: bytes | None
    version: int


class MultiReply(NamedTuple):
    """The answer to a multi: an error code for each part, 0 for all if it took effect; None if the answer was lost.

    `results` are those of the parts of a multi that took effect: PathResponse, StatResponse, or () for a deletion and
    a check.
    """

    errors: tuple[int, ...] | None
    results: tuple[Record, ...] = ()

    @property
    def is_lost(self) -> bool:
        return self.errors is None

    @property
    def refused_part(self) -> int | None:
        """The index of the part that failed. The parts before it have error 0, those after it RUNTIME_INCONSISTENCY."""
        found = (index for index, code in enumerate(self.errors or ()) if code != ErrorCode.OK)
        return next(found, None)

    def error_of(self, part: int) -> int:
        """Returns the error code of a part; 0 if it did not fail, or if the answer was lost."""
        return ErrorCode.OK if self.errors is None else self.errors[part]


class ReadReply(NamedTuple):
    """The answer to a read: the znode. It is None if there is no such znode, if the client may not read it, or if the
    answer was lost.
    """

    znode: ZnodeContent | None
    stat: Stat | None = None
    error: int = ErrorCode.OK

    @property
    def is_lost(self) -> bool:
        return self.error == LOST


class ExistsReply(NamedTuple):
    """The answer to `exists`: None with the error NO_NODE for a znode that does not exist."""

    stat: Stat | None
    error: int = ErrorCode.OK

    @property
    def is_lost(self) -> bool:
        return self.error == LOST


class ChildrenReply(NamedTuple):
    """The names of the children, in no particular order, and the Stat of the parent; both None if there was an
    error.
    """

    names: tuple[str, ...] | None
    stat: Stat | None = None
    error: int = ErrorCode.OK

    @property
    def is_lost(self) -> bool:
        return self.error == LOST


class CreateReply(NamedTuple):
    """The path of a znode that was created, including the number of a sequential znode; "" if there was an error."""

    path: str
    error: int = ErrorCode.OK

    @property
    def is_lost(self) -> bool:
        return self.error == LOST


LOST_MULTI: Final = MultiReply(None)
LOST_READ: Final = ReadReply(None, None, LOST)
LOST_EXISTS: Final = ExistsReply(None, LOST)
LOST_CHILDREN: Final = ChildrenReply(None, None, LOST)
LOST_CREATE: Final = CreateReply("", LOST)


class ZnodeStore(Protocol):
    """A client, over all its sessions. Requests take effect and are answered in the order of the calls; no reply
    arrives before its call has returned.
    """

    @property
    def session_id(self) -> int:
        """Returns the id of the session, 0 while there is none."""

    def multi(self, parts: Sequence[Part], reply: Callable[[MultiReply], None]) -> None:
        """Writes all parts or none of them."""

    def read(self, path: str, reply: Callable[[ReadReply], None], *, watch: bool = False) -> None:
        """Reads one znode. A watch on a znode that does not exist is not armed: only `exists` arms such a watch."""

    def exists(self, path: str, reply: Callable[[ExistsReply], None], *, watch: bool = False) -> None:
        """Requests the Stat of a path. The watch is armed whether or not the znode exists: it fires when the znode is
        created, changed or deleted.
        """

    def children(self, path: str, reply: Callable[[ChildrenReply], None], *, watch: bool = False) -> None:
        """Reads the names of the children. A watch fires when a child is created or deleted, or the znode itself is
        deleted.
        """

    def create(
        self,
        path: str,
        data: bytes | None,
        flags: int,
        acl: tuple[Acl, ...] | None,
        reply: Callable[[CreateReply], None],
    ) -> None:
        """Creates one znode; `flags` are `CreateFlags`."""


class StoreListener(Protocol):
    """The user of a client, for notifications that are not replies to its requests."""

    def session_opened(self, session_id: int) -> None:
        """Reports a new session: it has no armed watches and no ephemeral znodes."""

    def disconnected(self) -> None:
        """Reports the end of the connection. All requests before it are answered, many of them as lost."""

    def reconnected(self) -> None:
        """Reports that the session continues: it still has its ephemeral znodes and its watches."""

    def session_expired(self) -> None:
        """Reports that the session has ended, with its ephemeral znodes and watches."""

    def auth_failed(self) -> None:
        """Reports that ZooKeeper refused the credentials. Requests continue without them."""

    def changed(self, path: str, event_type: EventType) -> None:
        """Reports that a watch fired on this path; the next read arms it again."""
