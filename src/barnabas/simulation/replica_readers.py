"""Readers of the bare protocol: fetch sessions (KIP-227), and fetches from the replica in the reader's rack (KIP-392).

Each reader follows all partitions of a topic without a gap, from whichever replica a leader sends it to, and goes back
to the leader after every error. It now and then breaks the rules of sessions: it repeats an epoch, forgets its
session, ends it while a fetch waits, or asks for what is beyond the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.history import History, Place, Problem, judge, spot_text
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Verdicts
from barnabas.simulation.workload import WorkloadProducer

_BROWSERS: Final = 3
_RECORDS_PER_S: Final = 4.0
_GAP_S: Final = 0.4
_PAUSE_S: Final = 0.2
_BY_NAME: Final = 12
_INITIAL, _FINAL = 0, -1
_WAITS_MS: Final = (0, 100, 1_500)
_SIZES: Final = (60, 1_000, 100_000)
_FAR: Final = 1_000_000
#: The number of rounds before a reader starts over with all partitions.
_ROUNDS: Final = 60


class _FetchSession:
    """A session with one broker: its id, the epoch of its next request, and the offsets that the broker knows."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forgets the session, which the broker keeps."""
        self.session_id, self.epoch = 0, _INITIAL
        self.known: dict[Place, int] = {}


