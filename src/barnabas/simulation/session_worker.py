"""The base of the programs of clients that run one session after another, each under a name of its own."""

from __future__ import annotations

from random import Random

from barnabas.simulation.simulated_cluster import Client, Cluster


class SessionWorker:
    """A client's program (`work.Worker`) that runs sessions until `stopping` is set."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self._cluster = cluster
        self.client = client
        self._random: Random = cluster.world.stream(f"workload/{client.name}")
        self._sessions = 0
        self.stopping = False
        #: The number of completed operations.
        self.acked = 0

    @property
    def _session_name(self) -> str:
        """The name of the current session, which is unique in the run."""
        return f"{self.client.name}.{self._sessions}"

    def _begin_session(self) -> str:
        """Begins the next session, and returns its name."""
        self._sessions += 1
        return self._session_name
