"""The metrics that are not of single partitions: the cluster, its brokers, topics, groups, and the monitor itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from barnabas.monitor.availability import Availability
from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.metric_blocks import escaped
from barnabas.monitor.severity import STATES
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import NO_NODE

Labels = Mapping[str, object]
Sample = tuple[Labels, float]

GAUGE: Final = "gauge"
COUNTER: Final = "counter"


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{escaped(str(each))}"' for label, each in labels.items())
        lines.append(f"{name}{{{shown}}} {value}\n" if shown else f"{name} {value}\n")
    return "".join(lines)


def cluster_text(table: ClusterTable, problem: str | None, now_ms: int) -> Iterator[str]:
    """Yields the families of the cluster and its brokers. `problem` says why no broker answers."""
    brokers = [table.brokers[broker_id] for broker_id in sorted(table.brokers)]
    yield family("barnabas_cluster_up", GAUGE, "1 if a broker of the cluster answers", [({}, int(problem is None))])
    yield family("kafka_brokers", GAUGE, "Number of brokers in the cluster", [({}, len(brokers))])
    yield family(
        "kafka_broker_info",
        GAUGE,
        "Brokers with their addresses",
        [({"id": each.broker_id, "address": f"{each.host}:{each.port}"}, 1) for each in brokers],
    )
    yield family(
        "barnabas_broker_up",
        GAUGE,
        "1 if a broker responds, 0 if the values of its replicas are outdated",
        [({"broker": each.broker_id}, int(each.problem is None)) for each in brokers],
    )
    yield family(
        "barnabas_broker_answer_age_seconds",
        GAUGE,
        "Time since the last answer of a broker",
        [
            ({"broker": each.broker_id}, max(0, now_ms - each.answered_ms) / 1000)
            for each in brokers
            if each.answered_ms
        ],
    )
    yield family(
        "barnabas_active_controller",
        GAUGE,
        "Id of the active controller; -1 without one",
        [({}, NO_NODE if table.controller is None else table.controller)],
    )
    yield family(
        "barnabas_partitions",
        GAUGE,
        "Partitions by their state",
        [({"state": STATES[severity]}, count) for severity, count in table.counts().items()],
    )
    yield family(
        "kafka_topic_partitions",
        GAUGE,
        "Number of partitions of a topic",
        [({"topic": name}, table.topics.by_name[name].count) for name in table.topics.names()],
    )


def group_text(table: ClusterTable, groups: Mapping[str, GroupState]) -> Iterator[str]:
    """Yields the families of the consumer groups, under kafka_exporter's names."""
    offsets: list[Sample] = []
    lags: list[Sample] = []
    offset_sums: dict[tuple[str, str], int] = {}
    lag_sums: dict[tuple[str, str], int] = {}
    for group, state in sorted(groups.items()):
        for (topic, partition), offset in sorted(state.offsets.items()):
            labels = {"consumergroup": group, "partition": partition, "topic": topic}
            offsets.append((labels, offset))
            offset_sums[group, topic] = offset_sums.get((group, topic), 0) + offset
            row = table.row_of(topic, partition)
            end = -1 if row is None else int(table.volumes.high_watermark[row])
            if end >= 0:
                lag = max(0, end - offset)
                lags.append((labels, lag))
                lag_sums[group, topic] = lag_sums.get((group, topic), 0) + lag
    name = "kafka_consumergroup"
    yield family(f"{name}_current_offset", GAUGE, "Committed offset of a group at a partition", offsets)
    yield family(f"{name}_current_offset_sum", GAUGE, "Committed offsets of a group, by topic", _sums(offset_sums))
    yield family(f"{name}_lag", GAUGE, "Records between the committed offset and the end of a partition", lags)
    yield family(f"{name}_lag_sum", GAUGE, "Lag of a group, by topic", _sums(lag_sums))
    members = [({"consumergroup": group}, state.members) for group, state in sorted(groups.items())]
    known: list[Sample] = [(labels, count) for labels, count in members if count is not None]
    yield family(f"{name}_members", GAUGE, "Members of a group", known)


def _sums(sums: Mapping[tuple[str, str], int]) -> list[Sample]:
    return [({"consumergroup": group, "topic": topic}, value) for (group, topic), value in sums.items()]


def course_text(table: ClusterTable, availability: Availability, now_ms: int) -> Iterator[str]:
    """Yields the counters, which begin when the monitor starts."""
    yield family(
        "barnabas_partition_unavailable_seconds_total",
        COUNTER,
        "Time that a partition was offline or its leader silent, since the monitor started; absent if it never was",
        [
            ({"topic": topic, "partition": partition}, round(seconds, 3))
            for (topic, partition), seconds in sorted(availability.unavailable_s(now_ms).items())
        ],
    )
    yield family(
        "barnabas_elections_total",
        COUNTER,
        "Changes of leaders by their cause, since the monitor started",
        [({"cause": cause}, count) for cause, count in sorted(availability.elections.items())],
    )
    missed = int(np.sum(table.missed_elections[table.rows]))
    yield family(
        "barnabas_missed_elections",
        GAUGE,
        "Elections between two polls that are known only from the leader epochs",
        [({}, missed)],
    )
