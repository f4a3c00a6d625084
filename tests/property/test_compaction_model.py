"""Compaction against a plain list of what was written.

Writes, rolls, cleaning, aborts and restarts happen in any order. A reader of the whole log gets the same table as from
all records that were ever committed; each remaining record is one that was written, at its offset; the newest committed
record of each key stays, except a tombstone after its time; producer state does not change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.clean_world import EAGER, CleanWorld

from barnabas.records.batch import decode_batch
from barnabas.records.compression import Codec

KEYS = [b"a", b"b", b"c", b"long " * 30]
keys = st.sampled_from(KEYS)
values = st.none() | st.binary(max_size=30)
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])
producers = st.sampled_from([1, 2])


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    timestamp: int
    #: The producer of the transaction that the record belongs to, or None.
    producer_id: int | None


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.written: dict[int, Written] = {}
        self.aborted: set[int] = set()
        #: Offsets written in the open transaction of each producer.
        self.open: dict[int, list[int]] = {}
        self.sequences = {1: 0, 2: 0}

    @initialize(
        segment_bytes=st.integers(1200, 3000), retention_ms=st.integers(0, 20_000), memory=st.sampled_from([1, 128])
    )
    def begin(self, segment_bytes: int, retention_ms: int, memory: int) -> None:
        config = replace(EAGER, segment_bytes=segment_bytes, delete_retention_ms=retention_ms)
        self.world = CleanWorld(config, log_cleaner_dedupe_buffer_size=str(memory << 20))

    @rule(pairs=pairs, codec=codecs, spread=st.integers(-100, 100))
    def write(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, spread: int) -> None:
        timestamp = self.world.wall_ms + spread
        first = self.world.put(*pairs, codec=codec, timestamp=timestamp)
        for i, (key, value) in enumerate(pairs):
            self.written[first + i] = Written(key, value, timestamp + i, None)

    @rule(producer_id=producers, pairs=pairs, codec=codecs)
    def write_in_transaction(self, producer_id: int, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        first = self.world.put(
            *pairs,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.sequences[producer_id],
            transactional=True,
        )
        self.sequences[producer_id] += len(pairs)
        for i, (key, value) in enumerate(pairs):
            self.written[first + i] = Written(key, value, self.world.wall_ms + i, producer_id)
            self.open.setdefault(producer_id, []).append(first + i)

    @rule(producer_id=producers, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        if producer_id in self.open:
            offsets = self.open.pop(producer_id)
            self.world.end_transaction(producer_id, commit=commit)
            if not commit:
                self.aborted.update(offsets)

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @rule()
    def clean(self) -> None:
        self.world.clean()

    @rule(duration_ms=st.integers(1, 15_000))
    def wait(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        known = {key: (e.epoch, e.last_sequence) for key, e in self.world.log.producers.producers.items()}
        self.world.cleaner.stop()
        if orderly:
            self.world.restart()
        else:
            self.world.kill()
        assert {key: (e.epoch, e.last_sequence) for key, e in self.world.log.producers.producers.items()} == known
        self.world.start()

    @invariant()
    def the_same_table_is_read(self) -> None:
        if not hasattr(self, "world"):
            return
        undecided = {offset for offsets in self.open.values() for offset in offsets}
        committed = {o: w for o, w in sorted(self.written.items()) if o not in self.aborted and o not in undecided}
        newest = {written.key: offset for offset, written in committed.items()}
        found: dict[int, Written] = {}
        last_offset = -1
        for header, view in self.world.log.batches(0, 2000):
            assert header.base_offset > last_offset
            last_offset = header.last_offset
            for record in () if header.is_control else decode_batch(view):
                was = self.written[record.offset]
                assert (record.key, record.value, record.timestamp) == was[:3]
                assert record.offset not in found
                found[record.offset] = was
        assert undecided <= found.keys()
        for key, offset in newest.items():
            assert offset in found or committed[offset].value is None, (key, offset)
        self._check_table(found, committed, newest)

    def _check_table(self, found: dict[int, Written], committed: dict[int, Written], newest: dict[bytes, int]) -> None:
        visible = {o: w for o, w in sorted(found.items()) if o in committed}
        table = {written.key: written.value for written in visible.values()}
        for key, offset in newest.items():
            assert table.get(key) == committed[offset].value
        assert self.world.host.faults.reported == []
        assert self.world.failed == []

    def teardown(self) -> None:
        """Ends all transactions and waits for all cleaning: one record of each key that has a value is left."""
        if not hasattr(self, "world"):
            return
        for producer_id in list(self.open):
            self.end_transaction(producer_id, commit=False)
        for _ in range(3):
            self.write([(b"end", b"%d" % len(self.written))], Codec.NONE, 0)
            self.world.roll()
            self.world.clean()
            self.world.pass_time(30_000)
        committed = {o: w for o, w in sorted(self.written.items()) if o not in self.aborted}
        newest = {written.key: offset for offset, written in committed.items()}
        wanted = [offset for offset in sorted(newest.values()) if committed[offset].value is not None]
        left = [
            record.offset
            for header, view in self.world.log.batches(0, 2000)
            if not header.is_control
            for record in decode_batch(view)
        ]
        assert left == wanted


TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
