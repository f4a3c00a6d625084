"""The promise that nothing is taken away while all machines and links are well.

A controller stays active, a broker stays unfenced, and a replica stays in its ISR. A component that counts time
wrongly, misses a message or decides by an outdated number breaks this promise long before data is lost. The promise
holds once the last trouble or fault is over for as long as the rest of the cluster can need to notice it and to
recover.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.partition import Partition
from barnabas.simulation.conditions import PAUSED_US, condition_of
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State, changed_partitions
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, ProcessState

_INTERVAL_US: Final = SECOND_US // 4


class NeedlessChanges:
    """Finds needless changes of ISRs: compares every decision of the controller with the condition of the cluster,
    which is sampled now and then.
    """

    is_periodic = True

    def __init__(self, cluster: Cluster, last_fault_us: Callable[[], int], bound_ms: int) -> None:
        """Creates the checker. `last_fault_us` returns when a fault was active last; `bound_ms` is the time that a
        recovery takes at most.
        """
        self._cluster = cluster
        self._last_fault_us = last_fault_us
        self._bound_us = bound_ms * MILLISECOND_US
        self._looked_us = 0
        self._starts: dict[str, int] = {}
        #: The time at which the last trouble was seen.
        self._troubled_us = 0
        self._is_calm = False
        self._epoch = 0
        #: The number of checks of a cluster that was healthy for long enough.
        self.looks = 0

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        if now_us < self._looked_us + _INTERVAL_US:
            return
        was_paused = now_us > self._looked_us + PAUSED_US
        self._looked_us = now_us
        condition = condition_of(cluster)
        programs = cluster.programs
        is_well = not any(name in programs for name in condition.troubles)
        is_well = is_well and not any(set(pair) <= set(programs) for pair in condition.links)
        if was_paused or not is_well or condition.starts != self._starts:
            self._troubled_us, self._starts = now_us, condition.starts
        self._troubled_us = max(self._troubled_us, self._last_fault_us())
        self._is_calm = now_us >= self._troubled_us + self._bound_us
        epoch_before, self._epoch = self._epoch, self._controller_epoch()
        self.looks += self._is_calm
        if self._is_calm and self._epoch != epoch_before:
            raise Violation(f"{_NEEDLESS}: another controller is active in epoch {self._epoch}")

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        """Does nothing: this is about decisions."""

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Checks a decision, unless a fault has begun since the last sample."""
        is_recent = self._cluster.world.now_us <= self._looked_us + PAUSED_US
        if not self._is_calm or not is_recent or self._last_fault_us() > self._troubled_us:
            return
        for broker_id, broker in now.brokers.items():
            earlier = before.brokers.get(broker_id)
            if broker.fenced and earlier is not None and not earlier.fenced and self._runs(broker_id):
                raise Violation(f"{_NEEDLESS}: broker {broker_id} is fenced")
        for (tp, _), was, decided in changed_partitions(before, now):
            gone = [] if was is None else [each for each in _gone(was, decided) if self._runs(each)]
            if gone and not any("throttled" in key for key in now.topic_config(tp.topic)):
                raise Violation(f"{_NEEDLESS}: {gone} leave the ISR of {tp}, which is {list(decided.isr)}")

    def _runs(self, broker_id: int) -> bool:
        """Returns whether a broker runs in the process that was seen last."""
        name = f"broker{broker_id}"
        machine = self._cluster.nodes[name].machine
        process = machine.process
        is_running = process is not None and process.state is ProcessState.RUNNING
        return is_running and machine.incarnation == self._starts.get(name)

    def _controller_epoch(self) -> int:
        """Returns the epoch of the metadata quorum; 0 in ZooKeeper mode, where an operator deposes controllers."""
        brokers = [node.broker for node in self._cluster.nodes.values() if node.broker is not None]
        return 0 if self._cluster.zookeeper else max((each.quorum.raft.epoch for each in brokers), default=0)


_NEEDLESS: Final = "a needless change although all nodes are healthy"


def _gone(before: PartitionImage, now: PartitionImage) -> list[int]:
    """Returns the replicas that left the ISR, and are not moved away."""
    return [each for each in before.isr if each not in now.isr and each in now.replicas]
