"""The policies of topics: how their old records are removed, and after which time or size.

The brokers are asked for the topics that a page shows, when it shows them; for all topics when the list is sorted by
policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.configs import values_of_topics
from barnabas.monitor.broker_connection import NoAnswer

CLEANUP: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
#: The time for which the order by policies is kept.
_RANKS_S: Final = 30.0
_KEYS: Final = (CLEANUP, RETENTION_MS, RETENTION_BYTES)


async def policies_view(cluster: ClusterView, names: Sequence[str]) -> dict[str, Any]:
    """Returns the policy of each topic, and the reason if they are unknown."""
    try:
        found = await values_of_topics(cluster, names, _KEYS)
    except NoAnswer as error:
        return {"policies": {}, "problem": str(error)}
    return {"policies": {name: _policy(values) for name, values in found.items()}, "problem": None}


class PolicyRanks:
    """The order of topics by their policies, kept for a while: brokers are asked for all topics to find it."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._known: tuple[float, tuple[str, ...], dict[str, int]] | None = None

    async def of(self, cluster: ClusterView, names: Sequence[str]) -> Mapping[str, int]:
        """Returns the rank of each topic; of none if no broker answers."""
        asked, now_s = tuple(names), self._clock_s()
        if self._known is not None and now_s - self._known[0] < _RANKS_S and self._known[1] == asked:
            return self._known[2]
        policies = (await policies_view(cluster, names))["policies"]
        keys = {name: _order(policy) for name, policy in policies.items()}
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys.values())))}
        found = {name: ranks[key] for name, key in keys.items()}
        if found:
            self._known = (now_s, asked, found)
        return found


def _order(policy: Mapping[str, Any]) -> tuple[str, float, float]:
    """Returns by what a policy is sorted: what is done with old records, then after which time and size; no limit is
    the largest.
    """
    limits = [inf if policy[key] in (None, -1) else policy[key] for key in ("retention_ms", "retention_bytes")]
    return ",".join(policy["cleanup"] or ()), limits[0], limits[1]


def _policy(values: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns a policy. A retention of -1 has no limit; None is unknown."""
    cleanup = values.get(CLEANUP)
    return {
        "cleanup": None if cleanup is None else [part.strip() for part in cleanup.split(",") if part.strip()],
        "retention_ms": _number(values.get(RETENTION_MS)),
        "retention_bytes": _number(values.get(RETENTION_BYTES)),
    }


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
