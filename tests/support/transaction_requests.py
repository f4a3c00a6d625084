"""Requests to a coordinator of transactions, and the answers that they must get, for `transaction_explorer.py`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.txn_world import Answered, Marker, TransactionWorld

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.coordinators.transactions.transaction_config import TransactionConfig
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.simulation import coordinator_decisions as second
from barnabas.simulation.history import Violation

NAMES = ("a", "b", "c")
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0))
NOBODY = ProducerIdentity(-1, -1)
TIMEOUT_MAX_MS, EXPIRATION_MS, ABORT_MS, EXPIRY_MS, WRITE_MS = 60_000, 90_000, 1_000, 10_000, 5_000
DECIDED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
#: The errors for clients whose record could not be written.
TOLD = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorCode.INVALID_REQUIRED_ACKS,
}


@dataclass
class Prediction:
    """The answer to a request, and the image that it writes; without one it is answered at once."""

    code: ErrorCode
    producer: ProducerIdentity = NOBODY
    image: TxnImage | None = None


@dataclass
class Flight:
    """A record that is held back."""

    prediction: Prediction
    answered: Answered
    since_ms: int


@dataclass
class Wait:
    """A request that waits for the end of the transaction before."""

    name: str
    producer: ProducerIdentity
    partitions: tuple[TopicPartition, ...]
    version: int
    answered: Answered
    until_ms: int


class TransactionRequests:
    """The requests of producers and the predictions of their answers."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"transactions {seed}")
        config = TransactionConfig(TIMEOUT_MAX_MS, EXPIRATION_MS, ABORT_MS, EXPIRY_MS, WRITE_MS)
        self._server = self._random.choice((0, 1, 2, 2, 2))
        self._world = TransactionWorld(2, self._server, config)
        self._images: dict[str, TxnImage] = {}
        self._flights: dict[str, Flight] = {}
        self._waits: list[Wait] = []
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

    @property
    def _now_ms(self) -> int:
        return self._world.host.clock.wall_ms()

    # -- requests

    def _name(self) -> str:
        return self._random.choice(NAMES)

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
        return tuple(self._random.sample(PARTITIONS, self._random.choice((1, 1, 2))))

    def _init(self) -> None:
        name = self._name()
        timeout_ms = self._random.choice((0, 1, 5_000, 20_000, TIMEOUT_MAX_MS, TIMEOUT_MAX_MS + 1))
        expected = self._identity(name) if name in self._images and self._random.random() < 0.4 else None
        prediction = self._predict(lambda: self._initialized(name, timeout_ms, expected))
        self._judge(name, prediction, self._world.init(name, timeout_ms, expected))

    def _init_without_ids(self) -> None:
        """A producer with a new transactional id waits for its producer id, which may be refused."""
        unknown = [name for name in NAMES if name not in self._images]
        if not unknown or self._world.log.holding:
            return
        name, ids = self._random.choice(unknown), self._world.ids
        ids.holding = True
        answered = self._world.init(name, 5_000)
        same("the answer before there is a producer id", answered.code, None)
        ids.holding = False
        if self._random.random() < 0.5:
            ids.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            ids.give()
            ids.error = ErrorCode.NONE
            self._judge(name, Prediction(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answered)
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
        same(f"the verification of {name}", found, expected)

    def _ask_wrongly(self) -> None:
        """Sends requests without a transactional id, and lists and describes what is there."""
        same("AddPartitionsToTxn without an id", self._world.add(NOBODY, transactional_id="").code, 42)
        same("EndTxn without an id", self._world.end(NOBODY, transactional_id="").code, 42)
        for name in ("", "unknown"):
            try:
                self._world.coordinator.describe(name)
            except RequestFailed as failure:
                same("the description", failure.code, 42 if not name else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
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
        same("ListTransactions", {each.transactional_id for each in found}, expected)

    # -- predictions

    @staticmethod
    def _predict(decide: Any) -> Prediction:
        try:
            prediction: Prediction = decide()
        except RequestFailed as refusal:
            return Prediction(refusal.code)
        return prediction

    def _is_free(self, name: str, image: TxnImage) -> None:
        if name in self._flights or image.state in DECIDED:
            raise RequestFailed(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _initialized(self, name: str, timeout_ms: int, expected: ProducerIdentity | None) -> Prediction:
        if timeout_ms <= 0 or timeout_ms > TIMEOUT_MAX_MS:
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
            return Prediction(ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY, fenced)
        new_id = next_id if second._needs_new_id(image, expected) else None
        begun = second._initialized(image, expected, timeout_ms, now_ms, new_id)
        return Prediction(ErrorCode.NONE, ProducerIdentity(begun.producer_id, begun.producer_epoch), begun)

    def _known(self, name: str) -> TxnImage:
        if name not in self._images:
            raise RequestFailed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return self._images[name]

    def _added(
        self, name: str, producer: ProducerIdentity, partitions: tuple[TopicPartition, ...], version: int
    ) -> Prediction:
        image = self._known(name)
        self._is_free(name, image)
        after = second._with_partitions(image, producer, frozenset(partitions), version, self._now_ms)
        return Prediction(ErrorCode.NONE, NOBODY, after)

    def _ended(self, name: str, producer: ProducerIdentity, commit: bool, version: int) -> Prediction:
        image = self._known(name)
        if version < 2:
            second._check(image, producer)
        self._is_free(name, image)
        new_id = self._world.ids.next if second._end_needs_new_id(image, version) else None
        after = second._ended(image, producer, commit, version, self._now_ms, new_id)
        done = image if after is None else second._completed(after, self._now_ms)
        identity = ProducerIdentity(done.producer_id, done.producer_epoch) if version == 2 else NOBODY
        return Prediction(ErrorCode.NONE, identity, after)

    # -- what becomes of a request

    def _judge(self, name: str, prediction: Prediction, answered: Answered) -> None:
        log = self._world.log
        if prediction.image is not None and log.holding:
            same(f"the answer for {name}, of which the record is not committed", answered.code, None)
            self._flights[name] = Flight(prediction, answered, self._now_ms)
            return
        if prediction.image is not None and log.refuse_with is not None:
            told = TOLD[log.refuse_with]
            if prediction.code is not ErrorCode.NONE and told is ErrorCode.NONE:
                told = prediction.code
            same(f"the refusal for {name}", (answered.code, answered.producer), (told, NOBODY))
            return
        same(f"the answer for {name}", (answered.code, answered.producer), (prediction.code, prediction.producer))
        if prediction.image is not None:
            self._take(name, prediction.image)

    def _take(self, name: str, image: TxnImage) -> None:
        self._images[name] = image
        if image.state in DECIDED:
            self._decided[name] = image

    def _wait(self) -> None:
        """Adds partitions of a transaction after the one whose markers are held back."""
        leaders = self._world.leaders
        names = [name for name, image in self._images.items() if image.state in DECIDED]
        if not leaders.holding or not names or self._world.log.holding:
            return
        name = self._random.choice(names)
        wait = Wait(name, self._identity(name), self._some(), self._version(), Answered(), self._now_ms + 100)
        if self._server == 2:
            done = second._completed(self._images[name], self._now_ms)
            wait.producer = ProducerIdentity(done.producer_id, done.producer_epoch)
        self._world.coordinator.add_partitions(
            name, wait.producer, frozenset(wait.partitions), wait.version, wait.answered, wait_ms=100
        )
        never = Answered()
        self._world.coordinator.add_partitions(
            name, wait.producer, frozenset(PARTITIONS), wait.version, never, wait_ms=50, is_allowed=lambda: False
        )
        same("the answer to a request that waits", (wait.answered.code, never.code), (None, None))
        self._waits += [wait, Wait(name, wait.producer, (), 0, never, 0)]

    def _waits_end(self, gone: ErrorCode | None = None) -> None:
        """Judges the requests that have waited: their time is over, or the transaction before has ended."""
        self._world.run()
        kept = []
        for wait in self._waits:
            is_over = self._now_ms >= wait.until_ms or self._images[wait.name].state not in DECIDED
            if not wait.until_ms:
                same("the answer to a client without the right", wait.answered.code, None)
            elif gone is not None:
                same("the answer of a coordinator that ends", wait.answered.code, gone)
            elif not is_over:
                same("the answer to a request that still waits", wait.answered.code, None)
                kept.append(wait)
            else:
                prediction = self._predict(
                    lambda wait=wait: self._added(wait.name, wait.producer, wait.partitions, wait.version)
                )
                self._judge(wait.name, prediction, wait.answered)
        self._waits = kept


def _verified(image: TxnImage, producer: ProducerIdentity) -> Prediction:
    second._verified(image, producer)
    return Prediction(ErrorCode.NONE)


def same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"{what} is {found}, it should be {expected}")
