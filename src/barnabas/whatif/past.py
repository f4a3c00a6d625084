"""The facts for a past state: those in the recorded state, and today's settings of the cluster, if it responds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from barnabas.monitor.broker_connection import Address, Security
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.connections import Connections, Unreachable
from barnabas.monitor.look_requests import metadata_request
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.whatif.from_table import ClusterFacts
from barnabas.whatif.live import facts_of

_TODAY: Final = "voters, features and settings of topics except min ISR are those of today"


def facts_in(table: ClusterTable) -> ClusterFacts:
    """Returns the facts in the recorded state, and the missing ones as gaps."""
    has_elr = bool((table.states.elr[table.rows] != UNKNOWN).any())
    elr = "partitions had an ELR: it is assumed to be on" if has_elr else "no partition had an ELR: none is assumed"
    gaps = (
        "the voters are not known; a metadata quorum is assumed that keeps its majority",
        "unclean.leader.election.enable is not known, and counts as false",
        elr,
    )
    return ClusterFacts(elr_enabled=has_elr, gaps=gaps)


async def facts_of_today(
    table: ClusterTable, bootstrap: Sequence[Address], security: Security, *, timeout_s: float = 3.0
) -> ClusterFacts:
    """Returns the facts of the cluster as it is today; those in the state if no broker of that cluster answers."""
    connections = Connections(bootstrap, security, timeout_s)
    try:
        answer = await connections.call_any(metadata_request([]), MetadataResponse)
    except Unreachable:
        return facts_in(table)
    finally:
        connections.close()
    if answer.cluster_id is None or answer.cluster_id != table.cluster_id:
        return facts_in(table)
    found = await facts_of(table, bootstrap, security, timeout_s=timeout_s)
    # A voter that is lost today need not have been lost then.
    return replace(found, lost_voters=frozenset(), gaps=(*found.gaps, _TODAY))
