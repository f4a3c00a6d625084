"""The logs that Apache Kafka's cleaner left, compacted again from its input: the same bytes in the same files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import golden
from tests.support.log_ends import end_of

from barnabas.common.config import BrokerConfig
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost, VirtualTime
from barnabas.storage.checkpoints import CLEANER_CHECKPOINT, decode_offsets
from barnabas.storage.log_manager import LogManager

BEFORE, AFTER = "stage1-clean-shutdown", "stage2-cleaned"


def _config(**settings: int) -> LogConfig:
    return replace(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01), **settings)  # type: ignore[arg-type]


#: The settings of each topic at the time, and the time when Kafka began to clean it, which its delete horizons show.
TOPICS = {
    "compacted": (_config(segment_bytes=1200, index_interval_bytes=100), 1795228409549),
    "compacted-fast": (_config(segment_bytes=1200, delete_retention_ms=100), 1795228413255),
    "compacted-txn": (_config(segment_bytes=300), 1795228413255),
}


def _clean(topic: str) -> MemoryHost:
    settings, wall_ms = TOPICS[topic]
    host = MemoryHost(time=VirtualTime(wall_ms - EPOCH_WALL_MS - 15_000))
    host.disk.make_dirs("/logs")
    for path, data in golden.files().items():
        if path.startswith(f"{BEFORE}/{topic}-0/"):
            host.disk.make_dirs(f"/logs/{topic}-0")
            host.disk.write(f"/logs/{path.removeprefix(BEFORE + '/')}", data)
    host.disk.write("/logs/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":1}')
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "log.dirs": "/logs",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
        }
    )
    manager = LogManager(host, config)
    partition = TopicPartition(topic, 0)
    manager.start(high_watermark_of=end_of(manager))
    log = manager.get(partition)
    assert log is not None
    log.config = settings
    host.time.run_for(20_000)
    assert manager.cleaner.passes == 1
    assert host.faults.reported == []
    clean = decode_offsets("", host.disk.read(f"/logs/{CLEANER_CHECKPOINT}"))
    assert clean == {partition: log.segments.active.base_offset}
    return host


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_segments_are_left(topic: str) -> None:
    host = _clean(topic)
    mine = {name: host.disk.read(f"/logs/{topic}-0/{name}") for name in host.disk.list_dir(f"/logs/{topic}-0")}
    prefix = f"{AFTER}/{topic}-0/"
    kafka = {path.removeprefix(prefix): data for path, data in golden.files().items() if path.startswith(prefix)}
    # Kafka was started again for it, and appended to one of them afterwards.
    later = {"leader-epoch-checkpoint"}
    if topic == "compacted-fast":
        later |= {"00000000000000000055.snapshot", "00000000000000000045.log", "00000000000000000045.timeindex"}
    mine, kafka = ({name: files[name] for name in files.keys() - later} for files in (mine, kafka))
    assert sorted(mine) == sorted(kafka)
    for name, data in kafka.items():
        assert mine[name] == data, name
