"""The budget of memory: which requests wait, which continue, which connections are closed, and that all memory is
released.
"""

from __future__ import annotations

import pytest

from barnabas.broker.requests.memory_budget import (
    ANSWER_BYTES_MIN,
    READ_BYTES_WHEN_SHORT,
    SHORT_MS_MAX,
    STALLED_MS,
    MemoryBudget,
)
from barnabas.protocol.frame_reader import SHARED_AREA_BYTES, FrameReader, ReceiveArea
from barnabas.simulation.host import MemoryHost, UnlimitedMemory

LIMIT = 10_000_000
FRAME_MAX = 100_000_000


class World:
    """A budget with peers that send frames into real readers."""

    def __init__(self) -> None:
        self.host = MemoryHost()
        self.memory = UnlimitedMemory()
        self.area = ReceiveArea()
        self.budget = MemoryBudget(self.area, self.host.time, self.host.time, self.memory, LIMIT)

    def peer(self) -> Peer:
        return Peer(self)

    def run(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)


class Peer:
    def __init__(self, world: World) -> None:
        self.world = world
        self.frames = FrameReader(world.area, FRAME_MAX)
        self.unsent_bytes = 0
        self.waits = False
        self.failed: str | None = None
        self.served = 0

    @property
    def held_bytes(self) -> int:
        return self.frames.held_bytes

    @property
    def missing_bytes(self) -> int:
        return self.frames.missing_bytes

    def wait_for_memory(self) -> None:
        self.waits = True

    def on_memory_available(self) -> None:
        self.waits = False

    def abort(self, cause: str) -> None:
        self.failed = cause
        self.frames.close()

    def send(self, count: int) -> int:
        """Sends `count` bytes, as far as they are read, and returns how many were."""
        sent = 0
        while sent < count and not self.waits and self.failed is None:
            room = self.frames.get_buffer()
            step = min(len(room), count - sent)
            self.frames.received(step)
            sent += step
            while self.frames.next_frame() is not None:
                self.served += 1
            if self.frames.held_bytes:
                self.world.budget.received(self)
        return sent

    def announce(self, size: int, count: int) -> int:
        """Sends the beginning of a frame of `size` bytes, of which `count` follow."""
        self.world.area.view[:4] = size.to_bytes(4, "big")
        assert not self.frames.held_bytes
        return self.send(4 + count) - 4


def test_nothing_happens_below_three_quarters() -> None:
    world = World()
    peers = [world.peer() for _ in range(5)]
    for peer in peers:
        assert peer.announce(2_000_000, 1_000_000) == 1_000_000
    assert not world.budget.is_short
    assert world.area.read_bytes_max == SHARED_AREA_BYTES
    for peer in peers:
        peer.send(1_000_000)
    assert [peer.served for peer in peers] == [1] * 5
    assert world.area.held_bytes == 0 or all(peer.frames.get_buffer() is world.area.view for peer in peers)


def test_many_that_announce_much_hold_no_more_than_the_budget() -> None:
    world = World()
    peers = [world.peer() for _ in range(300)]
    for peer in peers:
        peer.announce(90_000_000, 200_000)
    assert world.budget.used_bytes <= LIMIT + len(peers) * READ_BYTES_WHEN_SHORT
    assert world.budget.is_short
    assert world.area.read_bytes_max == READ_BYTES_WHEN_SHORT
    assert any(peer.waits for peer in peers)


def test_small_frames_pass_while_large_ones_wait() -> None:
    world = World()
    hogs = [world.peer() for _ in range(40)]
    for hog in hogs:
        hog.announce(90_000_000, 250_000)
    good = world.peer()
    for _ in range(50):
        assert good.announce(500_000, 500_000) == 500_000
        good.frames.get_buffer()
    assert good.served == 50


def test_those_that_stall_are_hung_up_on_and_all_is_calm_again() -> None:
    world = World()
    hogs = [world.peer() for _ in range(40)]
    for hog in hogs:
        hog.announce(90_000_000, 250_000)
    assert world.budget.is_short
    world.run(SHORT_MS_MAX + STALLED_MS + 1_000)
    assert not world.budget.is_short
    assert world.budget.used_bytes <= LIMIT // 2
    assert world.budget.closed_count == sum(hog.failed is not None for hog in hogs) > 0
    assert all("queued.max.request.bytes=10000000" in hog.failed for hog in hogs if hog.failed)
    assert world.area.read_bytes_max == SHARED_AREA_BYTES
    assert not any(hog.waits for hog in hogs)


