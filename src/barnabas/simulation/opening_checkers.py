"""The check that a broker opens to clients as soon as its metadata show its registration."""

from __future__ import annotations

from typing import Final

from barnabas.broker.quorum_side import QuorumSide
from barnabas.simulation.history import Violation
from barnabas.simulation.simulated_cluster import Cluster

#: The event that shows the registration queues the one that opens the broker; others can be queued between them.
_EVENTS_MAX: Final = 3


class OpenAfterRegistration:
    """Checks that brokers open when the controller has registered them and the metadata show it, whichever they learn
    first. It does not apply to ZooKeeper mode.
    """

    def __init__(self) -> None:
        #: The name of a node that is to open -> its side, the time since when, and the number of its events.
        self._due: dict[str, tuple[QuorumSide, int, int]] = {}

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        for node in cluster.dirty:
            side = None if node.broker is None else node.broker.side
            if not isinstance(side, QuorumSide) or not side.is_to_open:
                self._due.pop(node.name, None)
                continue
            known, since_us, events = self._due.get(node.name, (side, now_us, 0))
            if known is not side:
                since_us, events = now_us, 0
            self._due[node.name] = (side, since_us, events + 1)
            if events + 1 >= _EVENTS_MAX and now_us > since_us:
                raise Violation(
                    f"closed to clients: {node.name} knows its broker epoch {side.broker_epoch}, its metadata show it, "
                    f"and it has not opened in {events} more events"
                )
