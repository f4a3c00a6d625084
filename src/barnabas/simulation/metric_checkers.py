"""The check of metrics against the state: what a node reports is what the metadata, the disks and the logs say.

The expected values come from second implementations: the replay of the metadata log into a dict, the files of each
log, and the replay of the coordinators' logs. During a run a gauge may be behind for a moment, so a difference counts
if it still exists at the next check; at the end of the run each one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from barnabas.broker.assembly import Broker
from barnabas.broker.metrics.catalogue import collectors_of
from barnabas.common.types import METADATA_TOPIC
from barnabas.coordinators.runtime import ShardState
from barnabas.replication.partition import Role
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.history import Violation
from barnabas.simulation.log_files import read_batches
from barnabas.simulation.metadata_dict import State
from barnabas.simulation.metadata_replay import MetadataLogs, state_of
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US
from barnabas.storage.log import Log

_INTERVAL_US: Final = 10 * SECOND_US
_AGAIN_US: Final = 2 * SECOND_US
_COLLECTORS: Final = ("replicas", "cluster", "logs", "coordinators", "quorum")
_MANAGER: Final = "kafka_server_replicamanager_"
_PARTITION: Final = "kafka_cluster_partition_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_"
_NO_LEADER: Final = -1

#: A metric's name and its labels as text, "" for none.
Gauge = tuple[str, str]
Values = dict[Gauge, Any]


def check_connections(node: Node, broker: Broker) -> None:
    """Raises Violation if the limits count other connections than those that are open."""
    for name, limits in broker.connection_limits.items():
        counted = {each.name: each.count for each in limits.listeners()}[name]
        if counted != node.open_connections(name):
            raise Violation(
                f"{node.name} counts {counted} connections of {name}, and it has {node.open_connections(name)}"
            )


class Metrics:
    """Compares gauges with expected values. Without `logs` (in ZooKeeper mode) the metadata is that of the node's
    image.
    """

    is_periodic = True

    def __init__(self, coordinators: Coordinators, logs: MetadataLogs | None) -> None:
        self._coordinators = coordinators
        self._logs = logs
        self._next_us: dict[str, int] = {}
        self._different: dict[str, Values] = {}
        #: The number of gauges that were compared.
        self.compared = 0

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        for node in cluster.dirty:
            if not cluster.checks_all and now_us < self._next_us.get(node.name, 0):
                continue
            broker = node.broker
            if broker is None or not node.is_running or broker.metadata.image.offset < 0:
                continue
            check_connections(node, broker)
            if cluster.checks_all or self._next_us.setdefault(node.name, now_us + _INTERVAL_US) <= now_us:
                self._look(node, broker, now_us, is_end=cluster.checks_all)
        if cluster.checks_all:
            active = sum(
                _reported(node.broker)[_CONTROLLER + "activecontrollercount", ""] for node in _running(cluster)
            )
            if active != 1:
                raise Violation(f"a metric is wrong: {active} nodes report that they are the active controller")

    def _look(self, node: Node, broker: Broker, now_us: int, *, is_end: bool) -> None:
        reported = _reported(broker)
        expected = dict(self._expected(node, broker, is_end=is_end))
        self.compared += len(expected)
        different = {gauge: value for gauge, value in expected.items() if reported.get(gauge) != value}
        before = self._different.get(node.name, {})
        self._different[node.name] = {} if before else different
        self._next_us[node.name] = now_us + (_AGAIN_US if self._different[node.name] else _INTERVAL_US)
        for (name, labels), value in different.items():
            if is_end or before.get((name, labels)) == value:
                found = reported.get((name, labels))
                raise Violation(f"a metric is wrong: {node.name} reports {name}{labels} {found}, and it is {value}")

    def _expected(self, node: Node, broker: Broker, *, is_end: bool) -> Iterator[tuple[Gauge, Any]]:
        image = broker.metadata.image
        state = state_of(image) if self._logs is None else self._logs.replayed.state(image.offset + 1)
        if broker.config.is_controller and (self._logs is not None or broker.side.controller.is_active):
            yield from _of_the_cluster(state)
        if broker.config.is_broker:
            own = state.get(("broker", broker.config.node_id))
            epoch = broker.replicas.environment.broker_epoch()
            is_known = own is not None and own["epoch"] == epoch and not own["fenced"]
            if is_known and not broker.logs.offline_directories and not _is_ahead(broker):
                yield from _of_replicas(state, broker.config.node_id)
                yield from _of_each_replica(state, broker)
            for partition in broker.replicas.partitions():
                if partition.role is not Role.OFFLINE:
                    topic, index = partition.topic_partition
                    yield from _of_a_log(node, partition.log, topic, index)
            if is_end:
                yield from self._of_coordinators(broker)
        if self._logs is not None:
            log = broker.quorum.raft.log.log
            yield from _of_a_log(node, log, METADATA_TOPIC, 0)

    def _of_coordinators(self, broker: Broker) -> Iterator[tuple[Gauge, Any]]:
        """Yields the gauges of groups and transactions, if every partition is loaded and has a replay."""
        replays = [self._coordinators.replay_of(broker, shard) for shard in broker.groups.shards()]
        if None not in replays:
            known = [replay for replay in replays if replay is not None]
            yield (_GROUPS + "numoffsets", ""), sum(len(replay.offsets()) for replay in known)
            name = "kafka_server_group_coordinator_metrics_group_count"
            yield (name, '{protocol="consumer"}'), sum(len(replay.consumer_groups()) for replay in known)
        states: Counter[int] = Counter()
        for shard in broker.transactions.shards():
            replay = self._coordinators.replay_of(broker, shard)
            if replay is None or shard.state is not ShardState.ACTIVE:
                return
            states.update(each["state"] for each in replay.transactions().values())
        for number, shown in enumerate(("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit")):
            if number:
                # An id is known before its first record, so that Empty can be more.
                yield ("barnabas_transactional_ids", f'{{state="{shown}"}}'), states[number]


def _is_ahead(broker: Broker) -> bool:
    """Returns whether a leader knows from the controller's response an ISR that its metadata does not contain yet: over
    a slow link, every fetch of the metadata can take longer than its time limit.
    """
    known = broker.metadata.image.partition
    for partition in broker.replicas.partitions():
        if partition.leadership is not None:
            shown = known(*partition.topic_partition)
            if shown is not None and shown.partition_epoch < partition.leadership.partition_epoch:
                return True
    return False


def _running(cluster: Cluster) -> Iterator[Any]:
    return (node for node in cluster.nodes.values() if node.broker is not None and node.broker.config.is_controller)


def _reported(broker: Broker) -> Values:
    """Returns the samples of a node's gauges."""
    found: Values = {}
    for name, collect in collectors_of(broker).items():
        if name in _COLLECTORS:
            for family in collect(broker):
                for sample in family.samples:
                    shown = ",".join(f'{key}="{value}"' for key, value in sample.labels)
                    found[family.name + sample.suffix, f"{{{shown}}}" if shown else ""] = sample.value
    return found


