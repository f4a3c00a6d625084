"""Znodes that a broker follows by notifications, as changes of the image.

    a new session      the folders of notifications are watched, then everything is read: what was written without a
                       notification is found too (G42)
    a notification     names one znode, which is read again; the sequence numbers say which notifications are new

Notifications end after 15 minutes; each broker deletes those that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from barnabas.broker.zookeeper.store_steps import Steps, StoreSteps, read
from barnabas.common.host import Buffer, Host
from barnabas.common.reports import LimitedReports
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.znodes import paths
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ChildrenReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import DeleteRequest

_CHANGE_MS_MAX: Final = 15 * 60_000

#: The name of a znode, as a notification has it.
T = TypeVar("T", bound=Hashable)
#: Reads the content of a notification; raises ZnodeError.
Decode = Callable[[str, Buffer | None], T]


class ZnodeWatch(Generic[T]):
    """The znodes of one kind that this broker follows. `folders` are those of their notifications."""

    def __init__(
        self, host: Host, store: ZnodeStore, metadata: MetadataStore, folders: Mapping[str, Decode[T]]
    ) -> None:
        self._host = host
        self._store = store
        self._metadata = metadata
        self._reports = LimitedReports(host.faults, host.clock)
        self._folders = folders
        #: The number of the last notification of each folder that was processed.
        self._last = dict.fromkeys(folders, -1)
        #: The folders with new notifications.
        self._changed: dict[str, None] = {}
        self._wanted: dict[T, None] = {}
        self._running: StoreSteps | None = None

    # -- what a kind of znodes adds

    def _load(self) -> Steps[None]:
        """Reads all znodes."""
        raise NotImplementedError

    def _read(self, name: T) -> Steps[object]:
        """Reads one znode and puts it into the image."""
        raise NotImplementedError

    # -- the session

    def load(self) -> Steps[None]:
        """Sets a watch on the notifications, then reads everything."""
        self._cancel()
        self._wanted.clear()
        self._changed.clear()
        for folder in self._folders:
            names = yield from self._notifications(folder)
            self._last[folder] = max((number for number, _ in names), default=-1)
        yield from self._load()
        self._run_if_wanted()

    def changed(self, path: str) -> None:
        """Handles a watch that fired."""
        if path in self._folders:
            self._changed[path] = None
            self._run()

    def resume(self) -> None:
        if self._running is not None:
            self._running.resume()

    def close(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    # -- changes

    def _want(self, names: Iterable[T]) -> None:
        """Reads these znodes soon."""
        self._wanted.update(dict.fromkeys(names))
        self._run_if_wanted()

    def _run(self) -> None:
        if self._running is None and self._store.session_id:
            self._running = StoreSteps(self._take_in(), self._on_taken_in)
            self._running.start()

    def _on_taken_in(self, result: None) -> None:
        self._running = None
        self._run_if_wanted()

    def _run_if_wanted(self) -> None:
        if self._changed or self._wanted:
            self._run()

    def _take_in(self) -> Steps[None]:
        while self._changed or self._wanted:
            while self._changed:
                folder = next(iter(self._changed))
                del self._changed[folder]
                yield from self._read_notifications(folder)
            while self._wanted:
                name = next(iter(self._wanted))
                del self._wanted[name]
                yield from self._read(name)

    def _read_notifications(self, folder: str) -> Steps[None]:
        names = yield from self._notifications(folder)
        for number, path in names:
            reply = yield from read(self._store, path)
            if reply.znode is None or reply.stat is None:
                continue
            if number > self._last[folder]:
                try:
                    self._wanted[self._folders[folder](path, reply.znode.data)] = None
                except ZnodeError as error:
                    self._reports.report(path, str(error))
            if reply.stat.ctime + _CHANGE_MS_MAX < self._host.clock.wall_ms():
                part = Part(OpCode.DELETE, DeleteRequest(path, ANY_VERSION))
                yield partial(self._store.multi, [part])
        self._last[folder] = max((number for number, _ in names), default=self._last[folder])

    def _notifications(self, folder: str) -> Steps[list[tuple[int, str]]]:
        """Sets a new watch on a folder, and returns its notifications with their sequence numbers, in order."""
        reply: ChildrenReply = yield lambda answered: self._store.children(folder, answered, watch=True)
        found = [f"{folder}/{name}" for name in reply.names or ()]
        return sorted((number, path) for path in found if (number := paths.sequence_number(path)) is not None)

    def _mended(self, path: str) -> None:
        self._reports.over(path, f"znode {path} can be read again")

    def _publish(self, records: Iterable[Message]) -> None:
        """Publishes an image with these records applied."""
        image = self._metadata.image
        delta = MetadataDelta(image)
        delta.roles = frozenset()
        for record in records:
            delta.replay(record)
        self._metadata.publish(delta, delta.apply(image.offset + 1, image.epoch, self._host.clock.wall_ms()))
