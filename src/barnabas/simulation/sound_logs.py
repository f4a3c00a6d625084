"""A checker: a log that nothing has damaged is never reported as damaged.

The disk model knows what can have been lost: unsynced data at a power failure, everything when a disk is replaced,
anything while calls fail. A process that ends, in whatever way, loses nothing that it has written.
"""

from __future__ import annotations

from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster


class SoundLogs:
    """Checks, once after each start, that nodes whose disks have never lost anything report no damaged log."""

    is_periodic = True

    def __init__(self) -> None:
        #: Node -> the broker on it that was checked last.
        self._seen: dict[str, object] = {}
        #: Nodes whose disks have failed.
        self._failed: set[str] = set()
        #: The number of starts that were checked.
        self.starts = 0

    def check(self, cluster: Cluster) -> None:
        for node in cluster.dirty:
            disk = node.disk
            if disk.fail_with is not None or disk.crashes or disk.wipes:
                self._failed.add(node.name)
            broker = node.broker
            if broker is None or not node.is_running or self._seen.get(node.name) is broker:
                continue
            self._seen[node.name] = broker
            if node.name not in self._failed:
                self.starts += 1
                _check_start(node)


def _check_start(node: Node) -> None:
    assert node.broker is not None
    damaged = node.broker.logs.damaged
    if damaged.total or damaged.has_any:
        places = [*damaged.waiting, *damaged.unusable, *damaged.missing, "one"]
        raise Violation(f"a log is called damaged, and nothing has damaged it: {places[0]} on {node.name}")
