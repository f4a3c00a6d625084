"""Data directories that Apache Kafka 4.1.0 and 3.9.1 wrote, and Kafka's own dumps of them (tests/data/segments.tar.gz).

Each directory NAME has a twin NAME.dumps with the text of `kafka-dump-log.sh` for every partition in it.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ARCHIVE = Path(__file__).parent.parent / "data" / "segments.tar.gz"


@cache
def files() -> dict[str, bytes]:
    """Returns the bytes of every file in the archive, by path below `segments/`."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                found[member.name.removeprefix("segments/")] = content.read()
    return dict(sorted(found.items()))


def unpack(name: str, target: Path) -> Path:
    """Writes the files of directory `name` (for example "stage1-clean-shutdown" or "replicated/n1") below `target`."""
    for path, data in files().items():
        if path.startswith(name + "/"):
            place = target / path.removeprefix(name + "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return target


class DumpedRecord(NamedTuple):
    """A record as the dump prints it. `text` is what follows the header keys."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    header_keys: str | None
    text: str


class DumpedBatch(NamedTuple):
    """A batch as the dump prints it: its fields by their names in the dump, all as text."""

    fields: dict[str, str]
    records: list[DumpedRecord]


class DumpedLog(NamedTuple):
    """One file's section of a dump."""

    path: str
    batches: list[DumpedBatch]


_SECTION = re.compile(r"^Dumping (\S+)$")
_BATCH_V2 = re.compile(r"^baseOffset: ")
_BATCH_OLD = re.compile(r"^offset: \d+ position: ")
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?\d+) "
    r"keySize: (?P<key>-?\d+) valueSize: (?P<value>-?\d+)(?: sequence: -?\d+ headerKeys: \[(?P<headers>.*?)\]"
    r"| isValid: true crc: \d+\})(?P<text>.*)$",
    re.DOTALL,
)
_FIELD = re.compile(r"(\w+): (OptionalLong\[\d+\]|\S+)")


def dumps() -> Iterator[tuple[str, str]]:
    """Yields (directory of the partition's files, text) of every dump of a partition."""
    for path, data in files().items():
        if path.endswith(".dump.txt") and not path.endswith("checkpoints.dump.txt"):
            folder, _, name = path.rpartition("/")
            partition = re.sub(r"^(n\d)-", r"\1/", name.removesuffix(".dump.txt"))
            yield f"{folder.removesuffix('.dumps')}/{partition}", data.decode()


def sections(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yields (command, file, lines) for each file that the dump shows."""
    command, name, lines = "", "", list[str]()
    for line in text.split("\n"):
        start = _SECTION.match(line)
        if line.startswith("$ ") or start:
            if name:
                yield command, name, lines
            name, lines = (start.group(1) if start else ""), []
            if not start:
                command = line
        elif name:
            lines.append(line)
    if name:
        yield command, name, lines


def dumped_logs(text: str) -> Iterator[DumpedLog]:
    """Yields the `.log` and `.checkpoint` sections of a dump with their batches and records."""
    for command, path, lines in sections(text):
        if "--deep-iteration" in command:
            yield DumpedLog(path, _batches(lines))


def _batches(lines: list[str]) -> list[DumpedBatch]:
    batches: list[DumpedBatch] = []
    entries: list[str] = []
    for line in lines:
        if line.startswith("| offset: ") or _BATCH_V2.match(line) or _BATCH_OLD.match(line):
            entries.append(line)
        elif line.startswith(("Non-consecutive offsets in ", "Found ")):
            break  # remarks of the tool on compacted logs and torn tails
        elif entries and not line.startswith(("Log starting", "Snapshot end")):
            entries[-1] += "\n" + line  # a payload of several lines
    for entry in entries:
        if not entry.startswith("| "):
            batches.append(DumpedBatch(dict(_FIELD.findall(entry)), []))
            continue
        match = _RECORD.match(entry)
        assert match is not None, entry
        offset, timestamp, key, value = (int(match[name]) for name in ("offset", "timestamp", "key", "value"))
        text = match["text"].rstrip("\n")
        batches[-1].records.append(DumpedRecord(offset, timestamp, key, value, match["headers"], text))
    return batches
