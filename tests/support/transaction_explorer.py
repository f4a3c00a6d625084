"""A coordinator of transactions in memory under random requests: a small world of which a seed takes milliseconds.

Producers of both versions of the protocol send right, late and wrong requests for three transactional ids. Records of
the coordinator are held back or refused, markers get lost, the coordinator moves with and without its last records.
Every answer is predicted from a dict of images and the second decisions about them. After every step the coordinator is
compared with that dict, and with the simple replay of its log; lists are filtered here again.
"""

from __future__ import annotations

from typing import Any

from tests.support.transaction_requests import (
    ABORT_MS,
    DECIDED,
    EXPIRATION_MS,
    EXPIRY_MS,
    NAMES,
    NOBODY,
    PARTITIONS,
    TIMEOUT_MAX_MS,
    TOLD,
    WRITE_MS,
    Flight,
    TransactionRequests,
    same,
)
from tests.support.txn_world import Answered

from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.coordinators.runtime import KeyValue, ShardState
from barnabas.coordinators.transactions.coordinator import Filters
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.coordinators.transactions.transaction_records import transaction_record
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation import coordinator_decisions as second
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.coordinator_replay import wrong_transactions
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_STEPS = 70
#: A marker that could not be written is sent again after this time at the latest; a broker is silent for 100 ms.
_MARKERS_MS = 1_300


