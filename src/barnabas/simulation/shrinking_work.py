"""Topics that lose their oldest records: `feed` by DeleteRecords, `stream` by retention.

`log_start_rules` checks each deletion. At the end every acknowledged record exists, except those below the log start of
a replica; and a leader that has acknowledged a deletion does not serve what was deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.records.batch import iter_headers
from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.bulk_work import BulkScript, name_of
from barnabas.simulation.history import History, Place, Problem, judge, spot_text
from barnabas.simulation.log_start_rules import LogStarts
from barnabas.simulation.replication_checkers import Replicas
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.sequenced_producer import SequencedProducer
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Verdicts

_BURSTS_PER_S: Final = 1.2
_GAP_S: Final = 3.0
_PAUSE_S: Final = 0.2
_TIMEOUT_MS: Final = 4_000
_BY_NAME: Final = 12
_UP_TO_HW: Final = -1
_FETCH_BYTES: Final = 100_000
_SEGMENT_BYTES: Final = ("4000", "10000")
_RETENTION: Final = (
    {"retention.ms": "4000", "segment.ms": "2000"},
    {"retention.ms": "20000", "segment.ms": "5000"},
    {"retention.ms": "-1", "retention.bytes": "12000"},
    {"retention.ms": "15000", "retention.bytes": "40000"},
)


class Remover:
    """A client that deletes the oldest records of a topic, and tries to read them."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic, history: History, starts: LogStarts) -> None:
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._history = history
        self._starts = starts
        self._random = cluster.world.stream(f"workload/{client.name}")
        self.problems: list[Problem] = []
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / _GAP_S))
            place = self._random.choice(self._topic.places)
            known = sorted(offset for at, offset in self._history.acked.values() if at == place)
            if known and not await self._remove(bare, place, self._chosen(place, known)):
                bare.forget()
                await asyncio.sleep(_PAUSE_S)

    def _chosen(self, place: Place, known: Sequence[int]) -> int:
        """Returns an offset up to which records are to be deleted."""
        if self._random.random() < 0.1:
            return _UP_TO_HW
        end = known[-1] + 1
        return self._random.randint(min(self._starts.highest[place], end), end)

    async def _remove(self, bare: BareClient, place: Place, offset: int) -> bool:
        if offset == _UP_TO_HW:
            self._starts.up_to_hw.add(place)
        self._starts.highest[place] = max(self._starts.highest[place], offset)
        row = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=place[1], offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=place[0], partitions=[row])
        node = await bare.leader(*place)
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        answer = await bare.call(node, request, DeleteRecordsResponse)
        if answer is None or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        low_watermark = answer.topics[0].partitions[0].low_watermark
        if low_watermark < max(offset, 0):
            text = f"a deletion is not complete: {spot_text((place, offset))} was acked with {low_watermark}"
            self.problems.append(Problem(text, ((place, offset),)))
        self.acked += 1
        if low_watermark > 0:
            await self._read_deleted(bare, place, node, low_watermark)
        return True

    async def _read_deleted(self, bare: BareClient, place: Place, node: str, start: int) -> None:
        """Fetches below the log start offset of a leader, which must return nothing as long as its process runs."""
        process = self._cluster.nodes[node].machine.process
        row = FetchRequest.FetchPartition(
            partition=place[1], fetch_offset=self._random.randrange(start), partition_max_bytes=_FETCH_BYTES
        )
        topic = FetchRequest.FetchTopic(topic=place[0], partitions=[row])
        request = FetchRequest(max_bytes=_FETCH_BYTES, topics=[topic])
        answer = await bare.call(node, request, FetchResponse, version_max=_BY_NAME)
        if answer is None or self._cluster.nodes[node].machine.process is not process or not answer.responses:
            return
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.NONE and any(
            header.last_offset < start for _, header in iter_headers(bytes(found.records or b""))
        ):
            text = f"deleted and served: {spot_text((place, row.fetch_offset))} by {node}, which begins at {start}"
            self.problems.append(Problem(text, ((place, row.fetch_offset),)))


class ShrinkingWork(PlainSideWork):
    """A producer for both topics, and a client that deletes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        random = cluster.world.stream("shrinking")
        size = {"internal.segment.bytes": random.choice(_SEGMENT_BYTES)}
        feed = side_topic(cluster, "feed", 2, {"retention.ms": "-1", **size})
        stream = side_topic(cluster, "stream", 2, {**random.choice(_RETENTION), **size})
        self.topics = [feed, stream]
        self.history = History(lambda: cluster.world.now_us)
        self._starts = LogStarts([feed.name, stream.name])
        script = BulkScript(cluster.world, self.topics, self.history, acks=-1)
        # A batch must fit into a segment, and the age of a segment is that of its records.
        script.large_chance, script.jitter_ms = 0.0, 0
        producer = SequencedProducer(cluster, cluster.add_client("filler"), script, bursts_per_s=_BURSTS_PER_S)
        self._remover = Remover(cluster, cluster.add_client("remover"), feed, self.history, self._starts)
        self.workers = [producer, self._remover]
        self.must_make_progress = [producer]
        self.checkers = [Replicas(None, [self._starts])]

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        there: dict[Place, list[tuple[int, bytes]]] = {}
        problems: list[Problem] = []
        for place in (place for topic in self.topics for place in topic.places):
            named = [(record.offset, name_of(record.value)) for record in found[place]]
            there[place] = [(offset, name) for offset, name in named if name is not None]
            if len(there[place]) < len(named):
                problems.append(Problem(f"torn: a record of {place[0]}-{place[1]} is not whole"))
        for value, (place, offset) in tuple(self.history.acked.items()):
            if offset < self._starts.highest[place]:
                del self.history.acked[value]
        return [*problems, *judge(self.history, there), *self._remover.problems]
