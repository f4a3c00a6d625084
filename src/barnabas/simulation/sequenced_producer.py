"""Idempotent producers of the bare protocol with several requests in flight, of batches that a script makes.

aiokafka has one request in flight per partition. These producers send up to five batches of a partition without
waiting, and repeat what was not acknowledged in the same order and with the same sequence numbers, as the Java client
does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.history import Place
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster

_IN_FLIGHT_MAX: Final = 5
_TRIES: Final = 60
_PAUSE_S: Final = 0.1
_PRODUCE_TIMEOUT_MS: Final = 3_000
#: The versions of Produce that sessions use: those of releases since zstd, with topics by name.
_RELEASES: Final = range(7, 13)
#: The number of bursts that a session sends with one producer id.
_BURSTS_OF_A_SESSION: Final = 40
#: The errors after which the producer starts over with another producer id; after all others it repeats.
_FATAL: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


class Draft(NamedTuple):
    """A record that is to be sent. `name` is unique in a run."""

    name: bytes
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Script(Protocol):
    """Creates a producer's batches, and records the results."""

    acks: int

    def places(self) -> Sequence[Place]:
        """Returns the partitions that exist."""

    def drafts(self, session: str, number: int, place: Place, random: Random) -> tuple[Sequence[Draft], int]:
        """Returns the records of a batch, which is about to be sent, and its codec."""

    def on_acked(self, place: Place, drafts: Sequence[Draft], base_offset: int) -> None:
        """Records an acknowledgement, for acks=all."""


class _Batch(NamedTuple):
    drafts: Sequence[Draft]
    request: ProduceRequest


class SequencedProducer(SessionWorker):
    """Runs sessions, each with its own producer id. A session sends bursts of batches, each to one partition."""

    def __init__(self, cluster: Cluster, client: Client, script: Script, *, bursts_per_s: float) -> None:
        super().__init__(cluster, client)
        self._script = script
        self._gap_s = 1 / bursts_per_s

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            session = _Session(bare, self._script, self._begin_session(), self._random)
            is_open = await session.begin(lambda: self.stopping)
            for _ in range(_BURSTS_OF_A_SESSION):
                if self.stopping or not is_open:
                    break
                is_open = await session.burst()
                self.acked += is_open
                await asyncio.sleep(self._random.expovariate(1 / self._gap_s))


class _Session:
    def __init__(self, bare: BareClient, script: Script, name: str, random: Random) -> None:
        self._bare = bare
        self._script = script
        self._name = name
        self._random = random
        self._version = Random(name).choice(_RELEASES)
        self._producer_id, self._epoch = -1, -1
        self._sequences: Counter[Place] = Counter()
        self._number = 0

    async def begin(self, gives_up: Callable[[], bool]) -> bool:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while not gives_up():
            answer = await self._bare.call(self._bare.any_broker(), request, InitProducerIdResponse)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                return True
            await asyncio.sleep(_PAUSE_S)
        return False

    async def burst(self) -> bool:
        """Sends some batches without waiting, and repeats them until all are acked. Returns False if that failed."""
        place = self._random.choice(self._script.places())
        waiting = [self._made(place) for _ in range(self._random.randint(1, _IN_FLIGHT_MAX))]
        for _ in range(_TRIES):
            node = await self._bare.leader(*place)
            calls = [
                self._bare.call(node, batch.request, ProduceResponse, version_max=self._version) for batch in waiting
            ]
            answers = await asyncio.gather(*calls)
            while waiting and answers:
                answer = answers.pop(0)
                row = None if answer is None else answer.responses[0].partition_responses[0]
                if row is None or row.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    if row is not None and row.error_code in _FATAL:
                        return False
                    break
                batch = waiting.pop(0)
                if self._script.acks == -1 and row.error_code == ErrorCode.NONE:
                    self._script.on_acked(place, batch.drafts, row.base_offset)
            if not waiting:
                return True
            self._bare.forget()
            await asyncio.sleep(_PAUSE_S)
        return False

    def _made(self, place: Place) -> _Batch:
        self._number += 1
        drafts, codec = self._script.drafts(self._name, self._number, place, self._random)
        records = [Record(0, draft.timestamp_ms, draft.key, draft.value, []) for draft in drafts]
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[place],
        )
        self._sequences[place] += len(drafts)
        row = ProduceRequest.PartitionProduceData(index=place[1], records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=place[0], partition_data=[row])
        request = ProduceRequest(acks=self._script.acks, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[topic])
        return _Batch(drafts, request)
