"""The promise that every request is answered, or its connection closed, within a bound.

The bound is the request's own timeout, if it has one, plus a share for the node's work and for what it waits for. Time
in which the node is dead, paused or waits for a slow disk does not count; nor does, on the client's end, time in which
the way between the two is cut or slow. The promise therefore covers every request that a node received and every
request that a client sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from barnabas.simulation.conditions import COLD, DEAD, OFF, PAUSED, REFUSES, SLOW, Condition, condition_of
from barnabas.simulation.exchanges import Exchange, Exchanges, Listener
from barnabas.simulation.history import Violation
from barnabas.simulation.plain_decoding import Schema
from barnabas.simulation.request_frames import Request, body_of
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, format_time

_INTERVAL_US: Final = SECOND_US // 2
#: Requests that have waited for less time are not checked.
_YOUNG_US: Final = SECOND_US
_PRODUCE, _FETCH, _JOIN, _SYNC = 0, 1, 11, 14
#: OffsetCommit, OffsetFetch, Heartbeat, LeaveGroup, transactions, DeleteGroups, ConsumerGroupHeartbeat.
_OF_COORDINATORS: Final = frozenset({8, 9, 12, 13, 24, 25, 26, 28, 42, 68})
#: The timeout of a coordinator's writes (`offsets.commit.timeout.ms`), and of a request to a controller or to another
#: broker (`request.timeout.ms`).
_COORDINATOR_MS: Final = 5_000
_CONTROLLER_MS: Final = 30_000
#: An allowance for the node's own work, and for the half second between two checks.
_SLACK_MS: Final = 3_000
#: A client above its quota is not read for a time that the quota's window limits, and its next request the same again.
_PAUSE_MS: Final = 30_000
#: The conditions of a node during which time does not count.
_STANDS_STILL: Final = frozenset({OFF, DEAD, PAUSED, SLOW, COLD})


class AnsweredInTime(Listener):
    """Checks that every request is answered in time."""

    is_periodic = True

    api_keys = (_JOIN,)

    def __init__(self, cluster: Cluster, exchanges: Exchanges) -> None:
        self._cluster = cluster
        self._exchanges = exchanges
        exchanges.listen(self)
        self._looked_us = 0
        #: The time that counted so far, for each node and for each link between a client and a node.
        self._counted_us: defaultdict[tuple[str, ...], int] = defaultdict(int)
        #: How long a link was cut or slow, less the time since then.
        self._outage_us: defaultdict[tuple[str, str], int] = defaultdict(int)
        #: The value of its link's time counter when a waiting request was first seen.
        self._since_us: dict[tuple[Exchange, int], int] = {}
        #: The longest time that a group's members had to join again.
        self._rebalance_ms = 0
        #: The last time at which the cluster had quotas of clients.
        self._limited_us: int | None = None
        #: The number of requests that were seen waiting.
        self.looked_at = 0

    def on_request(self, exchange: Exchange, request: Request) -> None:
        self._rebalance_ms = max(self._rebalance_ms, _rebalance_ms(request))

    def check(self, cluster: Cluster) -> None:
        if self._exchanges.problems:
            raise self._exchanges.problems[0]
        now_us = cluster.world.now_us
        if now_us < self._looked_us + _INTERVAL_US:
            return
        passed_us, self._looked_us = now_us - self._looked_us, now_us
        condition = condition_of(cluster)
        if any(
            node.broker is not None and node.broker.metadata.image.security.quotas for node in cluster.nodes.values()
        ):
            self._limited_us = now_us
        for name in cluster.nodes:
            stands_still = condition.troubles.get(name) in _STANDS_STILL
            self._counted_us[(name,)] += 0 if stands_still else passed_us
            for client in cluster.clients:
                self._count_way((client, name), passed_us, not stands_still and _can_talk(condition, client, name))
        self._look(now_us)

    def _count_way(self, way: tuple[str, str], passed_us: int, is_well: bool) -> None:
        """Counts time during which a link is neither cut nor slow. Bytes that were sent before an outage can arrive
        after it, late by its whole length.
        """
        if not is_well:
            self._outage_us[way] += passed_us
        elif self._outage_us[way] > 0:
            self._outage_us[way] -= passed_us
        else:
            self._counted_us[way] += passed_us

    def _look(self, now_us: int) -> None:
        before, self._since_us = self._since_us, {}
        for exchange in self._exchanges.open.values():
            if not exchange.waiting or now_us - exchange.waiting[0].at_us < _YOUNG_US:
                continue
            if exchange.server.is_dead:
                continue  # A client notices only when it sends again that the machine lost its power.
            request = exchange.waiting[0]
            counted_us = self._counted_us[(exchange.node,) if exchange.is_of_node else (exchange.client, exchange.node)]
            key = (exchange, request.correlation_id)
            since_us = self._since_us[key] = before.get(key, counted_us)
            self.looked_at += 1
            waited_ms = (counted_us - since_us) // MILLISECOND_US
            if waited_ms > self._allowed_ms(request):
                where = "waits at" if exchange.is_of_node else "sent by a client waits for"
                raise Violation(
                    f"not answered in time: a request of API {request.api_key} of {exchange.client}, from "
                    f"{format_time(request.at_us)}, {where} {exchange.node} for {waited_ms} ms without a fault; "
                    f"{self._allowed_ms(request)} ms are allowed"
                )

    def _allowed_ms(self, request: Request) -> int:
        """Returns the bound of a request, which is longer while clients have quotas and shortly after that."""
        is_limited = self._limited_us is not None and self._looked_us - self._limited_us < _PAUSE_MS * MILLISECOND_US
        return self._bound_ms(request) + (_PAUSE_MS if is_limited else 0)

    def _bound_ms(self, request: Request) -> int:
        """Returns the time in which a request must be answered: its own timeout, that of its group, or that of the
        event it waits for.
        """
        if request.api_key in (_JOIN, _SYNC):
            return self._rebalance_ms + _SLACK_MS
        own = _TIMEOUTS.get(request.api_key)
        if own is not None:
            return own(request) + _SLACK_MS
        return _SLACK_MS + (_COORDINATOR_MS if request.api_key in _OF_COORDINATORS else _CONTROLLER_MS)


def _can_talk(condition: Condition, client: str, node: str) -> bool:
    return (
        (client, node) not in condition.links
        and client not in condition.troubles
        and condition.troubles.get(node) != REFUSES
    )


def _rebalance_ms(request: Request) -> int:
    body = body_of(request, flexible_from=6)
    schema: Schema = [("group", "string"), ("session_ms", "int32")]
    if request.version >= 1:
        schema.append(("rebalance_ms", "int32"))
    found = body.begin(schema)
    return max(int(found["session_ms"]), int(found.get("rebalance_ms", 0)))


def _produce_ms(request: Request) -> int:
    """Returns the timeout of a Produce request. A transaction is verified with its coordinator before."""
    body = body_of(request, flexible_from=9)
    is_transactional = request.version >= 3 and body.begin([("id", "string")])["id"] is not None
    timeout_ms = int(body.begin([("acks", "int16"), ("timeout_ms", "int32")])["timeout_ms"])
    return timeout_ms + (_CONTROLLER_MS if is_transactional else 0)


def _fetch_ms(request: Request) -> int:
    body = body_of(request, flexible_from=12)
    schema: Schema = [("max_wait_ms", "int32")]
    if request.version < 15:
        schema.insert(0, ("replica", "int32"))
    return int(body.begin(schema)["max_wait_ms"])


#: API -> the timeout that its request has.
_TIMEOUTS: Final[dict[int, Callable[[Request], int]]] = {_PRODUCE: _produce_ms, _FETCH: _fetch_ms}
