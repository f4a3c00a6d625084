"""Deletes empty containers and expired TTL nodes, a few at a time (`ContainerManager`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.common.host import Clock, Timer, Timers
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.tree.data_tree import DataTree
from barnabas.zookeeper.tree.owners import ttl_of

_MINUTE_MS: Final = 60_000


class Upkeep:
    """Checks all containers and TTL nodes at intervals; `delete` submits the deletion of one."""

    def __init__(
        self, tree: DataTree, settings: ServerSettings, clock: Clock, timers: Timers, delete: Callable[[str], None]
    ) -> None:
        self._tree = tree
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._delete = delete
        self._timer: Timer | None = None
        self._waiting: deque[str] = deque()

    def start(self) -> None:
        assert self._timer is None
        self._timer = self._timers.call_later(self._settings.container_check_ms, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def candidates(self) -> list[str]:
        """Returns the paths to delete now: containers that had a child and have none any more, and TTL nodes without
        children whose time is over.
        """
        now_ms, unused_ms = self._clock.wall_ms(), self._settings.container_never_used_ms
        found = []
        for path in self._tree.containers:
            node = self._tree.nodes[path]
            unused = unused_ms and now_ms - node.mtime_ms > unused_ms
            if not node.children and (node.cversion > 0 or unused):
                found.append(path)
        for path in self._tree.ttl_nodes:
            node = self._tree.nodes[path]
            if not node.children and now_ms - node.mtime_ms > ttl_of(node.owner) > 0:
                found.append(path)
        return found

    def _check(self) -> None:
        self._waiting.extend(self.candidates())
        self._next()

    def _next(self) -> None:
        if not self._waiting:
            self._timer = self._timers.call_later(self._settings.container_check_ms, self._check)
            return
        self._delete(self._waiting.popleft())
        self._timer = self._timers.call_later(_MINUTE_MS // self._settings.container_deletions_per_minute, self._next)
