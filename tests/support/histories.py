"""Comparable contents of tables, for tests of the time machine."""

from __future__ import annotations

from typing import Any, Final

from barnabas.monitor.columns import unpacked
from barnabas.monitor.table import ClusterTable

_SETS: Final = ("isr", "elr", "offline", "adding", "removing")


def contents(table: ClusterTable) -> dict[str, Any]:
    """Returns a table without the numbers of its rows. The order of lists that are sets does not count."""
    states = table.states
    found: dict[str, Any] = {
        "controller": table.controller,
        "silent": table.silent,
        "brokers": {number: broker[:4] for number, broker in table.brokers.items()},
        "topics": {(topic.identity, topic.count) for topic in table.topics},
    }
    for row in table.rows.tolist():
        topic = table.topic_of(row)
        found[f"{topic.name}-{states.partition[row]}"] = (
            topic.identity.topic_id,
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            int(states.min_isr[row]),
            unpacked(states.replicas[row]),
            unpacked(states.directories[row]),
            *(frozenset(unpacked(getattr(states, name)[row])) for name in _SETS),
        )
        assert table.row_of(topic.name, int(states.partition[row])) == row
    return found
