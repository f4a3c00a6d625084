"""Changes that wait for the journal: in order, kept until they are written, packed if they are large, bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.journal import window as journal_window
from barnabas.journal.events import MetadataChange
from barnabas.journal.window import ChangeWindow
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol.messages.records_metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.records.batch import Record

_MANY = 1 << 20
_ID = b"t" * 16


def change(offset: int) -> MetadataChange:
    delta = MetadataDelta(EMPTY_IMAGE)
    return MetadataChange(delta, delta.apply(offset, 1, 0), None)


def three(each: MetadataChange) -> Iterator[Record]:
    yield from (Record(0, 0, b"", f"{each.offset}{part}".encode()) for part in "abc")


def never(each: MetadataChange) -> bool:
    return False


def drawn(window: ChangeWindow, count: int, bytes_max: int = _MANY) -> list[str]:
    return [(record.value or b"").decode() for record in window.draw(count, bytes_max)]


@pytest.fixture
def window() -> ChangeWindow:
    window = ChangeWindow(three, never)
    for offset in (1, 2, 3):
        window.add(change(offset))
    return window


def test_events_come_in_order_and_in_parts(window: ChangeWindow) -> None:
    assert drawn(window, 4) == ["1a", "1b", "1c", "2a"]
    window.written()
    assert window.offsets == [2, 3]
    assert drawn(window, 4) == ["2b", "2c", "3a", "3b"]
    window.written()
    assert drawn(window, 4) == ["3c"]
    window.written()
    assert not window


def test_a_batch_ends_when_its_bytes_are_enough(window: ChangeWindow) -> None:
    assert drawn(window, 9, bytes_max=3) == ["1a", "1b"]
    assert drawn(window, 9, bytes_max=0) == []


def test_what_is_not_written_is_drawn_again(window: ChangeWindow) -> None:
    assert drawn(window, 5)[-1] == "2b"
    window.rewind()
    assert drawn(window, 5) == ["1a", "1b", "1c", "2a", "2b"]
    window.written()
    assert drawn(window, 2) == ["2c", "3a"]
    window.rewind()
    assert drawn(window, 9) == ["2c", "3a", "3b", "3c"]


def test_a_full_draw_at_the_end_of_a_change(window: ChangeWindow) -> None:
    assert drawn(window, 3) == ["1a", "1b", "1c"]
    window.written()
    assert drawn(window, 3) == ["2a", "2b", "2c"]
    window.rewind()
    assert drawn(window, 9) == ["2a", "2b", "2c", "3a", "3b", "3c"]


def test_a_predecessor_wrote_the_second_change_in_part(window: ChangeWindow) -> None:
    window.forget_before(2)
    assert drawn(window, 3) == ["2a", "2b", "2c"]


def test_the_oldest_goes_when_it_is_full(window: ChangeWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_window, "_BYTES_MAX", 3 * 400)
    assert drawn(window, 4)[-1] == "2a"
    window.add(change(4))
    assert (window.floor, window.offsets) == (1, [2, 3, 4])
    # The request with the first one's events is still under way.
    window.written()
    assert drawn(window, 2) == ["2b", "2c"]
    window.add(change(5))
    window.add(change(6))
    assert window.floor == 3
    window.rewind()
    assert drawn(window, 9)[0] == "4a"


def test_a_snapshot_stands_for_what_was_before(window: ChangeWindow) -> None:
    drawn(window, 4)
    window.begin_after(50)
    assert (window.offsets, window.floor) == ([], 50)
    window.add(change(51))
    assert drawn(window, 9) == ["51a", "51b", "51c"]


# Large changes


def image_of(count: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name="t", topic_id=_ID))
    for index in range(count):
        replicas = [index % 3 + 1, (index + 1) % 3 + 1, (index + 2) % 3 + 1]
        delta.replay(
            PartitionRecord(partition_id=index, topic_id=_ID, replicas=replicas, isr=replicas, leader=replicas[0])
        )
    return delta.apply(10, 1, 0)


def large(image: MetadataImage, offset: int, count: int) -> MetadataChange:
    """Returns a decision about so many partitions."""
    delta = MetadataDelta(image)
    for index in range(count):
        delta.replay(PartitionChangeRecord(partition_id=index, topic_id=_ID, isr=[1, 2]))
    return MetadataChange(delta, delta.apply(offset, 1, 0), None)


def a_thousand(each: MetadataChange) -> Iterator[Record]:
    yield from (Record(0, 0, b"", bytes(1_000)) for _ in range(each.weight // 1_000))


def test_two_large_decisions_in_a_row_leave_no_gap() -> None:
    window = ChangeWindow(a_thousand, never)
    image = image_of(40_001)
    for offset, count in ((11, 40_001), (12, 26_667)):
        window.add(large(image, offset, count))
    assert (window.floor, window.offsets) == (-1, [11, 12])


def test_a_large_change_is_packed_in_parts_and_kept_whatever_follows() -> None:
    image = image_of(3_000)
    asked: list[int] = []

    def needs(each: MetadataChange) -> bool:
        asked.append(each.offset)
        return each.offset == 1

    window = ChangeWindow(a_thousand, needs)
    window.add(large(image, 1, 3_000))
    assert window.needs_packing
    window.pack(2)
    assert window.needs_packing, "it has a third part"
    while window.needs_packing:
        window.pack(2)
    assert window.needs_explaining, "the change itself is gone"
    assert asked == [1]
    for offset in range(2, 6_000):
        window.add(change(offset))
    assert (window.floor, window.offsets[0]) == (-1, 1)
    assert len(window.draw(3, _MANY)) == 3


def test_what_waits_beyond_the_limit_is_packed_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_window, "_UNPACKED_WEIGHT_MAX", 5_000)
    monkeypatch.setattr(journal_window, "_BYTES_MAX", 1_000_000)
    image = image_of(3_000)
    window = ChangeWindow(a_thousand, never)
    for offset in (1, 2, 3, 4, 5):
        window.add(large(image, offset, 3_000))
    assert (window.floor, window.offsets) == (-1, [1, 2, 3, 4, 5])
    assert len(window.draw(99, _MANY)) == 15
    window.written()
    assert not window


def test_a_change_that_is_written_while_it_is_packed() -> None:
    window = ChangeWindow(a_thousand, never)
    window.add(large(image_of(3_000), 1, 3_000))
    window.pack(1)
    assert len(window.draw(2, _MANY)) == 2
    window.written()
    window.pack(1)
    assert len(window.draw(99, _MANY)) == 1
    window.written()
    assert not window
    assert not window.needs_packing


def test_readers_see_what_waits_and_take_nothing(window: ChangeWindow) -> None:
    def waiting(count: int) -> list[str]:
        return [(record.value or b"").decode() for record in window.waiting(count)]

    assert waiting(2) == ["1a", "1b"]
    assert drawn(window, 4) == ["1a", "1b", "1c", "2a"]
    assert waiting(4) == ["1a", "1b", "1c", "2a"], "drawn is not written"
    window.written()
    assert waiting(9) == ["2b", "2c", "3a", "3b", "3c"]
    assert drawn(window, 9) == ["2b", "2c", "3a", "3b", "3c"]
    window.written()
    assert waiting(9) == []
