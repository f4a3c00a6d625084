"""The last stable offset waits for the marker to be below the HW, whatever happened to the log in between.

Snapshots of producers do not contain which transactions ended above the HW. With Apache Kafka, a restart and a
truncation make the LSO ignore them, and readers see decisions whose markers can still be truncated.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.batches import NOW_MS
from tests.support.log_world import TINY, LogWorld, encode_records

from barnabas.records.batch import encode_end_txn_marker
from barnabas.storage.log import Origin

#: Flushes take snapshots in the midst of a segment, too.
CONFIG = replace(TINY, segment_bytes=900)
STEPS = st.sampled_from(["send", "send", "end", "roll", "flush", "advance", "advance", "restart", "kill", "truncate"])


class Transactions:
    """A log, and the list of what is in it."""

    def __init__(self) -> None:
        self.world = LogWorld(CONFIG)
        self.high_watermark = 0
        #: (offset, producer id, whether it is a marker)
        self.batches: list[tuple[int, int, bool]] = []
        self.sequences: dict[int, int] = {}

    @property
    def end(self) -> int:
        return self.world.log.log_end_offset

    def send(self, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        batch = encode_records(
            NOW_MS, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self.world.append_batch(batch)
        self.sequences[producer_id] = sequence + 1
        self.batches.append((self.end - 1, producer_id, False))

    def finish(self, producer_id: int, *, commit: bool) -> None:
        marker = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0
        )
        self.world.append_batch(marker, origin=Origin.COORDINATOR)
        self.batches.append((self.end - 1, producer_id, True))

    def truncate_to(self, offset: int) -> None:
        self.world.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[0] < offset]
        self.sequences = {}
        for _, producer_id, is_marker in self.batches:
            if not is_marker:
                self.sequences[producer_id] = self.sequences.get(producer_id, 0) + 1

    def stable_offset(self) -> int:
        """Returns the LSO according to the batches."""
        open_since: dict[int, int] = {}
        unstable = [self.high_watermark]
        for offset, producer_id, is_marker in self.batches:
            if not is_marker:
                open_since.setdefault(producer_id, offset)
            elif producer_id in open_since:
                first = open_since.pop(producer_id)
                unstable += [first] if offset >= self.high_watermark else []
        return min(unstable + list(open_since.values()))

    def check(self) -> None:
        assert self.world.log.last_stable_offset(self.high_watermark) == self.stable_offset()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 2), st.integers(0, 100)), max_size=40))
def test_no_stop_kill_or_truncation_moves_it(steps: list[tuple[str, int, int]]) -> None:
    model = Transactions()
    for kind, producer_id, number in steps:
        match kind:
            case "send":
                model.send(producer_id)
            case "end":
                model.finish(producer_id, commit=bool(number % 2))
            case "roll":
                model.world.log.roll()
            case "flush":
                model.world.log.flush()
            case "advance":
                model.high_watermark += (model.end - model.high_watermark) * number // 100
            case "restart":
                model.world.restart(model.high_watermark)
            case "kill":
                # The checkpoint can be lower than the HW was.
                model.high_watermark -= model.high_watermark * (number % 3) // 4
                model.world.kill(model.high_watermark)
            case "truncate":
                model.truncate_to(model.high_watermark + (model.end - model.high_watermark) * number // 100)
        model.check()


@pytest.mark.parametrize("commit", [True, False])
def test_a_stop_in_order_does_not_let_readers_pass_a_marker_that_is_not_replicated(*, commit: bool) -> None:
    model = Transactions()
    model.send(1)
    model.send(1)
    model.finish(1, commit=commit)
    model.high_watermark = 2
    log = model.world.restart(high_watermark=2)
    assert (log.last_stable_offset(2), log.last_stable_offset(3)) == (0, 3)


def test_nor_does_a_snapshot_between_the_marker_and_a_cut() -> None:
    model = Transactions()
    model.send(1)
    model.finish(1, commit=True)
    model.world.log.roll()
    model.send(2)
    model.send(2)
    model.high_watermark = 1
    model.truncate_to(3)
    assert model.world.log.last_stable_offset(1) == 0
    model.truncate_to(1)
    assert model.world.log.last_stable_offset(1) == 0, "it is open again"
