"""Latency from a record's arrival in the log to its row in the tables.

Records have the time of their event, not of their arrival. So while a pipeline runs, the end offsets of the log are
sampled into `_arrivals.jsonl` next to the tables, a few times a second and only when they have changed. With the
commits' offset ranges and times, that gives each record's latency to within one sample. Records that were in the log
before the pipeline started, or arrived while it was stopped, are a backlog and do not count.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from barnabas.pipelines.commits import Commit

ARRIVALS = "_arrivals.jsonl"
INTERVAL_S = 0.2

EndOffsets = Callable[[], Mapping[int, int]]


class Arrivals:
    """A thread that samples the end offsets of the log until it is closed."""

    def __init__(self, tables: Path, end_offsets: EndOffsets, interval_s: float = INTERVAL_S) -> None:
        self._file = os.open(tables / ARRIVALS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._end_offsets = end_offsets
        self._interval_s = interval_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        os.close(self._file)

    def _run(self) -> None:
        before: dict[int, int] = {}
        started = True
        while not self._closed.is_set():
            try:
                ends = dict(self._end_offsets())
            except (OSError, RuntimeError):
                # During an election of a leader there are no end offsets; the next sample covers this time too.
                ends = before
            if ends != before and self._write(_sample(ends, started)):
                before, started = ends, False
            self._closed.wait(self._interval_s)

    def _write(self, sample: str) -> bool:
        """Writes a sample. Returns False on a full disk, which the pipeline itself reports: the next sample covers this
        one too.
        """
        try:
            return os.write(self._file, sample.encode()) == len(sample)
        except OSError:
            return False


def _sample(ends: Mapping[int, int], started: bool) -> str:
    sample = {"time_ms": time.time_ns() // 1_000_000, "ends": dict(ends)} | ({"started": True} if started else {})
    # The previous line may have been cut off; empty lines do no harm.
    return "\n" + json.dumps(sample, separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True)
class Latencies:
    """Groups of records with equal latency: the time of their commit, their latency and their number."""

    recorded_ms: np.ndarray
    latency_ms: np.ndarray
    records: np.ndarray

    def percentile_ms(self, percent: float) -> float | None:
        """Returns this percentile of the latency; None if there are no records."""
        if not self.records.sum():
            return None
        order = np.argsort(self.latency_ms)
        shares = np.cumsum(self.records[order]) / self.records.sum()
        return float(self.latency_ms[order][np.searchsorted(shares, percent / 100)])


def latencies(tables: Path, commits: Iterable[Commit]) -> Latencies:
    """Returns the latencies of all records whose arrival was sampled.

    A record arrived between two samples; the middle between them is taken as its time.
    """
    samples = _samples(tables / ARRIVALS)
    found: list[tuple[int, float, int]] = []
    for commit in commits:
        for partition, (first, end) in commit.ranges.items():
            for before_ms, arrived_ms, begin, stop in samples.get(partition, ()):
                records = min(end, stop) - max(first, begin)
                if records > 0 and arrived_ms <= commit.recorded_ms:
                    middle_ms = (before_ms + arrived_ms) / 2
                    found.append((commit.recorded_ms, commit.recorded_ms - middle_ms, records))
    columns = np.array(found, dtype=np.float64).reshape(-1, 3)
    return Latencies(columns[:, 0], columns[:, 1], columns[:, 2])


def _samples(file: Path) -> dict[int, list[tuple[int, int, int, int]]]:
    """Returns partition -> (time of the previous sample, time, first offset that arrived in between, end offset)."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    ends: dict[int, int] = {}
    before_ms = 0
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            sample = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if sample.get("started"):
            ends = {}
        else:
            earlier_ms = max(before_ms, sample["time_ms"] - int(INTERVAL_S * 2000))
            for partition, end in ((int(key), value) for key, value in sample["ends"].items()):
                begin = ends.get(partition, 0)
                if end > begin:
                    found.setdefault(partition, []).append((earlier_ms, sample["time_ms"], begin, end))
        ends |= {int(key): value for key, value in sample["ends"].items()}
        before_ms = sample["time_ms"]
    return found
