"""All decisions that are made a second time."""

from __future__ import annotations

from dataclasses import replace

from barnabas.simulation.cluster_decisions import CLUSTER_DECISIONS
from barnabas.simulation.coordinator_decisions import COORDINATOR_DECISIONS
from barnabas.simulation.log_decisions import LOG_DECISIONS
from barnabas.simulation.progress_decisions import PROGRESS_DECISIONS
from barnabas.simulation.quorum_answer_decisions import QUORUM_ANSWER_DECISIONS
from barnabas.simulation.raft_decisions import RAFT_DECISIONS
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.small_file_decisions import SMALL_FILE_DECISIONS
from barnabas.simulation.storage_decisions import STORAGE_DECISIONS

#: Whole clusters call these functions all the time, and meet the same few cases.
_FREQUENT = (
    *LOG_DECISIONS,
    *SMALL_FILE_DECISIONS,
    *RAFT_DECISIONS,
    *PROGRESS_DECISIONS,
    *QUORUM_ANSWER_DECISIONS,
)


def second_decisions() -> SecondDecisions:
    """Returns the judge of a run, which compares all of them."""
    frequent = [replace(row, is_frequent=True) for row in _FREQUENT]
    return SecondDecisions((*STORAGE_DECISIONS, *frequent, *CLUSTER_DECISIONS, *COORDINATOR_DECISIONS))
