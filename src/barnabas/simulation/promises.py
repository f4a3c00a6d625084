"""The checkers of the promises that hold during faults, and their shared parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.simulation.answer_rows import CompleteAnswers
from barnabas.simulation.answer_times import AnsweredInTime
from barnabas.simulation.checkers import Checker
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.exchanges import Exchanges
from barnabas.simulation.history import Spot
from barnabas.simulation.ongoing_writes import WritesContinue
from barnabas.simulation.response_promises import ResponsesAreTrue
from barnabas.simulation.simulated_cluster import Cluster


def promises(cluster: Cluster, decided: DecidedMetadata, acked: Callable[[], Mapping[bytes, Spot]]) -> list[Checker]:
    """Returns the checkers of a run; `acked` is what its clients count as acknowledged."""
    exchanges = Exchanges(cluster)
    return [
        AnsweredInTime(cluster, exchanges),
        WritesContinue(cluster, decided, exchanges),
        ResponsesAreTrue(cluster, exchanges, acked),
        CompleteAnswers(exchanges),
    ]
