"""All decisions that are made a second time."""

from __future__ import annotations

from barnabas.simulation.answer_decisions import ANSWER_DECISIONS
from barnabas.simulation.cluster_decisions import CLUSTER_DECISIONS
from barnabas.simulation.coordinator_decisions import COORDINATOR_DECISIONS
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.storage_decisions import STORAGE_DECISIONS


def second_decisions() -> SecondDecisions:
    """Returns the judge of a run, which compares all of them."""
    return SecondDecisions((*STORAGE_DECISIONS, *CLUSTER_DECISIONS, *COORDINATOR_DECISIONS, *ANSWER_DECISIONS))
