"""A week of a large cluster as a history, in one separate process: written, and read at random moments.

    history_model.py '{"partitions": 100000, "partitions_per_topic": 10, "events": 2000000, "days": 7, "seed": 1,
                       "folder": "..."}'

The events are restarts of brokers, which change the ISR and leaders of many partitions at a time, and single replicas
that fall behind and catch up. Times are CPU times of one core. Prints one JSON object.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.history.retention import DAY_MS, Bounds
from barnabas.monitor.delta import Delta, Partitions, Source
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.table import ClusterTable

_BROKERS = 20
_BEGIN_MS = 1_700_000_000_000
_LARGE, _SMALL = 1_000, 20
_QUESTIONS = 400


class Model:
    """The states of all partitions, and the deltas that change them."""

    def __init__(self, partitions: int, per_topic: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.per_topic = per_topic
        brokers = list(range(1, _BROKERS + 1))
        self.replicas = [self.random.sample(brokers, 3) for _ in range(partitions)]
        self.isr = [list(each) for each in self.replicas]
        self.leader = [each[0] for each in self.replicas]
        self.epoch = [0] * partitions

    def delta(self, rows: Sequence[int], time_ms: int, *, is_complete: bool = False) -> Delta:
        found = Partitions()
        topic = -1
        for row in rows:
            if row // self.per_topic != topic:
                topic = row // self.per_topic
                found.add_topic(f"topic-{topic}", topic.to_bytes(16, "big"), is_complete=is_complete)
            found.add(row % self.per_topic, self.leader[row], self.epoch[row], self.replicas[row], self.isr[row])
        return Delta(time_ms, Source.METADATA_LOG, partitions=found)

    def change(self, row: int) -> None:
        """Lets a replica leave the ISR, or all replicas be in it again."""
        isr, replicas = self.isr[row], self.replicas[row]
        if len(isr) < len(replicas):
            self.isr[row] = list(replicas)
        else:
            gone = self.random.choice(replicas)
            self.isr[row] = [each for each in replicas if each != gone]
        if self.leader[row] not in self.isr[row] or self.random.random() < 0.3:
            self.leader[row] = self.isr[row][0]
            self.epoch[row] += 1

    def batches(self, events: int) -> list[int]:
        """Returns the sizes of changes: half of the events are in large ones."""
        sizes: list[int] = []
        left = events
        while left > 0:
            size = _LARGE if self.random.random() < _SMALL / (_LARGE + _SMALL) else _SMALL
            sizes.append(min(size, left))
            left -= sizes[-1]
        return sizes


def measure(partitions: int, partitions_per_topic: int, events: int, days: int, seed: int, folder: str) -> Any:
    written = write(partitions, partitions_per_topic, events, days, seed, folder)
    model = written.pop("model")
    with History.open(Path(folder) / "history.db") as history:
        return {**written, **_asked(history, model, partitions, days)}


def write(partitions: int, partitions_per_topic: int, events: int, days: int, seed: int, folder: str) -> dict[str, Any]:
    """Writes `history.db`. Returns the model, and the cost."""
    model = Model(partitions, partitions_per_topic, seed)
    table = ClusterTable()
    brokers = {number: BrokerState(number, f"host{number}", 9092) for number in range(1, _BROKERS + 1)}
    table.apply(Delta(_BEGIN_MS, brokers=brokers, controller=1, cluster_id="bench"))
    table.apply(model.delta(range(partitions), _BEGIN_MS, is_complete=True))
    file = Path(folder) / "history.db"
    recorder = Recorder(file, table, bounds=Bounds(days + 1, 10**12))
    spent_s, written = 0.0, 0
    take = recorder._on_change
    sizes = model.batches(events)
    times = sorted(model.random.randrange(days * DAY_MS) for _ in sizes)
    change_sets: list[Any] = []
    recorder._unsubscribe()
    table.subscribe(change_sets.append)
    for size, offset_ms in zip(sizes, times, strict=True):
        rows = sorted(model.random.sample(range(partitions), min(size, partitions)))
        for row in rows:
            model.change(row)
        table.apply(model.delta(rows, _BEGIN_MS + offset_ms))
        begun = time.process_time()
        for change_set in change_sets:
            take(change_set)
            written += len(change_set.rows)
        spent_s += time.process_time() - begun
        change_sets.clear()
    begun = time.process_time()
    recorder._unsubscribe = lambda: None
    recorder.close()
    spent_s += time.process_time() - begun
    assert recorder.problem is None, recorder.problem
    return {
        "model": model,
        "record_us": spent_s / written * 1e6,
        "file_mb": file.stat().st_size / 1e6,
        "events": written,
    }


def _asked(history: History, model: Model, partitions: int, days: int) -> dict[str, float]:
    draw = model.random
    states = _times(lambda: history.at(_BEGIN_MS + draw.randrange(days * DAY_MS // 2, days * DAY_MS - DAY_MS // 4)))

    def one() -> object:
        row = draw.randrange(partitions)
        return history.partition(f"topic-{row // model.per_topic}", row % model.per_topic)

    lives = _times(one)
    return {
        "state_p50_ms": float(np.percentile(states, 50)),
        "state_p99_ms": float(np.percentile(states, 99)),
        "partition_p50_ms": float(np.percentile(lives, 50)),
        "partition_p99_ms": float(np.percentile(lives, 99)),
    }


def _times(question: Callable[[], object]) -> list[float]:
    """Returns how long each answer took, in milliseconds. The first one reads the dictionaries of the file."""
    question()
    found = []
    for _ in range(_QUESTIONS):
        begun = time.process_time()
        question()
        found.append((time.process_time() - begun) * 1000)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))), flush=True)
