"""Kafka's own DumpLogSegments finds no fault in a log after all kinds of work, restarts and kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.clients.drivers import ProcessClient
from tests.support.batches import NOW_MS
from tests.support.log_world import LogWorld, encode_records

from barnabas.common.log_config import LogConfig
from barnabas.records.batch import encode_end_txn_marker
from barnabas.server.disk import OsDisk
from barnabas.storage.log import Origin

_COMPLAINTS = ("ismatch", "Non-consecutive", "Found ", "Exception", "corrupt")


class Worker:
    """Does to a log, by chance, what producers, coordinators and operators do."""

    def __init__(self, root: Path, seed: int, interval_bytes: int) -> None:
        self.random = random.Random(seed)
        config = LogConfig(segment_bytes=20_000, index_interval_bytes=interval_bytes, segment_index_bytes=400)
        self.world = LogWorld(config, OsDisk(), str(root))

    def run(self, steps: int) -> None:
        for step in range(steps):
            self._append(step)
            chance = self.random.random()
            if chance < 0.01:
                self.world.restart()
            elif chance < 0.02:
                self.world.kill()
            elif chance < 0.03:
                log = self.world.log
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - self.random.randrange(30)))
        self.world.log.close(clean=True)

    def _append(self, step: int) -> None:
        start = NOW_MS - 10_000_000 + step * 3000
        times = [start + self.random.randrange(5_000_000) for _ in range(self.random.randrange(1, 6))]
        kind = self.random.random()
        producer = self.random.randrange(1, 4)
        entry = self.world.log.producers.producers.get(producer)
        if kind < 0.3:
            sequence = 0 if entry is None else entry.last_sequence + 1
            batch = encode_records(
                *times, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
            )
            self.world.append_batch(batch)
        elif kind < 0.4 and entry is not None and entry.txn_first_offset is not None:
            marker = encode_end_txn_marker(
                commit=self.random.random() < 0.5,
                coordinator_epoch=0,
                timestamp=NOW_MS,
                producer_id=producer,
                producer_epoch=0,
            )
            self.world.append_batch(marker, origin=Origin.COORDINATOR)
        else:
            value = b"x" * self.random.randrange(300)
            self.world.append(*times, epoch=step // 100, value=value, codec=self.random.randrange(5))


@pytest.mark.parametrize("seed, interval_bytes", [(1, 0), (2, 200), (3, 4096)])
def test_kafka_finds_no_fault(java: ProcessClient, tmp_path: Path, seed: int, interval_bytes: int) -> None:
    worker = Worker(tmp_path, seed, interval_bytes)
    worker.run(600)
    folder = Path(worker.world.directory)
    logs = sorted(folder.glob("*.log"))
    indexes = [
        path for kind in ("index", "timeindex", "txnindex", "snapshot") for path in sorted(folder.glob(f"*.{kind}"))
    ]
    assert len(logs) > 3
    assert any(path.suffix == ".txnindex" for path in indexes)
    records = _dump(java, logs, "--deep-iteration", "--print-data-log")
    assert records.count("| offset: ") == len(worker.world.records())
    assert "isvalid: false" not in records
    for text in (records, _dump(java, indexes, "--verify-index-only"), _dump(java, indexes)):
        assert [complaint for complaint in _COMPLAINTS if complaint in text] == []
    checked = _dump(java, indexes, "--index-sanity-check")
    sparse = [path for path in indexes if path.suffix in (".index", ".timeindex")]
    assert checked.count("passed sanity check.") == len(sparse)


def _dump(java: ProcessClient, files: list[Path], *flags: str) -> str:
    result = java.tool("kafka.tools.DumpLogSegments", *flags, "--files", ",".join(map(str, files)))
    assert result.code == 0, result.text
    return result.text
