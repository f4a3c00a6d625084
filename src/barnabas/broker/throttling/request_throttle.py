"""The throttling of one request: it adds to the rates of the client, and mutes the connection."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Final, TypeVar

from barnabas.broker.throttling.client_throttles import Client, ClientThrottles
from barnabas.broker.throttling.muting import Mutable, mute
from barnabas.common.host import Host
from barnabas.protocol.message import Message

#: Requests between nodes of the cluster, which are not throttled unless the sender may not send them.
CLUSTER_APIS: Final = frozenset({4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})

M = TypeVar("M", bound=Message)

_FIELD: Final = "throttle_time_ms"


class RequestThrottle:
    """Throttles one request in a cluster with quotas: its connection is muted if the client exceeds a quota."""

    __slots__ = ("_begin_ns", "_client", "_connection", "_cpu_ns", "_host", "_throttles", "_time_ms", "is_exempt")

    def __init__(
        self,
        throttles: ClientThrottles,
        connection: Mutable,
        principal: str,
        client_id: str | None,
        host: Host,
        *,
        is_exempt: bool = False,
    ) -> None:
        self._throttles = throttles
        self._connection = connection
        self._client = Client.of(principal, client_id)
        self._host = host
        self._cpu_ns: Callable[[], int] | None = host.cpu_ns if throttles.measures_cpu else None
        #: The CPU time at the last reading; None while other work runs.
        self._begin_ns: int | None = None
        self._time_ms = 0
        #: Whether the request belongs to the cluster's own traffic, such as that of a follower.
        self.is_exempt = is_exempt
        self.enter()

    def produced(self, size_bytes: int) -> None:
        if self._throttles.produce:
            self._throttle(self._throttles.produced(self._client, size_bytes))

    def fetched(self, size_bytes: int) -> bool:
        """Records the data of a Fetch response. Returns whether an empty response is sent instead."""
        cpu_ms = self._charge()
        time_ms = self._throttles.fetched(self._client, size_bytes) if self._throttles.fetch else 0
        if cpu_ms and not time_ms and self._throttles.fetch:
            self._throttles.forget_fetched(self._client, size_bytes)
        self._throttle(max(time_ms, cpu_ms))
        return self._time_ms > 0

    @property
    def fetch_bytes_max(self) -> int:
        return self._throttles.fetch_bytes_max(self._client) if self._throttles.fetch else 1 << 31

    @property
    def time_ms(self) -> int:
        """Returns the throttle time so far."""
        return self._time_ms

    def answered(self, time_ms: int = 0) -> int:
        """Returns the throttle time for the response: the longest of all quotas and of `time_ms`, which a controller
        returned.
        """
        self._throttle(max(self._charge(), time_ms))
        return self._time_ms

    def with_throttle_time(self, response: M, version: int) -> M:
        """Returns the response with the throttle time filled in."""
        time_ms = self.answered(getattr(response, _FIELD, 0))
        if not time_ms or not any(field.attribute == _FIELD and field.is_in(version) for field in response.FIELDS):
            return response
        changed = copy(response)
        setattr(changed, _FIELD, time_ms)
        return changed

    def enter(self) -> bool:
        """Begins to measure CPU time, because the request is served now. Returns False if there is no quota of it, or
        if it is measured already.
        """
        if self._cpu_ns is None or self._begin_ns is not None:
            return False
        self._begin_ns = self._cpu_ns()
        return True

    def leave(self) -> None:
        """Records the CPU time since `enter`, because other work follows."""
        self._throttle(self._charge())
        self._begin_ns = None

    def _charge(self) -> int:
        """Records the CPU time since `enter`, or since the last call. Returns the throttle time."""
        cpu_ns, begin_ns = self._cpu_ns, self._begin_ns
        if cpu_ns is None or begin_ns is None or self.is_exempt:
            return 0
        now_ns = self._begin_ns = cpu_ns()
        used_ns = now_ns - begin_ns
        return self._throttles.used_cpu(self._client, used_ns)

    def _throttle(self, time_ms: int) -> None:
        if time_ms > self._time_ms:
            self._time_ms = time_ms
            mute(self._connection, time_ms, self._host)
