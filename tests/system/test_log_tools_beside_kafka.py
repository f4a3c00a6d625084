"""`barnabas log` compared with Apache Kafka: the same output for damaged files, and a repaired directory that Kafka
serves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from tests.support import golden

import kafka_jars

pytestmark = pytest.mark.full

FIRST = "00000000000000000000"
WAIT_S = 120


def barnabas(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas.cli", "log", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("flags", "file", "position", "bit"),
    [
        ([], f"idempotent-0/{FIRST}.log", 175, 2),
        (["--print-data-log"], f"txn-rolled-0/{FIRST}.log", 10, 3),
        (["--deep-iteration"], f"rolled-0/{FIRST}.log", 7, 1),
        ([], "idempotent-0/00000000000000000017.snapshot", 20, 2),
        ([], f"rolled-0/{FIRST}.index", 6, 6),
        ([], f"rolled-0/{FIRST}.index", 7, 0),
        (["--verify-index-only"], f"rolled-0/{FIRST}.timeindex", 7, 0),
        (["--verify-index-only"], f"rolled-0/{FIRST}.timeindex", 11, 1),
        (["--index-sanity-check"], f"rolled-0/{FIRST}.timeindex", 0, 7),
        (["--cluster-metadata-decoder", "--max-bytes", "300"], f"rolled-0/{FIRST}.log", 0, 0),
        (["--offsets-decoder", "--max-bytes", "300"], f"rolled-0/{FIRST}.log", 0, 0),
    ],
)
def test_damaged_files_are_dumped_in_the_same_words(
    tmp_path: Path, flags: list[str], file: str, position: int, bit: int
) -> None:
    directory = golden.unpack("stage1-clean-shutdown", tmp_path)
    flip(directory / file, position, bit)
    arguments = [*flags, "--files", str(directory / file)]
    theirs = kafka_jars.run_tool("kafka.tools.DumpLogSegments", *arguments)
    ours = barnabas("dump", *arguments, directory=directory)
    assert ours.stdout == theirs.stdout
    complaints = [line for line in theirs.stderr.splitlines() if not line.startswith(("\tat ", "SLF4J", "["))]
    assert ours.stderr.splitlines() == complaints
    assert ours.returncode == theirs.returncode


def test_kafka_serves_what_repair_left(tmp_path: Path) -> None:
    kafka = kafka_jars.KafkaServer(tmp_path)
    kafka.start()
    try:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        for number in range(40):
            producer.produce("repaired", b"value-%d" % number, partition=0)
            producer.flush(WAIT_S)
        del producer
        kafka.kill()
        log = kafka.data_dir / "repaired-0" / f"{FIRST}.log"
        flip(log, log.stat().st_size // 2, 3)
        for directory in ("repaired-0", "__cluster_metadata-0"):
            (kafka.data_dir / directory / "repair-before").mkdir()
        assert barnabas("verify", str(kafka.data_dir), directory=tmp_path).returncode == 1
        assert barnabas("repair", "--yes", str(kafka.data_dir), directory=tmp_path).returncode == 0
        assert barnabas("verify", str(kafka.data_dir), directory=tmp_path).returncode == 0
        kafka.start()
        values = consumed(kafka.bootstrap)
        assert 10 < len(values) < 40
        assert values == [b"value-%d" % number for number in range(len(values))]
    finally:
        kafka.stop()
    checked = barnabas("verify", str(kafka.data_dir), directory=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert list((kafka.data_dir / "repaired-0").glob(f"repair-2*/{FIRST}.log.from-*"))


def consumed(bootstrap: str) -> list[bytes | None]:
    """Returns all values of the topic, up to its end."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        partition = confluent_kafka.TopicPartition("repaired", 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
        consumer.assign([partition])
        values: list[bytes | None] = []
        while len(values) < end:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            values.append(message.value())
        return values
    finally:
        consumer.close()
