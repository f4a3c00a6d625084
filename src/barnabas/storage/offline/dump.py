"""Log files as text: the exact output of Apache Kafka's DumpLogSegments, so that readers and scripts that know the one
can read the other.

    .log .checkpoint      batches, and with deep iteration their records    `dump_log`
    .index .timeindex     entries, each looked up in the log                `dump_indexes`
    .txnindex .snapshot   aborted transactions, producers                   `dump_indexes`

The dump goes to `out`, complaints to `err`. Complaints about contradictions between files come last, as in Kafka. Where
Kafka's tool ends with an exception, `DumpFailed` names it, and the remaining files are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from barnabas.storage.offline.dump_indexes import IndexDump
from barnabas.storage.offline.dump_log import (
    CHECKPOINT_SUFFIX,
    DEFAULT_MAX_MESSAGE_BYTES,
    UNLIMITED,
    Decoder,
    DumpedFile,
    DumpFailed,
    DumpOptions,
    LogDump,
    decode_as_text,
)

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "DUMPED_SUFFIXES",
    "UNLIMITED",
    "Decoder",
    "DumpFailed",
    "DumpOptions",
    "DumpedFile",
    "decode_as_text",
    "dump_files",
]

DUMPED_SUFFIXES = (
    LOG_SUFFIX,
    CHECKPOINT_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)


def dump_files(
    disk: Disk,
    files: Iterable[DumpedFile],
    options: DumpOptions,
    out: Callable[[str], None],
    err: Callable[[str], None],
) -> None:
    """Prints the files one after the other. Raises DumpFailed, OSError."""
    log = LogDump(disk, options, out)
    indexes = IndexDump(disk, options, out, err)
    by_suffix = {
        LOG_SUFFIX: log.dump,
        CHECKPOINT_SUFFIX: log.dump,
        INDEX_SUFFIX: indexes.dump_index,
        TIME_INDEX_SUFFIX: indexes.dump_time_index,
        TXN_INDEX_SUFFIX: indexes.dump_transactions,
        SNAPSHOT_SUFFIX: indexes.dump_producers,
    }
    for file in files:
        out(f"Dumping {file.path}\n")
        dump = by_suffix.get(file.name[max(file.name.rfind("."), 0) :])
        if dump is None:
            err(f"Ignoring unknown file {file.path}\n")
        else:
            dump(file)
    indexes.finish()
    log.finish(err)