class TransactionExplorer(TransactionRequests):
    """The run of one seed. `run` raises Violation or AssertionError."""

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._init, self._add, self._add, self._add, self._end, self._end, self._end, self._verify]
            steps += [self._time, self._time, self._markers, self._markers, self._hold, self._refuse, self._move]
            steps += [self._wait, self._ask_wrongly, self._old_epoch, self._complete_late, self._resign]
            steps += [self._init_without_ids, self._init_without_ids, self._refuse_markers, self._fail_to_load]
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._compare()
            self._calm()

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
            if fails or self._now_ms - flight.since_ms >= WRITE_MS:
                expected = ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY
            same(f"the late answer for {name}", (answered.code, answered.producer), expected)
            if not fails and prediction.image is not None:
                self._take(name, prediction.image)

    def _refuse(self) -> None:
        """The log refuses the records of a few requests."""
        log = self._world.log
        if log.holding or self._decided:
            return
        log.refuse_with = self._random.choice(list(TOLD))
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
                same(f"the state of {name}", self._found(name), image)
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
            place = self._random.choice(PARTITIONS)
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

    def _refuse_markers(self) -> None:
        """A partition has a marker of a later coordinator: it refuses those of this one, which stops sending them. The
        later one completes the transactions.
        """
        leaders = self._world.leaders
        if self._world.log.holding or leaders.holding or self._markers_fail or self._decided:
            return
        self._markers_fail = True
        place = self._random.choice(PARTITIONS)
        leaders.codes[place] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 9
        self._decide_some()
        self._compare()
        refused = {name: image for name, image in self._decided.items() if place in image.partitions}
        requests = len(leaders.requests)
        self._world.run(_MARKERS_MS)
        self._compare()
        later = {marker.producer_id for _, request in leaders.requests[requests:] for marker in request.markers}
        for name, image in refused.items():
            same(f"the transaction of {name}, of which a marker was refused", self._found(name), image)
            same("whether its markers are sent again", image.producer_id in later, False)
        leaders.codes.clear()
        self._markers_fail = False
        self._move()
        self._is_complete(refused)

    def _decide_some(self) -> None:
        """Lets producers begin and end transactions as they should."""
        for name in self._random.sample(NAMES, 2):
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
            if state is not None and state.state in DECIDED:
                raise Violation(f"the transaction of {name} is not complete: {state}")
        self._compare()

    def _time(self) -> None:
        duration_ms = self._random.choice((10, 60, 150, 1_500, 1_500, 7_000, 30_000, 100_000))
        until_ms = self._now_ms + duration_ms
        if self._world.log.holding and any(
            image.start_ms + image.timeout_ms <= until_ms
            if image.state is TxnState.ONGOING
            else image.updated_ms + EXPIRATION_MS <= until_ms
            for image in self._images.values()
        ):
            return
        self._world.run(duration_ms)
        self._waits_end()
        for name, flight in self._flights.items():
            is_late = self._now_ms - flight.since_ms >= WRITE_MS
            told = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else None
            same(f"the answer for {name}, of which the record is held back", flight.answered.code, told)

    # -- the coordinator moves

    def _move(self) -> None:
        loses = self._random.random() < 0.5
        flights, self._flights = self._flights, {}
        late = {name for name, flight in flights.items() if self._now_ms - flight.since_ms >= WRITE_MS}
        old = self._world.coordinator
        self._world.fail_over(lose=loses)
        self._after_move(flights, late, loses=loses)
        answered = Answered()
        old.add_partitions("a", NOBODY, frozenset(), 0, answered)
        same("the answer of a coordinator that ended", answered.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _resign(self) -> None:
        """Another broker leads the partitions for a moment."""
        world = self._world
        if world.log.holding or world.leaders.holding:
            return
        for partition in range(world.partitions):
            world.coordinator.on_partition_resigned(partition)
        for name in NAMES:
            same("the answer of another broker", world.init(name).code, ErrorCode.NOT_COORDINATOR)
            same("the answer of another broker", world.end(NOBODY, transactional_id=name).code, 16)
        same("the list of another broker", list(world.coordinator.list(Filters())), [])
        world.coordinator.on_partition_leader(0, world.epoch)
        zero = next(iter(world.coordinator.shards()))
        if zero.state is ShardState.LOADING:
            first = next((each for each in NAMES if world.coordinator.partition_for(each) == 0), None)
            if first is not None:
                same("the answer while it loads", world.init(first).code, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            try:
                world.coordinator.list(Filters())
            except RequestFailed as failure:
                same("the list while it loads", failure.code, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                raise Violation("transactions are listed while they are loaded")
        world.elect()
        self._after_move({}, set(), loses=False)

    def _fail_to_load(self) -> None:
        """The log cannot be read when this broker begins to lead: it serves nothing until it is elected again."""
        world = self._world
        if world.log.holding or world.leaders.holding:
            return
        fault = StorageFault("/data", "cannot read")
        world.log.unreadable = self._random.choice((fault, RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR)))
        world.elect()
        shards = list(world.coordinator.shards())
        for name in NAMES:
            shard = shards[world.coordinator.partition_for(name)]
            has_records = world.log.log_end_offset(shard.partition) > 0
            state = ShardState.FAILED if has_records else ShardState.ACTIVE
            same(f"the state of {shard.partition}, which cannot be read", shard.state, state)
            if has_records:
                code = world.add(NOBODY, transactional_id=name).code
                same("the answer of a coordinator that could not load", code, ErrorCode.NOT_COORDINATOR)
        world.log.unreadable = None
        world.elect()
        self._after_move({}, set(), loses=False)

    def _after_move(self, flights: dict[str, Flight], late: set[str], *, loses: bool) -> None:
        for name, flight in flights.items():
            told = ErrorCode.COORDINATOR_NOT_AVAILABLE if name in late else ErrorCode.NOT_COORDINATOR
            same(f"the answer for {name} after a failover", flight.answered.code, told)
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
            if image.state in DECIDED:
                self._decided[name] = self._images[name]
        self._loaded_ms = self._now_ms

    def _old_epoch(self) -> None:
        """Another broker takes over a log in which a producer has nearly used up its epochs."""
        names = [name for name, image in self._images.items() if image.state not in DECIDED]
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
        if self._world.leaders.hasty:
            raise Violation(f"markers are sent again without a pause: {self._world.leaders.hasty}")
        for name in NAMES:
            expected, found = self._images.get(name), self._found(name)
            if expected is None:
                same(f"the transaction of {name}", found, None)
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
        if (image.state in DECIDED and not self._markers_fail) or since_ms + EXPIRATION_MS > self._now_ms:
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
        if changed.state in DECIDED and found.state not in DECIDED:
            self._is_marked(name, changed)
            changed = second._completed(changed, found.updated_ms)
        same(f"the transaction of {name}", found, changed)
        if not expected.updated_ms <= found.updated_ms <= self._now_ms:
            raise Violation(f"the transaction of {name} was changed at {found.updated_ms}")
        self._decided.pop(name, None)
        if found.state in DECIDED:
            self._decided[name] = decided
            self._is_current(name, found)
        return found

    def _is_current(self, name: str, image: TxnImage) -> None:
        """Checks that the coordinator has done what was due."""
        log, leaders = self._world.log, self._world.leaders
        if log.holding or log.refuse_with is not None:
            return
        has_markers = not leaders.holding and not self._markers_fail
        if image.state in DECIDED and has_markers:
            raise Violation(f"the transaction of {name} is not completed: {image}")
        late_ms = self._now_ms - self._loaded_ms
        is_timed_out = image.state is TxnState.ONGOING and image.start_ms + image.timeout_ms + ABORT_MS < self._now_ms
        if is_timed_out and late_ms > ABORT_MS:
            raise Violation(f"the transaction of {name} is never aborted: {image}")
        is_finished = image.state not in (TxnState.ONGOING, *DECIDED)
        if is_finished and image.updated_ms + EXPIRATION_MS + EXPIRY_MS < self._now_ms and late_ms > EXPIRY_MS:
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
        """Lets everything work again: all transactions are completed, and none stays open."""
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
        world.run(TIMEOUT_MAX_MS + 2 * ABORT_MS)
        self._compare()
        for name, image in self._images.items():
            if image.state in (TxnState.ONGOING, *DECIDED):
                raise Violation(f"the transaction of {name} is never ended: {image}")
