"""The topics of an active controller: the content of `/brokers/topics`, whichever client wrote it.

    new name        its assignment and its states are read; partitions without a state get their first one
    grown           partitions that the image lacks are added, and get their first state
    edited          the whole topic is read again, when no decision about it is under way
    conflict        likewise: a decision found other content; what differs is sent with a higher leader epoch
    gone            the topic leaves the image; its logs stay, since only a deletion by marker removes them

A topic with a broken znode is not added, or stays as it was; the znode is watched, and the topic is read again when it
changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import Final

from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions
from barnabas.controller.requests import elections
from barnabas.controller.requests.partitions import Located
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.controller.requests.view import UNCLEAN_ELECTION, ControllerView
from barnabas.controller.zookeeper.core import SELF, Core, located
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.new_partitions import NO_STATE, first_states, without_state
from barnabas.controller.zookeeper.record_store import ReadPartitions
from barnabas.controller.zookeeper.replica_changes import raised, settle
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE, Job
from barnabas.controller.zookeeper.topic_reads import TopicReading, checked
from barnabas.controller.zookeeper.znode_writes import set_data
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.metadata.topics import MIGRATING_DIRECTORY, TopicImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from barnabas.znodes import paths
from barnabas.znodes.config_znodes import decode_config
from barnabas.znodes.topic_znodes import (
    ReplicaAssignment,
    TopicAssignment,
    encode_topic,
    topic_in_portions,
)
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ReadReply, ZnodeContent

#: The number of topics whose znodes are watched in one turn of the loop, in about 2 ms.
_WATCHED_AT_ONCE: Final = 500


class TopicWatch:
    """The topics and configurations of one controller epoch. `has_begun_deletion` returns whether a topic has left the
    image for its deletion; such a topic is not read."""

    def __init__(self, core: Core, has_begun_deletion: Callable[[str], bool]) -> None:
        self._core = core
        self._has_begun_deletion = has_begun_deletion
        #: The names of the topics that have znodes.
        self.names: frozenset[str] = frozenset()
        #: The transactions that created the topics' znodes.
        self._creations: dict[str, int] = {}
        #: The topics whose znodes are being read, and those whose changed assignments are being decoded. A later read
        #: ends an earlier one.
        self._reads: dict[str, object] = {}
        self._edits: dict[str, object] = {}
        #: The topics whose assignments appeared while an earlier topic of the name was being deleted.
        self._unread: set[str] = set()

    def start(self) -> None:
        core = self._core
        core.reader.watch_children(paths.TOPICS, self._on_names)
        for resource, name in (("", paths.DEFAULT_ENTITY), (str(core.own_id), str(core.own_id))):
            path = paths.config(paths.BROKER_CONFIGS, name)
            core.reader.watch_data(path, partial(self._on_config, BROKER_RESOURCE, resource, path))

    def _on_names(self, names: Sequence[str]) -> None:
        before, self.names = self.names, frozenset(names)
        reader = self._core.reader
        self._in_slices(self._watching(sorted(self.names - before)))
        for name in sorted(before - self.names):
            reader.forget(paths.topic(name))
            reader.forget(paths.config(paths.TOPIC_CONFIGS, name))
            self._reads.pop(name, None)
            self._edits.pop(name, None)
            self._creations.pop(name, None)
            self._unread.discard(name)
            self._core.problems.gone(paths.topic(name))
            self._core.problems.gone(paths.config(paths.TOPIC_CONFIGS, name))
            self._remove(name)

    def _watching(self, names: Sequence[str]) -> Job:
        """Watches the znodes of new topics."""
        reader = self._core.reader
        for place, name in enumerate(names, 1):
            if name in self.names:
                config = paths.config(paths.TOPIC_CONFIGS, name)
                reader.watch_data(config, partial(self._on_config, TOPIC_RESOURCE, name, config))
                reader.watch_data(paths.topic(name), partial(self._on_assignment, name))
            if place % _WATCHED_AT_ONCE == 0:
                yield

    def _remove(self, name: str) -> None:
        topic = self._core.image.topics_by_name.get(name)
        if topic is not None:
            self._core.records.take(
                [RemoveTopicRecord(topic_id=topic.topic_id)], key=name, cause=_changed(paths.topic(name))
            )

    # Configurations.

    def _on_config(self, resource_type: int, name: str, path: str, reply: ReadReply) -> None:
        try:
            found = decode_config(path, None if reply.znode is None else reply.znode.data)
        except ZnodeError as error:
            self._core.problems.add(error)
            return
        self._core.problems.settled(path, exists=reply.znode is not None)
        known = self._core.image.config_of(resource_type, name)
        changed = sorted(key for key in {*known, *found} if known.get(key) != found.get(key))
        if not changed:
            return
        records = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=found.get(key))
            for key in changed
        ]
        self._core.records.take(records, cause=_changed(path))
        if self._core.is_serving and UNCLEAN_ELECTION in changed:
            self.elect_unclean_leaders()

    def elect_unclean_leaders(self) -> None:
        """Elects leaders for leaderless partitions of topics that now allow unclean leaders."""
        self._core.slices.begin(self._unclean_elections())

    def _unclean_elections(self) -> Job:
        names = deque(self._core.image.topic_names())
        while names:
            self._core.propose_in_job(elections.unclean_elections_due(self._core.view(), names, PARTITIONS_AT_ONCE))
            yield

    # Assignments.

    def _on_assignment(self, name: str, reply: ReadReply) -> None:
        """Applies an assignment that was created or changed. The watch of the topic names handles a deleted one."""
        if reply.znode is None or name not in self.names:
            return
        path = paths.topic(name)
        is_same = reply.stat is not None and self._creations.get(name) == reply.stat.czxid
        if reply.stat is not None:
            self._creations[name] = reply.stat.czxid
        if self._has_begun_deletion(name):
            self._unread.add(name)
            return
        if name not in self._core.image.topics_by_name:
            self._read_states(name, reply.znode)
            return
        if is_same and reply.znode.version <= self._core.records.versions.get(path, NO_STATE):
            # This controller's own write. If another program's edit has the same version, the next write here is
            # refused, and the topic is read again.
            return
        this_edit = self._edits[name] = object()
        self._in_slices(self._taking_edit(name, reply.znode, this_edit))

    def _in_slices(self, job: Job) -> None:
        """Begins to process the content that was read, in slices. The controller is not loaded before the end of
        this.
        """

        def held() -> Job:
            yield from job
            self._core.reader.release()

        self._core.reader.hold()
        self._core.slices.begin(held())

    def _decoded(self, name: str, znode: ZnodeContent) -> Portions[TopicAssignment | None]:
        """Returns the assignment, or None if it is invalid."""
        path = paths.topic(name)
        try:
            assignment = yield from topic_in_portions(path, znode.data)
            checked(path, assignment)
        except ZnodeError as error:
            self._core.problems.add(error)
            return None
        self._core.problems.mended(path)
        return assignment

    def _taking_edit(self, name: str, znode: ZnodeContent, this_edit: object) -> Job:
        """Applies an edited assignment: adds its new partitions to the image, or reads the whole topic again if
        anything else changed.
        """
        path = paths.topic(name)
        assignment = yield from self._decoded(name, znode)
        known = self._core.image.topics_by_name.get(name)
        if assignment is None or known is None or self._edits.get(name) is not this_edit:
            return
        del self._edits[name]
        if not self._core.records.is_pending(name):
            self._core.records.versions[path] = znode.version
        if not _is_continuation(known, assignment):
            self.read_again(name)
            return
        grown = {
            index: without_state(assignment.partitions[index], MIGRATING_DIRECTORY)
            for index in range(len(known.partitions), len(assignment.partitions))
        }
        if grown:
            self._core.records.take((), ReadPartitions(known.topic_id, grown), key=name, cause=_changed(path))

    def decide_first_states(self, partitions: Iterable[Located]) -> None:
        """Gives states to those of these partitions that have none and have a live replica. A topic whose assignment is
        not written waits: another client can write another one under its name.
        """
        self._core.decide_in_slices(partitions, self._first_states)

    def _first_states(self, view: ControllerView, partitions: Sequence[Located]) -> Result[None]:
        places = [(topic.topic_id, index) for topic, index, _ in partitions]
        written = {(topic.topic_id, index) for topic, index, _ in located(self._core.records.committed, places)}
        return first_states(view, [each for each in partitions if (each[0].topic_id, each[1]) in written])

    # Changes of a whole topic.

    def read_again(self, name: str) -> None:
        """Reads all znodes of a topic, as soon as no decision about it is under way."""
        core = self._core
        if core.records.is_pending(name):
            core.records.after_all(lambda _: self.read_again(name))
            return
        path = paths.topic(name)

        def found(reply: ReadReply) -> None:
            if reply.znode is None:
                if not core.records.is_pending(name):
                    core.records.discard(name)
                self._remove(name)
            elif self._has_begun_deletion(name):
                self._unread.add(name)
            else:
                self._read_states(name, reply.znode)

        core.reader.read(path, found)

    def deletion_ended(self, name: str) -> None:
        """Reads the topic that another client made under the name of one whose deletion ends now, if there is one."""
        if name in self._unread:
            self._unread.discard(name)
            self.read_again(name)

    def _read_states(self, name: str, znode: ZnodeContent) -> None:
        this_read = self._reads[name] = object()
        self._in_slices(self._reading_states(name, znode, this_read))

    def _reading_states(self, name: str, znode: ZnodeContent, this_read: object) -> Job:
        """Reads the states of all partitions. When the last one is read, the topic is added to the image, or updated in
        it.
        """
        core = self._core
        assignment = yield from self._decoded(name, znode)
        if self._reads.get(name) is not this_read:
            return
        if assignment is None:
            del self._reads[name]
            return
        reading = TopicReading(name, assignment, znode.version)
        decided = core.records.decisions_about(name)

        def on_state(index: int, reply: ReadReply) -> None:
            if self._reads.get(name) is not this_read:
                return
            reading.add(index, reply.znode)
            if reading.is_complete:
                del self._reads[name]
                self._end_reading(reading, decided)

        for number, index in enumerate(assignment.partitions):
            if number and not number % PARTITIONS_IN_PORTION:
                yield
                if self._reads.get(name) is not this_read:
                    return
            core.reader.read(paths.state(name, index), partial(on_state, index))

    def _end_reading(self, reading: TopicReading, decided: int) -> None:
        name, records = reading.name, self._core.records
        if records.decisions_about(name) != decided or records.is_pending(name):
            self.read_again(name)
        elif reading.broken:
            for problem, version in reading.broken:
                self._watch_broken(name, problem, version)
        elif self._has_begun_deletion(name):
            self._unread.add(name)
        else:
            self._take(reading)

    def _watch_broken(self, name: str, error: ZnodeError, version: int) -> None:
        """Reads the topic again when the invalid state has been replaced by another version."""
        core = self._core
        core.problems.add(error)

        def found(reply: ReadReply) -> None:
            if reply.znode is None or reply.znode.version != version:
                core.reader.forget(error.path)
                core.problems.settled(error.path, exists=reply.znode is not None)
                self.read_again(name)

        core.reader.watch_data(error.path, found)

    def _take(self, reading: TopicReading) -> None:
        core, name = self._core, reading.name
        core.records.discard(name)
        known = core.image.topics_by_name.get(name)
        topic_id = reading.assignment.topic_id
        if topic_id is None:
            topic_id = core.host.random.uuid() if known is None else known.topic_id
        try:
            self._check_id(name, topic_id)
            records, read = reading.change(topic_id, known)
        except ZnodeError as error:
            core.problems.add(error)
            return
        core.records.versions[paths.topic(name)] = reading.version
        if reading.assignment.topic_id is None:
            self._write_topic_id(reading, records, read)
        else:
            core.records.take(records, read, key=name, cause=_changed(paths.topic(name)))
        if core.is_serving:
            self._decide(name, frozenset() if known is None else frozenset(read.partitions))

    def _check_id(self, name: str, topic_id: bytes) -> None:
        holder = self._core.image.topics_by_id.get(topic_id)
        if holder is not None and holder.name != name:
            raise ZnodeError(paths.topic(name), f"has the id of topic {holder.name}")

    def _write_topic_id(self, reading: TopicReading, records: Sequence[Message], read: ReadPartitions) -> None:
        """Gives an id to a topic that a tool of a release before 2.8 made. Brokers get the topic when its id is
        written: the next controller would give another id to a topic whose logs have this one.
        """
        path = paths.topic(reading.name)
        content = encode_topic(TopicAssignment(read.topic_id, reading.assignment.partitions))
        unit = Unit(reading.name, (set_data(path, content, reading.version),))
        self._core.records.write([unit], records, read=read, cause=_changed(path))

    def _decide(self, name: str, changed: Set[int]) -> None:
        """Makes the decisions that a topic needs after it was read while the controller is active. The leader epochs of
        the changed partitions rise.
        """
        cause = Cause(ControllerEvent.CREATE_TOPICS, SELF, f"{name}, as read from its znodes")

        def decide(view: ControllerView, partitions: Sequence[Located]) -> Result[None]:
            changes = settle(view, partitions)
            decided = {record.partition_id for record, _ in changes if isinstance(record, PartitionChangeRecord)}
            rest = [each for each in partitions if each[1] in changed and each[1] not in decided]
            return Result([*changes, *raised(view, rest)], None, cause)

        self._core.decide_in_slices(self._located(name), decide)

    def _located(self, name: str) -> list[Located]:
        topic = self._core.image.topics_by_name.get(name)
        if topic is None:
            return []
        return [(topic, index, partition) for index, partition in enumerate(topic.partitions)]


def _is_continuation(known: TopicImage, assignment: TopicAssignment) -> bool:
    """Returns whether an assignment is that of the known topic, possibly with more partitions."""
    if assignment.topic_id not in (None, known.topic_id) or len(assignment.partitions) < len(known.partitions):
        return False
    return all(
        assignment.partitions[index]
        == ReplicaAssignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
        for index, partition in enumerate(known.partitions)
    )


def _changed(path: str) -> Cause:
    """Returns the cause of a change that was found in ZooKeeper, whose author is not known."""
    return Cause(ControllerEvent.ZNODE_CHANGED, "a client of ZooKeeper", path)
