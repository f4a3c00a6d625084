"""The write health of two directories: syncs that take short, long or forever, slow and refused writes, full disks,
and pauses of the whole process.

A plain model bounds when a directory must and must not be unwritable. A sync that takes five seconds of the process's
own time is a hanging disk, at the latest with the next check; a pause is not. What is unwritable becomes writable once
nothing has been wrong for the settling time, which doubles with each relapse, and not before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from barnabas.common.host import Buffer
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.storage.health import FAILED, FULL, HUNG, SLOW, WriteHealth

_STEPS = 80
_PATHS = ("/d1", "/d2")
_HUNG_MS, _CHECK_MS = 5_000, 1_000
_SETTLE_MS, _SETTLE_MS_MAX, _RELAPSE_MS = 10_000, 300_000, 600_000
_KEPT_SYNCS = 64


@dataclass(eq=False)
class Sync:
    """Work on a disk that has begun, and how long and how often the process stood still meanwhile."""

    began_ms: int
    paused_ms: int = 0
    pauses: int = 0


@dataclass
class Seen:
    """The known state of a directory."""

    syncs: list[Sync] = field(default_factory=list)
    took_ms: list[int] = field(default_factory=list)
    is_full: bool = False
    slow_calls: int = 0
    #: When something was possibly wrong last, and when it was certainly.
    wrong_ms: int = 0
    surely_ms: int = 0
    #: Whether a sync that has just ended possibly took too long.
    has_hung: bool = False
    cause: str = ""
    settle_ms: int = _SETTLE_MS
    well_ms: int | None = None


class FullDisk(MemoryDisk):
    """A disk on which some directories have no space."""

    def __init__(self) -> None:
        # The size of a probe depends on that of the disk.
        super().__init__(free_bytes=1 << 23)
        self.full: set[str] = set()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        if create and path.rpartition("/")[0] in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create, read_only=read_only)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        raise AssertionError("a probe writes to an open file")


class HealthExplorer:
    """The run of one seed. `run` raises Violation."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"health {seed}")
        self._disk = FullDisk()
        self._host = MemoryHost(seed=1, disk=self._disk)
        for path in _PATHS:
            self._disk.make_dirs(path)
        self._probing = self._host.blocking.run
        self._host.blocking.run = self._work  # type: ignore[method-assign]
        host: Any = self._host
        self._health = WriteHealth(host, _PATHS)
        self._health.when_changed(self._on_changed)
        self._told: list[str] = []
        self._seen = {path: Seen() for path in _PATHS}
        self._next_ms = 0

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._sync] * 4 + [self._append] * 3 + [self._refuse, self._fill, self._take, self._pause]
            steps += [self._pass_time] * 8
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._compare()
            for seen in self._seen.values():
                seen.is_full = False
            self._disk.full.clear()
            self._run_for(2 * _SETTLE_MS_MAX)
            self._check("directories that stay unwritable", self._health.unwritable(), [])
            self._health.close()
            self._told = ["closed"]
            self._health.refused(_PATHS[0])
            self._host.time.run_for(_CHECK_MS)
            self._check("what is told after the end", self._told, ["closed"])

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"health: {what} is {found!r}, it should be {expected!r}")

    def _now_ms(self) -> int:
        return self._host.clock.now_ms()

    # -- the environment

    def _work(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Runs a sync for as long as it takes, and a probe as usual."""
        if isinstance(work, _Syncing):
            self._host.timers.call_later(work.ms, lambda: done(None, None))
        else:
            self._probing(work, done)

    def _on_changed(self) -> None:
        self._told = self._health.unwritable()

    # -- steps

    def _any(self) -> tuple[str, Seen]:
        path = self._random.choice(_PATHS)
        return path, self._seen[path]

    def _sync(self) -> None:
        path, seen = self._any()
        ms = self._random.choice((1, 300, 3_000, 4_900, 4_999, 6_100, 9_000, 25_000))
        sync = Sync(self._now_ms())
        seen.syncs.append(sync)

        def done(result: object, error: BaseException | None) -> None:
            seen.syncs.remove(sync)
            seen.has_hung = seen.has_hung or self._longest_ms(sync) >= _HUNG_MS
            seen.took_ms.append(self._now_ms() - sync.began_ms)

        self._health.run(path, _Syncing(ms), done)
        self._health.run("/elsewhere", _Syncing(1), lambda result, error: None)

    def _append(self) -> None:
        """Some writes in a row: three slow ones are too many."""
        path, seen = self._any()
        for _ in range(self._random.choice((1, 2, 3, 4))):
            ms = self._random.choice((199, 200, 200, 900))
            self._health.append_took(path, ms)
            seen.slow_calls = seen.slow_calls + 1 if ms >= 200 else 0
            if seen.slow_calls >= 3:
                self._wrong(path, SLOW)
        self._health.append_took("/elsewhere", 900)
        # Fast writes are reported only while that is needed.
        if any(each.slow_calls for each in self._seen.values()):
            self._check("whether fast writes count", self._health.is_counting or bool(seen.cause), True)
        self._health.append_took(path, 1)
        seen.slow_calls = 0

    def _refuse(self) -> None:
        path, _ = self._any()
        self._health.refused(path)
        self._wrong(path, FULL)
        self._check("whether a full directory has space", self._health.has_space(path), False)

    def _fill(self) -> None:
        path, seen = self._any()
        seen.is_full = not seen.is_full
        if seen.is_full:
            self._disk.full.add(path)
        else:
            self._disk.full.discard(path)

    def _take(self) -> None:
        taken = self._health.take_syncs()
        for path, seen in self._seen.items():
            self._check("the durations of syncs", taken.get(path, []), seen.took_ms[:_KEPT_SYNCS])
            seen.took_ms.clear()
        self._check("durations that were taken", self._health.take_syncs(), {})

    def _pause(self) -> None:
        """The whole process stands still, and with it all that it waits for."""
        ms = self._random.choice((3_000, 7_000, 40_000))
        self._host.time._now_ms += ms
        for seen in self._seen.values():
            for sync in seen.syncs:
                sync.paused_ms += ms
                sync.pauses += 1
            if seen.cause:
                seen.wrong_ms = self._now_ms()  # A probe can be late.
        self._run_for(0)

    def _pass_time(self) -> None:
        self._run_for(self._random.choice((1, 100, 999, 1_000, 2_500, 6_000, 15_000)))

    def _run_for(self, ms: int) -> None:
        """Runs in small steps, and compares after each."""
        until_ms = self._now_ms() + ms
        while True:
            self._host.time.run_until(min(until_ms, self._now_ms() + 250))
            self._compare()
            if self._now_ms() >= until_ms:
                return

    # -- the model

    def _shortest_ms(self, sync: Sync) -> int:
        """Returns the time that the process has certainly waited for a sync."""
        return self._now_ms() - sync.began_ms - sync.paused_ms

    def _longest_ms(self, sync: Sync) -> int:
        """Returns the time that the process has possibly waited: of a pause, the time until the next check counts."""
        return self._shortest_ms(sync) + min(sync.paused_ms, 2 * _CHECK_MS * sync.pauses)

    def _wrong(self, path: str, cause: str) -> None:
        """Something is wrong from now on: the directory is unwritable at once."""
        seen = self._seen[path]
        seen.wrong_ms = seen.surely_ms = self._now_ms()
        self._check(f"whether {path} {cause} now", path in self._health.unwritable(), True)
        self._became(seen)

    def _became(self, seen: Seen) -> None:
        if seen.cause:
            return
        if seen.well_ms is not None:
            is_relapse = self._now_ms() - seen.well_ms < _RELAPSE_MS
            seen.settle_ms = min(2 * seen.settle_ms, _SETTLE_MS_MAX) if is_relapse else _SETTLE_MS
        seen.cause = "wrong"

    def _compare(self) -> None:
        unwritable = self._health.unwritable()
        self._check("whether any directory is unwritable", self._health.is_any_unwritable, bool(unwritable))
        now_ms = self._now_ms()
        for path, seen in self._seen.items():
            must_hang = any(self._shortest_ms(sync) >= _HUNG_MS + 2 * _CHECK_MS for sync in seen.syncs)
            can_hang = seen.has_hung or any(self._longest_ms(sync) >= _HUNG_MS for sync in seen.syncs)
            seen.has_hung = False
            is_unwritable = path in unwritable
            if must_hang:
                self._check(f"whether {path} is found to hang", is_unwritable, True)
            if is_unwritable and not seen.cause:
                self._check(f"whether {path} can be unwritable", can_hang, True)
                causes = (HUNG, FULL) if seen.is_full else (HUNG,)
                self._check("whether the cause is right", self._health.cause_of(path) in causes, True)
                self._became(seen)
            if can_hang or (seen.is_full and seen.cause):
                seen.wrong_ms = now_ms
            if must_hang:
                seen.surely_ms = now_ms
            if is_unwritable:
                known = (FULL, SLOW, HUNG, FAILED)
                self._check("whether the cause is known", self._health.cause_of(path) in known, True)
                is_over = now_ms - seen.wrong_ms > seen.settle_ms + 3 * _CHECK_MS
                self._check(f"whether {path} stays unwritable for too long", is_over, False)
            elif seen.cause:
                has_settled = now_ms - seen.surely_ms >= seen.settle_ms
                self._check(f"whether {path} has settled", has_settled, True)
                seen.cause, seen.well_ms = "", now_ms
        self._host.time.run_until(now_ms)
        self._check("what listeners were told last", self._told, unwritable)


@dataclass
class _Syncing:
    """The work of a sync."""

    ms: int

    def __call__(self) -> None:
        raise AssertionError("the world runs this work itself")
