"""Recorded metadata logs of Kafka 4.1.0 (`tests/data/metadata`): their batches, and Kafka's own reading of them.

one-node       a combined node: one log from its beginning in two segments, one snapshot
three-nodes    a node of a three-node cluster: three segments, eight snapshots
records.tsv.gz what DumpLogSegments printed: file, offset, payload as JSON
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.metadata.frame import decode_record
from barnabas.protocol.message import Message
from barnabas.records.batch import BatchHeader, decode_batch, iter_headers

DATA = Path(__file__).resolve().parents[1] / "data" / "metadata"
RECORDED = ("one-node", "three-nodes")


def batches(path: Path) -> Iterator[tuple[BatchHeader, list[tuple[int, bytes, Message, int]]]]:
    """Yields (header, [(offset, value, record, version)]); control batches have no records here."""
    data = path.read_bytes()
    for position, header in iter_headers(data):
        records = []
        if not header.is_control:
            for record in decode_batch(data, position):
                assert record.value is not None
                message, version = decode_record(record.value)
                records.append((record.offset, record.value, message, version))
        yield header, records


def logs(name: str) -> list[Path]:
    return sorted((DATA / name).glob("*.log"))


def snapshots(name: str) -> list[Path]:
    return sorted(path for path in (DATA / name).glob("*.checkpoint"))


def dumped(name: str) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns {"type": ..., "version": ..., "data": ...} by file and offset."""
    files: dict[str, dict[int, dict[str, Any]]] = {}
    with gzip.open(DATA / name / "records.tsv.gz", "rt") as lines:
        for line in lines:
            file, offset, payload = line.rstrip("\n").split("\t")
            files.setdefault(file, {})[int(offset)] = json.loads(payload)
    return files
