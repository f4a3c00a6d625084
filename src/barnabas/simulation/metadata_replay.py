"""Checks metadata images and snapshot files against a replay of the metadata log into a dict.

The committed log is followed batch by batch, from whichever node has it. A node's image is compared after each of its
starts, at intervals, and at the end of a run; each snapshot file when it is new. Voters and features count, too. If no
node has the next records any more, the replay begins anew with a snapshot, and older states are not compared.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.metadata.image import MetadataImage
from barnabas.simulation.history import Violation
from barnabas.simulation.metadata_dict import MetadataDict, State
from barnabas.simulation.node import Node
from barnabas.simulation.plain_decoding import Json
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US

_INTERVAL_US: Final = 5 * SECOND_US
_LOOK_US: Final = SECOND_US // 2
_FILES_US: Final = 2 * SECOND_US
_SUFFIX: Final = ".checkpoint"
_LOG: Final = ".log"


class MetadataLogs:
    """Compares images and snapshots with the replay. Not for ZooKeeper mode, where no log has the metadata."""

    is_periodic = True

    def __init__(self) -> None:
        self.replayed = MetadataDict()
        self._brokers: dict[str, object] = {}
        #: The last image that was checked, and the time of the next check.
        self._looks: dict[str, tuple[MetadataImage, int]] = {}
        self._images_us: dict[str, int] = {}
        self._files_us: dict[str, int] = {}
        #: (node, how often its disk was emptied, name) of the snapshots that were compared.
        self._seen: set[tuple[str, int, str]] = set()
        #: The numbers of images and of snapshots that were compared.
        self.images = self.snapshots = 0

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        is_end = cluster.checks_all
        for node in cluster.dirty:
            if node.broker is None:
                continue
            image = node.broker.metadata.image
            seen = self._looks.get(node.name)
            if not is_end and seen is not None and seen[0] is image and now_us < seen[1]:
                continue
            if not node.is_running:
                continue
            self._looks[node.name] = image, now_us + _LOOK_US
            if image.offset >= self.replayed.end:
                self._follow(cluster, node, image.offset + 1)
            is_new = self._brokers.get(node.name) is not node.broker
            if (
                image.offset >= 0
                and self._knows(image.offset + 1)
                and (is_end or is_new or now_us >= self._images_us.get(node.name, 0) + _INTERVAL_US)
            ):
                self._brokers[node.name] = node.broker
                self._images_us[node.name] = now_us
                self._check_image(node, image)
            if is_end or now_us >= self._files_us.get(node.name, 0) + _FILES_US:
                self._files_us[node.name] = now_us
                self._check_files(node)

    def _knows(self, end: int) -> bool:
        """Returns whether the replay has the state of all records below `end`."""
        return self.replayed.begin <= end <= self.replayed.end

    def _follow(self, cluster: Cluster, node: Node, end: int) -> None:
        """Replays the committed log up to `end` from the node's files. If they begin with a snapshot and not far enough
        back, the other nodes' logs have the records before, as far as those nodes know that they are committed. If none
        has them, the replay begins anew with the snapshot.
        """
        for other in cluster.nodes.values():
            if not self._lacks_records(node):
                break
            if other.is_running and other.broker is not None and not self._lacks_records(other):
                self._add_files(other, min(end, other.broker.metadata.image.offset + 1))
        if self._lacks_records(node):
            newest = max(name for name in _names(node) if name.endswith(_SUFFIX))
            self.replayed.begin_from(_read(node, newest), int(newest.partition("-")[0]))
        self._add_files(node, end)

    def _lacks_records(self, node: Node) -> bool:
        """Returns whether the node's log begins after the last replayed record."""
        logs = _logs(node)
        return bool(logs) and _base(logs[0]) > self.replayed.end

    def _add_files(self, node: Node, end: int) -> None:
        """Replays the node's log up to `end`. A node with a full disk can know more than its files have."""
        logs = _logs(node)
        for place, name in enumerate(logs):
            if place + 1 == len(logs) or _base(logs[place + 1]) > self.replayed.end:
                self.replayed.add(_read(node, name), end)

    def _check_image(self, node: Node, image: MetadataImage) -> None:
        self.images += 1
        expected = self.replayed.state(image.offset + 1)
        for key in ("kraft.version",), ("voters",):
            expected.pop(key, None)
        problem = difference(state_of(image), expected)
        if problem:
            raise Violation(f"an image differs from the log: on {node.name} at {image.offset}: {problem}")

    def _check_files(self, node: Node) -> None:
        for name in _names(node):
            seen = (node.name, node.disk.wipes, name)
            if not name.endswith(_SUFFIX) or seen in self._seen:
                continue
            end = int(name.partition("-")[0])
            if self._knows(end):
                self._seen.add(seen)
                self.snapshots += 1
                problem = wrong_snapshot(_read(node, name), self.replayed, end)
                if problem:
                    raise Violation(f"a snapshot differs from the log: {name} on {node.name}: {problem}")


