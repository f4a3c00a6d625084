"""Invariants of a cluster in ZooKeeper mode, checked on the transactions of the server:

    ServerTree    the tree is the one that the transactions make, after each of them and after each start: nothing that
                  was applied is lost, nothing comes from nowhere, and an ephemeral znode exists as long as its session
    OneWriter     between two values of /controller_epoch only the session that wrote the first one writes states, with
                  that epoch in them; epochs of controllers rise by one, with the claim of /controller
    StateFollowed leader epochs in states never fall, and another leader has a higher one; a broker leads only what a
                  state said, in the leader epoch in which it said so
    Deletions     a topic's znodes go when no broker has a log of it any more

An observer of transactions raises nothing: it is called in the middle of the server's work. What it finds is raised
by the next check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import NO_LEADER
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.zookeeper_model import Change, TreeModel, node_of, nodes_of
from barnabas.storage.checkpoints import PARTITION_METADATA, decode_partition_metadata
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_controller_epoch
from barnabas.znodes.topic_znodes import PartitionState, TopicAssignment, decode_state, decode_topic
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnEntry

_STATE_PARTS: Final = 6
#: The whole tree is compared after each of the first 100 transactions, and after every 100th transaction later.
_WHOLE_EVERY: Final = 100


class ChangeReader(Protocol):
    """A checker of changes. `problem` is its first finding."""

    problem: str | None

    def note(self, model: TreeModel, session_id: int, changes: Sequence[Change]) -> None:
        """Checks the changes of one transaction of this session, which are in the model already."""


class ServerTree:
    """Checks the server's tree against the model that it feeds with transactions, and passes changes on to the other
    checkers.
    """

    def __init__(self, cluster: Cluster, readers: Sequence[ChangeReader] = ()) -> None:
        self._readers = tuple(readers)
        self.model: TreeModel | None = None
        #: Entries of the log that are not applied, by zxid.
        self._appended: dict[int, TxnEntry] = {}
        self.problem: str | None = None
        assert cluster.zookeeper is not None
        cluster.zookeeper.observers.append(self)

    def check(self, cluster: Cluster) -> None:
        if self.problem is not None:
            raise Violation(self.problem)
        for reader in self._readers:
            if reader.problem is not None:
                raise Violation(reader.problem)

    def _found(self, problem: str) -> None:
        if self.problem is None:
            self.problem = f"the tree of the server is wrong: {problem}"

    # -- TransactionObserver

    def recovered(self, database: Database) -> None:
        model = self.model
        if model is None:
            self.model = TreeModel(database)
            return
        if database.last_zxid < model.zxid:
            self._found(f"it starts at zxid {database.last_zxid}, and had applied {model.zxid}")
            return
        for zxid in range(model.zxid + 1, database.last_zxid + 1):
            entry = self._appended.get(zxid)
            if entry is None:
                self._found(f"it starts with transaction {zxid}, which was not appended")
                return
            self._take(entry)
        self._appended.clear()
        self._compare_all(database)

    def appended(self, entry: TxnEntry) -> None:
        self._appended[entry.header.zxid] = entry

    def applied(self, entry: TxnEntry, database: Database) -> None:
        assert self.model is not None, "the server has recovered before"
        self._appended.pop(entry.header.zxid, None)
        for path, _, after in self._take(entry):
            found, expected = node_of(database, path), self.model.nodes.get(path)
            if found != expected:
                self._found(f"{path} is {found} instead of {expected} after {entry}")
            elif after is not None and after.owner and after.owner not in database.sessions:
                self._found(f"{path} belongs to session 0x{after.owner:x}, which is not open")
        if entry.header.zxid % _WHOLE_EVERY == 0:
            self._compare_all(database)

    def _take(self, entry: TxnEntry) -> list[Change]:
        assert self.model is not None, "the server has recovered before"
        changes = self.model.apply(entry)
        for reader in self._readers:
            if reader.problem is None:
                reader.note(self.model, entry.header.session_id, changes)
        return changes

    def _compare_all(self, database: Database) -> None:
        assert self.model is not None, "the server has recovered before"
        found, expected = dict(nodes_of(database)), self.model.nodes
        if found != expected:
            different = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
            self._found(
                f"{different[0]} is {found.get(different[0])} instead of {expected.get(different[0])} at zxid "
                f"{database.last_zxid}"
            )
        elif set(database.sessions) != self.model.sessions:
            self._found(f"its open sessions differ by {set(database.sessions) ^ self.model.sessions}")


class OneWriter:
    """Checks that only the session that claimed a controller epoch writes states, with that epoch."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self._epoch = 0
        self._writer = 0

    def note(self, model: TreeModel, session_id: int, changes: Sequence[Change]) -> None:
        for path, before, after in changes:
            if path == paths.CONTROLLER_EPOCH and after is not None:
                self._note_epoch(model, session_id, decode_controller_epoch(path, after.data), is_first=before is None)
            elif after is not None and _is_state(path):
                state = decode_state(path, after.data)
                if session_id != self._writer or state.controller_epoch != self._epoch:
                    self.problem = (
                        f"two controllers write: session 0x{session_id:x} writes {path} with epoch "
                        f"{state.controller_epoch}; epoch {self._epoch} belongs to 0x{self._writer:x}"
                    )

    def _note_epoch(self, model: TreeModel, session_id: int, epoch: int, *, is_first: bool) -> None:
        claimed = model.nodes.get(paths.CONTROLLER)
        if not is_first and epoch != self._epoch + 1:
            self.problem = f"the controller epoch goes from {self._epoch} to {epoch}"
        elif not is_first and (claimed is None or claimed.owner != session_id):
            self.problem = f"controller epoch {epoch} is raised without the claim of /controller"
        self._epoch, self._writer = epoch, session_id


