"""The power fails, or the process is killed, at any change that a moving replica makes on the disk."""

from __future__ import annotations

import random
import re

import pytest
from tests.support.move_world import MoveWorld, expected
from tests.support.power_disk import PowerDisk

from barnabas.replication import move, moves
from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.host import MemoryHost

pytestmark = pytest.mark.long_turns("other brokers are started from the disk within turns of this one")
DIRS = "/d1,/d2"
RECORDS = 120


class CrashedMove:
    """A move under load, checked before each change on the disk: what the next start would find."""

    def __init__(self, fate: Fate, seed: int) -> None:
        self.fate = fate
        self.chance = random.Random(seed)
        self.disk = PowerDisk()
        self.made = MoveWorld(MemoryHost(seed=1, disk=self.disk), dirs=DIRS)
        self.made.create_topic("orders", internal_segment_bytes="4096")
        self.made.settle()
        self.count = 0
        #: Names of the partition's directories at a crash, without what makes them unique.
        self.found: set[tuple[str, ...]] = set()
        self.looks = 0
        for _ in range(RECORDS // 10):
            self.made.produce(*self.next_values(10))
        self.made.log.flush()
        self.sure = self.count

    def next_values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % place for place in range(self.count - count, self.count)]

    def run(self, *, killed_after_ms: int | None = None) -> None:
        self.disk.before_change = self.look
        assert self.made.alter("/d2") == 0
        if killed_after_ms is not None:
            self.made.run(killed_after_ms)
            assert self.made.root == "/d1"
            self.made.restart(clean=False)
        for place in range(1000):
            if not tuple(self.made.broker.replicas.moves):
                break
            if place % 4 == 0:
                self.made.produce(*self.next_values(1), producer_id=7, sequence=place // 4)
            self.made.run(1)
        self.made.produce(*self.next_values(1))
        self.made.run(200)
        self.made.produce(*self.next_values(1))
        self.disk.before_change = lambda: None
        assert self.made.root == "/d2"
        assert self.made.values() == expected(self.count)

    def look(self) -> None:
        self.disk.before_change = lambda: None
        self.check()
        self.looks += 1
        self.disk.before_change = self.look

    def check(self) -> None:
        disk = self.disk.after_crash(self.fate, self.chance)
        names = [f"{root}/{name}" for root in ("/d1", "/d2") for name in disk.list_dir(root) if "orders-0" in name]
        self.found.add(tuple(re.sub("[0-9a-f]{32}", "*", name) for name in names))
        after = MoveWorld(MemoryHost(seed=2, disk=disk), dirs=DIRS)
        found = after.values()
        self._check_values(found)
        after.produce(b"more")
        after.settle()
        assert after.assigned_root() == after.root, "the controller knows where it is"
        assert after.values() == [*found, b"more"]
        living = [name for root in ("/d1", "/d2") for name in after.names(root) if not name.endswith("-delete")]
        assert living == ["orders-0"], "one log, and no copy"
        after.restart(clean=False)
        assert after.values() == [*found, b"more"]

    def _check_values(self, found: list[bytes]) -> None:
        assert found == expected(len(found))
        if self.fate is Fate.KEPT:
            assert self.count - 1 <= len(found) <= self.count, "the process died, the system did not"
        else:
            assert self.sure <= len(found) <= self.count


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "_SLICE_BYTES_MIN", 256)
    monkeypatch.setattr(move, "_SLICE_BYTES_MAX", 1024)
    for module in (move, moves):
        monkeypatch.setattr(module, "LAST_SLICE_BYTES", 300)
        monkeypatch.setattr(module, "UNSYNCED_BYTES_MAX", 1500)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))])
@pytest.mark.parametrize("fate", list(Fate))
def test_acknowledged_records_are_there_once_and_in_order(fate: Fate, seed: int) -> None:
    work = CrashedMove(fate, seed)
    work.run()
    assert work.looks > 50
    assert work.found >= {
        ("/d1/orders-0",),
        ("/d1/orders-0", "/d2/orders-0.*-future"),
        ("/d1/orders-0.*-delete", "/d2/orders-0.*-future"),
        ("/d1/orders-0.*-delete", "/d2/orders-0"),
    }


@pytest.mark.parametrize("killed_after_ms", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("fate", list(Fate))
def test_a_move_that_goes_on_after_a_kill_is_as_safe(fate: Fate, killed_after_ms: int) -> None:
    work = CrashedMove(fate, killed_after_ms)
    work.run(killed_after_ms=killed_after_ms)
    assert work.looks > 50
