"""A history of about a gigabyte, as the recorder writes it: days of a large cluster with samples of sizes and offsets,
restarts of brokers, and replicas that fall behind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from barnabas.history.recorder import Recorder
from barnabas.history.retention import Bounds
from barnabas.monitor.delta import Delta
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.table import ClusterTable
from history_model import Model

BEGIN_MS: Final = 1_700_000_000_000
SAMPLE_MS: Final = 300_000
BROKERS: Final = 20
PARTITIONS_PER_TOPIC: Final = 10
#: The changes of partitions between two samples: mostly single ones, and sometimes the restart of a broker.
_FEW, _MANY, _RESTARTS_EVERY = 200, 4_000, 12
_BYTES_PER_RECORD: Final = 300


def write_large_history(file: Path, *, size_bytes: int, partitions: int = 60_000, seed: int = 1) -> int:
    """Records until the file has this size. Returns the time of the last moment."""
    model = Model(partitions, PARTITIONS_PER_TOPIC, seed)
    chance = np.random.default_rng(seed)
    table = ClusterTable()
    brokers = {number: BrokerState(number, f"host{number}", 9092) for number in range(1, BROKERS + 1)}
    table.apply(Delta(BEGIN_MS, brokers=brokers, controller=1, cluster_id="large"))
    table.apply(model.delta(range(partitions), BEGIN_MS, is_complete=True))
    recorder = Recorder(file, table, bounds=Bounds(3_650, 10**12))
    rows = table.rows
    now_ms, number = BEGIN_MS, 0
    while _written(file) < size_bytes:
        number += 1
        now_ms += SAMPLE_MS
        # Nine of ten partitions are written to.
        growth = chance.integers(0, 200_000, len(rows)) * (chance.random(len(rows)) < 0.9)
        volumes = table.volumes
        volumes.end_offset[rows] = np.maximum(volumes.end_offset[rows], 0) + growth[:, None]
        volumes.size[rows] = volumes.end_offset[rows] * _BYTES_PER_RECORD
        count = _MANY if number % _RESTARTS_EVERY == 0 else _FEW
        changed = sorted(model.random.sample(range(partitions), count))
        for row in changed:
            model.change(row)
        table.apply(model.delta(changed, now_ms - 1_000))
        recorder.tick(now_ms)
    recorder.close(now_ms)
    assert recorder.problem is None, recorder.problem
    return now_ms


def _written(file: Path) -> int:
    """Returns the bytes of the file and of what is not yet in it."""
    log = file.with_name(f"{file.name}-wal")
    return file.stat().st_size + (log.stat().st_size if log.exists() else 0)
