"""All decisions that are made a second time."""

from __future__ import annotations

from dataclasses import replace

from barnabas.simulation.answer_decisions import ANSWER_DECISIONS
from barnabas.simulation.classic_decisions import CLASSIC_DECISIONS
from barnabas.simulation.cluster_decisions import CLUSTER_DECISIONS
from barnabas.simulation.controller_decisions import CONTROLLER_DECISIONS
from barnabas.simulation.coordinator_decisions import COORDINATOR_DECISIONS
from barnabas.simulation.delivery_decisions import DELIVERY_DECISIONS
from barnabas.simulation.election_decisions import ELECTION_DECISIONS
from barnabas.simulation.feature_decisions import FEATURE_DECISIONS
from barnabas.simulation.fetch_decisions import FETCH_DECISIONS
from barnabas.simulation.group_decisions import GROUP_DECISIONS
from barnabas.simulation.isr_decisions import ISR_DECISIONS
from barnabas.simulation.kraft_decisions import KRAFT_DECISIONS
from barnabas.simulation.log_decisions import LOG_DECISIONS
from barnabas.simulation.partition_decisions import PARTITION_DECISIONS
from barnabas.simulation.peer_decisions import PEER_DECISIONS
from barnabas.simulation.placement_decisions import PLACEMENT_DECISIONS
from barnabas.simulation.process_decisions import PROCESS_DECISIONS
from barnabas.simulation.progress_decisions import PROGRESS_DECISIONS
from barnabas.simulation.quorum_answer_decisions import QUORUM_ANSWER_DECISIONS
from barnabas.simulation.raft_decisions import RAFT_DECISIONS
from barnabas.simulation.request_decisions import REQUEST_DECISIONS
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.small_file_decisions import SMALL_FILE_DECISIONS
from barnabas.simulation.storage_decisions import STORAGE_DECISIONS
from barnabas.simulation.zookeeper_decisions import ZOOKEEPER_DECISIONS

#: Whole clusters call these functions all the time, and meet the same few cases.
_FREQUENT = (
    *LOG_DECISIONS,
    *SMALL_FILE_DECISIONS,
    *RAFT_DECISIONS,
    *PROGRESS_DECISIONS,
    *QUORUM_ANSWER_DECISIONS,
    *DELIVERY_DECISIONS,
)


def second_decisions(*, has_costly_probes: bool = False) -> SecondDecisions:
    """Returns the judge of a run, which compares all of them. `has_costly_probes`: for a world that consists of
    decisions."""
    table = (
        *STORAGE_DECISIONS,
        *(replace(row, judged_every=50) for row in _FREQUENT),
        *PEER_DECISIONS,
        *FETCH_DECISIONS,
        *CLUSTER_DECISIONS,
        *COORDINATOR_DECISIONS,
        *GROUP_DECISIONS,
        *CLASSIC_DECISIONS,
        *ANSWER_DECISIONS,
        *PARTITION_DECISIONS,
        *PLACEMENT_DECISIONS,
        *CONTROLLER_DECISIONS,
        *ELECTION_DECISIONS,
        *ISR_DECISIONS,
        *REQUEST_DECISIONS,
        *KRAFT_DECISIONS,
        *FEATURE_DECISIONS,
        *ZOOKEEPER_DECISIONS,
        *PROCESS_DECISIONS,
    )
    return SecondDecisions(table, has_costly_probes=has_costly_probes)
