"""Log and LogManager: sizes and offsets of every log, and the state of the log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.replicas import labels_of
from barnabas.common.metrics import COUNTER, GAUGE, Family, Labels, Number, Sample, labelled, single
from barnabas.common.types import METADATA_TOPIC
from barnabas.storage.log import Log

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_LOG: Final = "kafka_log_log_"
_MANAGER: Final = "kafka_log_logmanager_"
_METRICS: Final[tuple[tuple[str, str, Callable[[Log], Number]], ...]] = (
    ("size", "Size of the log in bytes", lambda log: log.size_bytes),
    ("logstartoffset", "Log start offset", lambda log: log.log_start_offset),
    ("logendoffset", "Log end offset", lambda log: log.log_end_offset),
    ("numlogsegments", "Number of segments of the log", lambda log: len(log.segments)),
)


def collect(broker: Broker) -> Iterator[Family]:
    logs: list[tuple[Labels, Log]] = [(labels_of(each), each.log) for each in broker.replicas.partitions()]
    if broker.is_in_quorum:
        logs.append(((("topic", METADATA_TOPIC), ("partition", "0")), broker.quorum.raft.log.log))
    for name, text, value in _METRICS:
        yield Family(_LOG + name, GAUGE, text, (_sample(labels, log, value) for labels, log in logs))
    if broker.config.is_broker:
        yield from _directories(broker)


def _sample(labels: Labels, log: Log, value: Callable[[Log], Number]) -> Sample:
    return Sample(labels, value(log))


def _directories(broker: Broker) -> Iterator[Family]:
    manager = broker.logs
    offline = manager.offline_directories
    yield single(f"{_MANAGER}offlinelogdirectorycount", GAUGE, "Failed log directories", len(offline))
    yield labelled(
        f"{_MANAGER}logdirectoryoffline",
        GAUGE,
        "1 if this log directory failed",
        "logDirectory",
        [(path, int(path in offline)) for path in manager.directories],
    )
    space = {}
    for path in manager.directories:
        try:
            space[path] = broker.host.disk.usage(path)
        except OSError:
            continue
    for place, kind in enumerate(("total", "usable")):
        yield labelled(
            f"barnabas_log_directory_{kind}_bytes",
            GAUGE,
            "Space on the file system of a log directory",
            "directory",
            [(path, usage[place]) for path, usage in space.items()],
        )
    damaged = manager.damaged
    yield single(
        "barnabas_logs_damaged",
        GAUGE,
        "Partitions whose log lost records or cannot be opened, and is not yet repaired",
        len(damaged.waiting) + len(damaged.unusable) + len(damaged.missing),
    )
    yield single(
        "barnabas_logs_found_damaged_total",
        COUNTER,
        "Logs found damaged since the broker started",
        damaged.total,
    )
    yield single(
        "barnabas_log_lost_offsets",
        GAUGE,
        "Offsets lost from logs of this broker; reads of them return CORRUPT_MESSAGE",
        sum(hole.end - hole.start for log in manager for hole in log.holes),
    )
    yield labelled(
        "barnabas_log_directory_full",
        GAUGE,
        "1 if this directory takes no writes because a recent write found no space",
        "directory",
        [(path, int(path in manager.roots.full)) for path in manager.directories],
    )