def test_of_those_that_wait_the_one_that_lacks_least_goes_on_first() -> None:
    world = World()
    first, second, third = world.peer(), world.peer(), world.peer()
    first.announce(9_000_000, 6_000_000)
    second.announce(5_000_000, 2_000_000)
    third.announce(3_500_000, 1_000_000)
    assert [first.waits, second.waits, third.waits] == [False, True, True]
    assert 0 < first.send(3_000_000) < 3_000_000, "memory is short for it, too"
    world.run(60)
    assert [first.waits, second.waits, third.waits] == [False, True, True]
    first.send(first.missing_bytes)
    first.frames.get_buffer()
    world.run(60)
    assert [second.waits, third.waits] == [False, False], "both fit now"
    second.send(second.missing_bytes)
    third.send(third.missing_bytes)
    assert (second.served, third.served) == (1, 1)


def test_a_frame_larger_than_the_budget_ends_some_time() -> None:
    world = World()
    large = world.peer()
    sent = large.announce(5 * LIMIT, 5 * LIMIT)
    for _ in range(20):
        world.run(60)
        sent += large.send(5 * LIMIT - sent)
    assert large.served == 1
    large.frames.get_buffer()
    world.run(100)
    assert not world.budget.is_short


def test_peers_that_do_not_take_their_answers_wait_and_are_ended() -> None:
    world = World()
    readers = [world.peer() for _ in range(100)]
    for reader in readers:
        size = world.budget.answer_bytes_max(5_000_000)
        reader.unsent_bytes += size
        world.budget.sent(reader, size)
    assert world.budget.used_bytes <= LIMIT + len(readers) * ANSWER_BYTES_MIN
    assert sum(reader.waits for reader in readers) > 90
    assert world.budget.is_exhausted
    world.run(STALLED_MS + 1_000)
    assert world.budget.closed_count > 0
    assert not world.budget.is_short


def test_a_peer_that_takes_its_answers_is_not_ended() -> None:
    world = World()
    hog, reader = world.peer(), world.peer()
    hog.unsent_bytes = LIMIT
    world.budget.sent(hog, LIMIT)
    reader.unsent_bytes = 2_000_000
    world.budget.sent(reader, 2_000_000)
    assert reader.waits
    for _ in range(9):
        reader.unsent_bytes -= 200_000
        world.run(1_000)
    assert reader.failed is None
    assert hog.failed is not None
    assert not reader.waits


def test_answers_count_only_until_they_are_taken() -> None:
    world = World()
    reader = world.peer()
    for _ in range(100):
        world.budget.sent(reader, 1_000_000)
    assert not world.budget.is_short
    assert world.budget.answer_bytes_max(1_000_000) == 1_000_000


def test_what_others_hold_counts() -> None:
    world = World()
    world.budget.count_bytes_of(lambda: LIMIT - 100_000)
    peer = world.peer()
    peer.announce(2_000_000, 200_000)
    assert world.budget.is_short
    assert world.budget.answer_bytes_max(50_000_000) == ANSWER_BYTES_MIN


def test_one_that_is_gone_is_forgotten() -> None:
    world = World()
    hogs = [world.peer() for _ in range(40)]
    for hog in hogs:
        hog.announce(90_000_000, 250_000)
    for hog in hogs:
        hog.frames.close()
        world.budget.forget(hog)
    world.run(200)
    assert (world.budget.used_bytes, world.budget.waiting_count, world.budget.is_short) == (0, 0, False)


@pytest.mark.parametrize(("configured", "limit"), [(-1, 1 << 30), (0, 1 << 30), (5_000_000, 5_000_000)])
def test_the_limit_is_the_keys_or_the_hosts(configured: int, limit: int) -> None:
    world = World()
    budget = MemoryBudget(world.area, world.host.time, world.host.time, world.memory, configured)
    assert budget.limit_bytes == limit


def test_a_peer_that_leaves_when_it_may_continue_is_forgotten() -> None:
    world = World()
    leaving, staying = world.peer(), world.peer()
    for peer in (leaving, staying):
        peer.announce(20_000_000, 4_900_000)
    assert leaving.waits or staying.waits
    left = leaving if leaving.waits else staying
    left.on_memory_available = lambda: world.budget.forget(left)  # type: ignore[method-assign]
    (staying if left is leaving else leaving).abort("its frame is dropped")
    world.run(1_000)
    assert left not in world.budget.holders
