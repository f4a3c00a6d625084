"""A log against a list of batches: each seed appends as leader and as follower, rolls, truncates, deletes records and
old segments, restarts cleanly and after a kill, and reads by offset, by time and by epoch, also data that is not in
memory.

The list knows the bytes of each batch, which it got back from nobody: what a log assigns (offsets, epochs) is decoded
by independent code. After each step LEO, log start offset, epochs, LSO and producers are those of the list. Every
answer to a reader is computed from the list; only the boundaries of segments are the log's own. Files are compared with
each other as `log_rules` describes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from barnabas.common.log_config import LogConfig
from barnabas.records.batch import Record, encode_batch, encode_end_txn_marker
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.worlds.log_answers import CheckedCopy
from barnabas.simulation.worlds.log_copy import NEVER, PRODUCERS
from barnabas.storage.log import Origin

_NOW_MS: Final = 1_800_000_000_000
_STEPS: Final = 40


class OneLog:
    """The run of one seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"one log {seed}")
        self._wall_ms = _NOW_MS
        self._config = LogConfig(
            segment_bytes=random.choice((400, 700, 1500)),
            index_interval_bytes=random.choice((1, 100, 200)),
            segment_index_bytes=random.choice((36, 60, 120, 600)),
            segment_ms=random.choice((3_000, 604_800_000)),
            retention_ms=random.choice((-1, 4_000, 20_000)),
            retention_bytes=random.choice((-1, -1, 900)),
            flush_messages=random.choice((NEVER, NEVER, 1, 5)),
            max_message_bytes=380,
        )
        self._epoch = 0
        self.leader = CheckedCopy(self, "/leader")
        self.follower = CheckedCopy(self, "/follower")
        self._copies = (self.leader, self.follower)

    @property
    def random(self) -> Random:
        return self._random

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def wall_ms(self) -> int:
        return self._wall_ms

    def run(self) -> None:
        with second_decisions().judging():
            for copy in self._copies:
                copy.open(clean=True)
            for _ in range(_STEPS):
                self._step()
                for copy in self._copies:
                    copy.check()
            for copy in self._copies:
                copy.restart()
                copy.check()
                copy.check_files()

    def _step(self) -> None:
        steps = (
            (self._append, 10),
            (self._follow, 5),
            (self._read, 8),
            (self._look_up, 8),
            (self._change_leader, 1),
            (self._truncate, 1),
            (self._delete_records, 1),
            (self._retain, 1),
            (self._restart, 2),
            (self._flush, 2),
            (self._roll, 1),
            (self._configure, 1),
            (self._overtake, 2),
        )
        self._wall_ms += self._random.choice((0, 1, 50, 1_000))
        (step,) = self._random.choices([step for step, _ in steps], [weight for _, weight in steps])
        step()

    def _any(self) -> CheckedCopy:
        return self._random.choice(self._copies)

    # -- writing

    def _append(self) -> None:
        for _ in range(self._random.choice((1, 1, 4))):
            self.leader.append(*self._new_batch(), self._epoch)

    def _new_batch(self) -> tuple[bytearray, list[int], Origin]:
        random = self._random
        producer = random.choice((None, None, *PRODUCERS))
        at_ms = self._wall_ms + random.choice((-2_500, -5, 0, 0, 700))
        opened = self.leader.open_transactions()
        if producer in opened and random.random() < 0.6:
            marker = encode_end_txn_marker(
                commit=random.random() < 0.5,
                coordinator_epoch=0,
                timestamp=at_ms,
                producer_id=producer,
                producer_epoch=0,
            )
            return marker, [at_ms], Origin.COORDINATOR
        times = [at_ms + random.choice((0, 1, 300)) for _ in range(random.choice((1, 1, 3)))]
        records = [Record(i, time, b"k", b"v" * random.randrange(25)) for i, time in enumerate(times)]
        more: dict[str, Any] = {}
        if producer is not None:
            more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.leader.next_sequence(producer)}
            more["transactional"] = producer > PRODUCERS[0]
        return encode_batch(records, codec=random.choice((0, 0, 1, 3)), **more), times, Origin.CLIENT

    def _follow(self) -> None:
        """The follower fetches: it truncates where its epochs end earlier at the leader, and appends what it lacks."""
        leader, follower = self.leader, self.follower
        if follower.start < leader.start and follower.end < leader.start:
            follower.empty(leader.start)
        follower.append_from(leader, self._random.choice((1, 2, 9)))
        if follower.start < leader.start <= follower.end:
            follower.delete_records(leader.start)

    def _change_leader(self) -> None:
        """The follower leads; the former leader loses what that one lacks."""
        if self.follower.end < self.leader.start or self.follower.start > self.leader.end:
            return
        self.leader, self.follower = self.follower, self.leader
        self._epoch += 1
        leader, follower = self.leader, self.follower
        if follower.end > leader.end:
            follower.truncate(leader.end)

    def _truncate(self) -> None:
        """The follower loses its last batches, and fetches them again."""
        first = self._random.choice([written.first for written in self.follower.batches[-6:]] or [self.follower.end])
        self.follower.truncate(max(self.follower.start, first + self._random.choice((0, 0, 1))))

    def _delete_records(self) -> None:
        leader = self.leader
        if leader.end > leader.start:
            leader.delete_records(self._random.randrange(leader.start, leader.end + 1))

    def _retain(self) -> None:
        self._any().retain()

    def _restart(self) -> None:
        copy = self._any()
        self._random.choice((copy.restart, copy.kill, copy.kill))()

    def _flush(self) -> None:
        self._any().flush(in_background=self._random.random() < 0.6)

    def _roll(self) -> None:
        self._any().log.roll()

    def _configure(self) -> None:
        self._config = replace(self._config, index_interval_bytes=self._random.choice((1, 60, 150)))
        for copy in self._copies:
            copy.log.config = self._config

    # -- reading

    def _read(self) -> None:
        for _ in range(4):
            copy = self._any()
            ends = [copy.end, copy.end, *(written.first for written in copy.batches[-8:])]
            offset = self._random.choice([copy.start - 1, copy.end + 1, *range(max(copy.start, 0), copy.end + 1)])
            max_bytes = self._random.choice((0, 1, 80, 200, 500, 5_000))
            copy.check_read(offset, max_bytes, self._random.choice(ends), self._random.random() < 0.7)

    def _overtake(self) -> None:
        """A replica is changed while one of its reads waits for the disk."""
        copy = self._any()
        own = [self._append, self._delete_records] if copy is self.leader else [self._follow, self._truncate]
        changes: list[Callable[[], object]] = [*own, *own, copy.retain, copy.log.roll]
        change = self._random.choice(changes)
        copy.check_overtaken_read(self._random.randint(copy.start, copy.end), self._random.choice((80, 500)), change)

    def _look_up(self) -> None:
        for _ in range(3):
            copy = self._any()
            times = [time for written in copy.batches for time in written.times] or [_NOW_MS]
            copy.check_time(self._random.choice(times) + self._random.choice((-1, 0, 1)))
        copy.check_newest()
        copy.check_epochs(self._epoch)
