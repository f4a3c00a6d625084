"""A broker that gets thousands of partitions at the same time follows them a few at a time, in order, and all of
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.wired import WiredBroker

from barnabas.common.host import Timer
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.replication.image_slices import ImageSlices
from barnabas.simulation.host import VirtualTime

MANY = 1_000


class Soon:
    """`call_soon` by hand."""

    def __init__(self) -> None:
        self.due: list[object] = []

    def call_soon(self, callback: object) -> None:
        self.due.append(callback)

    def call_later(self, delay_ms: int, callback: object) -> Timer:
        raise AssertionError("nothing is to wait")

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()  # type: ignore[operator]


class Followed:
    """A subscriber to images with this many steps each."""

    def __init__(self) -> None:
        self.soon = Soon()
        self.steps: list[tuple[int, int]] = []
        self.sizes: dict[int, int] = {}
        self.failing: tuple[int, int] | None = None
        self.within: list[tuple[int, int]] = []
        self.slices = ImageSlices(self.soon, VirtualTime(), self.apply)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        for step in range(self.sizes[image.offset]):
            self.steps.append((image.offset, step))
            if self.within:
                self.image(*self.within.pop())
            if (image.offset, step) == self.failing:
                raise OSError("a step that fails")
            yield

    def image(self, offset: int, steps: int) -> None:
        self.sizes[offset] = steps
        image = MetadataDelta(EMPTY_IMAGE).apply(offset, 1, 0)
        self.slices.on_image(MetadataDelta(EMPTY_IMAGE), image)


def test_the_first_image_is_followed_at_once() -> None:
    followed = Followed()
    followed.image(1, MANY)
    assert len(followed.steps) == MANY
    assert followed.soon.due == []


def test_what_changes_little_is_followed_at_once() -> None:
    followed = Followed()
    for offset in range(1, 6):
        followed.image(offset, 90)
        assert len(followed.steps) == 90 * offset
        assert followed.soon.due == []


def test_many_changes_leave_time_for_others_and_keep_their_order() -> None:
    followed = Followed()
    followed.image(1, 0)
    followed.image(2, MANY)
    assert 0 < len(followed.steps) < MANY // 2
    followed.image(3, 1)
    turns = 0
    while followed.soon.due:
        assert len(followed.soon.due) == 1
        followed.soon.turn()
        turns += 1
    assert turns > 3
    assert followed.steps == [*((2, step) for step in range(MANY)), (3, 0)]


def test_an_image_that_comes_from_within_a_step_waits_its_turn() -> None:
    followed = Followed()
    followed.image(1, 0)
    followed.within.append((3, 1))
    followed.image(2, 2)
    assert followed.steps == [(2, 0), (2, 1), (3, 0)]


def test_a_step_that_fails_does_not_hold_up_later_images() -> None:
    followed = Followed()
    followed.image(1, 0)
    followed.failing = (2, 1)
    with pytest.raises(OSError, match="a step that fails"):
        followed.image(2, 5)
    followed.image(3, 1)
    while followed.soon.due:
        followed.soon.turn()
    assert followed.steps[-1] == (3, 0)


def test_nothing_is_followed_after_the_end() -> None:
    followed = Followed()
    followed.image(1, 0)
    followed.image(2, MANY)
    before = len(followed.steps)
    followed.slices.close()
    followed.soon.turn()
    assert len(followed.steps) == before


def test_a_broker_opens_all_replicas_of_a_large_topic() -> None:
    wired = WiredBroker()
    wired.create_topic("many", MANY)
    wired.create_topic("last", 1)
    wired.host.time.run_for(100)
    assert sum(1 for _ in wired.broker.replicas.partitions()) == MANY + 1
    assert wired.broker.replicas.leader("last", 0).leader_epoch == 0


def test_a_large_topic_that_is_deleted_at_once_leaves_nothing() -> None:
    wired = WiredBroker()
    wired.create_topic("many", MANY)
    wired.delete_topic("many")
    wired.host.time.run_for(100)
    assert list(wired.broker.replicas.partitions()) == []
