"""The checkers of the promises for the time of the fault, with what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.simulation.answer_times import AnsweredInTime
from barnabas.simulation.checkers import Checker
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.exchanges import Exchanges
from barnabas.simulation.history import Spot
from barnabas.simulation.ongoing_writes import WritesGoOn
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.told_refusals import RefusalsAreTold


def promises(cluster: Cluster, decided: DecidedMetadata, acked: Callable[[], Mapping[bytes, Spot]]) -> list[Checker]:
    """Returns the checkers of a run; `acked` is what its clients count as acknowledged."""
    exchanges = Exchanges(cluster)
    return [
        AnsweredInTime(cluster, exchanges),
        WritesGoOn(cluster, decided, exchanges),
        RefusalsAreTold(cluster, exchanges, acked),
    ]
