"""The findings of Apache Kafka's DumpLogSegments in the directories that the servers under test left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.clients.drivers import ProcessClient

COMPLAINTS = ("ismatch", "Non-consecutive", "Found ", "Exception", "corrupt", "isvalid: false")
_FILES_MAX = 200


def faults_in(java: ProcessClient, directories: Iterable[Path]) -> list[str]:
    """Returns all lines that report a fault in a segment or an index below these directories, in few calls of one
    JVM.
    """
    logs = [path for directory in directories for path in sorted(directory.glob("*/*.log"))]
    logs = [path for path in logs if path.stem.isdecimal() and not path.parent.name.endswith("-delete")]
    indexes = [found for log in logs for kind in ("index", "timeindex", "txnindex") for found in _beside(log, kind)]
    sparse = [path for path in indexes if path.suffix != ".txnindex"]
    found: list[str] = []
    for files, flag in ((logs, "--deep-iteration"), (indexes, "--verify-index-only"), (sparse, "--index-sanity-check")):
        for start in range(0, len(files), _FILES_MAX):
            names = ",".join(map(str, files[start : start + _FILES_MAX]))
            result = java.tool("kafka.tools.DumpLogSegments", flag, "--files", names)
            found += [f"exit code {result.code}"] if result.code else []
            found += [line for line in result.text.splitlines() if any(word in line for word in COMPLAINTS)]
    return found


def _beside(log: Path, kind: str) -> list[Path]:
    path = log.with_suffix(f".{kind}")
    return [path] if path.exists() else []
