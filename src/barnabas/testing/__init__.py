"""Test support for applications: a real broker in its own process, on a free port, with files in its own directory.

    from barnabas.testing import Cluster

    with Cluster() as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

With pytest, put this into conftest.py and take `barnabas_cluster` (one for the whole run) as an argument:

    pytest_plugins = ["barnabas.testing.fixtures"]

`History` records what clients send, receive and read, and checks the recording (docs/check.md). `simulated` runs an
application with many seeds in a simulated world (docs/simulate-your-application.md). The package imports `embedded`,
`histories` and `simulation`; begin reading with `controlled_cluster.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.testing.controlled_cluster import Cluster
from barnabas.testing.history import History

if TYPE_CHECKING:
    from barnabas.simulation.application import Simulation
    from barnabas.testing.simulated_tests import SimulationFailed, simulate, simulated

__all__ = ["Cluster", "History", "Simulation", "SimulationFailed", "simulate", "simulated"]

_OF_SIMULATIONS = frozenset(__all__) - {"Cluster", "History"}


def __getattr__(name: str) -> Any:
    """Returns a name of the simulator. It is imported only on demand, because the simulator needs aiokafka."""
    if name not in _OF_SIMULATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("barnabas.testing.simulated_tests"), name)