class StateFollowed:
    """Checks partition states, and as a `ReplicaChecker` that leaders lead as the states say."""

    def __init__(self) -> None:
        self.problem: str | None = None
        #: (topic id, partition) -> leader epoch -> leader, of all states that were ever written.
        self._leaders: dict[tuple[bytes, int], dict[int, int]] = {}
        #: Path -> leader epoch and leader of the present state.
        self._present: dict[str, tuple[int, int]] = {}

    def note(self, model: TreeModel, session_id: int, changes: Sequence[Change]) -> None:
        for path, before, after in changes:
            if not _is_state(path):
                continue
            if before is None:
                self._present.pop(path, None)
            if after is not None:
                self._note_state(model, path, decode_state(path, after.data))

    def _note_state(self, model: TreeModel, path: str, state: PartitionState) -> None:
        before = self._present.get(path, (-1, NO_LEADER))
        now = self._present[path] = (state.leader_epoch, state.leader)
        if now[0] < before[0] or (now[0] == before[0] and now[1] != before[1]):
            self.problem = f"a leader epoch does not rise: {path}: epoch and leader go from {before} to {now}"
        topic, index = _place_of(path)
        topic_id = _assignment(model, topic).topic_id or b""
        self._leaders.setdefault((topic_id, index), {})[state.leader_epoch] = state.leader

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if now.role is not Role.LEADER or (before is not None and before[:2] == now[:2]):
            return
        said = self._leaders.get((partition.topic_id, partition.topic_partition.partition), {})
        if said.get(now.leader_epoch) != partition.node_id:
            raise Violation(
                f"a leader that no state names: {partition.topic_partition} on {node.name} in epoch "
                f"{now.leader_epoch}; the states had the leaders {said}"
            )

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: the states are those of the transactions."""


class Deletions:
    """Checks that the znodes of a topic go only after the last log of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.problem: str | None = None
        self._cluster = cluster

    def note(self, model: TreeModel, session_id: int, changes: Sequence[Change]) -> None:
        """Searches the disks of all brokers, including dead ones, for logs of a topic when its znodes are deleted."""
        for path, before, after in changes:
            topic = path.removeprefix(f"{paths.TOPICS}/")
            if after is not None or before is None or topic == path or "/" in topic:
                continue
            assignment = decode_topic(path, before.data)
            for index, assigned in assignment.partitions.items():
                for replica in assigned.replicas:
                    self._look(replica, f"{topic}-{index}", assignment.topic_id)

    def _look(self, replica: int, name: str, topic_id: bytes | None) -> None:
        node = self._cluster.nodes.get(f"broker{replica}")
        if node is None:
            return
        roots = self._cluster.layout.shared_property("log.dirs").split(",")
        with node.disk.without_effects():
            for path in (f"{root}/{name}/{PARTITION_METADATA}" for root in roots):
                if node.disk.exists(path) and decode_partition_metadata(path, node.disk.read(path)) == topic_id:
                    self.problem = f"a topic was deleted whose log still exists: {name} on {node.name}"


def _is_state(path: str) -> bool:
    return path.startswith(f"{paths.TOPICS}/") and path.endswith("/state") and path.count("/") == _STATE_PARTS


def _place_of(path: str) -> tuple[str, int]:
    topic, _, index, _ = path.removeprefix(f"{paths.TOPICS}/").split("/")
    return topic, int(index)


def _assignment(model: TreeModel, topic: str) -> TopicAssignment:
    path = paths.topic(topic)
    return decode_topic(path, model.nodes[path].data)