class ReplicaReader:
    """A reader of all partitions of a topic."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic, history: History, rack: str) -> None:
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._history = history
        self._rack = rack
        self._decided = DecidedMetadata(cluster)
        self._random = cluster.world.stream(f"workload/{client.name}")
        self._readings = 0
        self._positions: dict[Place, int] = {}
        #: The replicas that leaders have named.
        self._preferred: dict[Place, str] = {}
        self._sessions: dict[str, _FetchSession] = {}
        self.problems: list[Problem] = []
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        self._bare, self._other = BareClient(self._cluster, self.client), BareClient(self._cluster, self.client)
        while not self.stopping:
            self._readings += 1
            self._positions, self._sessions = {}, {}
            self._has_sessions = self._random.random() < 0.8
            for _ in range(self._random.randint(5, _ROUNDS)):
                if not self.stopping:
                    await self._round()
                    await asyncio.sleep(self._random.expovariate(1 / _GAP_S))

    async def _round(self) -> None:
        """Fetches once from one broker: the partitions that are to be read there."""
        routes: dict[str, list[Place]] = {}
        for place in self._topic.places:
            self._positions.setdefault(place, 0)
            node = self._preferred.get(place) or await self._bare.leader(*place)
            routes.setdefault(node, []).append(place)
        node = self._random.choice(list(routes))
        chance = self._random.random()
        if chance < 0.03:
            await self._ask_beyond_the_end(node, routes[node][0])
            return
        session = self._sessions.setdefault(node, _FetchSession())
        request = self._request(session, routes[node])
        fetching = self._bare.call(node, request, FetchResponse, version_max=_BY_NAME)
        if chance < 0.06 and session.session_id:
            answer, _ = await asyncio.gather(fetching, self._end(node, session))
        else:
            answer = await fetching
        if answer is None or answer.error_code != ErrorCode.NONE:
            self._forget(node)
            await asyncio.sleep(_PAUSE_S)
            return
        self._continue(node, session, answer)
        for topic in answer.responses:
            for row in topic.partitions:
                self._take(node, (topic.topic, row.partition_index), row)
        self.acked += 1

    def _request(self, session: _FetchSession, places: Sequence[Place]) -> FetchRequest:
        wanted = {place: self._positions[place] for place in places}
        chance = self._random.random()
        if not self._has_sessions or chance < 0.03:
            session.begin()
        epoch = session.epoch
        if not self._has_sessions:
            epoch = _FINAL
        elif session.session_id and chance > 0.97:
            epoch = max(1, epoch - 1)
        gone = [] if epoch in (_INITIAL, _FINAL) else [place for place in session.known if place not in wanted]
        news = [place for place, offset in wanted.items() if session.known.get(place) != offset or epoch <= 0]
        session.known = wanted
        return FetchRequest(
            max_wait_ms=self._random.choice(_WAITS_MS),
            min_bytes=1,
            max_bytes=self._random.choice(_SIZES),
            isolation_level=self._random.choice((0, 1)),
            session_id=0 if epoch == _INITIAL or not self._has_sessions else session.session_id,
            session_epoch=epoch,
            topics=[
                FetchRequest.FetchTopic(
                    topic=self._topic.name,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=place[1], fetch_offset=wanted[place], partition_max_bytes=max(_SIZES)
                        )
                        for place in news
                    ],
                )
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=self._topic.name, partitions=[index for _, index in gone])
            ]
            if gone
            else [],
            rack_id=self._rack,
        )

    def _continue(self, node: str, session: _FetchSession, answer: FetchResponse) -> None:
        """Records the session that the broker has created, or its next epoch."""
        if not answer.session_id:
            self._sessions.pop(node, None)
        else:
            session.session_id = answer.session_id
            session.epoch += 1

    def _take(self, node: str, place: Place, row: FetchResponse.PartitionData) -> None:
        code = row.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._decided.leads(node, *place):
            where = spot_text((place, self._positions[place]))
            text = f"out of range: {node} refuses {where}, up to which {self.client.name} has read"
            self.problems.append(Problem(text, ((place, self._positions[place]),)))
        if code != ErrorCode.NONE:
            self._preferred.pop(place, None)
            self._bare.forget()
            return
        if row.preferred_read_replica >= 0:
            self._preferred[place] = f"broker{row.preferred_read_replica}"
            return
        if self._random.random() < 0.05:
            self._preferred.pop(place, None)
        data = bytes(row.records or b"")
        for position, _ in iter_headers(data):
            for record in decode_batch(data, position):
                if record.offset >= self._positions[place]:
                    self._read(node, place, record.offset, bytes(record.value or b""), row.high_watermark)

    def _read(self, node: str, place: Place, offset: int, value: bytes, high_watermark: int) -> None:
        if offset >= high_watermark:
            text = f"read above the HW: {node} has served {spot_text((place, offset))}, its HW is {high_watermark}"
            self.problems.append(Problem(text, ((place, offset),)))
        if offset != self._positions[place]:
            text = f"a gap: {node} has served {spot_text((place, offset))} after {self._positions[place] - 1}"
            self.problems.append(Problem(text, ((place, offset),)))
        self._history.on_polled(f"{self.client.name}.{self._readings}", place, offset, value)
        self._positions[place] = offset + 1

    def _forget(self, node: str) -> None:
        self._sessions.pop(node, None)
        self._preferred = {place: other for place, other in self._preferred.items() if other != node}
        self._bare.forget()

    async def _end(self, node: str, session: _FetchSession) -> None:
        """Ends a fetch session, by a request over another connection."""
        await asyncio.sleep(_PAUSE_S * self._random.random())
        request = FetchRequest(session_id=session.session_id, session_epoch=_FINAL)
        await self._other.call(node, request, FetchResponse, version_max=_BY_NAME)

    async def _ask_beyond_the_end(self, node: str, place: Place) -> None:
        row = FetchRequest.FetchPartition(partition=place[1], fetch_offset=_FAR, partition_max_bytes=max(_SIZES))
        topic = FetchRequest.FetchTopic(topic=place[0], partitions=[row])
        answer = await self._other.call(node, FetchRequest(topics=[topic]), FetchResponse, version_max=_BY_NAME)
        for found in answer.responses[0].partitions if answer is not None and answer.responses else ():
            if found.error_code == ErrorCode.NONE:
                self.problems.append(Problem(f"beyond the end: {node} serves {spot_text((place, _FAR))}"))


class ReadersWork(PlainSideWork):
    """A producer, and readers in different racks."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._topic = side_topic(cluster, "pages", 3, {})
        self.topics = [self._topic]
        self._history = History(lambda: cluster.world.now_us)
        producer = WorkloadProducer(
            cluster, cluster.add_client("pager"), self._history, self.topics, records_per_s=_RECORDS_PER_S
        )
        self._browsers = [
            ReplicaReader(cluster, cluster.add_client(f"browser{number}"), self._topic, self._history, f"rack{number}")
            for number in range(1, _BROWSERS + 1)
        ]
        self.workers = [producer, *self._browsers]
        self.must_make_progress = [producer, *self._browsers]

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        there = {place: [(record.offset, record.value) for record in found[place]] for place in self._topic.places}
        problems = judge(self._history, there)
        return problems + [problem for browser in self._browsers for problem in browser.problems]
