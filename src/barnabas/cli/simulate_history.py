"""`barnabas simulate --history`: the decided metadata of a simulated cluster, recorded as that of a live one.

After each event of a node, the newest image that any node has is compared with the last one, and the difference is a
delta of an exact feed. The causes come from the journal of the simulated cluster, at the end of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas.broker.assembly import Broker
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure
from barnabas.history.errors import HistoryError
from barnabas.history.recorder import Recorder
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.monitor.changes import Event
from barnabas.monitor.delta import Delta, Partitions, Source, TopicName
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import NO_NODE
from barnabas.simulation.scenario import Outcome, Run, Settings
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US
from barnabas.simulation.worlds.replicated import log_values

_MIN_ISR: Final = "min.insync.replicas"
_COLUMNS: Final = frozenset({"partition_epoch", "elr", "adding", "removing"})


class DecidedStates:
    """Writes the decided metadata to a table. It is a checker that finds nothing."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._image: MetadataImage = EMPTY_IMAGE
        self._controller = NO_NODE

    def check(self, cluster: Cluster) -> None:
        brokers = [node.broker for node in cluster.dirty if node.is_running and node.broker is not None]
        newest = max((broker.metadata.image for broker in brokers), key=lambda image: image.offset, default=None)
        controller = next((broker.config.node_id for broker in brokers if _is_active(broker)), self._controller)
        if newest is None or (newest.offset <= self._image.offset and controller == self._controller):
            return
        before, self._controller = self._image, controller
        self._image = newest if newest.offset > before.offset else before
        time_ms = (EPOCH_WALL_US + cluster.world.now_us) // MILLISECOND_US
        broker = brokers[0]
        self._table.apply(self._delta(before, time_ms, broker.side.cluster_id, broker.config.int_of(_MIN_ISR)))

    def _delta(self, before: MetadataImage, time_ms: int, cluster_id: str, default_min_isr: int) -> Delta:
        now = self._image
        delta = MetadataDelta.between(before, now)
        found = Delta(
            time_ms,
            Source.METADATA_LOG,
            deleted=[TopicName(topic.name, topic.topic_id) for topic in delta.deleted_topics.values()],
            controller=self._controller,
            cluster_id=cluster_id,
            brokers={broker.broker_id: broker for broker in _brokers(now)},
        )
        partitions = Partitions(_COLUMNS)
        for topic in delta.changed_topics.values():
            partitions.add_topic(topic.name, topic.topic_id, is_complete=False)
            for number, partition in topic.changed_partitions.items():
                _add(partitions, number, partition)
        if len(partitions):
            found.partitions = partitions
        found.min_isrs = {
            topic.name: int(now.topic_config(topic.name).get(_MIN_ISR, default_min_isr)) for topic in now.topics()
        }
        return found


def _is_active(broker: Broker) -> bool:
    return broker.side.journal_controller.is_active


def _brokers(image: MetadataImage) -> Iterator[BrokerState]:
    for broker in image.alive_brokers():
        endpoint = broker.endpoints[0] if broker.endpoints else None
        host, port = ("", 0) if endpoint is None else (endpoint.host, endpoint.port)
        yield BrokerState(broker.broker_id, host, port, broker.rack)


def _add(partitions: Partitions, number: int, partition: PartitionImage) -> None:
    partitions.add(
        number,
        partition.leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        partition_epoch=partition.partition_epoch,
        elr=partition.elr,
        adding=partition.adding_replicas,
        removing=partition.removing_replicas,
    )


def run_recorded(settings: Settings, file: Path) -> Outcome:
    """Simulates a run, and writes the states of its cluster to a new file. Raises Failure."""
    if file.exists():
        raise Failure(f"--history {file}: the file exists", "a run is recorded into a new file")
    table = ClusterTable()
    try:
        recorder = Recorder(file, table)
    except HistoryError as error:
        raise Failure(str(error)) from None
    simulated = Run(settings)
    simulated.watch.use([DecidedStates(table), *simulated.checkers])
    outcome = simulated.execute()
    recorder.explain_events(journal_of(simulated.cluster))
    recorder.close((EPOCH_WALL_US + simulated.world.now_us) // MILLISECOND_US)
    if recorder.problem is not None:
        raise Failure(recorder.problem)
    return outcome


def journal_of(cluster: Cluster) -> Sequence[Event]:
    """Returns the events of the cluster's journal, as far as a running broker has them."""
    longest: list[Event] = []
    for node in cluster.nodes.values():
        partition = None if node.broker is None else node.broker.replicas.find(EVENTS_TOPIC, 0)
        if node.is_running and partition is not None:
            with node.disk.without_effects():
                found = [json.loads(value) for _, value in log_values(partition) if value]
            longest = max(longest, found, key=len)
    return longest
