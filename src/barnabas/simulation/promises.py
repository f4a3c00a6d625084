"""The checkers of the promises that hold during faults, and their shared parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.simulation.answer_times import AnsweredInTime
from barnabas.simulation.checkers import Checker
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.exchanges import Exchanges
from barnabas.simulation.history import Spot
from barnabas.simulation.needless_changes import NeedlessChanges
from barnabas.simulation.ongoing_writes import Bounds, WritesContinue
from barnabas.simulation.response_promises import ResponsesAreTrue
from barnabas.simulation.simulated_cluster import Cluster


def promises(
    cluster: Cluster,
    decided: DecidedMetadata,
    acked: Callable[[], Mapping[bytes, Spot]],
    faults: Callable[[], Collection[object]],
) -> list[Checker]:
    """Returns the checkers of a run; `acked` is what its clients count as acknowledged, `faults` the active faults."""
    exchanges = Exchanges(cluster)
    return [
        AnsweredInTime(cluster, exchanges),
        WritesContinue(cluster, decided, exchanges),
        ResponsesAreTrue(cluster, exchanges, acked),
        NeedlessChanges(cluster, decided, faults, Bounds(cluster).aftermath_ms),
    ]
