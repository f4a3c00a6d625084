"""Moves of a replica between log directories while it is written, read and cut: a small world in memory.

A seed moves `orders-0` several times, to directories that are right, wrong, full or the same, with and without a limit
of the rate, while clients produce and delete records, also those that are being copied, and the topic. At every moment
readers see exactly what was written; in the end the replica is where the last accepted request put it, the controller
knows that directory, and no other directory has a part of it.
"""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

from tests.support.failing_disk import Fault, Plan
from tests.support.move_world import DIRS, ORDERS, world

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.replication import move, moves
from barnabas.replication.move import MoveStage
from barnabas.simulation.ambient import replaced
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_STEPS = 12
#: Slices so small that a short log takes many.
_SMALL = (
    (move, "_SLICE_BYTES_MIN", 256),
    (move, "_SLICE_BYTES_MAX", 1024),
    *((module, "LAST_SLICE_BYTES", 300) for module in (move, moves)),
    *((module, "UNSYNCED_BYTES_MAX", 5_000) for module in (move, moves)),
)


class MoveExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"moves {seed}")
        self._values: list[bytes] = []
        self._start = 0
        self._target = "/d1"

    def run(self) -> None:
        with ExitStack() as stack:
            for module, name, value in _SMALL:
                stack.enter_context(replaced(module, name, value))
            stack.enter_context(second_decisions().judging())
            self._run()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"moves: {what} is {found!r}, it should be {expected!r}")

    def _run(self) -> None:
        random = self._random
        self._configs = {"cleanup_policy": "delete", "internal_segment_bytes": random.choice(("4096", "9000"))}
        self._world = made = world(0, **self._configs)
        self._produce(random.choice((0, 3, 40, 120)))
        steps = [
            self._move,
            self._move,
            self._write,
            self._write,
            self._delete,
            self._pass_time,
            self._limit,
            self._wrong,
        ]
        steps += [self._restart, self._delete_what_is_read, self._fill, self._remake]
        for _ in range(_STEPS):
            random.choice(steps)()
            self._compare()
        made.broker.replicas.moves.throttle.rate_bytes = (1 << 63) - 1
        made.settle()
        self._compare()
        self._check("the directory in the end", made.root, self._target)
        self._check("the controller's directory", made.assigned_root(), self._target)
        for directory in DIRS:
            wanted = ["orders-0"] if directory == self._target else []
            made.run(70_000)
            self._check(f"what is in {directory}", made.names(directory), wanted)
        made.restart(clean=random.random() < 0.5)
        made.run(1_000)
        self._compare()
        self._check("the directory after a restart", made.root, self._target)
        self._check("reported faults", made.host.faults.reported, [])

    def _produce(self, count: int) -> None:
        for first in range(0, count, 10):
            size = self._random.choice((1, 30, 300))
            values = [b"%d-%d" % (len(self._values), place) + b"v" * size for place in range(min(10, count - first))]
            self._world.produce(*values)
            self._values += values

    def _write(self) -> None:
        self._produce(self._random.choice((1, 5, 30, 60)))

    def _compare(self) -> None:
        made = self._world
        log = made.log
        self._check("the log", (log.log_start_offset, log.log_end_offset), (self._start, len(self._values)))
        self._check("the values", made.values(self._start), self._values[self._start :])
        partition = made.broker.replicas.find(*ORDERS)
        assert partition is not None
        self._check("the log of the replica", partition.log is log, True)
        rows = {root: row for root, rows in made.described().items() for row in rows}
        running = made.broker.replicas.moves._moves.get(ORDERS)
        self._check("the current log", rows[made.root][0::3], ("orders", False))
        self._check("its lag", rows[made.root][2], 0)
        futures = [(root, row[2]) for root, row in rows.items() if row[3]]
        if running is None:
            self._check("future logs", futures, [])
            self._check("the directory without a move", made.root, self._target)
            return
        future = running.future
        self._check("future logs", futures, [(self._target, max(0, log.log_end_offset - future.log_end_offset))])
        self._check("the move", (running.source, running.target), (made.root, self._target))
        self._check("whether it has ended", running.stage is MoveStage.ENDED, False)
        self._check("whether the copy is a part", future.log_end_offset <= log.log_end_offset, True)
        if future.log_end_offset > future.log_start_offset:
            copied = [header.base_offset for header, _ in future.batches(future.log_start_offset, 1 << 20)]
            whole = [header.base_offset for header, _ in log.batches(max(log.log_start_offset, copied[0]), 1 << 20)]
            shared = [each for each in copied if whole and each >= whole[0]]
            self._check("the copied batches", shared, whole[: len(shared)])

    def _move(self) -> None:
        directory = self._random.choice(DIRS)
        self._check("the answer to a move", self._world.alter(directory), ErrorCode.NONE)
        self._target = directory
        if directory == self._world.root:
            self._check("moves to where it is", list(self._world.broker.replicas.moves), [])

    def _wrong(self) -> None:
        self._check("an unknown directory", self._world.alter("/d9"), ErrorCode.LOG_DIR_NOT_FOUND)
        code = self._world.alter("/d2", "none")
        self._check("an unknown topic", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._check("a topic with a long name", self._world.alter("/d2", "x" * 240), ErrorCode.INVALID_TOPIC_EXCEPTION)

    def _delete(self) -> None:
        if self._random.random() < 0.5 or not self._values:
            return
        self._delete_before(self._random.randint(self._start, len(self._values)))

    def _delete_before(self, offset: int) -> None:
        row = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="orders", partitions=[row])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        response = self._world.connect().call(request, 2, DeleteRecordsResponse)
        answer = response.topics[0].partitions[0]
        self._check("a deletion", (answer.error_code, answer.low_watermark), (0, offset))
        self._start = offset

    def _another(self) -> str:
        return self._random.choice([each for each in DIRS if each != self._world.root])

    def _begin(self, directory: str, rate: int = (1 << 63) - 1) -> None:
        """Begins a move of a log that takes several slices."""
        self._produce(60)
        self._world.broker.replicas.moves.throttle.rate_bytes = rate
        self._check("the answer to a move", self._world.alter(directory), ErrorCode.NONE)
        self._target = directory

    def _delete_what_is_read(self) -> None:
        """Deletes all records while a slice of them is read."""
        self._begin(self._another())
        self._world.run(self._random.choice((0, 1, 2, 5)))
        self._delete_before(len(self._values))

    def _fill(self) -> None:
        """The target of a move has no space: the replica stays where it is, and the next request moves it. A directory
        in which a change was interrupted is offline until a restart, which can find the copy.
        """
        made, source = self._world, self._world.root
        # The metadata is in the first directory.
        directory = self._random.choice([each for each in DIRS[1:] if each != source])
        made.disk.begin(Plan(Fault.FULL, directory, self._random.randrange(12)))
        self._produce(60)
        made.broker.replicas.moves.throttle.rate_bytes = (1 << 63) - 1
        code = made.alter(directory)
        made.run(400)
        is_full, reports = made.disk.failed > 0, made.host.faults.reported
        made.disk.repair()
        if made.broker.logs.offline_directories:
            self._check("the offline directories", made.broker.logs.offline_directories, {directory})
            made.restart()
            self._await_leader()
        self._target = directory if made.root == directory or tuple(made.broker.replicas.moves) else source
        if self._target == source:
            self._check("whether the target was full", is_full, True)
            self._check("whether it is known", bool(reports) or code == ErrorCode.KAFKA_STORAGE_ERROR, True)
        made.run(3_000)
        made.host.faults.reported.clear()

    def _remake(self) -> None:
        """Deletes the topic during a move, and creates it again: nothing of the old one is left."""
        made = self._world
        self._begin(self._another(), rate=1)
        made.run(self._random.choice((0, 3, 20)))
        made.delete_topic("orders")
        made.create_topic("orders", 1, **self._configs)
        made.settle()
        self._target, self._start = made.root, 0
        self._values.clear()

    def _pass_time(self) -> None:
        self._world.run(self._random.choice((1, 3, 10, 50, 1_000)))

    def _restart(self) -> None:
        """Restarts the broker: a move continues where it was, and a copy is never taken for another one."""
        running = bool(tuple(self._world.broker.replicas.moves))
        if self._random.random() < 0.5:
            self._world.restart()
        else:
            self._world.run(70_000)  # The log start offsets are in their checkpoint.
            self._world.restart(clean=False)
        if running and self._world.root != self._target:
            self._check("whether a move continues", list(self._world.broker.replicas.moves), [ORDERS])
        self._await_leader()

    def _await_leader(self) -> None:
        for _ in range(200):
            broker = self._world.broker
            partition = broker.replicas.find(*ORDERS)
            if (
                partition is not None
                and partition.leadership is not None
                and broker.metadata.image.brokers[1].is_active
            ):
                return
            self._world.run(100)
        raise Violation("moves: a restarted broker does not lead again")

    def _limit(self) -> None:
        rate = self._random.choice((1, 2_000, (1 << 63) - 1))
        self._world.broker.replicas.moves.throttle.rate_bytes = rate
