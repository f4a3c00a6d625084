"""Which log directories take writes: full, slow and hanging disks, and when they count as well again.

    well --- an append found no room, three in a row took 200 ms each, or a sync has not ended for 5 s ---> refusing
    refusing --- a probe of the directory went well for as long as it has to settle ---> well

A directory that refuses is probed once a second: a file of up to a mebibyte is written, synced and removed, beside the
loop. It has room from the first probe that goes well, and is well after `_SETTLE_MS` without a failure; each relapse
within ten minutes doubles that time, up to five minutes, so that a disk at its limit does not make leaders change
places (decision 0012).

Nothing here refuses anything by itself: appends are tried as long as somebody asks for them. The broker tells the
controller which directories refuse, and the quorum's leader gives up its office when its own does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer

PROBE_FILE: Final = ".barnabas-probe"
#: From here on one call that writes is slow.
SLOW_MS: Final = 200
_SLOW_CALLS: Final = 3
#: A sync that takes longer has met a disk that hangs. Below broker.session.timeout.ms, so that leaders move as soon as
#: they would for a broker that died.
_HUNG_MS: Final = 5_000
_PROBE_EVERY_MS: Final = 1_000
_PROBE_BYTES_MAX: Final = 1 << 20
_PROBE_BYTES_MIN: Final = 1 << 16
_SETTLE_MS: Final = 10_000
_SETTLE_MS_MAX: Final = 300_000
_RELAPSE_MS: Final = 600_000

FULL: Final = "has no room"
SLOW: Final = "is slow"
HUNG: Final = "does not answer"
FAILED: Final = "cannot be written"


@dataclass(slots=True)
class _Directory:
    path: str
    #: Why it refuses; "" while it is well.
    cause: str = ""
    since_ms: int = 0
    #: Since when every probe has gone well; None after one that has not.
    good_since_ms: int | None = None
    settle_ms: int = _SETTLE_MS
    well_since_ms: int | None = None
    is_probed: bool = False
    slow_calls: int = 0
    #: When each piece of disk work beside the loop began.
    pending: dict[int, int] = field(default_factory=dict)

    def hangs(self, now_ms: int) -> bool:
        return bool(self.pending) and now_ms - min(self.pending.values()) >= _HUNG_MS


class WriteHealth:
    """Of the log directories of one node, that of the metadata log among them."""

    def __init__(self, host: Host, paths: Iterable[str]) -> None:
        self._host = host
        self._clock = host.clock
        self._directories = {path: _Directory(path) for path in paths}
        self._timer: Timer | None = None
        self._closed = False
        self._tokens = 0
        #: Called after a directory began or ceased to refuse, in an event of its own.
        self.on_change: list[Callable[[], None]] = []
        #: Whether any directory refuses: what most appends ask.
        self.is_troubled = False
        #: Whether a slow append was the last one of its directory: then the next is told, however quick it is.
        self.is_counting = False

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- what is known

    def refusing(self) -> list[str]:
        """The directories that refuse, or have not been well for long enough since."""
        return [directory.path for directory in self._directories.values() if directory.cause]

    def is_well(self, path: str) -> bool:
        directory = self._directories.get(path)
        return directory is None or not directory.cause

    def has_room(self, path: str) -> bool:
        """Whether the last attempt to write there went well, be it for long enough or not."""
        directory = self._directories.get(path)
        return directory is None or not directory.cause or directory.good_since_ms is not None

    def cause_of(self, path: str) -> str:
        """Why it refuses, as the end of a sentence."""
        directory = self._directories.get(path)
        return "" if directory is None else directory.cause

    # -- what is seen

    def refused(self, path: str) -> None:
        """An append there found no room."""
        directory = self._directories.get(path)
        if directory is not None:
            directory.good_since_ms = None
            self._falls_ill(directory, FULL)

    def took(self, path: str, took_ms: int) -> None:
        """An append there took so long. Those below `SLOW_MS` need to be told only while `is_counting`."""
        directory = self._directories.get(path)
        if directory is None:
            return
        if took_ms < SLOW_MS:
            directory.slow_calls = 0
            self.is_counting = any(each.slow_calls for each in self._directories.values())
            return
        directory.slow_calls += 1
        self.is_counting = True
        if directory.slow_calls >= _SLOW_CALLS:
            directory.good_since_ms = None
            self._falls_ill(directory, SLOW)

    def run(self, path: str, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        """As `Blocking.run`, for work that syncs something in this directory: it is watched how long it takes."""
        directory = self._directories.get(path)
        if directory is None:
            self._host.blocking.run(work, done)
            return
        self._tokens += 1
        token = self._tokens
        directory.pending[token] = self._clock.now_ms()
        self._arm()

        def ended(result: object, error: BaseException | None) -> None:
            directory.pending.pop(token, None)
            done(result, error)

        self._host.blocking.run(work, ended)

    def failed(self, path: str) -> None:
        """The directory is offline, which its broker tells in another way: it is not looked after any more."""
        if self._directories.pop(path, None) is not None:
            self._changed()

    # -- ill and well

    def _falls_ill(self, directory: _Directory, cause: str) -> None:
        if directory.cause or self._closed:
            return
        now_ms = self._clock.now_ms()
        if directory.well_since_ms is not None:
            is_relapse = now_ms - directory.well_since_ms < _RELAPSE_MS
            directory.settle_ms = min(2 * directory.settle_ms, _SETTLE_MS_MAX) if is_relapse else _SETTLE_MS
        directory.cause, directory.since_ms = cause, now_ms
        self._host.faults.inform(
            f"log directory {directory.path} {cause}: leadership of its partitions moves to replicas that can write, "
            f"until it has been healthy for {directory.settle_ms // 1000} s"
        )
        self._changed()
        self._arm()

    def _is_well_again(self, directory: _Directory, now_ms: int) -> None:
        lasted_s = (now_ms - directory.since_ms) / 1_000
        directory.cause, directory.good_since_ms, directory.well_since_ms = "", None, now_ms
        directory.slow_calls = 0
        self._host.faults.inform(
            f"log directory {directory.path} can be written again, after {lasted_s:.1f} s: its replicas can lead"
        )
        self._changed()

    def _changed(self) -> None:
        self.is_troubled = any(directory.cause for directory in self._directories.values())

        def tell() -> None:
            if not self._closed:
                for told in self.on_change:
                    told()

        # Whoever met the fault is in the middle of something.
        self._host.timers.call_soon(tell)

    # -- once a second, while there is something to look after

    def _arm(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._host.timers.call_later(_PROBE_EVERY_MS, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        is_needed = False
        for directory in self._directories.values():
            if directory.pending:
                is_needed = True
                if directory.hangs(now_ms):
                    directory.good_since_ms = None
                    self._falls_ill(directory, HUNG)
            if directory.cause:
                is_needed = True
                self._probe(directory)
        if is_needed:
            self._arm()

    def _probe(self, directory: _Directory) -> None:
        """One at a time: a disk that hangs keeps its probe, too."""
        if directory.is_probed:
            return
        directory.is_probed = True
        disk, clock = self._host.disk, self._clock

        def work() -> int:
            return probe(disk, directory.path, clock.now_ms)

        def done(took_ms: int | None, error: BaseException | None) -> None:
            directory.is_probed = False
            self._probed(directory, took_ms, error)

        self._host.blocking.run(work, done)

    def _probed(self, directory: _Directory, took_ms: int | None, error: BaseException | None) -> None:
        if self._closed or not directory.cause or directory.path not in self._directories:
            return
        now_ms = self._clock.now_ms()
        if error is not None or took_ms is None or took_ms >= SLOW_MS or directory.hangs(now_ms):
            directory.good_since_ms = None
            if error is not None:
                directory.cause = FULL if is_exhausted(error) else FAILED
            elif took_ms is not None and took_ms >= SLOW_MS:
                directory.cause = SLOW
            return
        if directory.good_since_ms is None:
            directory.good_since_ms = now_ms
            directory.slow_calls = 0
        if now_ms - directory.good_since_ms >= directory.settle_ms:
            self._is_well_again(directory, now_ms)


def probe(disk: Disk, path: str, now_ms: Callable[[], int]) -> int:
    """Write, sync and remove a file there; how many milliseconds the longest write took. Raises OSError."""
    name = f"{path}/{PROBE_FILE}"
    size_bytes = min(_PROBE_BYTES_MAX, max(_PROBE_BYTES_MIN, disk.usage(path).total_bytes // 128))
    began_ms = now_ms()
    file = disk.open(name, create=True)
    try:
        file.append(bytes(size_bytes))
        took_ms = now_ms() - began_ms
        file.sync()
    finally:
        file.close()
        disk.remove(name)
    return took_ms
