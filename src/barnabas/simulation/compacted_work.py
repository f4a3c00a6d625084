"""Keys and tombstones in a compacted topic.

kept         every acknowledged record is there, at its offset, unless a later one with its key was sent, or it is
             a tombstone
deleted      no record of a key is left where a later tombstone of the key has been removed
read         a reader that starts after an acknowledgement ends with that record of the key or a later one
cleaned      below the offset to which a replica says it is cleaned, it has one record of each key
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition

from barnabas.records.batch import decode_batch, iter_headers
from barnabas.records.compression import Codec
from barnabas.simulation.history import Place, Problem, Spot, spot_text
from barnabas.simulation.log_files import read_offsets
from barnabas.simulation.reading import open_reader, read_to_ends
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.sequenced_producer import Draft, SequencedProducer
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Verdicts
from barnabas.simulation.workload import CLIENT_ERRORS, RETRY_S, closed
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US, World

_BURSTS_PER_S: Final = 1.0
_TOMBSTONE_CHANCE: Final = 0.25
_REST_S: Final = 4.0
_KEYS: Final = 6
_CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
_SEGMENT_BYTES: Final = ("600", "1500", "6000")
_DELETE_RETENTION_MS: Final = ("0", "3000", "86400000")
_SEGMENT_MS: Final = ("2000", "604800000")


class Write(NamedTuple):
    """A record that was sent."""

    name: bytes
    place: Place
    key: bytes
    is_tombstone: bool


class KeyedHistory:
    """The records that were sent, acknowledged and read, by keys."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: dict[bytes, Write] = {}
        #: The offset of each acknowledged write, and when it was acknowledged.
        self.acked: dict[bytes, tuple[int, int]] = {}
        self.by_key: dict[tuple[Place, bytes], list[Write]] = defaultdict(list)
        #: Readings of a partition from its beginning to its end: when it began, and the last record of each key.
        self.readings: list[tuple[int, Place, Mapping[bytes, tuple[int, bool]]]] = []

    def on_sent(self, write: Write) -> None:
        self.sent[write.name] = write
        self.by_key[write.place, write.key].append(write)

    def on_acked(self, name: bytes, offset: int) -> None:
        self.acked[name] = (offset, self._world.now_us)

    def later(self, place: Place, key: bytes, offset: int) -> Iterator[Write]:
        """Yields writes of a key that can be after an offset: later ones, and those whose offset is unknown."""
        for write in self.by_key[place, key]:
            if self.acked.get(write.name, (offset + 1, 0))[0] > offset:
                yield write


class KeyedScript:
    """Batches of a few keys. The name of a record is its value, except of a tombstone."""

    acks = -1

    def __init__(self, world: World, topic: Topic, history: KeyedHistory) -> None:
        self._world = world
        self._topic = topic
        self._history = history

    def places(self) -> Sequence[Place]:
        return self._topic.places

    def drafts(self, session: str, number: int, place: Place, random: Random) -> tuple[Sequence[Draft], int]:
        wall_ms = (EPOCH_WALL_US + self._world.now_us) // MILLISECOND_US
        drafts = []
        for index in range(random.randint(1, 5)):
            name = f"{session}:{number}.{index}".encode()
            key = b"key-%d" % random.randrange(_KEYS)
            is_tombstone = random.random() < _TOMBSTONE_CHANCE
            self._history.on_sent(Write(name, place, key, is_tombstone))
            drafts.append(Draft(name, wall_ms, key, None if is_tombstone else name))
        return drafts, random.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))

    def on_acked(self, place: Place, drafts: Sequence[Draft], base_offset: int) -> None:
        for index, draft in enumerate(drafts):
            self._history.on_acked(draft.name, base_offset + index)


