"""The requests of one transactional producer of the bare protocol (KIP-890), each repeated until it is answered.

Some of them are sent a second time, soon or much later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US, World

_PRODUCE_TIMEOUT_MS = 3_000
_TRIES = 60
_PAUSE_S = 0.1
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
    """A failure after which the producer's session cannot continue. `is_sure`: the request certainly had no effect."""

    def __init__(self, text: str, *, is_sure: bool = False) -> None:
        super().__init__(text)
        self.is_sure = is_sure


class _Sent(NamedTuple):
    """A request that can be sent again."""

    node: str
    request: Message
    version_max: int


class BareTransactions:
    """The requests of a series of producer ids and epochs with one transactional id."""

    def __init__(self, world: World, bare: BareClient, transactional_id: str, timeout_ms: int) -> None:
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._bare = bare
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer_id, self._epoch = -1, -1
        self._sequences: Counter[Place] = Counter()
        self._duplicates: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._timeout_ms, producer_id=-1, producer_epoch=-1
        )
        for _ in range(_TRIES):
            node = await self._bare.coordinator(self._id, TRANSACTION_KEY)
            answer = await self._bare.call(node, request, InitProducerIdResponse)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                return
            await self._pause()
        raise Failed("no producer id")

    async def produce(self, place: Place, value: bytes, random: Random) -> int:
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

    async def send_offset(self, number: int, counted: Place, random: Random) -> None:
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=counted[0], partitions=[row])
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

    async def end(self, commit: bool, random: Random) -> None:
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        for attempt in range(_TRIES):
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
                self._check(answer.error_code, "end", is_sure=attempt == 0)
            await self._pause()
        raise Failed("the end is not acked")

    def _check(self, code: int, what: str, *, is_sure: bool = False) -> None:
        if code in _FATAL:
            raise Failed(f"{what}: {ErrorCode(code).name}", is_sure=is_sure)

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
