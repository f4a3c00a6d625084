"""The recording of a watched cluster into a history file, and the file of one that is not watched any more."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from barnabas.console.incidents import NOT_WATCHED, read_about
from barnabas.console.past import PastReader
from barnabas.console.watched import WatchedCluster
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.monitor.watch import Step

_LOG: Final = logging.getLogger(__name__)


class Saved:
    """The file of an incident, or a history that is not being recorded: it is only read. Raises HistoryError."""

    problem: Final = None
    is_recording: Final = False

    def __init__(self, cluster: WatchedCluster, path: Path) -> None:
        with History.open(path) as history:
            self.span = history.span()
            self.about = read_about(history.about)
        self.past = PastReader(path, cluster.name, cluster.boot)
        cluster.stay_off(NOT_WATCHED)

    async def close(self) -> None:
        await self.past.close()


class Recording:
    """The recording of a watched cluster, which begins when it is created. Raises HistoryError for a file that cannot
    be continued.
    """

    def __init__(self, cluster: WatchedCluster, path: Path) -> None:
        self._cluster = cluster
        self._recorder = Recorder(path, cluster.table, on_problem=self._note)
        self.past = PastReader(path, cluster.name, cluster.boot, cluster.begun_ms, lambda: cluster.table.cluster_id)
        cluster.follow(self._take)

    @property
    def problem(self) -> str | None:
        """Returns why the recording ended; None while it continues."""
        return self._recorder.problem

    @property
    def is_recording(self) -> bool:
        return self._recorder.problem is None

    async def close(self) -> None:
        await self.past.close()
        self._recorder.close(self._cluster.clock_ms())

    def _take(self, step: Step) -> None:
        self._recorder.explain(step.changes, step.packed)
        self._recorder.tick(self._cluster.clock_ms())

    @staticmethod
    def _note(problem: str) -> None:
        _LOG.error("%s", problem)
