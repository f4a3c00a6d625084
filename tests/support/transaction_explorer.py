"""A coordinator of transactions in memory under random requests: a small world of which a seed takes milliseconds.

Producers of both versions of the protocol send right, late and wrong requests for three transactional ids. Records of
the coordinator are held back or refused, markers get lost, the coordinator moves with and without its last records.
Every answer is predicted from a dict of images and the second decisions about them. After every step the coordinator is
compared with that dict, and with the simple replay of its log; lists are filtered here again.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.txn_world import Answered, Marker, TransactionWorld

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.runtime import KeyValue, ShardState
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transaction_records import transaction_record
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation import coordinator_decisions as second
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.coordinator_replay import wrong_transactions
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_NAMES = ("a", "b", "c")
_PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0))
_NOBODY = ProducerIdentity(-1, -1)
_STEPS = 70
_TIMEOUT_MAX_MS, _EXPIRATION_MS, _ABORT_MS, _EXPIRY_MS, _WRITE_MS = 60_000, 90_000, 1_000, 10_000, 5_000
_DECIDED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
#: A marker that could not be written is sent again after this time at the latest; a broker is silent for 100 ms.
_MARKERS_MS = 1_300
#: What clients are told of a record that could not be written.
_TOLD = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorCode.INVALID_REQUIRED_ACKS,
}


@dataclass
class _Prediction:
    """The answer to a request, and the image that it writes; without one it is answered at once."""

    code: ErrorCode
    producer: ProducerIdentity = _NOBODY
    image: TxnImage | None = None


@dataclass
class _Flight:
    """A record that is held back."""

    prediction: _Prediction
    answered: Answered
    since_ms: int


@dataclass
class _Wait:
    """A request that waits for the end of the transaction before."""

    name: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    version: int
    answered: Answered
    until_ms: int


class TransactionExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"transactions {seed}")
        config = TransactionConfig(_TIMEOUT_MAX_MS, _EXPIRATION_MS, _ABORT_MS, _EXPIRY_MS, _WRITE_MS)
        self._server = self._random.choice((0, 1, 2, 2, 2))
        self._world = TransactionWorld(2, self._server, config)
        self._images: dict[str, TxnImage] = {}
        self._flights: dict[str, _Flight] = {}
        self._waits: list[_Wait] = []
        #: The images whose completion is to be seen, by name.
        self._decided: dict[str, TxnImage] = {}
        self._markers_fail = False
        #: Producer id -> the number of all markers that were written when its last transaction was complete.
        self._marked: dict[int, int] = {}
        #: The partitions that were deleted, or whose producer has a later epoch: they need no marker.
        self._excused: set[TopicPartition] = set()
        #: When the coordinator was loaded, or its records were held back for the last time.
        self._loaded_ms = self._now_ms
        self._world.leaders.log_says = self._receives

    def _receives(self, marker: Marker, version: int) -> ErrorCode:
        """Returns the answer of a partition, which is told the version of the transaction."""
        known = {image.client_version for image in self._decided.values() if image.producer_id == marker.producer_id}
        if known and version not in known:
            raise Violation(f"a marker of version {version} for a transaction of version {known}")
        return ErrorCode.NONE

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._init, self._add, self._add, self._add, self._end, self._end, self._end, self._verify]
            steps += [self._time, self._time, self._markers, self._markers, self._hold, self._refuse, self._move]
            steps += [self._wait, self._ask_wrongly, self._old_epoch, self._complete_late, self._resign]
            steps += [self._init_without_ids, self._init_without_ids]
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._compare()
            self._calm()

    @property
    def _now_ms(self) -> int:
        return self._world.host.clock.wall_ms()

    # -- requests

    def _name(self) -> str:
        return self._random.choice(_NAMES)

    def _identity(self, name: str) -> ProducerIdentity:
        """Returns the producer of an id, mostly; also earlier and unknown ones."""
        image = self._images.get(name)
        if image is None or image.producer_epoch < 0:
            return ProducerIdentity(1_000, 0)
        current = ProducerIdentity(image.producer_id, image.producer_epoch)
        if self._random.random() < 0.75:
            return current
        others = [
            current._replace(epoch=max(current.epoch - 1, 0)),
            current._replace(epoch=current.epoch + 1),
            current._replace(producer_id=current.producer_id + 1),
            ProducerIdentity(image.previous_producer_id, 32_766),
        ]
        return self._random.choice(others)

    def _version(self) -> int:
        return 2 if self._server == 2 and self._random.random() < 0.6 else 0

    def _some(self) -> tuple[TopicPartition, ...]:
        return tuple(self._random.sample(_PARTITIONS, self._random.choice((1, 1, 2))))

    def _init(self) -> None:
        name = self._name()
        timeout_ms = self._random.choice((0, 1, 5_000, 20_000, _TIMEOUT_MAX_MS, _TIMEOUT_MAX_MS + 1))
        expected = self._identity(name) if name in self._images and self._random.random() < 0.4 else None
        prediction = self._predict(lambda: self._initialized(name, timeout_ms, expected))
        self._judge(name, prediction, self._world.init(name, timeout_ms, expected))

    def _init_without_ids(self) -> None:
        """A producer with a new transactional id waits for its producer id, which may be refused."""
        unknown = [name for name in _NAMES if name not in self._images]
        if not unknown or self._world.log.holding:
            return
        name, ids = self._random.choice(unknown), self._world.ids
        ids.holding = True
        answered = self._world.init(name, 5_000)
        _same("the answer before there is a producer id", answered.code, None)
        ids.holding = False
        if self._random.random() < 0.5:
            ids.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            ids.give()
            ids.error = ErrorCode.NONE
            self._judge(name, _Prediction(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answered)
        else:
            prediction = self._predict(lambda: self._initialized(name, 5_000, None))
            ids.give()
            self._judge(name, prediction, answered)

    def _add(self) -> None:
        name, partitions, version = self._name(), self._some(), self._version()
        producer = self._identity(name)
        prediction = self._predict(lambda: self._added(name, producer, partitions, version))
        self._judge(name, prediction, self._world.add(producer, *partitions, version=version, transactional_id=name))

    def _end(self) -> None:
        name, commit, version = self._name(), self._random.random() < 0.6, self._version()
        producer = self._identity(name)
        prediction = self._predict(lambda: self._ended(name, producer, commit, version))
        self._judge(name, prediction, self._world.end(producer, commit, version=version, transactional_id=name))

    def _verify(self) -> None:
        name, asked = self._name(), frozenset(self._some())
        producer = self._identity(name)
        found = self._world.coordinator.verify_partitions(name, producer, asked)
        image = self._images.get(name)
        refused = ErrorCode.NONE
        if image is None:
            refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            refused = self._predict(lambda: _verified(image, producer)).code
        known = frozenset() if image is None else image.partitions
        expected = {
            one: refused or (ErrorCode.NONE if one in known else ErrorCode.TRANSACTION_ABORTABLE) for one in asked
        }
        _same(f"the verification of {name}", found, expected)

    def _ask_wrongly(self) -> None:
        """Sends requests without a transactional id, and lists and describes what is there."""
        _same("AddPartitionsToTxn without an id", self._world.add(_NOBODY, transactional_id="").code, 42)
        _same("EndTxn without an id", self._world.end(_NOBODY, transactional_id="").code, 42)
        for name in ("", "unknown"):
            try:
                self._world.coordinator.describe(name)
            except RequestFailed as failure:
                _same("the description", failure.code, 42 if not name else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            else:
                raise Violation("an unknown transaction is described")
        self._list()

    def _list(self) -> None:
        if self._flights:
            return
        everything = dict(self._images)
        ids = [image.producer_id for image in everything.values()]
        open_ms = self._random.choice((-1, -1, 0, *(self._now_ms - each.start_ms - 1 for each in everything.values())))
        state = self._random.choice(list(TxnState)[:6])
        states = self._random.choice((frozenset(), frozenset({state})))
        producers = frozenset(self._random.sample(ids, min(len(ids), self._random.choice((0, 0, 1)))))
        matches = self._random.choice((None, None, lambda name: name == "a"))
        found = self._world.coordinator.list(Filters(states, producers, open_ms, matches))
        expected = {
            name
            for name, image in everything.items()
            if (not states or image.state == state)
            and (not producers or image.producer_id in producers)
            and (open_ms < 0 or image.start_ms + open_ms < self._now_ms)
            and (matches is None or name == "a")
        }
        _same("ListTransactions", {each.transactional_id for each in found}, expected)

    # -- predictions

    @staticmethod
    def _predict(decide: Any) -> _Prediction:
        try:
            prediction: _Prediction = decide()
        except RequestFailed as refusal:
            return _Prediction(refusal.code)
        return prediction

    def _is_free(self, name: str, image: TxnImage) -> None:
        if name in self._flights or image.state in _DECIDED:
            raise RequestFailed(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _initialized(self, name: str, timeout_ms: int, expected: ProducerIdentity | None) -> _Prediction:
        if timeout_ms <= 0 or timeout_ms > _TIMEOUT_MAX_MS:
            raise RequestFailed(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        next_id, now_ms = self._world.ids.next, self._now_ms
        if name not in self._images:
            self._images[name] = TxnImage(next_id, -1, timeout_ms, updated_ms=now_ms)
            next_id += 1
        image = self._images[name]
        self._is_free(name, image)
        second._is_expected(image, expected)
        if image.state is TxnState.ONGOING:
            fenced = second._fenced(image, self._server, now_ms)
            return _Prediction(ErrorCode.CONCURRENT_TRANSACTIONS, _NOBODY, fenced)
        new_id = next_id if second._needs_new_id(image, expected) else None
        begun = second._initialized(image, expected, timeout_ms, now_ms, new_id)
        return _Prediction(ErrorCode.NONE, ProducerIdentity(begun.producer_id, begun.producer_epoch), begun)

    def _known(self, name: str) -> TxnImage:
        if name not in self._images:
            raise RequestFailed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return self._images[name]

    def _added(
        self, name: str, producer: ProducerIdentity, partitions: tuple[TopicPartition, ...], version: int
    ) -> _Prediction:
        image = self._known(name)
        self._is_free(name, image)
        after = second._with_partitions(image, producer, frozenset(partitions), version, self._now_ms)
        return _Prediction(ErrorCode.NONE, _NOBODY, after)

    def _ended(self, name: str, producer: ProducerIdentity, commit: bool, version: int) -> _Prediction:
        image = self._known(name)
        if version < 2:
            second._check(image, producer)
        self._is_free(name, image)
        new_id = self._world.ids.next if second._end_needs_new_id(image, version) else None
        after = second._ended(image, producer, commit, version, self._now_ms, new_id)
        done = image if after is None else second._completed(after, self._now_ms)
        identity = ProducerIdentity(done.producer_id, done.producer_epoch) if version == 2 else _NOBODY
        return _Prediction(ErrorCode.NONE, identity, after)

    # -- what becomes of a request

    def _judge(self, name: str, prediction: _Prediction, answered: Answered) -> None:
        log = self._world.log
        if prediction.image is not None and log.holding:
            _same(f"the answer for {name}, of which the record is not committed", answered.code, None)
            self._flights[name] = _Flight(prediction, answered, self._now_ms)
            return
        if prediction.image is not None and log.refuse_with is not None:
            told = _TOLD[log.refuse_with]
            if prediction.code is not ErrorCode.NONE and told is ErrorCode.NONE:
                told = prediction.code
            _same(f"the refusal for {name}", (answered.code, answered.producer), (told, _NOBODY))
            return
        _same(f"the answer for {name}", (answered.code, answered.producer), (prediction.code, prediction.producer))
        if prediction.image is not None:
            self._take(name, prediction.image)

    def _take(self, name: str, image: TxnImage) -> None:
        self._images[name] = image
        if image.state in _DECIDED:
            self._decided[name] = image

    def _wait(self) -> None:
        """Adds partitions of a transaction after the one whose markers are held back."""
        leaders = self._world.leaders
        names = [name for name, image in self._images.items() if image.state in _DECIDED]
        if not leaders.holding or not names or self._world.log.holding:
            return
        name = self._random.choice(names)
        wait = _Wait(name, self._identity(name), self._some(), self._version(), Answered(), self._now_ms + 100)
        if self._server == 2:
            done = second._completed(self._images[name], self._now_ms)
            wait.producer = ProducerIdentity(done.producer_id, done.producer_epoch)
        self._world.coordinator.add_partitions(
            name, wait.producer, frozenset(wait.partitions), wait.version, wait.answered, wait_ms=100
        )
        never = Answered()
        self._world.coordinator.add_partitions(
            name, wait.producer, frozenset(_PARTITIONS), wait.version, never, wait_ms=50, is_allowed=lambda: False
        )
        _same("the answer to a request that waits", (wait.answered.code, never.code), (None, None))
        self._waits += [wait, _Wait(name, wait.producer, (), 0, never, 0)]

    def _waits_end(self, gone: ErrorCode | None = None) -> None:
        """Judges the requests that have waited: their time is over, or the transaction before has ended."""
        self._world.run()
        kept = []
        for wait in self._waits:
            is_over = self._now_ms >= wait.until_ms or self._images[wait.name].state not in _DECIDED
            if not wait.until_ms:
                _same("the answer to a client without the right", wait.answered.code, None)
            elif gone is not None:
                _same("the answer of a coordinator that ends", wait.answered.code, gone)
            elif not is_over:
                _same("the answer to a request that still waits", wait.answered.code, None)
                kept.append(wait)
            else:
                prediction = self._predict(
                    lambda wait=wait: self._added(wait.name, wait.producer, wait.partitions, wait.version)
                )
                self._judge(wait.name, prediction, wait.answered)
        self._waits = kept

    # -- what happens to logs, markers and brokers

    def _hold(self) -> None:
        """Holds records back, or lets go those that are: they are committed, fail, or have failed for long."""
        log = self._world.log
        if not log.holding:
            if not self._world.leaders.holding and not self._markers_fail and log.refuse_with is None:
                log.holding = True
            return
        fails = self._random.random() < 0.3
        log.holding = False
        if fails:
            log.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            log.lose_uncommitted()
        else:
            log.commit()
        self._loaded_ms = self._now_ms
        flights, self._flights = self._flights, {}
        for name, flight in flights.items():
            prediction, answered = flight.prediction, flight.answered
            expected = prediction.code, prediction.producer
            if fails or self._now_ms - flight.since_ms >= _WRITE_MS:
                expected = ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOBODY
            _same(f"the late answer for {name}", (answered.code, answered.producer), expected)
            if not fails and prediction.image is not None:
                self._take(name, prediction.image)

    def _refuse(self) -> None:
        """The log refuses the records of a few requests."""
        log = self._world.log
        if log.holding or self._decided:
            return
        log.refuse_with = self._random.choice(list(_TOLD))
        for _ in range(3):
            self._random.choice((self._init, self._add, self._end))()
            self._compare()
        log.refuse_with = None

    def _complete_late(self) -> None:
        """Lets the log refuse the record of a completion, which must be written later."""
        log, leaders = self._world.log, self._world.leaders
        if not leaders.holding or log.holding or not self._decided or self._waits:
            return
        log.refuse_with = ErrorCode.NOT_ENOUGH_REPLICAS
        leaders.release()
        self._world.run(self._random.choice((0, 50, 400)))
        for name, image in self._decided.items():
            if image.partitions:
                _same(f"the state of {name}", self._found(name), image)
        log.refuse_with = None
        self._world.run(100)
        self._is_complete(self._decided)

    def _markers(self) -> None:
        """Markers are held back, refused or lost, or written again."""
        leaders = self._world.leaders
        if self._world.log.holding:
            return
        if leaders.holding:
            self._release()
        elif self._markers_fail:
            leaders.leaders.clear()
            leaders.codes.clear()
            self._markers_fail = False
            self._world.run(_MARKERS_MS)
            self._is_complete(self._decided)
        elif not self._decided and self._random.random() < 0.5:
            leaders.holding = True
            self._decide_some()
            self._wait()
        elif not self._decided:
            self._markers_fail = True
            place = self._random.choice(_PARTITIONS)
            leaders.silent = {2}
            kind = self._random.choice(("nobody", "silent", "refused", "later epoch", "deleted"))
            if kind in ("nobody", "silent"):
                leaders.leaders[place] = -1 if kind == "nobody" else 2
            elif kind == "deleted":
                leaders.leaders[place] = None
                self._excused.add(place)
            else:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if kind == "refused" else ErrorCode.INVALID_PRODUCER_EPOCH
                if kind == "later epoch":
                    self._excused.add(place)
                leaders.codes[place] = [code] * self._random.choice((1, 3, 8))
            self._decide_some()

    def _decide_some(self) -> None:
        """Lets producers begin and end transactions as they should."""
        for name in self._random.sample(_NAMES, 2):
            image = self._images.get(name)
            if image is not None and image.producer_epoch >= 0:
                producer, partitions = ProducerIdentity(image.producer_id, image.producer_epoch), self._some()
                version, commit = self._version(), self._random.random() < 0.5
                added = self._predict(
                    lambda: self._added(name, producer, partitions, version)  # noqa: B023
                )
                answered = self._world.add(producer, *partitions, version=version, transactional_id=name)
                self._judge(name, added, answered)
                ended = self._predict(lambda: self._ended(name, producer, commit, version))  # noqa: B023
                self._judge(name, ended, self._world.end(producer, commit, version=version, transactional_id=name))

    def _release(self) -> None:
        """Lets the markers go that are held back: transactions are completed, and requests that wait are answered."""
        self._world.leaders.release()
        self._world.run()
        for name, image in self._decided.items():
            self._is_marked(name, image)
            self._images[name] = second._completed(image, self._now_ms)
        self._decided.clear()
        self._waits_end()
        self._compare()

    def _is_complete(self, names: Any) -> None:
        for name in list(names):
            if name not in self._decided:
                continue
            state = self._found(name)
            if state is not None and state.state in _DECIDED:
                raise Violation(f"the transaction of {name} is not complete: {state}")
        self._compare()

    def _time(self) -> None:
        duration_ms = self._random.choice((10, 60, 150, 1_500, 1_500, 7_000, 30_000, 100_000))
        until_ms = self._now_ms + duration_ms
        if self._world.log.holding and any(
            image.start_ms + image.timeout_ms <= until_ms
            if image.state is TxnState.ONGOING
            else image.updated_ms + _EXPIRATION_MS <= until_ms
            for image in self._images.values()
        ):
            return
        self._world.run(duration_ms)
        self._waits_end()
        for name, flight in self._flights.items():
            is_late = self._now_ms - flight.since_ms >= _WRITE_MS
            told = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else None
            _same(f"the answer for {name}, of which the record is held back", flight.answered.code, told)

    # -- the coordinator moves

    def _move(self) -> None:
        loses = self._random.random() < 0.5
        flights, self._flights = self._flights, {}
        late = {name for name, flight in flights.items() if self._now_ms - flight.since_ms >= _WRITE_MS}
        old = self._world.coordinator
        self._world.fail_over(lose=loses)
        self._after_move(flights, late, loses=loses)
        answered = Answered()
        old.add_partitions("a", _NOBODY, frozenset(), 0, answered)
        _same("the answer of a coordinator that ended", answered.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _resign(self) -> None:
        """Another broker leads the partitions for a moment."""
        world = self._world
        if world.log.holding or world.leaders.holding:
            return
        for partition in range(world.partitions):
            world.coordinator.on_partition_resigned(partition)
        for name in _NAMES:
            _same("the answer of another broker", world.init(name).code, ErrorCode.NOT_COORDINATOR)
            _same("the answer of another broker", world.end(_NOBODY, transactional_id=name).code, 16)
        _same("the list of another broker", list(world.coordinator.list(Filters())), [])
        world.coordinator.on_partition_leader(0, world.epoch)
        zero = next(iter(world.coordinator.shards()))
        if zero.state is ShardState.LOADING:
            first = next((each for each in _NAMES if world.coordinator.partition_for(each) == 0), None)
            if first is not None:
                _same("the answer while it loads", world.init(first).code, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            try:
                world.coordinator.list(Filters())
            except RequestFailed as failure:
                _same("the list while it loads", failure.code, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                raise Violation("transactions are listed while they are loaded")
        world.elect()
        self._after_move({}, set(), loses=False)

    def _after_move(self, flights: dict[str, _Flight], late: set[str], *, loses: bool) -> None:
        for name, flight in flights.items():
            told = ErrorCode.COORDINATOR_NOT_AVAILABLE if name in late else ErrorCode.NOT_COORDINATOR
            _same(f"the answer for {name} after a failover", flight.answered.code, told)
            if not loses and flight.prediction.image is not None:
                self._take(name, flight.prediction.image)
        self._waits_end(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for name, image in list(self._images.items()):
            if image.producer_epoch == -1:
                del self._images[name]
                continue
            kept: dict[str, Any] = {"last_producer_epoch": -1}
            if self._server == 0:
                kept |= {"client_version": 0, "previous_producer_id": -1, "next_producer_id": -1}
            self._images[name] = image._replace(**kept)
            if image.state in _DECIDED:
                self._decided[name] = self._images[name]
        self._loaded_ms = self._now_ms

    def _old_epoch(self) -> None:
        """Another broker takes over a log in which a producer has nearly used up its epochs."""
        names = [name for name, image in self._images.items() if image.state not in _DECIDED]
        if self._server != 2 or not names or self._flights or self._world.log.holding or self._decided:
            return
        name = self._random.choice(names)
        image = self._images[name]
        if image.producer_epoch > 30_000 or image.producer_epoch < 0:
            return
        self._images[name] = image = image._replace(
            producer_epoch=self._random.choice((32_764, 32_765, 32_766)), last_producer_epoch=-1
        )
        record: KeyValue = transaction_record(name, image, self._server)
        batch = encode_batch([Record(offset=0, timestamp=0, key=record.key, value=record.value, headers=[])])
        place = TopicPartition(TRANSACTION_STATE_TOPIC, self._world.coordinator.partition_for(name))
        self._world.log.append(place, batch, lambda code, _: None)
        self._move()

    # -- promises

    def _found(self, name: str) -> TxnImage | None:
        for shard in self._world.coordinator.shards():
            found = shard.find(name)
            if found is not None:
                return found.image
        return None

    def _compare(self) -> None:
        self._world.run()
        for name in _NAMES:
            expected, found = self._images.get(name), self._found(name)
            if expected is None:
                _same(f"the transaction of {name}", found, None)
            elif found is None:
                self._is_expired(name, expected)
            else:
                self._images[name] = self._follow(name, expected, found)
        if not self._world.log.holding:
            self._replay()

    def _replay(self) -> None:
        log = self._world.log
        for shard in self._world.coordinator.shards():
            replayed = CoordinatorDict()
            replayed.add(bytes(log.logs.get(shard.partition, b"")), log.high_watermark(shard.partition))
            problem = wrong_transactions(shard, replayed, is_loaded=False)
            if problem:
                raise Violation(f"a coordinator's state differs from its log: {problem}")

    def _is_expired(self, name: str, image: TxnImage) -> None:
        since_ms = image.updated_ms
        if image.state is TxnState.ONGOING:
            since_ms = image.start_ms + image.timeout_ms
        if (image.state in _DECIDED and not self._markers_fail) or since_ms + _EXPIRATION_MS > self._now_ms:
            raise Violation(f"the transaction of {name} is gone: {image}")
        del self._images[name]

    def _follow(self, name: str, expected: TxnImage, found: TxnImage) -> TxnImage:
        """Returns the image, which the coordinator may have changed itself, because time was over or markers are
        written.
        """
        if found == expected:
            self._is_current(name, found)
            return found
        changed = expected
        if changed.state is TxnState.ONGOING and name not in self._flights:
            if changed.start_ms + changed.timeout_ms >= self._now_ms:
                raise Violation(f"the transaction of {name} is {found}, not {expected}")
            changed = second._fenced(changed, self._server, found.updated_ms)
        decided = changed
        if changed.state in _DECIDED and found.state not in _DECIDED:
            self._is_marked(name, changed)
            changed = second._completed(changed, found.updated_ms)
        _same(f"the transaction of {name}", found, changed)
        if not expected.updated_ms <= found.updated_ms <= self._now_ms:
            raise Violation(f"the transaction of {name} was changed at {found.updated_ms}")
        self._decided.pop(name, None)
        if found.state in _DECIDED:
            self._decided[name] = decided
            self._is_current(name, found)
        return found

    def _is_current(self, name: str, image: TxnImage) -> None:
        """Checks that the coordinator has done what was due."""
        log, leaders = self._world.log, self._world.leaders
        if log.holding or log.refuse_with is not None:
            return
        has_markers = not leaders.holding and not self._markers_fail
        if image.state in _DECIDED and has_markers:
            raise Violation(f"the transaction of {name} is not completed: {image}")
        late_ms = self._now_ms - self._loaded_ms
        is_timed_out = image.state is TxnState.ONGOING and image.start_ms + image.timeout_ms + _ABORT_MS < self._now_ms
        if is_timed_out and late_ms > _ABORT_MS:
            raise Violation(f"the transaction of {name} is never aborted: {image}")
        is_finished = image.state not in (TxnState.ONGOING, *_DECIDED)
        if is_finished and image.updated_ms + _EXPIRATION_MS + _EXPIRY_MS < self._now_ms and late_ms > _EXPIRY_MS:
            raise Violation(f"{name} never expires: {image}")

    def _is_marked(self, name: str, image: TxnImage) -> None:
        """Checks that all partitions have the marker, except those that need none."""
        markers = self._world.leaders.markers
        written = {
            marker.partition
            for marker in markers[self._marked.get(image.producer_id, 0) :]
            if (marker.producer_id, marker.epoch) == (image.producer_id, image.producer_epoch)
            and marker.commit is (image.state is TxnState.PREPARE_COMMIT)
            and marker.coordinator_epoch <= self._world.epoch
        }
        self._marked[image.producer_id] = len(markers)
        if not image.partitions <= written | self._excused or not written <= image.partitions:
            raise Violation(f"the transaction of {name} with {set(image.partitions)} has markers in {written}")

    def _calm(self) -> None:
        """Everything works again: all transactions are completed, and none stays open."""
        world = self._world
        if world.log.holding:
            self._hold()
            self._compare()
        world.leaders.leaders.clear()
        world.leaders.codes.clear()
        was_failing, self._markers_fail = self._markers_fail, False
        if world.leaders.holding:
            self._release()
        world.run(_MARKERS_MS if was_failing else 0)
        self._is_complete(self._decided)
        world.run(_TIMEOUT_MAX_MS + 2 * _ABORT_MS)
        self._compare()
        for name, image in self._images.items():
            if image.state in (TxnState.ONGOING, *_DECIDED):
                raise Violation(f"the transaction of {name} is never ended: {image}")


def _verified(image: TxnImage, producer: ProducerIdentity) -> _Prediction:
    second._verified(image, producer)
    return _Prediction(ErrorCode.NONE)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"{what} is {found}, it should be {expected}")
