"""Notifications that brokers leave as sequential znodes: failed log directories, and changed ISRs of old releases.

Each is read, acted on, and deleted. Those that exist at the activation contain nothing new: everything is read then,
and all brokers get their roles, so that their answers name the replicas in failed directories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from barnabas.controller.zookeeper.core import Core
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.full_state_requests import repeat_roles
from barnabas.controller.zookeeper.znode_writes import delete
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import decode_log_dir_event, decode_partitions
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply


class Notifications:
    """Processes the notifications for the active controller, in one controller epoch. `read_again` reads the znodes of
    a topic whose ISR changed.
    """

    def __init__(self, core: Core, read_again: Callable[[str], None]) -> None:
        self._core = core
        self._read_again = read_again
        self._known: set[str] = set()

    def start(self) -> None:
        reader = self._core.reader
        reader.watch_children(paths.LOG_DIR_EVENTS, partial(self._on_names, paths.LOG_DIR_EVENTS, self._on_log_dir))
        reader.watch_children(paths.ISR_CHANGES, partial(self._on_names, paths.ISR_CHANGES, self._on_isr_change))

    def _on_names(self, folder: str, found: Callable[[str, ReadReply], None], names: Sequence[str]) -> None:
        for name in names:
            path = f"{folder}/{name}"
            if path not in self._known:
                self._known.add(path)
                self._core.reader.read(path, partial(found, path))
        there = {f"{folder}/{name}" for name in names}
        for path in sorted(path for path in self._known - there if path.startswith(folder)):
            self._known.discard(path)
            self._core.problems.gone(path)

    def _on_log_dir(self, path: str, reply: ReadReply) -> None:
        if reply.znode is None:
            return
        try:
            broker_id = decode_log_dir_event(path, reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
        else:
            if self._core.is_serving:
                self._ask_for_roles(broker_id)
        self._delete(path)

    def _ask_for_roles(self, broker_id: int) -> None:
        """Sends the roles of this broker again: the answer names the replicas that are offline."""
        broker = self._core.records.committed.brokers.get(broker_id)
        if broker is not None:
            self._core.slices.begin(repeat_roles(self._core, {broker_id: broker.epoch}))

    def _on_isr_change(self, path: str, reply: ReadReply) -> None:
        if reply.znode is None:
            return
        try:
            changed = decode_partitions(path, reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
            changed = []
        self._delete(path)
        if self._core.is_serving:
            for name in sorted({place.topic for place in changed}):
                self._read_again(name)

    def _delete(self, path: str) -> None:
        self._core.records.write([Unit(path, (delete(path),))], ())