def _directory(node: Node) -> str:
    assert node.broker is not None
    return node.broker.quorum.raft.log.directory


def _names(node: Node) -> list[str]:
    with node.disk.without_effects():
        return sorted(node.disk.list_dir(_directory(node)))


def _logs(node: Node) -> list[str]:
    return [name for name in _names(node) if name.endswith(_LOG)]


def _read(node: Node, name: str) -> bytes:
    with node.disk.without_effects():
        return node.disk.read(f"{_directory(node)}/{name}")


def _base(name: str) -> int:
    return int(name.partition(".")[0])


def wrong_snapshot(data: bytes, replayed: MetadataDict, end: int) -> str:
    """Compares a snapshot file with the replay of the records below `end`. Returns what is wrong, or ""."""
    found = MetadataDict()
    found.begin_from(data, end)
    there, expected = found.state(), replayed.state(end)
    for state in (there, expected):
        if not state.get(("kraft.version",)):
            # A static quorum has no voters in its snapshots.
            state.pop(("kraft.version",), None)
            state.pop(("voters",), None)
    return difference(there, expected)


def difference(found: State, expected: State) -> str:
    """Returns the first difference of two states, or ""."""
    if found == expected:
        return ""
    for key in sorted({*found, *expected}, key=repr):
        if found.get(key) != expected.get(key):
            return f"{key} is {found.get(key)}, the log says {expected.get(key)}"
    return ""


def state_of(image: MetadataImage) -> State:
    """Returns the content of an image in the form of `MetadataDict.state`."""
    found: State = {}
    for topic_id, topic in image.topics_by_id.items():
        found["topic", topic_id] = topic.name
        for index, partition in enumerate(topic.partitions):
            found["partition", topic_id, index] = _partition(partition)
    for broker_id, broker in image.brokers.items():
        found["broker", broker_id] = _broker(broker)
    for controller_id, controller in image.controllers.items():
        found["controller", controller_id] = {
            "id": controller.controller_id,
            "incarnation": controller.incarnation_id,
            "migration_ready": controller.zk_migration_ready,
            **_offered(controller),
        }
    for (kind, resource), overrides in image.configs.items():
        found.update({("config", kind, resource, name): value for name, value in overrides.items()})
    found.update({("feature", name): level for name, level in image.features.items()})
    security = image.security
    for (mechanism, name), record in security.scram.items():
        found["scram", mechanism, name] = _fields(record, "name mechanism salt stored_key server_key iterations")
    for acl_id, acl in security.acls.items():
        names = "id resource_type resource_name pattern_type principal host operation permission_type"
        found["acl", acl_id] = _fields(acl.record(acl_id), names)
    for entity, rates in security.quotas.items():
        found.update({("quota", entity, key): rate for key, rate in rates.items()})
    for token_id, token in security.tokens.items():
        times = {"issued": token.issue_timestamp, "max": token.max_timestamp, "expires": token.expiration_timestamp}
        found["token", token_id] = {**_fields(token, "owner requester renewers"), **times, "id": token.token_id}
    if image.next_producer_id >= 0:
        found["producer ids",] = image.next_producer_id
    if image.zk_migration_state:
        found["migration",] = image.zk_migration_state
    return found


def _fields(record: Any, names: str) -> Json:
    return {name: getattr(record, name) for name in names.split()}


def _offered(node: Any) -> Json:
    endpoints = [
        {"name": each.name, "host": each.host, "port": each.port, "protocol": each.security_protocol}
        for each in node.endpoints
    ]
    features = [{"name": each.name, "min": each.min_version, "max": each.max_version} for each in node.features]
    return {
        "endpoints": sorted(endpoints, key=lambda each: str(each["name"])),
        "features": sorted(features, key=lambda each: str(each["name"])),
    }


def _broker(broker: Any) -> Json:
    return {
        "id": broker.broker_id,
        "migrating": broker.is_migrating_zk_broker,
        "incarnation": broker.incarnation_id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "fenced": broker.fenced,
        "leaving": broker.in_controlled_shutdown,
        "directories": list(broker.directories),
        "unwritable": b"".join(broker.unwritable),
        **_offered(broker),
    }


def _partition(partition: Any) -> Json:
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removing": list(partition.removing_replicas),
        "adding": list(partition.adding_replicas),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "recovery": partition.leader_recovery_state,
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "directories": list(partition.directories),
    }
