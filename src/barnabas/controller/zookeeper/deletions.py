"""Topics that wait for their deletion: the marker `/admin/delete_topics/T`, made by any program.

    marker found --> states without a leader, UpdateMetadata(-2), the topic leaves the image
                 --> StopReplica with deletion to each replica whose broker is alive
                 --> all replicas have answered: states, partitions, topic, configuration and marker are deleted
                 --> ZooKeeper refuses that: everything below the topic is deleted znode by znode, then the rest; if the
                     topic itself is refused, all of this again after a pause

A replica on a dead broker, or in a lost directory, is asked again when its broker registers again; until then this
topic waits, but no other one (G43). A broker that registers gets UpdateMetadata(-2) for all deletions in progress. A
topic under reassignment waits for its end. After a failover the marker is found again, and all requests are sent once
more. The marker goes last, and nothing can take the name before. As in Kafka, a configuration that cannot be deleted
stays, and so does a marker, which the next event about topics tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.common.host import Timer
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.common.reports import LimitedReports
from barnabas.controller.requests.reassignments import is_in_progress
from barnabas.controller.requests.result import Cause, ControllerEvent
from barnabas.controller.zookeeper.broker_requests import EPOCH_DURING_DELETE
from barnabas.controller.zookeeper.core import SELF, Core
from barnabas.controller.zookeeper.decision_writes import offline_units, partition_deletions, topic_deletion
from barnabas.controller.zookeeper.fenced_writer import Unit
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE, Job, portions
from barnabas.controller.zookeeper.subtree import read_subtree
from barnabas.controller.zookeeper.znode_writes import create, delete
from barnabas.metadata.topics import TopicImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import RemoveTopicRecord
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import ReadReply

#: The pause before the next attempt of a deletion that ZooKeeper refused.
_PAUSE_MS: Final = 5_000
#: A replica: (partition, broker).
_Replica = tuple[int, int]


class DeletionCounts(NamedTuple):
    """Topics that wait for their deletion, and their replicas that are not deleted. Those that wait for a dead broker
    are ineligible; so are topics under reassignment.
    """

    topics: int = 0
    ineligible_topics: int = 0
    replicas: int = 0
    ineligible_replicas: int = 0


class _Deletion:
    """A topic whose deletion has begun."""

    __slots__ = ("is_announced", "is_ending", "ordered", "replicas", "topic")

    def __init__(self, topic: TopicImage) -> None:
        #: The topic before its deletion.
        self.topic = topic
        #: The replicas in the order of their partitions, and those that have not answered.
        self.ordered = replicas_of(topic)
        self.replicas = set(self.ordered)
        #: Whether the topic has left the committed image, and the requests that announce this are queued. Until then,
        #: requests of earlier decisions can still give its replicas roles.
        self.is_announced = False
        self.is_ending = False


def _announce(core: Core, topic: TopicImage, broker_id: int | None, has_ended: Callable[[], bool]) -> Job:
    """Sends UpdateMetadata for the partitions of a topic to all live brokers, or only to this one, until the deletion
    has ended: another topic can have the name then.
    """
    for number, portion in enumerate(portions(range(len(topic.partitions)))):
        if number:
            yield
        if has_ended():
            return
        batch = core.batch(None if broker_id is None else (broker_id,))
        batch.show_deleted(topic, portion)
        core.send(batch)


def replicas_of(topic: TopicImage) -> list[_Replica]:
    return [(index, replica) for index, partition in enumerate(topic.partitions) for replica in partition.replicas]


class TopicDeletions:
    """The topic deletions of the active controller in one controller epoch. `topic_names` are those that have
    znodes. `on_ended` is called with the name of a topic that is deleted.
    """

    def __init__(self, core: Core, topic_names: Callable[[], frozenset[str]], on_ended: Callable[[str], None]) -> None:
        self._core = core
        self._topic_names = topic_names
        self._on_ended = on_ended
        #: The topics with a znode in /admin/delete_topics, which marks them for deletion.
        self._markers: frozenset[str] = frozenset()
        self._begun: dict[str, _Deletion] = {}
        #: The topics whose znodes did not exist, and whose markers are being deleted. A topic of the name that appears
        #: now stays: a deletion without its marker would not continue after a failover.
        self._absent: set[str] = set()
        self._reports = LimitedReports(core.host.faults, core.host.clock)
        #: Callbacks that wait until these topics have left the metadata of the brokers.
        self._waiting: list[tuple[set[str], Callable[[], None]]] = []
        #: The next attempts of deletions that ZooKeeper refused.
        self._pauses: dict[str, Timer] = {}

    def close(self) -> None:
        """Cancels the pending attempts: no deletion is tried again."""
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()

    def start(self) -> None:
        self._core.reader.watch_children(paths.DELETE_TOPICS, self._on_names)

    def is_deleting(self, name: str) -> bool:
        return name in self._markers or name in self._begun

    def has_begun(self, name: str) -> bool:
        """Returns whether the topic has left the image."""
        return name in self._begun

    def counts(self) -> DeletionCounts:
        """Returns the numbers of topics and replicas, for metrics."""
        image = self._core.image
        topics = replicas = waiting_topics = waiting_replicas = 0
        for name in sorted(self._markers | self._begun.keys()):
            deletion, topic = self._begun.get(name), image.topics_by_name.get(name)
            left = deletion.replicas if deletion is not None else [] if topic is None else replicas_of(topic)
            dead = sum(replica not in image.brokers for _, replica in left)
            topics += 1
            replicas += len(left)
            waiting_replicas += dead
            waiting_topics += bool(dead) or (topic is not None and any(map(is_in_progress, topic.partitions)))
        return DeletionCounts(topics, waiting_topics, replicas, waiting_replicas)

    def mark(self, names: Iterable[str], done: Callable[[], None]) -> None:
        """Creates the markers of these topics, and begins."""
        wanted = list(names)
        units = [Unit(name, (create(paths.delete_topic(name)),)) for name in wanted]

        def marked(_: frozenset[str]) -> None:
            self._markers |= frozenset(wanted)
            self.resume(lambda: self._core.records.after_all(lambda _: done()))

        self._core.records.write(units, (), marked)

    def _on_names(self, names: Sequence[str]) -> None:
        self._markers = frozenset(names)
        if self._core.is_serving:
            self.resume()

    def resume(self, done: Callable[[], None] | None = None) -> None:
        """Begins the deletions that are marked and can begin. Calls `done` when their topics have left the image, and
        the requests that inform the brokers are queued.
        """
        self._core.slices.begin(self._beginning(done))

    def _beginning(self, done: Callable[[], None] | None) -> Job:
        core = self._core
        left = PARTITIONS_AT_ONCE
        for name in sorted(self._markers - self._begun.keys() - self._absent):
            if left <= 0:
                yield
                left = PARTITIONS_AT_ONCE
            topic = core.image.topics_by_name.get(name)
            if name in self._begun or name in self._absent or name not in self._markers:
                continue
            if not core.config.bool_of("delete.topic.enable"):
                self._unmark(name)
            elif topic is None:
                if name not in self._topic_names():
                    self._end_if_absent(name)
            elif not any(is_in_progress(partition) for partition in topic.partitions):
                left -= len(topic.partitions)
                yield from self._begin(topic)
        unannounced = {name for name, deletion in self._begun.items() if not deletion.is_announced}
        if done is not None and unannounced:
            self._waiting.append((unannounced, done))
        elif done is not None:
            done()

    def _unmark(self, name: str) -> None:
        self._markers -= {name}
        self._core.records.write([Unit(name, (delete(paths.delete_topic(name)),))], ())

    def _end_if_absent(self, name: str) -> None:
        """Deletes the remaining znodes of a topic whose assignment does not exist."""

        def found(reply: ReadReply) -> None:
            if reply.znode is None and name in self._markers - self._begun.keys() - self._absent:
                self._absent.add(name)
                self._delete_rest(name, gone)

        def gone(is_marked: bool) -> None:
            self._absent.discard(name)
            if not is_marked:
                # The marker can exist again, and what is known of the markers can be older than its deletion.
                self._markers -= {name}
                self._core.reader.names(paths.DELETE_TOPICS, self._on_names)

        self._core.reader.read(paths.topic(name), found)

    def _begin(self, topic: TopicImage) -> Job:
        core = self._core
        deletion = self._begun[topic.name] = _Deletion(topic)
        removed = RemoveTopicRecord(topic_id=topic.topic_id)
        core.records.leave(removed)
        for number, portion in enumerate(portions(range(len(topic.partitions)))):
            if number:
                yield
            core.write_in_job(offline_units(topic, portion, core.sender.controller_epoch))
        cause = Cause(ControllerEvent.DELETE_TOPICS, SELF, topic.name)

        def left(_: frozenset[str]) -> None:
            core.slices.begin(self._notifying(deletion))

        core.records.write((), [removed], left, after=core.image, cause=cause)

    def _notifying(self, deletion: _Deletion) -> Job:
        """Sends UpdateMetadata for the partitions, then StopReplica: a topic leaves the metadata before its logs are
        deleted.
        """
        name = deletion.topic.name
        yield from _announce(self._core, deletion.topic, None, lambda: False)
        deletion.is_announced = True
        for names, _ in self._waiting:
            names.discard(name)
        completed = [done for names, done in self._waiting if not names]
        self._waiting = [(names, done) for names, done in self._waiting if names]
        for done in completed:
            done()
        self._core.slices.begin(self._asking(name, deletion, None))

    def _asking(self, name: str, deletion: _Deletion, broker_id: int | None) -> Job:
        left = deletion.replicas
        wanted = [each for each in deletion.ordered if each in left and broker_id in (None, each[1])]
        for number, portion in enumerate(portions(wanted)):
            if number:
                yield
            batch = self._core.batch()
            for index, replica in portion:
                # When all replicas have answered, the topic can be gone, and another one can have its name.
                if (index, replica) in deletion.replicas:
                    batch.stop(replica, name, index, EPOCH_DURING_DELETE, delete=True)
            self._core.send(batch)
        self._end_if_done(name, deletion)

    def broker_joined(self, broker_id: int) -> None:
        """Announces the deletions that have not ended to this broker too, which possibly had no session when they were
        announced, then asks it to delete its replicas.
        """
        for _, deletion in sorted(self._begun.items()):
            if deletion.is_announced:
                self._core.slices.begin(self._including(deletion, broker_id))

    def _including(self, deletion: _Deletion, broker_id: int) -> Job:
        name = deletion.topic.name
        yield from _announce(self._core, deletion.topic, broker_id, lambda: self._begun.get(name) is not deletion)
        # A deletion that has ended has no replicas left to ask.
        yield from self._asking(name, deletion, broker_id)

    def on_response(self, broker_id: int, request: Message, response: StopReplicaResponse) -> None:
        """Records the replicas that are deleted; those with an error are asked again when the broker comes back."""
        assert isinstance(request, StopReplicaRequest)
        deleted = {
            (topic.topic_name, row.partition_index)
            for topic in request.topic_states
            for row in topic.partition_states
            if row.delete_partition and row.leader_epoch == EPOCH_DURING_DELETE
        }
        if not deleted or response.error_code:
            return
        for row in response.partition_errors:
            place = (row.topic_name, row.partition_index)
            deletion = self._begun.get(row.topic_name)
            if place in deleted and deletion is not None and not row.error_code:
                deletion.replicas.discard((row.partition_index, broker_id))
        for name in sorted({name for name, _ in deleted}):
            known = self._begun.get(name)
            if known is not None:
                self._end_if_done(name, known)

    # The end.

    def _end_if_done(self, name: str, deletion: _Deletion) -> None:
        if not deletion.replicas and not deletion.is_ending:
            deletion.is_ending = True
            self._core.reader.names(
                paths.partitions(name), lambda numbers: self._core.slices.begin(self._reading_names(name, numbers))
            )

    def _reading_names(self, name: str, numbers: Sequence[str]) -> Job:
        """Reads the znodes below each partition, which other clients may have left incomplete."""
        below: dict[str, Sequence[str]] = {}

        def on_names(number: str, names: Sequence[str]) -> None:
            below[number] = names
            if len(below) == len(numbers):
                self._core.slices.begin(self._deleting(name, below))

        if not numbers:
            self._core.slices.begin(self._deleting(name, below))
        for count, number in enumerate(numbers):
            if count and not count % PARTITIONS_IN_PORTION:
                yield
            self._core.reader.names(f"{paths.partitions(name)}/{number}", partial(on_names, number))

    def _deleting(self, name: str, below: Mapping[str, Sequence[str]]) -> Job:
        """Deletes the znodes of the partitions, then the znodes of the topic."""
        lost: set[str] = set()
        ordered = sorted(below.items(), key=lambda item: (len(item[0]), item[0]))
        for number, portion in enumerate(portions(ordered)):
            if number:
                yield
            self._core.write_in_job(partition_deletions(name, portion), lost.update)
        self._core.records.after_all(lambda _: self._delete_topic(name, has_failed=bool(lost)))

    def _delete_topic(self, name: str, *, has_failed: bool) -> None:
        def settled(lost: frozenset[str]) -> None:
            if lost:
                self._delete_singly(name)
            else:
                self._ended(name, is_marked=False)

        if has_failed:
            self._delete_singly(name)
        else:
            self._core.records.write([topic_deletion(name)], (), settled)

    def _delete_singly(self, name: str) -> None:
        """Deletes each znode separately, including those that other programs have created below the topic."""
        path = paths.topic(name)

        def found(subtree: list[str]) -> None:
            units = [Unit(name, (delete(each),)) for each in subtree]
            self._core.records.write(units, (), settled)

        def settled(lost: frozenset[str]) -> None:
            if lost:
                text = f"znode {path} cannot be deleted; this is tried again every {_PAUSE_MS // 1_000} s"
                self._reports.report(path, text)
                self._pauses[name] = self._core.host.timers.call_later(_PAUSE_MS, again)
            else:
                self._reports.over(path, f"znode {path} is deleted")
                self._delete_rest(name, lambda is_marked: self._ended(name, is_marked=is_marked))

        def again() -> None:
            del self._pauses[name]
            self._delete_singly(name)

        read_subtree(self._core.reader, path, found)

    def _delete_rest(self, name: str, done: Callable[[bool], None]) -> None:
        """Deletes the configuration and the marker of a topic that does not exist any more, each by itself. `done` gets
        whether the marker remains.
        """
        rest = paths.config(paths.TOPIC_CONFIGS, name), paths.delete_topic(name)

        def settled(lost: frozenset[str]) -> None:
            for path in sorted(lost):
                self._reports.report(path, f"znode {path} cannot be deleted")
            done(paths.delete_topic(name) in lost)

        self._core.records.write([Unit(path, (delete(path),)) for path in rest], (), settled)

    def _ended(self, name: str, *, is_marked: bool) -> None:
        self._begun.pop(name, None)
        if not is_marked:
            self._markers -= {name}
        self._on_ended(name)
