"""Second decisions of what a node of the quorum delivers to its listeners: committed batches in order, none twice, also
those that are ahead of the log.

They are judged with deliveries of the probes alone, whose listeners do nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from barnabas.raft.commits import CommittedBatch
from barnabas.raft.delivery import Delivery
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision


class _Deaf:
    """A listener of probes."""

    def on_commit(self, batch: Any) -> None:
        """Does nothing."""

    def on_caught_up(self) -> None:
        """Does nothing."""

    def on_snapshot(self, snapshot_id: Any, snapshot: Any) -> None:
        """Does nothing."""


def _batch(base: int, last: int) -> CommittedBatch:
    return CommittedBatch(base, last, 1, 0, 100, ())


def _delivery(offset: int = 4, log_end: int | None = None) -> Any:
    """Returns a delivery with the batches 4, 5 to 6, and 7 in the log; with `log_end` it is ahead of its log."""
    made: Any = Delivery([_Deaf()])
    made.offset, made._log_end, made.high_watermark = offset, log_end, offset
    if log_end is None:
        made._appended = deque([_batch(4, 4), _batch(5, 6), _batch(7, 7)])
    return made


def _is_probe(delivery: Any) -> bool:
    return [type(listener) for listener in delivery.listeners] == [_Deaf]


def _shown_delivery(_: Any, delivery: Any, *more: Any) -> object:
    waiting = [(batch.base_offset, batch.last_offset) for batch in delivery._appended]
    return delivery.offset, delivery.high_watermark, delivery.offset_in_log, waiting


def _committed(delivery: Any, high_watermark: int, *, is_all: bool) -> object:
    if not _is_probe(delivery):
        return UNJUDGED
    top = max(delivery.high_watermark, high_watermark)
    waiting = [(batch.base_offset, batch.last_offset) for batch in delivery._appended]
    due = [(base, last) for base, last in waiting if last < top]
    offset = due[-1][1] + 1 if due else delivery.offset
    in_log = offset if delivery._log_end is None else delivery._log_end
    return offset, top, in_log, waiting[len(due) :]


def _near_committed(delivery: Any, high_watermark: int, *, is_all: bool) -> Iterator[Arguments]:
    for end in range(3, 10):
        yield _delivery(), end


def _appended(delivery: Any, batch: Any) -> object:
    """Returns the state after a batch came into the log; what was delivered before it did waits for nothing."""
    if not _is_probe(delivery):
        return UNJUDGED
    waiting = [(one.base_offset, one.last_offset) for one in delivery._appended]
    if batch.last_offset >= delivery.offset:
        waiting.append((batch.base_offset, batch.last_offset))
    in_log = delivery.offset
    if delivery._log_end is not None:
        in_log = min(batch.last_offset + 1, delivery.offset)
    return delivery.offset, delivery.high_watermark, in_log, waiting


def _near_appended(delivery: Any, batch: Any) -> Iterator[Arguments]:
    yield _delivery(), _batch(8, 9)
    for last in (2, 3, 4, 5):
        yield _delivery(offset=4, log_end=2), _batch(2, last)


def _cut(delivery: Any, end_offset: int) -> object:
    if not _is_probe(delivery):
        return UNJUDGED
    waiting = [(one.base_offset, one.last_offset) for one in delivery._appended if one.last_offset < end_offset]
    return delivery.offset, delivery.high_watermark, delivery.offset, waiting


def _near_cuts(delivery: Any, end_offset: int) -> Iterator[Arguments]:
    for end in range(4, 10):
        yield _delivery(), end


def _ahead(delivery: Any, batches: Any, log_end: int, high_watermark: int) -> object:
    """Returns the state after batches that are not in the log: those that were delivered before do not count, and
    nothing follows a gap."""
    if not _is_probe(delivery):
        return UNJUDGED
    top = max(delivery.high_watermark, min(high_watermark, log_end))
    waiting = [(one.base_offset, one.last_offset) for one in delivery._appended]
    due = [last for _, last in waiting if last < top]
    waiting = waiting[len(due) :]
    offset = max([delivery.offset, *(last + 1 for last in due)])
    is_ahead = delivery._log_end is not None
    in_log = delivery._log_end if is_ahead else offset
    if not waiting and offset >= log_end:
        new = {batch.base_offset: batch.last_offset for batch in batches if batch.last_offset < high_watermark}
        while offset in new:
            offset = new[offset] + 1
            in_log, is_ahead = log_end, True
    return offset, max(top, high_watermark), in_log if is_ahead else offset, waiting


def _near_ahead(delivery: Any, batches: Any, log_end: int, high_watermark: int) -> Iterator[Arguments]:
    four = [_batch(4, 4), _batch(5, 6), _batch(7, 7), _batch(8, 9)]
    for some in (four, four[1:], [*four[:1], *four[2:]], []):
        for end in range(3, 12):
            yield _delivery(offset=4, log_end=4), some, 4, end
            yield _delivery(offset=7, log_end=4), some, 4, end
            yield _delivery(offset=8, log_end=5), some, 5, end
    for end in (4, 5, 7, 8, 9, 10, 11):
        yield _delivery(), [_batch(8, 8), _batch(9, 9)], 8, end


DELIVERY_DECISIONS: Final = (
    SecondDecision("raft.delivery:Delivery.commit", _committed, _near_committed, _shown_delivery),
    SecondDecision("raft.delivery:Delivery.appended", _appended, _near_appended, _shown_delivery),
    SecondDecision("raft.delivery:Delivery.truncated", _cut, _near_cuts, _shown_delivery),
    SecondDecision("raft.delivery:Delivery.deliver_ahead", _ahead, _near_ahead, _shown_delivery),
)
