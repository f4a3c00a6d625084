"""The watches of a session, by kind and path on the server; each fires once, over all connections of the session.

    kind       armed by                           fired by
    data       getData; exists of a znode         changed, deleted
    exists     exists of a missing znode          created, and every event after that
    children   getChildren                        children changed, deleted

A server forgets the watches with the connection. After a reconnect they are set again relative to the last zxid that
the client has seen: later changes are reported immediately.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from barnabas.zookeeper.wire.codes import SET_WATCHES_XID, EventType, OpCode
from barnabas.zookeeper.wire.frames import request_frame
from barnabas.zookeeper.wire.records import SetWatchesRequest

#: The maximum size of the paths in a request in bytes, as in Apache's client; `jute.maxbuffer` is eight times as much.
_BATCH_BYTES_MAX: Final = 128 * 1024
_LENGTH_BYTES: Final = 4


class WatchKind(Enum):
    DATA = "data"
    EXISTS = "exists"
    CHILDREN = "children"


_FIRED: Final = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class Watches:
    """The armed watches of a session."""

    def __init__(self) -> None:
        self._paths: dict[WatchKind, dict[str, None]] = {kind: {} for kind in WatchKind}

    def __len__(self) -> int:
        return sum(map(len, self._paths.values()))

    def arm(self, kind: WatchKind, path: str) -> None:
        self._paths[kind][path] = None

    def fire(self, event: EventType, path: str) -> bool:
        """Disarms the watch for this event. Returns whether one was armed, so that its listener is notified."""
        fired = False
        for kind in _FIRED.get(event, ()):
            if path in self._paths[kind]:
                del self._paths[kind][path]
                fired = True
        return fired

    def clear(self) -> None:
        for paths in self._paths.values():
            paths.clear()

    def frames(self, last_zxid: int) -> Iterator[bytes]:
        """Yields the requests that set the watches again."""
        batch = _empty_batch()
        size = 0
        for kind, paths in self._paths.items():
            for path in paths:
                path_bytes = len(path.encode()) + _LENGTH_BYTES
                if size and size + path_bytes > _BATCH_BYTES_MAX:
                    yield _frame(last_zxid, batch)
                    batch, size = _empty_batch(), 0
                batch[kind].append(path)
                size += path_bytes
        if size:
            yield _frame(last_zxid, batch)


def _empty_batch() -> dict[WatchKind, list[str]]:
    return {kind: [] for kind in WatchKind}


def _frame(last_zxid: int, batch: dict[WatchKind, list[str]]) -> bytes:
    data, exists, children = (tuple(batch[kind]) for kind in (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN))
    return request_frame(SET_WATCHES_XID, OpCode.SET_WATCHES, SetWatchesRequest(last_zxid, data, exists, children))
