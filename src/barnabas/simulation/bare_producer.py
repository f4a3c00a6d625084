"""Producers of version 2 of the transactional protocol (KIP-890), which aiokafka does not support, with duplicates: a
sent request, above all an EndTxn, arrives a second time, soon or much later. In this version that does no harm.

A transaction is some records and an offset of a group with the same name as its transactional id. These offsets grow
with every transaction: at the end the group must be at the offset of the last committed one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.bare_client import GROUP_KEY, TRANSACTION_KEY, BareClient
from barnabas.simulation.history import Place
from barnabas.simulation.recording import Recording
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US

_TRANSACTION_TIMEOUT_MS = 15_000
_PRODUCE_TIMEOUT_MS = 3_000
_TRIES = 60
_PAUSE_S = 0.1
_TRANSACTIONS_OF_A_SESSION = 20
#: The partition of these offsets; no consumer of the group reads it.
COUNTED: Place = ("payments", 0)
_BY_NAME = 12
_ENDS_WITH_ANOTHER_EPOCH = 5
#: The errors after which a client begins a new session; after all others it retries.
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class Failed(Exception):
    """A failure after which the producer's session cannot continue."""


class _Sent(NamedTuple):
    """A request that can be sent again."""

    node: str
    request: Message
    version_max: int


class Ledger:
    """The offsets that the transactions of each transactional id sent, each with a record of its transaction."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self.offsets: dict[str, list[tuple[int, str]]] = {}

    def next_number(self, transactional_id: str) -> int:
        self._numbers[transactional_id] += 1
        return self._numbers[transactional_id]

    def expected(self, transactional_id: str, there: Collection[str]) -> int | None:
        """Returns the group's offset if exactly these records are committed."""
        sent = self.offsets.get(transactional_id, [])
        return max((number for number, value in sent if value in there), default=None)


class BareProducer:
    """A worker. Its sessions alternate with those of other workers with the same `ids`."""

    def __init__(
        self, cluster: Cluster, client: Client, recording: Recording, ledger: Ledger, topic: Topic, ids: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self.client = client
        self._recording = recording
        self._ledger = ledger
        self._topic = topic
        self._ids = ids
        self._random: Random = cluster.world.stream(f"workload/{client.name}")
        self._sessions = 0
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            self._sessions += 1
            name = f"{self.client.name}.{self._sessions}"
            transactional_id = self._random.choice(self._ids)
            session = _Session(self._cluster, bare, self._recording, self._ledger, name, transactional_id)
            try:
                await session.begin()
                for _ in range(self._random.randint(1, _TRANSACTIONS_OF_A_SESSION)):
                    if self.stopping:
                        break
                    self.acked += await session.transaction(self._topic.places, self._random)
                    await asyncio.sleep(self._random.expovariate(1))
            except Failed as error:
                self._cluster.world.note(self.client.name, f"{name} begins anew: {error}")
                await asyncio.sleep(_PAUSE_S)


class _Session:
    """A series of producer ids and epochs, one after the other."""

    def __init__(
        self, cluster: Cluster, bare: BareClient, recording: Recording, ledger: Ledger, name: str, transactional_id: str
    ) -> None:
        self._world = cluster.world
        self._loop = asyncio.get_running_loop()
        self._bare = bare
        self._recording = recording
        self._ledger = ledger
        self._name = name
        self._id = transactional_id
        self._producer_id, self._epoch = -1, -1
        self._sequences: Counter[Place] = Counter()
        self._duplicates: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        for _ in range(_TRIES):
            node = await self._bare.coordinator(self._id, TRANSACTION_KEY)
            answer = await self._bare.call(node, request, InitProducerIdResponse)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                return
            await self._pause()
        raise Failed("no producer id")

    async def transaction(self, places: Sequence[Place], random: Random) -> bool:
        """Returns whether the transaction was committed. Raises Failed if that is unknown or impossible."""
        recording, name = self._recording, self._name
        number = self._ledger.next_number(self._id)
        recording.note(name, "ok", "begin")
        for index in range(random.randint(1, 4)):
            place, value = random.choice(places), f"{name}:{number}.{index}"
            recording.sends(name, place, value)
            offset = await self._produce(place, value.encode(), random)
            recording.sent(name, place, value, offset)
        if random.random() < 0.5:
            self._ledger.offsets.setdefault(self._id, []).append((number, f"{name}:{number}.0"))
            await self._send_offset(number, random)
        commit = random.random() < 0.8
        f = "commit" if commit else "abort"
        recording.note(name, "invoke", f)
        try:
            await self._end(commit, random)
        except Failed:
            recording.note(name, "info", f)
            raise
        recording.note(name, "ok", f)
        return commit

    # -- requests, repeated until they succeed

    async def _produce(self, place: Place, value: bytes, random: Random) -> int:
        wall_ms = (EPOCH_WALL_US + self._world.now_us) // MILLISECOND_US
        batch = encode_batch(
            [Record(0, wall_ms, None, value, [])],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[place],
            transactional=True,
        )
        row = ProduceRequest.PartitionProduceData(index=place[1], records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=place[0], partition_data=[row])
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[topic])
        for _ in range(_TRIES):
            node = await self._bare.leader(*place)
            self._maybe_duplicate(_Sent(node, request, _BY_NAME), random)
            answer = await self._bare.call(node, request, ProduceResponse, version_max=_BY_NAME)
            if answer is not None:
                appended = answer.responses[0].partition_responses[0]
                if appended.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._sequences[place] += 1
                    return appended.base_offset
                self._check(appended.error_code, "produce")
            await self._pause()
        raise Failed("a record is not acked")

    async def _send_offset(self, number: int, random: Random) -> None:
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=COUNTED[0], partitions=[row])
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[topic],
        )
        for _ in range(_TRIES):
            node = await self._bare.coordinator(self._id, GROUP_KEY)
            self._maybe_duplicate(_Sent(node, request, 99), random)
            answer = await self._bare.call(node, request, TxnOffsetCommitResponse)
            if answer is not None:
                code = answer.topics[0].partitions[0].error_code
                if code == ErrorCode.NONE:
                    return
                self._check(code, "offset")
            await self._pause()
        raise Failed("an offset is not acked")

    async def _end(self, commit: bool, random: Random) -> None:
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        for _ in range(_TRIES):
            node = await self._bare.coordinator(self._id, TRANSACTION_KEY)
            self._maybe_duplicate(_Sent(node, request, _ENDS_WITH_ANOTHER_EPOCH), random)
            answer = await self._bare.call(node, request, EndTxnResponse)
            if answer is not None:
                if answer.error_code == ErrorCode.NONE:
                    if answer.producer_epoch < 0:
                        raise Failed("the EndTxn response has no new epoch")
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                    return
                self._check(answer.error_code, "end")
            await self._pause()
        raise Failed("the end is not acked")

    def _check(self, code: int, what: str) -> None:
        if code in _FATAL:
            raise Failed(f"{what}: {ErrorCode(code).name}")

    async def _pause(self) -> None:
        self._bare.forget()
        await asyncio.sleep(_PAUSE_S)

    def _maybe_duplicate(self, sent: _Sent, random: Random) -> None:
        """Sends some requests a second time, soon or much later."""
        chance = random.random()
        if chance < 0.25:
            delay_s = 0.0 if chance < 0.08 else random.choice((0.05, 0.5, 3.0, 15.0)) * random.random()
            self._duplicates.append(self._loop.create_task(self._send_again(sent, delay_s)))

    async def _send_again(self, sent: _Sent, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await self._bare.call(sent.node, sent.request, Message, version_max=sent.version_max)
