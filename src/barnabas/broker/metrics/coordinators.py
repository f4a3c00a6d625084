"""GroupMetadataManager, group-coordinator-metrics and transactions: the groups and transactions of this coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, GAUGE, Family, labelled, single
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.consumer.group import ConsumerGroupState
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.state import TxnState

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager_"
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics_"


def collect(broker: Broker) -> Iterator[Family]:
    if broker.config.is_broker:
        yield from _groups(broker)
        yield from _transactions(broker)
        yield labelled(
            "barnabas_coordinator_unreadable_records_total",
            COUNTER,
            "Records of internal topics that a coordinator skipped while loading because it could not read them",
            "coordinator",
            [("group", broker.groups.unreadable_records), ("transaction", broker.transactions.unreadable_records)],
        )


def _groups(broker: Broker) -> Iterator[Family]:
    shards = broker.groups.shards()
    classic = Counter(group.state for shard in shards for group in shard.groups())
    consumer = Counter(group.state for shard in shards for group in shard.consumers.groups())
    states = Counter(shard.state for shard in shards)
    offsets = sum(shard.offsets.count for shard in shards)
    yield single(f"{_MANAGER}numgroups", GAUGE, "Groups with the classic protocol", classic.total())
    yield single(f"{_MANAGER}numoffsets", GAUGE, "Committed offsets of groups", offsets)
    for state in GroupState:
        name = f"{_MANAGER}numgroups{state.value.lower()}"
        yield single(name, GAUGE, f"Groups with the classic protocol in state {state.value}", classic[state])
    yield labelled(
        f"{_COORDINATOR}group_count",
        GAUGE,
        "Groups by protocol",
        "protocol",
        [("classic", classic.total()), ("consumer", consumer.total())],
    )
    yield labelled(
        f"{_COORDINATOR}consumer_group_count",
        GAUGE,
        "Groups with the consumer protocol by state",
        "state",
        [(state.value, consumer[state]) for state in ConsumerGroupState],
    )
    yield labelled(
        f"{_COORDINATOR}num_partitions",
        GAUGE,
        "Partitions of __consumer_offsets that this broker coordinates, by state",
        "state",
        [(state.value, states[state]) for state in (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)],
    )


def _transactions(broker: Broker) -> Iterator[Family]:
    found = Counter(
        transaction.image.state for shard in broker.transactions.shards() for transaction in shard.transactions()
    )
    yield labelled(
        "barnabas_transactional_ids",
        GAUGE,
        "Transactional ids that this broker coordinates, by state of the transaction",
        "state",
        [(state.shown, found[state]) for state in TxnState],
    )
