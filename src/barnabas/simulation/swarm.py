"""The configuration of a run, drawn from its seed: times, sizes, limits and expiries.

With Kafka's defaults a run of a minute never rolls a segment, writes a snapshot or shrinks an ISR. So each seed draws
some groups of keys, small values often and the defaults sometimes. Drawn values are valid together, and none of them
allows the loss of what the run's checks require.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from barnabas.simulation.simulated_cluster import Layout

#: The share of groups that keep the defaults.
_DEFAULT_SHARE: Final = 0.3

#: A value of a group: the keys that belong together.
_Choice = Mapping[str, str]

_SESSIONS: Final[Sequence[_Choice]] = (
    {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"},
    {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "1000"},
    {"broker.session.timeout.ms": "18000", "broker.heartbeat.interval.ms": "2000"},
)
_ZOOKEEPER_SESSIONS: Final[Sequence[_Choice]] = (
    {"zookeeper.session.timeout.ms": "4000", "zookeeper.connection.timeout.ms": "4000"},
    {"zookeeper.session.timeout.ms": "8000"},
    {"zookeeper.session.timeout.ms": "30000"},
)
_LAGS: Final[Sequence[_Choice]] = (
    {"replica.lag.time.max.ms": "1000", "replica.socket.timeout.ms": "3000"},
    {"replica.lag.time.max.ms": "3000", "replica.socket.timeout.ms": "10000"},
    {"replica.lag.time.max.ms": "10000"},
)
_REPLICA_FETCHES: Final[Sequence[_Choice]] = (
    {"replica.fetch.wait.max.ms": "200"},
    {"replica.fetch.wait.max.ms": "900", "replica.fetch.backoff.ms": "100"},
    {"replica.fetch.max.bytes": "300", "replica.fetch.response.max.bytes": "2000"},
    {"replica.fetch.max.bytes": "2000"},
    {"replica.fetch.min.bytes": "200"},
)
_QUORUMS: Final[Sequence[_Choice]] = (
    {
        "controller.quorum.request.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "1500",
        "controller.quorum.election.timeout.ms": "500",
    },
    {"controller.quorum.fetch.timeout.ms": "5000", "controller.quorum.election.backoff.max.ms": "3000"},
)
_METADATA_LOGS: Final[Sequence[_Choice]] = (
    {"metadata.log.max.record.bytes.between.snapshots": "3000"},
    {"metadata.log.max.snapshot.interval.ms": "5000"},
    {
        "metadata.log.max.record.bytes.between.snapshots": "10000",
        "metadata.log.segment.ms": "7000",
        "metadata.max.retention.bytes": "20000",
    },
)
_SEGMENTS: Final[Sequence[_Choice]] = (
    {"log.roll.ms": "3000"},
    {"log.roll.ms": "10000", "log.roll.jitter.ms": "5000", "log.segment.delete.delay.ms": "1000"},
    {"log.index.interval.bytes": "0", "log.index.size.max.bytes": "240"},
    {"log.index.interval.bytes": "100", "log.index.size.max.bytes": "96", "log.segment.delete.delay.ms": "0"},
    {"log.segment.bytes": "1048576", "log.index.interval.bytes": "1"},
)
_FLUSHES: Final[Sequence[_Choice]] = (
    {"log.flush.interval.messages": "7"},
    {"log.flush.interval.ms": "1000", "log.flush.scheduler.interval.ms": "500"},
    {"log.flush.offset.checkpoint.interval.ms": "1000", "log.flush.start.offset.checkpoint.interval.ms": "1000"},
)
_FETCH_SESSIONS: Final[Sequence[_Choice]] = (
    {"max.incremental.fetch.session.cache.slots": "0"},
    {"max.incremental.fetch.session.cache.slots": "1"},
    {"max.incremental.fetch.session.cache.slots": "2", "fetch.max.bytes": "1024"},
)
_CLEANING: Final[Sequence[_Choice]] = (
    {
        "log.cleaner.backoff.ms": "1000",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.delete.retention.ms": "1000",
        "offsets.topic.segment.bytes": "1048576",
    },
    {"log.cleaner.backoff.ms": "5000", "log.retention.check.interval.ms": "2000"},
)
_COORDINATORS: Final[Sequence[_Choice]] = (
    {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"},
    {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "3"},
    {"group.initial.rebalance.delay.ms": "3000"},
)
_CONNECTIONS: Final[Sequence[_Choice]] = (
    {"connections.max.idle.ms": "5000"},
    {"socket.request.max.bytes": "100000"},
)
#: Automatic preferred elections happen within a run.
_BALANCES: Final[Sequence[_Choice]] = (
    {"leader.imbalance.check.interval.seconds": "2"},
    {"leader.imbalance.check.interval.seconds": "15"},
)
#: Log directories between which replicas can be moved. The metadata log is in the first one.
_DIRECTORIES: Final[Sequence[_Choice]] = ({"log.dirs": "/data,/more"}, {"log.dirs": "/data,/more,/most"})
#: Windows in which quotas of clients and limits of replication are averaged.
_QUOTA_WINDOWS: Final[Sequence[_Choice]] = (
    {"quota.window.num": "3", "replication.quota.window.num": "3", "alter.log.dirs.replication.quota.window.num": "3"},
    {"quota.window.size.seconds": "2", "controller.quota.window.num": "2"},
)

_SHARED: Final = (_LAGS, _REPLICA_FETCHES, _SEGMENTS, _FLUSHES, _FETCH_SESSIONS, _CLEANING, _COORDINATORS, _CONNECTIONS)
_OF_A_QUORUM: Final = (_SESSIONS, _QUORUMS, _METADATA_LOGS)
_OF_ZOOKEEPER: Final = (_ZOOKEEPER_SESSIONS,)


def draw_properties(random: Random, layout: Layout) -> dict[str, str]:
    """Returns the properties of all nodes of a run that are not the defaults."""
    found: dict[str, str] = {}
    for group in _groups(layout):
        if random.random() >= _DEFAULT_SHARE:
            found.update(random.choice(group))
    return found


def choices(layout: Layout) -> list[_Choice]:
    """Returns every choice of every group."""
    return [choice for group in _groups(layout) for choice in group]


def _groups(layout: Layout) -> tuple[Sequence[_Choice], ...]:
    own = _OF_ZOOKEEPER if layout.zookeeper else _OF_A_QUORUM
    return (*_SHARED, *own, _BALANCES, _DIRECTORIES, _QUOTA_WINDOWS)
