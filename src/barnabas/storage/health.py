"""Detection of full, slow and hanging log directories, and of their recovery.

    writable --- an append found no space, three in a row took 200 ms each, or a sync has not ended for 5 s
             ---> unwritable
    unwritable --- all probes of the directory succeeded for its settling time ---> writable

An unwritable directory is probed once a second: a file of up to 1 MiB is written, synced and removed in the background.
It has space from the first successful probe on, and is well after `_SETTLE_MS` without a failure. Each relapse within
ten minutes doubles that time, up to five minutes, so that a disk at its limit does not make leaders move back and forth
(decision 0012).

This module rejects no request itself: appends are still tried. The broker's heartbeat reports the unwritable
directories (`broker/lifecycle.py`), and the controller moves leaderships away from them (`mark_unwritable` in
`controller/kraft/broker_registrations.py`). The quorum's leader resigns when its own directory is unwritable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Disk, Host, Timer

PROBE_FILE: Final = ".barnabas-probe"
#: A write call that takes this long is slow.
SLOW_MS: Final = 200
SLOW_S: Final = SLOW_MS / 1000
_SLOW_CALLS: Final = 3
#: A sync that takes longer means a hanging disk. The limit is below broker.session.timeout.ms, so that leaders move as
#: soon as they would for a broker that died.
_HUNG_MS: Final = 5_000
_PROBE_EVERY_MS: Final = 1_000
#: A check that is later than this shows that the process stood still.
_STILL_MS: Final = 1_000
_PROBE_BYTES_MAX: Final = 1 << 20
_PROBE_BYTES_MIN: Final = 1 << 16
_SETTLE_MS: Final = 10_000
_SETTLE_MS_MAX: Final = 300_000
_RELAPSE_MS: Final = 600_000

#: Durations of syncs that are kept until they are taken.
_SYNCS_MAX: Final = 64

FULL: Final = "has no free space"
SLOW: Final = "is slow"
HUNG: Final = "does not respond"
FAILED: Final = "cannot be written"


@dataclass(slots=True)
class _Directory:
    path: str
    #: Why the directory is unwritable; "" while it is writable.
    cause: str = ""
    since_ms: int = 0
    #: The time since which every probe has succeeded; None after a failure.
    good_since_ms: int | None = None
    settle_ms: int = _SETTLE_MS
    well_since_ms: int | None = None
    is_probed: bool = False
    slow_calls: int = 0
    #: The start of each piece of disk work in the background, in running time.
    pending: dict[int, int] = field(default_factory=dict)

    def hangs(self, running_ms: int) -> bool:
        return bool(self.pending) and running_ms - min(self.pending.values()) >= _HUNG_MS


class WriteHealth:
    """The write health of the log directories of one node, including that of the metadata log."""

    def __init__(self, host: Host, paths: Iterable[str]) -> None:
        self._host = host
        self._clock = host.clock
        self._directories = {path: _Directory(path) for path in paths}
        self._timer: Timer | None = None
        self._due_ms = 0
        #: The time for which the process stood still while something was checked: a pause is not a disk that hangs.
        self._still_ms = 0
        self._closed = False
        self._tokens = 0
        self._listeners: list[Callable[[], None]] = []
        #: Directory -> durations of the syncs since they were last taken.
        self._sync_ms: dict[str, list[int]] = {}
        #: Whether any directory is unwritable; most appends check only this.
        self.is_any_unwritable = False
        #: Whether the last append to some directory was slow; then the next one is reported even if it is fast.
        self.is_counting = False

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Calls back after a directory became writable or unwritable, in a separate event."""
        self._listeners.append(callback)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- state

    def unwritable(self) -> list[str]:
        """Returns the directories that are unwritable, or have not been writable again for their settling time."""
        return [directory.path for directory in self._directories.values() if directory.cause]

    def has_space(self, path: str) -> bool:
        """Returns whether the last attempt to write to the directory succeeded, even if the directory still counts as
        unwritable.
        """
        directory = self._directories.get(path)
        return directory is None or not directory.cause or directory.good_since_ms is not None

    def cause_of(self, path: str) -> str:
        """Returns the reason why the directory is unwritable, in words that complete a sentence."""
        directory = self._directories.get(path)
        return "" if directory is None else directory.cause

    # -- observations

    def refused(self, path: str) -> None:
        """Records that an append to a log in this directory found no space."""
        directory = self._directories.get(path)
        if directory is not None:
            directory.good_since_ms = None
            self._become_unwritable(directory, FULL)

    def append_took(self, path: str, took_ms: int) -> None:
        """Records the duration of an append. Those below `SLOW_MS` are needed only while `is_counting`."""
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
            self._become_unwritable(directory, SLOW)

    def run(self, path: str, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        """Runs work that syncs something in this directory, as `Blocking.run` does, and monitors its duration."""
        directory = self._directories.get(path)
        if directory is None:
            self._host.blocking.run(work, done)
            return
        self._tokens += 1
        token = self._tokens
        began_ms = self._clock.now_ms()
        directory.pending[token] = began_ms - self._still_ms
        self._arm()

        def ended(result: object, error: BaseException | None) -> None:
            directory.pending.pop(token, None)
            took = self._sync_ms.setdefault(path, [])
            if len(took) < _SYNCS_MAX:
                took.append(self._clock.now_ms() - began_ms)
            done(result, error)

        self._host.blocking.run(work, ended)

    def take_syncs(self) -> dict[str, list[int]]:
        """Returns the durations of the last syncs by directory, in ms, those since the last call."""
        taken, self._sync_ms = self._sync_ms, {}
        return taken

    def failed(self, path: str) -> None:
        """Stops monitoring a directory that is offline, because the broker reports that state separately."""
        if self._directories.pop(path, None) is not None:
            self._changed()

    # -- transitions

    def _become_unwritable(self, directory: _Directory, cause: str) -> None:
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

    def _become_writable(self, directory: _Directory, now_ms: int) -> None:
        lasted_s = (now_ms - directory.since_ms) / 1_000
        directory.cause, directory.good_since_ms, directory.well_since_ms = "", None, now_ms
        directory.slow_calls = 0
        self._host.faults.inform(
            f"log directory {directory.path} can be written again, after {lasted_s:.1f} s: its replicas can lead"
        )
        self._changed()

    def _changed(self) -> None:
        self.is_any_unwritable = any(directory.cause for directory in self._directories.values())

        def notify() -> None:
            if not self._closed:
                for listener in self._listeners:
                    listener()

        # The caller is in the middle of an operation.
        self._host.timers.call_soon(notify)

    # -- probes, once a second while any directory needs them

    def _arm(self) -> None:
        if self._timer is None and not self._closed:
            self._due_ms = self._clock.now_ms() + _PROBE_EVERY_MS
            self._timer = self._host.timers.call_later(_PROBE_EVERY_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        late_ms = now_ms - self._due_ms
        if late_ms > _STILL_MS:
            self._still_ms += late_ms
        is_needed = False
        for directory in self._directories.values():
            if directory.pending:
                is_needed = True
                if directory.hangs(now_ms - self._still_ms):
                    directory.good_since_ms = None
                    self._become_unwritable(directory, HUNG)
            if directory.cause:
                is_needed = True
                self._probe(directory)
        if is_needed:
            self._arm()

    def _probe(self, directory: _Directory) -> None:
        """Starts a probe unless one is running: on a disk that hangs, a probe never ends."""
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
        if error is not None or took_ms is None or took_ms >= SLOW_MS or directory.hangs(now_ms - self._still_ms):
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
            self._become_writable(directory, now_ms)


def probe(disk: Disk, path: str, now_ms: Callable[[], int]) -> int:
    """Writes, syncs and removes a file in a directory. Returns the duration of the write in milliseconds. Raises
    OSError.
    """
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
