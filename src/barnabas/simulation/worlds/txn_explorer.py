"""Transactional producers under faults from a seed, and the conditions that they must meet (guards G20-G24).

Some producers use version 1 of the protocol, some version 2; some are so slow that the coordinator aborts their
transactions. A separate client (`_ghost`) repeats earlier requests: records, and of version 2 also ends and markers,
which version 1 cannot distinguish from those of the next transaction. A reader reads committed records all the time.
Producers of version 2 also abort transactions that are still empty, right after an end whose markers can be under way.

In the end every broker is up, every producer begins once more, and then

    all or none      the values of a transaction are visible in all partitions, or in none, together with its offset
    answers hold     a commit that was answered is visible; without a request to commit, nothing is visible
    once, in order   no value is duplicated; those of a producer are in the order of its transactions
    read committed   the reader has seen nothing that does not exist in the end
    nothing hangs    the LSO is equal to the HW everywhere
    no wrong fence   no producer gets a fencing error without another producer (KAFKA-18464)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.coordinators.transactions.markers import VERSION_TAG
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.history import Violation
from barnabas.simulation.leadership_transfers import LeadershipTransfers
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.worlds.replicated import RawClient, Replicated
from barnabas.simulation.worlds.txn_client import Coordination, fetch_request, marker_request, read, visible

TOPIC: Final = "orders"
PARTITIONS: Final = 2
FAULTS_MS: Final = 10_000
SETTLE_MS: Final = 60_000
_TRIES: Final = 40
#: How often the leadership of the coordinator's broker is moved away and back after each fault.
_TRANSFERS: Final = (0, 0, 1, 3)
#: The possible lengths of a move of leadership; the shortest ends before the requests for it are answered.
_AWAY_MS: Final = (1, 30, 200, 1_000)

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

#: The error codes after which a client begins again; after all others it retries.
_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


class Call(NamedTuple):
    """A request to the leader of this partition."""

    topic: str
    partition: int
    request: Message
    version_max: int = 99


#: A generator that yields requests, or times to wait in ms, and is sent the answers; None without an answer.
Script = Generator[Call | int, Message | None, None]
Step = Generator[Call | int, Message | None, ErrorCode]


@dataclass
class Txn:
    number: int
    values: list[tuple[int, bytes]] = field(default_factory=list)
    offset: int | None = None
    outcome: str = ABORTED


@dataclass
class Outcome:
    seed: int
    problem: str | None = None
    committed: int = 0
    aborted: int = 0
    unknown: int = 0


class Driver:
    """A runner of a script on a machine of its own."""

    def __init__(self, world: Replicated, name: str, script: Script) -> None:
        self._world = world
        self._client = RawClient(world.cluster, name)
        self._script = script
        self.done = False
        self._client.process.enter(lambda: self._step(None))

    def _step(self, answer: Message | None) -> None:
        try:
            wanted = self._script.send(answer)
        except StopIteration:
            self.done = True
            return
        if isinstance(wanted, int):
            self._client.host.timers.call_later(wanted, lambda: self._step(None))
            return
        image = self._world.controller.metadata.image.partition(wanted.topic, wanted.partition)
        if image is None or image.leader < 0:
            self._client.host.timers.call_later(50, lambda: self._step(None))
        else:
            node, last = f"broker{image.leader}", wanted.version_max
            self._client.send(node, wanted.request, self._step, timeout_ms=2_000, version_max=last)


class Actor:
    """One transactional producer."""

    def __init__(self, explorer: Explorer, number: int, random: Random) -> None:
        self._explorer = explorer
        self._random = random
        self.name = f"actor{number}"
        self.version = 1 + number % 2
        #: Whether its transactions can be aborted by their timeout.
        self.is_slow = number == 2
        self.producer_id, self.epoch = -1, -1
        self.sequences: Counter[int] = Counter()
        self.transactions: list[Txn] = []
        #: Whether an InitProducerId was never answered: it can arrive late and fence a producer that has begun since.
        self.may_be_fenced = self.is_slow
        self.fenced: list[str] = []

    def script(self) -> Script:
        while not self._explorer.stopping:
            if (yield from self._init()) is not ErrorCode.NONE:
                continue
            while not self._explorer.stopping:
                if not (yield from self._transaction()):
                    break
        while (yield from self._init()) is not ErrorCode.NONE:
            yield 100

    # -- steps

    def _init(self) -> Step:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=1_000 if self.is_slow else 60_000
        )
        answer = yield Call(TRANSACTION_STATE_TOPIC, 0, request)
        if not isinstance(answer, InitProducerIdResponse) or answer.error_code != ErrorCode.NONE:
            self.may_be_fenced = self.may_be_fenced or answer is None
            yield 50
            return ErrorCode.REQUEST_TIMED_OUT
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return ErrorCode.NONE

    def _transaction(self) -> Generator[Call | int, Message | None, bool]:
        """Runs one transaction. Returns False if the producer has to begin again."""
        random = self._random
        txn = Txn(len(self.transactions))
        self.transactions.append(txn)
        for partition in random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)):
            if self.version == 1 and (yield from self._again(self._add(partition))) is not ErrorCode.NONE:
                return False
            for _ in range(random.randint(1, 2)):
                value = f"{self.name}-{txn.number}-{len(txn.values)}".encode()
                txn.values.append((partition, value))
                if (yield from self._produce(partition, value)) is not ErrorCode.NONE:
                    return False
                if self.is_slow and random.random() < 0.1:
                    yield 2_500
        if random.random() < 0.5:
            txn.offset = txn.number
            if self.version == 1 and (yield from self._again(self._add_offsets())) is not ErrorCode.NONE:
                return False
            if (yield from self._again(self._send_offset(txn.number))) is not ErrorCode.NONE:
                return False
        commit = random.random() < 0.7
        if commit:
            txn.outcome = UNKNOWN
        code = yield from self._ended(commit)
        if code is ErrorCode.NONE and commit:
            txn.outcome = COMMITTED
        if code is ErrorCode.NONE and self.version == 2 and random.random() < 0.3:
            code = yield from self._ended(False)
        yield random.randint(0, 300)
        return code is ErrorCode.NONE

    def _again(self, call: Call) -> Step:
        for _ in range(_TRIES):
            answer = yield call
            code = self._code(answer)
            if code is ErrorCode.PRODUCER_FENCED and not self.may_be_fenced:
                self.fenced.append(f"{type(call.request).__name__} of epoch {self.epoch}")
            if code is ErrorCode.NONE or code in _FATAL:
                return code
            yield 50
        return ErrorCode.REQUEST_TIMED_OUT

    def _code(self, answer: Message | None) -> ErrorCode:
        code = ErrorCode.REQUEST_TIMED_OUT.value
        if isinstance(answer, ProduceResponse):
            code = answer.responses[0].partition_responses[0].error_code
        elif isinstance(answer, TxnOffsetCommitResponse):
            code = answer.topics[0].partitions[0].error_code
        elif isinstance(answer, EndTxnResponse):
            code = answer.error_code
            if code == ErrorCode.NONE and answer.producer_epoch >= 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
        elif answer is not None and hasattr(answer, "results_by_topic_v3_and_below"):
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        elif answer is not None:
            code = answer.error_code  # type: ignore[attr-defined]
        return ErrorCode(code)

    # -- requests

    def _add(self, partition: int) -> Call:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )
        return Call(TRANSACTION_STATE_TOPIC, 0, request, 3)

    def _produce(self, partition: int, value: bytes) -> Step:
        batch = encode_batch(
            [Record(0, 1_735_689_600_000, None, value, [])],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[partition],
            transactional=True,
        )
        row = ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[row])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=1_000, topic_data=[topic])
        call = Call(TOPIC, partition, request, 12 if self.version == 2 else 11)
        self._explorer.remember(call)
        code = yield from self._again(call)
        self.sequences[partition] += 1
        return code

    def _send_offset(self, offset: int) -> Call:
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )
        return Call(GROUP_METADATA_TOPIC, 0, request, 5 if self.version == 2 else 3)

    def _add_offsets(self) -> Call:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=self.name
        )
        return Call(TRANSACTION_STATE_TOPIC, 0, request)

    def _ended(self, commit: bool) -> Step:
        """Ends the transaction. From then on its markers can be repeated: a coordinator has sent them."""
        code = yield from self._again(self._end(commit))
        if code is ErrorCode.NONE:
            self._explorer.on_markers_sent(self.name)
        return code

    def _end(self, commit: bool) -> Call:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        call = Call(TRANSACTION_STATE_TOPIC, 0, request, 5 if self.version == 2 else 4)
        if self.version == 2:
            self._explorer.remember(call)
            self._explorer.remember_marker(self.name, self.producer_id, self.epoch + 1, commit)
        return call


class Explorer:
    """A run of the transaction explorer with one seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.stopping = False
        self.world = Replicated(
            seed,
            3,
            transaction_state_log_num_partitions="1",
            offsets_topic_num_partitions="1",
            transaction_abort_timed_out_transaction_cleanup_interval_ms="300",
        )
        self._transfers = LeadershipTransfers(self.world.cluster)
        self.world.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1]], min_insync_replicas="2")
        for key_type in (0, 1):
            Coordination(self.world).of("anybody", key_type)
        self._remembered: list[Call] = []
        #: The markers of ends that no coordinator has decided; and those of each actor's last end.
        self._unsent_markers: list[Call] = []
        self._latest_markers: dict[str, list[Call]] = {}
        self._seen: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        self.actors = [Actor(self, number, Random(seed * 100 + number)) for number in range(4)]

    def remember(self, call: Call) -> None:
        self._remembered.append(call)

    def remember_marker(self, name: str, producer_id: int, epoch: int, commit: bool) -> None:
        """Records a marker that a coordinator of version 2 sends, to repeat it after that."""
        made = self._latest_markers[name] = []
        tags = ((VERSION_TAG, b"\x02"),)
        coordinator_epoch = self.world.image(TRANSACTION_STATE_TOPIC).leader_epoch
        for partition in range(PARTITIONS):
            request = marker_request(
                producer_id, epoch, commit=commit, partition=partition, coordinator_epoch=coordinator_epoch, tags=tags
            )
            made.append(Call(TOPIC, partition, request))
        self._remembered += made
        self._unsent_markers += made

    def on_markers_sent(self, name: str) -> None:
        """Allows the repetition of the markers of an actor's last end."""
        sent = self._latest_markers.pop(name, [])
        self._unsent_markers = [each for each in self._unsent_markers if not any(each is other for other in sent)]

    # -- scripts of the ghost and the readers

    def _ghost(self) -> Script:
        random = self._random
        while not self.stopping:
            yield random.randint(20, 200)
            if self._remembered:
                last = len(self._remembered)
                call = self._remembered[random.randrange(max(0, last - 30), last)]
                if not any(call is each for each in self._unsent_markers):
                    yield call

    def _reader(self, partition: int) -> Script:
        offset = 0
        while not self.stopping:
            yield 40
            answer = yield Call(TOPIC, partition, fetch_request(self.world.topic_id(), offset, partition))
            if isinstance(answer, FetchResponse) and answer.responses:
                row = answer.responses[0].partitions[0]
                if row.error_code == ErrorCode.NONE:
                    found, offset = visible(row, offset)
                    self._seen[partition] += found

    # -- the run

    def run(self) -> None:
        """Runs the seed. Raises AssertionError with the condition that does not hold."""
        with second_decisions().judging():
            self._run()

    def _run(self) -> None:
        scripts = {actor.name: actor.script() for actor in self.actors}
        drivers = [Driver(self.world, name, script) for name, script in scripts.items()]
        for partition in range(PARTITIONS):
            Driver(self.world, f"reader{partition}", self._reader(partition))
        Driver(self.world, "ghost", self._ghost())
        self._faults()
        self.stopping = True
        self.world.run_until(lambda: all(driver.done for driver in drivers), "all producers begin again", SETTLE_MS)
        self.world.run_until(self._nothing_hangs, "the LSO reaches the HW everywhere", SETTLE_MS)
        self._check()

    def _faults(self) -> None:
        """Causes one fault at a time: a broker dies, is cut off from another one, or is cut off from all and then
        dies. Between the faults, the partitions that the coordinator's broker leads move to other leaders and back.
        """
        world, random, transfers = self.world, self._random, self.world.world.stream("transfers")
        until_us = world.world.now_us + FAULTS_MS * 1_000
        while world.world.now_us < until_us:
            world.run_for(random.randint(50, 700))
            for _ in range(transfers.choice(_TRANSFERS)):
                coordinator = max(1, world.leader(TRANSACTION_STATE_TOPIC, 0))
                bring_back = self._transfers.away(f"broker{coordinator}")
                world.run_for(transfers.choice(_AWAY_MS))
                bring_back()
                world.run_for(transfers.choice(_AWAY_MS))
            victim = random.randint(1, 3)
            others = [number for number in (1, 2, 3) if number != victim]
            kind = random.randrange(3)
            if kind:
                cut = [(victim, random.choice(others))] if kind == 1 else [(victim, one) for one in others]
                pairs = [(f"broker{one}", f"broker{two}") for one, two in cut]
                if kind == 2:
                    pairs += [(two, one) for one, two in pairs]
                for pair in pairs:
                    world.cluster.network.cut(*pair)
                world.run_for(random.randint(100, 2_000))
            if kind != 1:
                world.cluster.prevent_start(f"broker{victim}")
                world.node(victim).kill()
            for pair in pairs if kind else ():
                world.cluster.network.heal(*pair)
            if kind != 1:
                world.run_for(random.randint(100, 2_000))
                world.cluster.allow_start(f"broker{victim}")
                world.run_until(lambda: world.settled(TOPIC), "the broker is back", SETTLE_MS)

    def _nothing_hangs(self) -> bool:
        for topic, count in ((TOPIC, PARTITIONS), (GROUP_METADATA_TOPIC, 1)):
            for index in range(count):
                leader = self.world.leader(topic, index)
                if leader < 0:
                    return False
                partition = self.world.broker(leader).replicas.find(topic, index)
                if partition is None or partition.last_stable_offset < partition.log.log_end_offset:
                    return False
        return True

    def _check(self) -> None:
        final = [read(self.world, partition) for partition in range(PARTITIONS)]
        for partition, values in enumerate(final):
            twice = [value for value, count in Counter(values).items() if count > 1]
            assert not twice, f"records are twice in partition {partition}: {twice[:3]}"
            early = [value for value in self._seen[partition] if value not in set(values)]
            assert not early, f"records were read that the log does not have: {early[:3]}"
        places = [{value: place for place, value in enumerate(values)} for values in final]
        for actor in self.actors:
            self._check_actor(actor, places)

    def _check_actor(self, actor: Actor, places: list[dict[bytes | None, int]]) -> None:
        assert not actor.fenced, f"{actor.name} was fenced without another producer: {actor.fenced}"
        last_place = [-1] * PARTITIONS
        last_offset = -1
        for txn in actor.transactions:
            there = [value in places[partition] for partition, value in txn.values]
            assert all(there) or not any(there), f"{actor.name} {txn.number} is only partly in the log: {txn}"
            seen = bool(there) and all(there)
            assert seen or txn.outcome is not COMMITTED, (
                f"{actor.name} {txn.number} was committed and is not in the log"
            )
            assert not seen or txn.outcome is not ABORTED, (
                f"{actor.name} {txn.number} was not committed and is in the log"
            )
            for partition, value in txn.values if seen else ():
                place = places[partition][value]
                assert place > last_place[partition], f"{actor.name} {txn.number} is out of order"
                last_place[partition] = place
            if seen and txn.offset is not None:
                last_offset = txn.offset
        assert self._offset_of(actor) == last_offset, f"{actor.name} is at {self._offset_of(actor)}, not {last_offset}"

    def _offset_of(self, actor: Actor) -> int:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=actor.name, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        for _ in range(100):
            node = f"broker{self.world.leader(GROUP_METADATA_TOPIC)}"
            answer = self.world.client.call(node, request, OffsetFetchResponse).groups[0]
            if answer.error_code == ErrorCode.NONE and answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return answer.topics[0].partitions[0].committed_offset
            self.world.run_for(50)
        raise AssertionError(f"no offset of {actor.name}")


def explore(seed: int) -> Outcome:
    explorer = Explorer(seed)
    outcome = Outcome(seed)
    try:
        explorer.run()
    except (AssertionError, Violation) as broken:
        outcome.problem = str(broken)
    for actor in explorer.actors:
        for txn in actor.transactions:
            outcome.committed += txn.outcome is COMMITTED
            outcome.aborted += txn.outcome is ABORTED
            outcome.unknown += txn.outcome is UNKNOWN
    return outcome
