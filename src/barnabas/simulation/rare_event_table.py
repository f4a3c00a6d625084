"""All rare events that are counted, and those that a run can reach."""

from __future__ import annotations

from typing import Final

from barnabas.simulation.coordinator_events import COORDINATOR_EVENTS
from barnabas.simulation.quorum_events import QUORUM_EVENTS
from barnabas.simulation.rare_events import Need, RareEvent
from barnabas.simulation.replication_events import REPLICATION_EVENTS
from barnabas.simulation.settings_events import SETTINGS_EVENTS
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.storage_events import STORAGE_EVENTS
from barnabas.simulation.work import WorkKind
from barnabas.simulation.zookeeper_events import ZOOKEEPER_EVENTS

RARE_EVENTS: Final = (
    *STORAGE_EVENTS,
    *REPLICATION_EVENTS,
    *QUORUM_EVENTS,
    *COORDINATOR_EVENTS,
    *ZOOKEEPER_EVENTS,
    *SETTINGS_EVENTS,
)


def given_needs(layout: Layout, work: WorkKind | None) -> dict[Need, bool]:
    """Returns which parts a run with this layout and work has; None: any work."""
    voters = layout.controllers or layout.brokers
    return {
        Need.BROKERS: layout.brokers > 1,
        Need.CONTROLLERS: not layout.zookeeper and voters > 1,
        Need.QUORUM: not layout.zookeeper,
        Need.ZOOKEEPER: layout.zookeeper,
        Need.TRANSACTIONS: work in (WorkKind.TRANSACTIONS, None),
        Need.GROUPS: work in (WorkKind.GROUPS, None),
        Need.SETTINGS: True,
        Need.DIRECTORIES: True,
        Need.SMALL_WORLDS: False,
    }


def reachable(layout: Layout, work: WorkKind) -> list[RareEvent]:
    """Returns the events that are possible in a run with this layout and work."""
    given = given_needs(layout, work)
    return [event for event in RARE_EVENTS if all(given[need] for need in event.needs)]
