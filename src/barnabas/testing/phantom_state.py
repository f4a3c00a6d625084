"""The content of a phantom cluster: a synthetic table of topics of any size, and the changes that a test makes to it.

Each change follows Kafka's rules of leader epochs, partition epochs and ISRs, and is reported as events of a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.common.types import uuid_to_text
from barnabas.testing.packed_events import packed

NO_LEADER: Final = -1
#: A change of more partitions is reported by bulk events.
_SINGLE_MAX: Final = 50
_TOPIC_ID_BYTES: Final = 16
_FIRST_MS: Final = 1_700_000_000_000


Event = dict[str, Any]
#: A replica: topic, partition, broker.
Replica = tuple[str, int, int]


@dataclass(slots=True)
class PhantomPartition:
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    end_offset: int = 0
    start_offset: int = 0

    def shown(self) -> dict[str, Any]:
        """Returns the state as an event shows it."""
        return {
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "replicas": list(self.replicas),
            "partition_epoch": self.partition_epoch,
        }


@dataclass(slots=True)
class PhantomTopic:
    name: str
    topic_id: bytes
    partitions: list[PhantomPartition] = field(default_factory=list)


class PhantomState:
    """Topics "topic-00000" and so on, with replicas spread over brokers 1 to `brokers`.

    `version` changes with each change of the metadata, `volume_version` with each change of an offset. `on_events`
    receives the events of each change.
    """

    def __init__(
        self,
        *,
        topics: int,
        partitions: int,
        replication: int,
        brokers: int,
        min_isr: int = 2,
        now_ms: Callable[[], int] = lambda: _FIRST_MS,
        on_events: Callable[[Iterator[Event]], None] | None = None,
    ) -> None:
        self.version = 0
        self.volume_version = 0
        self.controller = 1
        self.min_isr = min_isr
        self.replication = replication
        self.is_up: dict[int, bool] = dict.fromkeys(range(1, brokers + 1), True)
        self.topics: dict[str, PhantomTopic] = {}
        #: The committed offsets of groups, by topic and partition. Their coordinator is the first broker that is up.
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        #: The members of groups, and the partitions that each has.
        self.members: dict[str, dict[str, list[tuple[str, int]]]] = {}
        #: The log directories of each broker, and what moves: replicas added and removed by partition, the directories
        #: of replicas that are not in the first one, the targets of copies with their bytes, those that brokers
        #: remember for replicas that they do not have yet.
        self.directories = 1
        self.reassigned: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
        self.places: dict[Replica, str] = {}
        self.futures: dict[Replica, tuple[str, int]] = {}
        self.preferred: dict[Replica, str] = {}
        #: The configs that requests have set, by kind and name of the resource.
        self.altered: dict[tuple[int, str], dict[str, str]] = {}
        #: The topics whose changes are refused, and the error codes.
        self.refusing: dict[str, int] = {}
        self._on_events = on_events
        self._now_ms = now_ms
        self._next_id = 1
        self._offset = 0
        self._names: list[str] | None = None
        for number in range(topics):
            self._add(f"topic-{number:05}", partitions)

    @property
    def names(self) -> list[str]:
        """Returns the names of the topics, sorted."""
        if self._names is None:
            self._names = sorted(self.topics)
        return self._names

    @property
    def alive(self) -> list[int]:
        return [broker for broker, is_up in self.is_up.items() if is_up]

    def every(self) -> Iterator[tuple[PhantomTopic, int, PhantomPartition]]:
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    # -- changes

    def create_topic(self, name: str, partitions: int) -> None:
        topic = self._add(name, partitions)
        self._changed([_new_partitions("topic-created", f"User:tester created {name}", topic, 0)])

    def add_partitions(self, name: str, count: int) -> None:
        """Adds partitions, until there are `count`."""
        topic = self.topics[name]
        first = len(topic.partitions)
        topic.partitions += self._partitions(first + 1, count - first)
        self._changed([_new_partitions("partitions-added", f"User:tester widened {name}", topic, first)])

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self._names = None
        event = {"kind": "topic-deleted", "text": f"User:tester deleted {name}", "topic": name}
        self._changed([event | {"topic_id": uuid_to_text(topic.topic_id), "partitions": len(topic.partitions)}])

    def kill(self, broker: int) -> int:
        """Removes a broker from the cluster: it leaves the ISRs, and its partitions get other leaders. Returns how many
        partitions changed.
        """
        self.is_up[broker] = False
        if self.controller == broker:
            self.controller = next(iter(self.alive), NO_LEADER)
        because = f"broker {broker} was fenced: no process listens at its address"
        event = {"kind": "broker-fenced", "broker": broker, "text": because}
        return self._change_partitions(lambda row: self._without(row, broker), because, "broker-gone", [event])

    def start(self, broker: int) -> int:
        """Brings a broker back, with all its replicas in sync. Returns how many partitions changed."""
        self.is_up[broker] = True
        if self.controller == NO_LEADER:
            self.controller = broker
        because = f"broker {broker} is up and has caught up"
        event = {"kind": "broker-unfenced", "broker": broker, "text": because}
        return self._change_partitions(lambda row: self._with(row, broker), because, "broker-started", [event])

    def elect_preferred(self) -> int:
        def elect(row: PhantomPartition) -> bool:
            preferred = row.replicas[0]
            if row.leader == preferred or preferred not in row.isr or not self.is_up[preferred]:
                return False
            row.leader = preferred
            row.leader_epoch += 1
            return True

        return self._change_partitions(elect, "User:tester requested a preferred election", "preferred-election")

    def shrink_isr(self, name: str, partition: int, broker: int) -> None:
        self._change_one(name, partition, lambda row: self._shrunk(row, broker), f"broker {broker} fell behind")

    def expand_isr(self, name: str, partition: int, broker: int) -> None:
        def expand(row: PhantomPartition) -> bool:
            is_new = broker in row.replicas and broker not in row.isr
            row.isr = [*row.isr, broker] if is_new else row.isr
            return is_new

        self._change_one(name, partition, expand, f"broker {broker} caught up")

    def elect(self, name: str, partition: int, leader: int) -> None:
        def elect(row: PhantomPartition) -> bool:
            row.leader = leader
            row.leader_epoch += 1
            return True

        self._change_one(name, partition, elect, "User:tester requested an election")

    def produce(self, name: str, partition: int, records: int) -> None:
        self.topics[name].partitions[partition].end_offset += records
        self.volume_version += 1

    def copy(self, name: str, partition: int, broker: int, size: int) -> None:
        """Sets the bytes that a replica has copied to its new directory."""
        path, _ = self.futures[name, partition, broker]
        self.futures[name, partition, broker] = (path, size)
        self.volume_version += 1

    def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        self.groups.setdefault(group, {})[name, partition] = offset
        self.volume_version += 1

    def assign(self, group: str, members: dict[str, list[tuple[str, int]]]) -> None:
        """Replaces the members of a group, with the partitions that each has."""
        self.groups.setdefault(group, {})
        self.members[group] = members
        self.volume_version += 1

    # -- parts of changes

    def report(self, kind: str, broker: int, text: str, **facts: Any) -> None:
        """Adds a self-report of a broker to the journal."""
        self._changed([{"kind": kind, "broker": broker, "text": text, "begin_ms": self._now_ms(), **facts}])

    def _add(self, name: str, partitions: int) -> PhantomTopic:
        number = self._next_id
        self._next_id += 1
        topic = PhantomTopic(name, number.to_bytes(_TOPIC_ID_BYTES, "big"), self._partitions(number, partitions))
        self.topics[name] = topic
        self._names = None
        return topic

    def _partitions(self, first: int, count: int) -> list[PhantomPartition]:
        """Returns new partitions with their replicas on the brokers from a number on."""
        brokers, found = list(self.is_up), []
        for number in range(first, first + count):
            replicas = [brokers[(number + place) % len(brokers)] for place in range(self.replication)]
            isr = [broker for broker in replicas if self.is_up[broker]]
            found.append(PhantomPartition(isr[0] if isr else NO_LEADER, 0, 0, replicas, isr or replicas[:1]))
        return found

    def _without(self, row: PhantomPartition, broker: int) -> bool:
        if broker not in row.isr:
            return False
        if len(row.isr) > 1:
            row.isr = [each for each in row.isr if each != broker]
        if row.leader == broker:
            row.leader = next((each for each in row.replicas if each in row.isr and self.is_up[each]), NO_LEADER)
            row.leader_epoch += 1
        return True

    def _with(self, row: PhantomPartition, broker: int) -> bool:
        if broker not in row.replicas:
            return False
        is_changed = False
        if row.leader == NO_LEADER and broker in row.isr:
            row.leader, row.leader_epoch, is_changed = broker, row.leader_epoch + 1, True
            # Replicas that were up before had no leader to fetch from.
            row.isr = [*row.isr, *(each for each in row.replicas if self.is_up[each] and each not in row.isr)]
        if row.leader != NO_LEADER and broker not in row.isr:
            row.isr, is_changed = [*row.isr, broker], True
        return is_changed

    @staticmethod
    def _shrunk(row: PhantomPartition, broker: int) -> bool:
        if broker not in row.isr or len(row.isr) == 1:
            return False
        row.isr = [each for each in row.isr if each != broker]
        return True

    def _change_one(self, name: str, partition: int, change: Callable[[PhantomPartition], bool], because: str) -> None:
        row = self.topics[name].partitions[partition]
        before = row.shown()
        if change(row):
            row.partition_epoch += 1
            self._changed([_event(self.topics[name], partition, before, row.shown(), because, "tested")])

    def _change_partitions(
        self,
        change: Callable[[PhantomPartition], bool],
        because: str,
        cause: str,
        first: Iterable[Event] = (),
    ) -> int:
        keeps = self._on_events is not None
        changed: list[tuple[PhantomTopic, int, dict[str, Any], dict[str, Any]]] = []
        count = 0
        for topic, index, row in self.every():
            before = row.shown() if keeps else {}
            if change(row):
                row.partition_epoch += 1
                count += 1
                if keeps:
                    changed.append((topic, index, before, row.shown()))
        events = (_event(topic, index, was, now, because, cause) for topic, index, was, now in changed)
        told = (each for part in (first, events) for each in part)
        self._changed(told, is_packed=len(changed) > _SINGLE_MAX)
        return count

    def _changed(self, events: Iterable[Event], *, is_packed: bool = False) -> None:
        self.version += 1
        self._offset += 1
        if self._on_events is not None:
            complete = self._complete(events, self._offset, self._now_ms())
            self._on_events(packed(complete) if is_packed else complete)

    @staticmethod
    def _complete(events: Iterable[Event], offset: int, time_ms: int) -> Iterator[Event]:
        for event in events:
            subject = f"{event['topic']}-{event['partition']}" if "partition" in event else event.get("topic")
            yield {
                "v": 1,
                "id": f"{offset}:{subject or 'broker-' + str(event['broker'])}",
                "time_ms": time_ms,
                "metadata_offset": offset,
                "cause": "tested",
                "actor": "controller",
                **event,
            }


def _event(
    topic: PhantomTopic, partition: int, before: dict[str, Any], after: dict[str, Any], because: str, cause: str
) -> Event:
    return {
        "kind": "leader-change" if before["leader"] != after["leader"] else "isr-change",
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "partition": partition,
        "before": before,
        "after": after,
        "text": because,
        "cause": cause,
    }


def _new_partitions(kind: str, text: str, topic: PhantomTopic, first: int) -> Event:
    rows = topic.partitions[first:]
    return {
        "kind": kind,
        "text": text,
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "first_partition": first,
        "partitions": len(rows),
        "replicas": [list(row.replicas) for row in rows],
        "leaders": [row.leader for row in rows],
        "isrs": [list(row.isr) for row in rows],
    }
