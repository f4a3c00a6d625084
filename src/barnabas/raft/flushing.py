"""The fsync of the metadata log: one at a time, in the background; the next one covers the records that are appended
meanwhile.

A node that is the only voter waits for it, so that `propose` has committed when it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.errors import StorageFault, is_exhausted
from barnabas.raft.core import Core

_AGAIN_MS: Final = 1000


class Flusher:
    """Makes appended records durable."""

    def __init__(self, core: Core, on_flushed: Callable[[], None]) -> None:
        """Creates a flusher. `on_flushed` is called after the flushed end of the log has moved."""
        self._core = core
        self._on_flushed = on_flushed
        self._is_flushing = False

    def flush(self) -> None:
        """Syncs everything that is appended. If a sync is in progress, the next one follows it."""
        core = self._core
        if self._is_flushing or core.is_stopped or core.log.flushed_offset >= core.log.end_offset:
            return
        self._is_flushing = True
        try:
            if not core.quorum.is_alone:
                core.log.flush_in_background(lambda error: core.run(lambda: self._done(error)))
                return
            core.log.flush()
        except (StorageFault, OSError) as error:
            self._failed(error)
            return
        self._is_flushing = False
        self._on_flushed()

    def _done(self, error: BaseException | None) -> None:
        if self._core.is_stopped:
            return
        if error is not None:
            self._failed(error)
            return
        self._is_flushing = False
        self._on_flushed()
        if self._core.log.flushed_offset < self._core.log.end_offset:
            self._core.draft.flush()

    def _failed(self, error: BaseException) -> None:
        """Retries later on a full disk: nothing is lost or counts as durable, and callbacks keep waiting."""
        core = self._core
        if not is_exhausted(error):
            core.fail(error)
        core.log_health.reports.report("flush", f"cannot flush the metadata log yet: {error}", error)
        core.timers.call_later(_AGAIN_MS, self._again)

    def _again(self) -> None:
        self._is_flushing = False
        self._core.draft.flush()
