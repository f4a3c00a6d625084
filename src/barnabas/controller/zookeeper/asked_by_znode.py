"""Elections and reassignments that tools request by znodes: `/admin/preferred_replica_election` and
`/admin/reassign_partitions`.

The election znode is deleted when its elections are written. The reassignment znode is rewritten with what is left
whenever a partition is done, and deleted with the last one; moves that cannot begin are removed from it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.common.types import TopicPartition
from barnabas.controller.requests import elections, reassignments
from barnabas.controller.requests.reassignments import is_in_progress, target_of
from barnabas.controller.zookeeper.core import Core
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.request_parts import parts_of_elect_leaders
from barnabas.controller.zookeeper.slices import Job
from barnabas.controller.zookeeper.znode_writes import delete, set_data
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import decode_partitions, decode_reassignment, encode_reassignment
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply

_ACTOR = "a client of ZooKeeper"


class PreferredElectionZnode:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._asked: list[TopicPartition] = []

    def start(self) -> None:
        self._core.reader.watch_data(paths.PREFERRED_REPLICA_ELECTION, self._on_znode)

    def _on_znode(self, reply: ReadReply) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        if reply.znode is None:
            return
        try:
            self._asked = decode_partitions(path, reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
            self._asked = []
        else:
            self._core.problems.mended(path)
        if self._core.is_serving:
            self._elect()

    def resume(self) -> None:
        """Decides the elections that were requested before the controller was active."""
        if self._asked:
            self._elect()

    def _elect(self) -> None:
        asked, self._asked = self._asked, []
        topics: dict[str, list[int]] = {}
        for name, partition in asked:
            topics.setdefault(name, []).append(partition)
        request = ElectLeadersRequest(
            election_type=elections.PREFERRED,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        self._core.slices.begin(self._elections(request))

    def _elections(self, request: ElectLeadersRequest) -> Job:
        for number, part in enumerate(parts_of_elect_leaders(request)):
            if number:
                yield
            self._core.propose_in_job(elections.elect_leaders(self._core.view(), part, _ACTOR))
        path = paths.PREFERRED_REPLICA_ELECTION
        self._core.records.write([Unit(path, (delete(path),))], ())


class ReassignmentZnode:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: The moves that the znode asks for and that are not done.
        self._asked: dict[TopicPartition, tuple[int, ...]] = {}
        #: The partitions among them whose moves are proposed, and those whose moves are written.
        self._proposed: set[TopicPartition] = set()
        self._begun: set[TopicPartition] = set()

    def start(self) -> None:
        self._core.reader.watch_data(paths.REASSIGN_PARTITIONS, self._on_znode)

    def _on_znode(self, reply: ReadReply) -> None:
        path = paths.REASSIGN_PARTITIONS
        if reply.znode is None:
            self._asked.clear()
            self._proposed.clear()
            self._begun.clear()
            return
        try:
            self._asked = dict(decode_reassignment(path, reply.znode.data))
        except ZnodeError as error:
            self._core.problems.add(error)
            self._asked = {}
        else:
            self._core.problems.mended(path)
        self._proposed &= self._asked.keys()
        self._begun &= self._asked.keys()
        if self._core.is_serving:
            self._begin()

    def resume(self) -> None:
        """Begins, or continues, the reassignments that were requested before the controller was active."""
        if self._asked:
            self._begin()

    def _begin(self) -> None:
        known = self._proposed | self._begun
        new = {place: target for place, target in self._asked.items() if place not in known}
        self._proposed.update(new)
        wanted = {place: target for place, target in new.items() if not self._is_under_way(place, target)}
        if wanted:
            request = _request(wanted)
            self._core.propose(reassignments.alter_reassignments(self._core.view(), request, _ACTOR))
        self._core.records.after_all(lambda _: self._written(new))

    def _written(self, places: Iterable[TopicPartition]) -> None:
        """Counts these moves as begun: the committed image shows them now, or they were refused."""
        written = self._proposed.intersection(places)
        self._proposed -= written
        self._begun |= written
        self.note_done()

    def _is_under_way(self, place: TopicPartition, target: tuple[int, ...]) -> bool:
        partition = self._core.image.partition(place.topic, place.partition)
        return partition is not None and is_in_progress(partition) and target_of(partition) == target

    def note_done(self) -> None:
        """Rewrites the znode with the remaining partitions, if one is done, cannot be moved, or does not exist."""
        if not self._begun:
            return
        committed = self._core.records.committed
        done = [
            place
            for place in self._begun
            if (partition := committed.partition(place.topic, place.partition)) is None or not is_in_progress(partition)
        ]
        if not done:
            return
        for place in done:
            self._asked.pop(place, None)
        self._begun.difference_update(done)
        path = paths.REASSIGN_PARTITIONS
        write = set_data(path, encode_reassignment(self._asked)) if self._asked else delete(path)
        self._core.records.write([Unit(path, (write,))], ())


def _request(targets: Mapping[TopicPartition, tuple[int, ...]]) -> AlterPartitionReassignmentsRequest:
    topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for (name, index), target in targets.items():
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=list(target))
        topics.setdefault(name, []).append(row)
    return AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=rows)
            for name, rows in topics.items()
        ]
    )
