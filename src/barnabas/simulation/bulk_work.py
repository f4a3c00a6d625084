"""Large and compressed batches, several in flight, with acks of every kind, and look-ups of their offsets by time.

bulk      acks=all: every acknowledged record is there, once, at its offset, in order, whole
gauges    acks=1 with sequence numbers, and acks=0 without: records may be missing; none is torn or invented, and
          none with a sequence number occurs twice
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from random import Random
from typing import Final

from aiokafka import AIOKafkaProducer

from barnabas.records.compression import Codec
from barnabas.simulation.history import History, Place, Problem, judge, spot_text
from barnabas.simulation.offset_lookups import LookupClient
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.sequenced_producer import Draft, SequencedProducer
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Verdicts
from barnabas.simulation.workload import CLIENT_ERRORS, RETRY_S, TIMEOUT_MS, closed
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US, World

_BURSTS_PER_S: Final = 0.7
_WHISPERS_PER_S: Final = 2.0
#: Timestamps are around the present, so that they are not in the order of offsets.
_JITTER_MS: Final = 20_000
_LARGE_CHANCE: Final = 0.1
_SMALL_BYTES: Final = (0, 30, 400)
#: Without compression a batch stays below the smallest socket.request.max.bytes that seeds draw.
_LARGE_BYTES: Final = (8_000, 40_000)
_LARGE_COMPRESSED_BYTES: Final = (8_000, 40_000, 300_000)
_COMPRESSION_TYPES: Final = ("producer", "producer", "gzip", "zstd", "lz4", "snappy", "uncompressed")


def padded(name: bytes, size: int, *, is_random: bool) -> bytes:
    """Returns a value of this size or more, from which the name and everything else can be checked."""
    head = b"%s|%d|%d|" % (name, size, is_random)
    if is_random:
        return head + Random(zlib.crc32(head)).randbytes(size)
    return head + (name * (size // len(name) + 1))[:size]


def name_of(value: bytes | None) -> bytes | None:
    """Returns the name in a value that `padded` made, or None if it is not whole."""
    parts = (value or b"").split(b"|", 3)
    if len(parts) < 4 or not parts[1].isdigit():
        return None
    return parts[0] if padded(parts[0], int(parts[1]), is_random=parts[2] == b"1") == value else None


class BulkScript:
    """Batches of some topics: mostly small ones, and some large and compressed ones."""

    def __init__(self, world: World, topics: Sequence[Topic], history: History, acks: int) -> None:
        self._world = world
        self._topics = topics
        self._history = history
        self.acks = acks
        self.large_chance, self.jitter_ms = _LARGE_CHANCE, _JITTER_MS

    def places(self) -> Sequence[Place]:
        return [place for topic in self._topics for place in topic.places]

    def drafts(self, session: str, number: int, place: Place, random: Random) -> tuple[Sequence[Draft], int]:
        codec = random.choice((Codec.NONE, Codec.NONE, *Codec))
        is_large = random.random() < self.large_chance
        count = random.randint(1, 2) if is_large else random.randint(1, 6)
        large = _LARGE_COMPRESSED_BYTES if codec else _LARGE_BYTES
        drafts = []
        for index in range(count):
            name = f"{session}:{number}.{index}".encode()
            size = random.choice(large if is_large else _SMALL_BYTES)
            value = padded(name, size, is_random=size < max(_LARGE_COMPRESSED_BYTES) and random.random() < 0.5)
            wall_ms = (EPOCH_WALL_US + self._world.now_us) // MILLISECOND_US
            timestamp_ms = wall_ms + random.randint(-self.jitter_ms, self.jitter_ms)
            self._history.on_sent(name, session, number * 100 + index, place)
            drafts.append(Draft(name, timestamp_ms, None, value))
        return drafts, codec

    def on_acked(self, place: Place, drafts: Sequence[Draft], base_offset: int) -> None:
        for index, draft in enumerate(drafts):
            self._history.on_acked(draft.name, place, base_offset + index)


class UnacknowledgedProducer(SessionWorker):
    """An aiokafka producer with acks=0."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic) -> None:
        super().__init__(cluster, client)
        self._topic = topic
        self.sent: set[bytes] = set()

    async def run(self) -> None:
        while not self.stopping:
            self._begin_session()
            producer = AIOKafkaProducer(
                bootstrap_servers=self._cluster.bootstrap,
                client_id=self.client.name,
                acks=0,
                compression_type=self._random.choice((None, "gzip", "zstd", "lz4", "snappy")),
                request_timeout_ms=TIMEOUT_MS,
            )
            try:
                await producer.start()
                for number in range(self._random.randint(5, 60)):
                    if not self.stopping:
                        await self._whisper(producer, f"{self._session_name}:{number}".encode())
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            await closed(producer.stop)

    async def _whisper(self, producer: AIOKafkaProducer, name: bytes) -> None:
        topic, index = self._random.choice(self._topic.places)
        wall_ms = (EPOCH_WALL_US + self._cluster.world.now_us) // MILLISECOND_US
        self.sent.add(name)
        await producer.send(topic, padded(name, 50, is_random=False), partition=index, timestamp_ms=wall_ms)
        self.acked += 1
        await asyncio.sleep(self._random.expovariate(_WHISPERS_PER_S))


class BulkWork(PlainSideWork):
    """Runs two producers with sequence numbers, one with acks=0, and a client that looks offsets up by time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        random = cluster.world.stream("bulk")
        self._bulk, self._gauges = (
            side_topic(cluster, name, partitions, {"compression.type": random.choice(_COMPRESSION_TYPES)})
            for name, partitions in (("bulk", 2), ("gauges", 1))
        )
        self.topics = [self._bulk, self._gauges]
        world = cluster.world
        self.history, self._gauge_history = History(lambda: world.now_us), History(lambda: world.now_us)
        scripts = (
            BulkScript(world, [self._bulk], self.history, acks=-1),
            BulkScript(world, [self._gauges], self._gauge_history, acks=1),
        )
        producers = [
            SequencedProducer(cluster, cluster.add_client(f"hauler{number}"), script, bursts_per_s=_BURSTS_PER_S)
            for number, script in enumerate(scripts, 1)
        ]
        self._whisperer = UnacknowledgedProducer(cluster, cluster.add_client("whisperer"), self._gauges)
        self._clerk = LookupClient(cluster, cluster.add_client("clerk"), self._bulk)
        self.workers = [*producers, self._whisperer, self._clerk]
        self.must_make_progress = [*producers, self._clerk]

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        problems: list[Problem] = []
        named: dict[Place, list[tuple[int, bytes]]] = {}
        for topic in self.topics:
            for place in topic.places:
                records = [(record.offset, name_of(record.value)) for record in found[place]]
                problems += [
                    Problem(f"torn: the record at {spot_text((place, offset))} is not whole", ((place, offset),))
                    for offset, name in records
                    if name is None
                ]
                named[place] = [(offset, name) for offset, name in records if name and name not in self._whisperer.sent]
        problems += judge(self.history, {place: named[place] for place in self._bulk.places})
        problems += judge(self._gauge_history, {place: named[place] for place in self._gauges.places})
        return problems + self._clerk.problems(found, self.history)
