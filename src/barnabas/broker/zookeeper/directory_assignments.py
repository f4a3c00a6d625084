"""Assignments of replicas to log directories in ZooKeeper mode, whose metadata has no directories: nothing is sent."""

from __future__ import annotations

from collections.abc import Callable


class UnreportedAssignments:
    """The `replication.moves.Assignments` of a broker in ZooKeeper mode: every assignment takes effect immediately."""

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, done: Callable[[], None]) -> None:
        done()