class TableReader:
    """A client that reads partitions from the beginning to the end, and keeps the last record of each key."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic, history: KeyedHistory) -> None:
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._history = history
        self._random = cluster.world.stream(f"workload/{client.name}")
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        while not self.stopping:
            consumer = open_reader(self._cluster, self.client.name, None)
            try:
                await consumer.start()
                while not self.stopping:
                    await self._read(consumer)
                    await asyncio.sleep(self._random.expovariate(1 / _REST_S))
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            await closed(consumer.stop)

    async def _read(self, consumer: Any) -> None:
        place = self._random.choice(self._topic.places)
        began_us = self._cluster.world.now_us
        found = await read_to_ends(consumer, [TopicPartition(*place)])
        table = {record.key: (record.offset, record.value is None) for records in found.values() for record in records}
        self._history.readings.append((began_us, place, table))
        self.acked += 1


class CompactedWork(PlainSideWork):
    """Runs two producers of the same keys, and a reader."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        random = cluster.world.stream("compacted")
        configs = {
            **_CONFIGS,
            "internal.segment.bytes": random.choice(_SEGMENT_BYTES),
            "delete.retention.ms": random.choice(_DELETE_RETENTION_MS),
            "segment.ms": random.choice(_SEGMENT_MS),
        }
        self._cluster = cluster
        self._topic = side_topic(cluster, "accounts", 2, configs)
        self.topics = [self._topic]
        self.history = KeyedHistory(cluster.world)
        script = KeyedScript(cluster.world, self._topic, self.history)
        producers = [
            SequencedProducer(cluster, cluster.add_client(f"keeper{number}"), script, bursts_per_s=_BURSTS_PER_S)
            for number in (1, 2)
        ]
        reader = TableReader(cluster, cluster.add_client("teller"), self._topic, self.history)
        self.workers = [*producers, reader]
        self.must_make_progress = producers

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        problems: list[Problem] = []
        for place in self._topic.places:
            problems += judge_log(self.history, place, [(each.offset, each.key, each.value) for each in found[place]])
        return [*problems, *judge_readings(self.history), *self._judge_cleaned()]

    def _judge_cleaned(self) -> Iterator[Problem]:
        for node in self._cluster.nodes.values():
            for place in self._topic.places:
                partition = None if node.broker is None else node.broker.replicas.find(*place)
                if partition is not None:
                    with node.disk.without_effects():
                        for text in twice_below_cleaned(node.disk, partition.log.directory):
                            yield Problem(f"not compacted: {text} of {place[0]}-{place[1]} on {node.name}")


def judge_log(history: KeyedHistory, place: Place, log: Sequence[tuple[int, bytes, bytes | None]]) -> list[Problem]:
    """Checks the final contents of a partition: (offset, key, value)."""
    problems = []
    offsets = {offset for offset, _, _ in log}
    values: set[bytes] = set()
    for offset, key, value in log:
        write = None if value is None else history.sent.get(value)
        if value is not None and (write is None or (write.place, write.key) != (place, key)):
            problems.append(_problem("invented", (place, offset), f"{value!r} was never sent there with key {key!r}"))
        elif value is not None and value in values:
            problems.append(_problem("twice", (place, offset), f"{value!r} is there already"))
        values |= {value} if value is not None else set()
    for name, (offset, _) in history.acked.items():
        write = history.sent[name]
        if write.place != place or offset in offsets:
            continue
        if not write.is_tombstone and not any(history.later(place, write.key, offset)):
            problems.append(_problem("lost", (place, offset), f"{name!r} was acked and is the last one of its key"))
        if write.is_tombstone:
            older = [at for at, key, value in log if key == write.key and at < offset and value is not None]
            problems += [_problem("resurrected", (place, at), f"{write.key!r} was deleted at {offset}") for at in older]
    return problems


def judge_readings(history: KeyedHistory) -> Iterator[Problem]:
    """Checks the records that a reader found: for each key, none older than the last record acknowledged before the
    reader began.
    """
    for began_us, place, table in history.readings:
        newest: dict[bytes, tuple[int, Write]] = {}
        for name, (offset, acked_us) in history.acked.items():
            write = history.sent[name]
            if write.place == place and acked_us < began_us and offset > newest.get(write.key, (-1, write))[0]:
                newest[write.key] = (offset, write)
        for key, (offset, write) in newest.items():
            at = table.get(key, (-1, True))[0]
            is_deleted = write.is_tombstone or any(each.is_tombstone for each in history.later(place, key, offset))
            if at < offset and not is_deleted:
                yield _problem(
                    "old value", (place, at), f"a reader got this record for {key!r}, although {offset} had been acked"
                )


def twice_below_cleaned(disk: Any, directory: str) -> Iterator[str]:
    """Yields keys that occur more than once in a log below the offset up to which it is cleaned."""
    root, _, name = directory.rpartition("/")
    cleaned_to = read_offsets(disk, f"{root}/cleaner-offset-checkpoint").get(name, 0)
    seen: dict[bytes | None, int] = {}
    for file in sorted(disk.list_dir(directory)):
        if not file.endswith(".log"):
            continue
        data = disk.read(f"{directory}/{file}")
        for position, header in iter_headers(data):
            for record in decode_batch(data, position):
                if header.base_offset < cleaned_to and record.offset < cleaned_to:
                    if record.key in seen:
                        yield f"{record.key!r} is at {seen[record.key]} and {record.offset}, below {cleaned_to},"
                    seen[record.key] = record.offset


def _problem(kind: str, spot: Spot, text: str) -> Problem:
    return Problem(f"{kind}: {spot_text(spot)}: {text}", (spot,))
