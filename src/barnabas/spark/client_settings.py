"""How to reach the cluster: what a task must know of the options, small and picklable."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.protocol.client_security import ClientSecurity


@dataclass(frozen=True)
class ClientSettings:
    """All times in ms. Two sources with equal settings may share their connections."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "barnabas-spark"
    #: One request, from its sending to its answer.
    request_timeout_ms: int = 30_000
    #: All tries of one question together, once the cluster has been seen.
    api_timeout_ms: int = 60_000
    #: The same for the first question: a wrong address should be told soon.
    first_timeout_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @property
    def shown(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.bootstrap)
