"""Elections and reassignments that tools request by znodes: `/admin/preferred_replica_election` and
`/admin/reassign_partitions`.

The election znode is deleted when its elections are written. The reassignment znode is rewritten with what is left
when partitions are done, and deleted with the last one; moves that cannot begin are removed from it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.controller.requests import elections, reassignments
from barnabas.controller.requests.reassignments import is_in_progress, target_of
from barnabas.controller.zookeeper.core import Core
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.request_parts import parts_of_alter_reassignments, parts_of_elect_leaders
from barnabas.controller.zookeeper.slices import Job
from barnabas.controller.zookeeper.znode_writes import delete, set_data
from barnabas.metadata.image import MetadataDelta
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import decode_partitions, encode_reassignment, reassignment_in_portions
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
            self._core.problems.gone(path)
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
    """The moves that `/admin/reassign_partitions` asks for. The content is read in portions and compared with the moves
    that are already done. Nothing is written while it is read, so that an operator's edit is not lost.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        #: The moves that the znode asks for and that are not done.
        self._asked: dict[TopicPartition, tuple[int, ...]] = {}
        #: The partitions among them whose moves are proposed, those whose moves are written, and those that are done.
        self._proposed: set[TopicPartition] = set()
        self._begun: set[TopicPartition] = set()
        self._done: set[TopicPartition] = set()
        #: The read whose content is being decoded in steps. A later read replaces it, and the decoding ends.
        self._read: object | None = None
        #: The content that was written here last, and, while that is not acknowledged, the one before.
        self._own_contents: list[bytes] = []
        #: Whether a change of the znode is not acknowledged yet. Moves that complete meanwhile become one further
        #: change.
        self._is_writing = False

    def start(self) -> None:
        self._core.reader.watch_data(paths.REASSIGN_PARTITIONS, self._on_znode)

    def _on_znode(self, reply: ReadReply) -> None:
        if reply.znode is None:
            self._read = None
            self._asked.clear()
            self._keep_asked()
            self._own_contents.clear()
            self._core.problems.gone(paths.REASSIGN_PARTITIONS)
        elif reply.znode.data not in self._own_contents:
            self._own_contents.clear()
            self._read = object()
            self._core.slices.begin(self._reading(self._read, reply.znode.data))

    def _reading(self, this_read: object, data: Buffer | None) -> Job:
        path = paths.REASSIGN_PARTITIONS
        portions = reassignment_in_portions(path, data)
        asked: dict[TopicPartition, tuple[int, ...]] = {}
        try:
            while True:
                next(portions)
                yield
                if self._read is not this_read:
                    return
        except StopIteration as end:
            asked = end.value
            self._core.problems.mended(path)
        except ZnodeError as error:
            self._core.problems.add(error)
        self._read = None
        self._asked = asked
        self._keep_asked()
        if self._core.is_serving:
            self._begin()
            self._write_what_is_left()

    def _keep_asked(self) -> None:
        """Removes the moves that the znode no longer requests."""
        for places in (self._proposed, self._begun, self._done):
            places.intersection_update(self._asked)

    def resume(self) -> None:
        """Begins, or continues, the reassignments that were requested before the controller was active."""
        if self._asked:
            self._begin()

    def _begin(self) -> None:
        known = self._proposed | self._begun
        new = {place: target for place, target in self._asked.items() if place not in known}
        self._proposed.update(new)
        wanted = {place: target for place, target in new.items() if not self._is_under_way(place, target)}
        self._core.slices.begin(self._moves(wanted, new))

    def _moves(self, wanted: Mapping[TopicPartition, tuple[int, ...]], new: Iterable[TopicPartition]) -> Job:
        if wanted:
            parts = parts_of_alter_reassignments(_request(wanted))
            for part in parts:
                if len(parts) > 1:
                    yield
                self._core.propose_in_job(reassignments.alter_reassignments(self._core.view(), part, _ACTOR))
        self._core.records.after_all(lambda _: self._written(new))

    def _written(self, places: Iterable[TopicPartition]) -> None:
        """Records that these moves have begun: the committed image shows them now, or they were refused."""
        written = self._proposed.intersection(places)
        self._proposed -= written
        self._begun |= written
        committed = self._core.records.committed
        self._done.update(
            place
            for place in written
            if (partition := committed.partition(place.topic, place.partition)) is None or not is_in_progress(partition)
        )
        self._write_what_is_left()

    def _is_under_way(self, place: TopicPartition, target: tuple[int, ...]) -> bool:
        partition = self._core.image.partition(place.topic, place.partition)
        return partition is not None and is_in_progress(partition) and target_of(partition) == target

    def note_done(self, delta: MetadataDelta) -> None:
        """Rewrites the znode with the remaining partitions, if the change completes a move that the znode asks for."""
        if not self._begun:
            return
        for change in delta.changed_topics.values():
            for index, partition in change.changed_partitions.items():
                if not is_in_progress(partition):
                    self._done.add(TopicPartition(change.name, index))
        for topic in delta.deleted_topics.values():
            self._done.update(TopicPartition(topic.name, index) for index in range(len(topic.partitions)))
        self._done &= self._begun
        self._write_what_is_left()

    def _write_what_is_left(self) -> None:
        if not self._done or self._is_writing or self._read is not None:
            return
        for place in self._done:
            del self._asked[place]
        self._begun -= self._done
        self._done.clear()
        path = paths.REASSIGN_PARTITIONS
        if self._asked:
            content = encode_reassignment(self._asked)
            self._own_contents.append(content)
            self._core.records.write([Unit(path, (set_data(path, content),))], ())
        else:
            # Content that is read after the acknowledgement is another client's, even if the end was not seen.
            self._core.records.write([Unit(path, (delete(path),))], (), lambda _: self._own_contents.clear())
        self._is_writing = True
        self._core.records.after_all(lambda _: self._on_changed())

    def _on_changed(self) -> None:
        self._is_writing = False
        del self._own_contents[:-1]
        self._write_what_is_left()


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
