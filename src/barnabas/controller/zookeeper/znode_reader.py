"""Reads of znodes by the active controller: with watches that stay armed, or once; repeated when an answer was lost.

An event only causes a read. The read itself arms the watch, and what it finds decides (G42).

    read with watch --> found                    the watch stays armed until its event
                '-----> event meanwhile, or lost  read again; `found` gets only the last result
    event       ------> read with watch

`on_idle` is called when no read is outstanding: after the first reads everything is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.zookeeper.client.store import ChildrenReply, ExistsReply, ReadReply, ZnodeStore

#: The maximum number of reads that wait for their answers.
WINDOW: Final = 400

#: A callback that gets a znode and its Stat, both None if it does not exist.
Found = Callable[[ReadReply], None]
FoundNames = Callable[[tuple[str, ...]], None]


class _Reading:
    """A znode that is being read, and how it is read and watched."""

    __slots__ = ("again", "found", "found_names", "is_forgotten", "is_reading", "keeps_watch", "path")

    def __init__(self, path: str, found: Found | None, found_names: FoundNames | None, *, keeps_watch: bool) -> None:
        self.path = path
        self.found = found
        self.found_names = found_names
        self.keeps_watch = keeps_watch
        self.is_reading = False
        self.is_forgotten = False
        #: Whether an event came, or the answer was lost, since the read was sent.
        self.again = False


class ZnodeReader:
    """The reads of an active controller, for one controller epoch."""

    def __init__(self, store: ZnodeStore, on_idle: Callable[[], None]) -> None:
        self._store = store
        self._on_idle = on_idle
        self._data: dict[str, _Reading] = {}
        self._children: dict[str, _Reading] = {}
        self._queue: deque[_Reading] = deque()
        self._in_flight = 0
        #: The number of outstanding reads (queued, in flight, or to be repeated) and holds.
        self._due = 0
        self._lost: list[_Reading] = []
        self._is_closed = False

    # -- reads

    def watch_data(self, path: str, found: Found) -> None:
        """Reads the znode now, and again whenever it is created, changed or deleted."""
        self._start(self._data.setdefault(path, _Reading(path, found, None, keeps_watch=True)))

    def watch_children(self, path: str, found: FoundNames) -> None:
        """Reads the names of the children now, and again whenever they change."""
        self._start(self._children.setdefault(path, _Reading(path, None, found, keeps_watch=True)))

    def read(self, path: str, found: Found) -> None:
        """Reads the znode once."""
        self._start(_Reading(path, found, None, keeps_watch=False))

    def names(self, path: str, found: FoundNames) -> None:
        """Reads the names of the children once."""
        self._start(_Reading(path, None, found, keeps_watch=False))

    def forget(self, path: str) -> None:
        """Ends the watch of a znode's data; an event or an answer that still comes has no effect."""
        reading = self._data.pop(path, None)
        if reading is not None:
            reading.is_forgotten = True

    def is_watched(self, path: str) -> bool:
        return path in self._data

    def hold(self) -> None:
        """Delays `on_idle` until `release`: the content that was read is not processed yet, and can cause further
        reads.
        """
        self._due += 1

    def release(self) -> None:
        self._due -= 1
        if self._due == 0 and not self._is_closed:
            self._on_idle()

    # Events.

    def changed(self, path: str) -> None:
        """Reads again everything that is watched on this path."""
        for readings in (self._data, self._children):
            reading = readings.get(path)
            if reading is not None:
                self._start(reading)

    def resume(self) -> None:
        """Repeats the reads whose answers were lost, after the session is connected again."""
        lost, self._lost = self._lost, []
        self._queue.extend(lost)
        self._send()

    def close(self) -> None:
        """Ends all reads: later answers have no effect."""
        self._is_closed = True
        self._queue.clear()

    def _start(self, reading: _Reading) -> None:
        if reading.is_reading:
            reading.again = True
            return
        reading.is_reading = True
        self._due += 1
        self._queue.append(reading)
        self._send()

    def _send(self) -> None:
        while self._queue and self._in_flight < WINDOW and not self._is_closed:
            reading = self._queue.popleft()
            reading.again = False
            self._in_flight += 1
            if reading.found_names is not None:
                self._store.children(reading.path, partial(self._on_names, reading), watch=reading.keeps_watch)
            else:
                self._store.read(reading.path, partial(self._on_data, reading), watch=reading.keeps_watch)

    def _on_data(self, reading: _Reading, reply: ReadReply) -> None:
        if reply.znode is not None or reply.is_lost or not reading.keeps_watch:
            self._ended(reading, reply.is_lost, lambda: reading.found is not None and reading.found(reply))
            return
        if self._is_closed:
            return

        def on_stat(found: ExistsReply) -> None:
            if found.stat is not None:
                reading.again = True
            self._ended(reading, found.is_lost, lambda: reading.found is not None and reading.found(reply))

        # The read of a znode that does not exist arms no watch.
        self._store.exists(reading.path, on_stat, watch=True)

    def _on_names(self, reading: _Reading, reply: ChildrenReply) -> None:
        names = tuple(sorted(reply.names or ()))
        self._ended(reading, reply.is_lost, lambda: reading.found_names is not None and reading.found_names(names))

    def _ended(self, reading: _Reading, is_lost: bool, found: Callable[[], object]) -> None:
        if self._is_closed:
            return
        self._in_flight -= 1
        if is_lost:
            self._lost.append(reading)
            return
        if reading.again:
            self._queue.append(reading)
            self._send()
            return
        reading.is_reading = False
        if not reading.is_forgotten:
            found()
        self._send()
        self.release()
