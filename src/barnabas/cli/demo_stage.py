"""The parts of the demo, each independent: brokers, monitor (a thread), pipeline (a process), replay (a thread).

`Stage` is a context manager: whatever happens, it leaves nothing running. The parts do not know each other; the course
(`demo_course`) observes them and decides what comes next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from barnabas.cli import clients
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import held
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.changes import Change
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.texts import NO_NODE
from barnabas.monitor.watch import watch

if TYPE_CHECKING:
    from barnabas.orders.replay import Progress, ReplayOptions
    from barnabas.pipelines.commits import Commit

TOPIC: Final = "orders"
BROKERS: Final = 3
#: The number of records with which the pipeline runs its first batch. It takes far longer than the others, because
#: Spark compiles its code and starts its Python processes then; no order of the run waits for it.
WARM_UP: Final = 200
_POLL_S: Final = 0.5
_STOP_TIMEOUT_S: Final = 60.0
_STEP_TIMEOUT_S: Final = 900.0
_LOG_TAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class DemoPaths:
    """The files and directories of the demo."""

    directory: Path

    @property
    def cluster(self) -> Path:
        return self.directory / "cluster"

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    @property
    def pictures(self) -> Path:
        return self.directory / "pictures"

    @property
    def ledger(self) -> Path:
        return self.directory / "orders.ledger"

    @property
    def proof(self) -> Path:
        return self.directory / "proof.json"

    @property
    def mark(self) -> Path:
        """Marks the directory as one of the demo, so that a later demo can empty it."""
        return self.directory / ".barnabas-demo"

    @property
    def pipeline_log(self) -> Path:
        return self.directory / "pipeline.log"


class Watcher:
    """Runs the monitor in a thread; keeps the partitions as they were last seen, and each change that it reports."""

    def __init__(self, bootstrap: str, on_change: Callable[[Change], None]) -> None:
        #: The states in the order of their names; empty before the first poll.
        self.states: tuple[PartitionState, ...] = ()
        self.controller = NO_NODE
        self._addresses = [clients.address(each) for each in bootstrap.split(",")]
        self._on_change = on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    async def _watch(self) -> None:
        def clock_ms() -> int:
            return time.time_ns() // 1_000_000

        options = FeedOptions(topic=TOPIC, interval_s=_POLL_S)
        feeds = ClusterFeeds(self._addresses, Security.from_properties({}), options, clock_ms=clock_ms)
        async with aclosing(watch(feeds, interval_s=_POLL_S, clock_ms=clock_ms)) as steps:
            async for step in steps:
                if step.table is not None:
                    self.states, self.controller = tuple(step.table.values()), step.table.controller
                for change in step.changes:
                    self._on_change(change)
                if self._stopping.is_set():
                    return


class Replay:
    """Runs the producer in a thread. `error` is the exception that ended it, if any.

    It sends the first WARM_UP records immediately and holds the others until `release`.
    """

    def __init__(self, options: ReplayOptions) -> None:
        self.progress: Progress | None = None
        self.error: BaseException | None = None
        self._released = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(options,), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def warm_up_records(self) -> int | None:
        """The number of records in the log that were sent to warm up; None until all of them are acknowledged."""
        progress = self.progress
        if progress is None or progress.in_flight or (progress.sent < WARM_UP and not progress.finished):
            return None
        return sum(progress.acknowledged.values())

    def release(self) -> None:
        self._released.set()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self, options: ReplayOptions) -> None:
        from barnabas.orders.replay import replay

        def on_progress(progress: Progress) -> None:
            self.progress = progress

        try:
            replay(options, on_progress=on_progress, stop=self._stopping.is_set, hold=self._is_held)
        except BaseException as error:
            self.error = error

    def _is_held(self, progress: Progress) -> bool:
        return progress.sent >= WARM_UP and not self._released.is_set()


class Pipeline:
    """Runs `barnabas pipeline orders` as a process, with Spark's processes as its children."""

    def __init__(self, bootstrap: str, places: DemoPaths, sink: str) -> None:
        from barnabas.pipelines.commits import CommitLog

        self._commits = CommitLog(places.tables)
        self._log_path = places.pipeline_log
        arguments = ["--bootstrap", bootstrap, "--topic", TOPIC, "--tables", str(places.tables), "--sink", sink]
        command = [sys.executable, "-m", "barnabas.cli", "pipeline", "orders", *arguments]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--trigger", "0 seconds"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def has_started(self) -> bool:
        """Whether Spark is up and the stream is about to run."""
        return b" started in " in self._log_path.read_bytes()

    def last(self) -> Commit | None:
        return self._commits.last()

    def check(self) -> None:
        """Raises Failure if the pipeline's process has ended unexpectedly."""
        if self._process.poll() is not None:
            raise Failure(f"the pipeline exited with code {self._process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def stop(self) -> None:
        """Stops the pipeline's process cleanly: it completes the current batch. After a timeout it is killed; the
        tables are consistent in both cases.
        """
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kills the pipeline's process and its children, which are Spark's processes."""
        _kill_group(self._process)


class Stage:
    """The running parts of the demo (brokers, monitor, pipeline, replay), as a context manager that stops them."""

    def __init__(self, places: DemoPaths) -> None:
        self.places = places
        self.cluster = EmbeddedCluster(places.cluster)
        self.bootstrap = ""
        self.watcher: Watcher | None = None
        self.pipeline: Pipeline | None = None
        self.replay: Replay | None = None
        self._other: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C would leave the other parts running.
        with held():
            if self.pipeline is not None:
                self.pipeline.kill()
            if self._other is not None:
                _kill_group(self._other)
            if self.replay is not None:
                self.replay.close()
            if self.watcher is not None:
                self.watcher.close()
            self.cluster.stop()

    def start_brokers(self) -> None:
        self.cluster.start(brokers=BROKERS)
        self.bootstrap = self.cluster.bootstrap

    def run_to_end(self, pipeline: str, arguments: list[str]) -> None:
        """Runs another pipeline while the brokers are up. Raises Failure unless it succeeds."""
        command = [sys.executable, "-m", "barnabas.cli", "pipeline", pipeline, *arguments]
        with self.places.pipeline_log.open("ab") as log, held():
            process = self._other = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            if process.wait(_STEP_TIMEOUT_S):
                raise Failure(
                    f"the {pipeline} pipeline exited with code {process.returncode}", str(self.places.pipeline_log)
                )
        except subprocess.TimeoutExpired as error:
            raise Failure(f"the {pipeline} pipeline took more than {_STEP_TIMEOUT_S:.0f} s") from error
        finally:
            _kill_group(process)

    def stop_clients(self) -> None:
        """Stops the clients cleanly when all records are drained; the brokers stay up for the proof."""
        if self.pipeline is not None:
            self.pipeline.stop()
        if self.watcher is not None:
            self.watcher.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
