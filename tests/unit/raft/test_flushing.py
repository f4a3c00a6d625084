"""The fsync of the metadata log, in a core that does nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from barnabas.common.errors import FatalFault, StorageFault
from barnabas.common.reports import LimitedReports
from barnabas.raft.flushing import Flusher
from barnabas.simulation.host import MemoryHost

_FULL = OSError(errno.ENOSPC, "No space left on device")
_BROKEN = StorageFault("/data", "Input/output error")


class Log:
    def __init__(self) -> None:
        self.end_offset = self.flushed_offset = 0
        #: The syncs in the background that have not ended.
        self.pending: list[Callable[[BaseException | None], None]] = []
        self.error: BaseException | None = None

    def flush(self) -> None:
        if self.error is not None:
            raise self.error
        self.flushed_offset = self.end_offset

    def flush_in_background(self, done: Callable[[BaseException | None], None]) -> None:
        end_offset = self.end_offset

        def ended(error: BaseException | None) -> None:
            if error is None:
                self.flushed_offset = end_offset
            done(error)

        self.pending.append(ended)


class Core:
    """The parts of `raft.core.Core` that a flusher uses."""

    def __init__(self, *, is_alone: bool) -> None:
        self.host = MemoryHost()
        self.timers = self.host.timers
        self.log = Log()
        self.quorum = SimpleNamespace(is_alone=is_alone)
        self.log_health = SimpleNamespace(reports=LimitedReports(self.host.faults, self.host.clock))
        self.is_stopped = False
        self.failures: list[BaseException] = []
        self.flushed: list[int] = []
        core: Any = self
        self.flusher = Flusher(core, lambda: self.flushed.append(self.log.flushed_offset))
        self.draft = self.flusher

    def run(self, event: Callable[[], None]) -> None:
        event()

    def fail(self, error: BaseException) -> NoReturn:
        self.failures.append(error)
        raise FatalFault("the metadata log failed") from error

    def append(self, count: int = 1) -> None:
        self.log.end_offset += count
        self.flusher.flush()

    def end(self, error: BaseException | None = None) -> None:
        (done,), self.log.pending = self.log.pending, []
        done(error)


def test_what_is_appended_during_a_sync_shares_the_next_one() -> None:
    core = Core(is_alone=False)
    core.append()
    core.append()
    core.append()
    assert len(core.log.pending) == 1
    core.end()
    assert core.flushed == [1]
    core.end()
    assert core.flushed == [1, 3]
    assert core.log.pending == []


def test_the_only_voter_waits_for_the_sync() -> None:
    core = Core(is_alone=True)
    core.append()
    assert core.flushed == [1]
    core.flusher.flush()
    assert core.flushed == [1], "there is nothing to sync"


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_full_disk_is_tried_again_after_a_second(is_alone: bool) -> None:
    core = Core(is_alone=is_alone)
    core.log.error = _FULL
    core.append()
    if not is_alone:
        core.end(_FULL)
    assert core.failures == []
    assert core.flushed == []
    (text,) = [text for text, _ in core.host.faults.reported]
    assert text.startswith("cannot flush the metadata log yet")
    core.log.error = None
    core.append()
    assert (core.flushed, core.log.pending) == ([], []), "not before the pause is over"
    core.host.time.run_for(1_000)
    if not is_alone:
        core.end()
    assert core.flushed == [2]


def test_a_sync_that_failed_for_good_ends_the_node() -> None:
    core = Core(is_alone=False)
    core.append()
    with pytest.raises(FatalFault):
        core.end(_BROKEN)
    assert core.failures == [_BROKEN]
    assert core.flushed == []


def test_a_sync_that_ends_after_the_stop_has_no_effect() -> None:
    core = Core(is_alone=False)
    core.append()
    core.is_stopped = True
    core.end()
    assert core.flushed == []
    core.append()
    assert core.log.pending == []
