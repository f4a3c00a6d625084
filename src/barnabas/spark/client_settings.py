"""The settings of connections to the cluster, small and picklable for the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.protocol.client_security import ClientSecurity


@dataclass(frozen=True)
class ClientSettings:
    """The settings of a client; all times in ms. Two sources with equal settings can share connections."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "barnabas-spark"
    #: The timeout of a request, from sending it to its response.
    request_timeout_ms: int = 30_000
    #: The limit for all attempts of one request together, once the cluster has answered for the first time.
    api_timeout_ms: int = 60_000
    #: The limit for the first request, which is shorter: a wrong address should be reported soon.
    first_timeout_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @property
    def shown(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.bootstrap)