def _of_the_cluster(state: State) -> Iterator[tuple[Gauge, Any]]:
    partitions = [value for key, value in state.items() if key[0] == "partition"]
    brokers = [value for key, value in state.items() if key[0] == "broker"]
    counts = {
        "globaltopiccount": sum(key[0] == "topic" for key in state),
        "globalpartitioncount": len(partitions),
        "offlinepartitionscount": sum(each["leader"] == _NO_LEADER for each in partitions),
        "preferredreplicaimbalancecount": sum(each["leader"] != each["replicas"][0] for each in partitions),
        "activebrokercount": sum(not each["fenced"] for each in brokers),
        "fencedbrokercount": sum(each["fenced"] for each in brokers),
    }
    for name, count in counts.items():
        yield (_CONTROLLER + name, ""), count


def _of_replicas(state: State, broker_id: int) -> Iterator[tuple[Gauge, Any]]:
    hosted = {key: value for key, value in state.items() if key[0] == "partition" and broker_id in value["replicas"]}
    led = {key: value for key, value in hosted.items() if value["leader"] == broker_id}
    yield (_MANAGER + "partitioncount", ""), len(hosted)
    yield (_MANAGER + "leadercount", ""), len(led)
    short = sum(len(each["isr"]) < len(set(each["replicas"]) - set(each["adding"])) for each in led.values())
    yield (_MANAGER + "underreplicatedpartitions", ""), short
    for (_, topic_id, index), value in led.items():
        labels = f'{{topic="{state["topic", topic_id]}",partition="{index}"}}'
        original = set(value["replicas"]) - set(value["adding"])
        yield (_PARTITION + "insyncreplicascount", labels), len(value["isr"])
        yield (_PARTITION + "replicascount", labels), len(original)
        yield (_PARTITION + "underreplicated", labels), int(len(value["isr"]) < len(original))


def _of_each_replica(state: State, broker: Broker) -> Iterator[tuple[Gauge, Any]]:
    """Yields gauges of min ISR, in total and one by one: of this broker's partitions, led and followed."""
    under = at = 0
    names = {(state["topic", topic_id], index): value for (_, topic_id, index), value in _partitions(state)}
    for partition in broker.replicas.partitions():
        topic, index = partition.topic_partition
        value = names.get((topic, index))
        if value is None:
            continue
        is_led = value["leader"] == broker.config.node_id
        least = min(partition.log.config.min_insync_replicas, len(value["replicas"]))
        under += is_led and len(value["isr"]) < least
        at += is_led and len(value["isr"]) == least
        labels = f'{{topic="{topic}",partition="{index}"}}'
        yield (_PARTITION + "underminisr", labels), int(is_led and len(value["isr"]) < least)
        yield (_PARTITION + "atminisr", labels), int(is_led and len(value["isr"]) == least)
        lag = max(0, partition.high_watermark - partition.last_stable_offset)
        yield (_PARTITION + "laststableoffsetlag", labels), lag
    yield (_MANAGER + "underminisrpartitioncount", ""), under
    yield (_MANAGER + "atminisrpartitioncount", ""), at


def _partitions(state: State) -> Iterator[tuple[Any, Any]]:
    return ((key, value) for key, value in state.items() if key[0] == "partition")


def _of_a_log(node: Node, log: Log, topic: str, index: int) -> Iterator[tuple[Gauge, Any]]:
    """Yields the gauges of a log, computed from its files on disk."""
    labels = f'{{topic="{topic}",partition="{index}"}}'
    disk = node.disk
    with disk.without_effects():
        if not disk.is_dir(log.directory):
            return
        names = sorted(name for name in disk.list_dir(log.directory) if name.endswith(".log"))
        if not names:
            return
        files = [disk.read(f"{log.directory}/{name}") for name in names]
    batches = read_batches(files[-1])
    yield ("kafka_log_log_size", labels), sum(map(len, files))
    yield ("kafka_log_log_numlogsegments", labels), len(names)
    end = batches[-1].last_offset + 1 if batches else int(names[-1].partition(".")[0])
    yield ("kafka_log_log_logendoffset", labels), end
