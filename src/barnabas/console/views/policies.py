"""The policies of topics: how their old records are removed, and after which time or size.

The brokers are asked for the topics that a page shows, when it shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.configs import values_of_topics
from barnabas.monitor.broker_connection import NoAnswer

CLEANUP: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
_KEYS: Final = (CLEANUP, RETENTION_MS, RETENTION_BYTES)


async def policies_view(cluster: ClusterView, names: Sequence[str]) -> dict[str, Any]:
    """Returns the policy of each topic, and the reason if they are unknown."""
    try:
        found = await values_of_topics(cluster, names, _KEYS)
    except NoAnswer as error:
        return {"policies": {}, "problem": str(error)}
    return {"policies": {name: _policy(values) for name, values in found.items()}, "problem": None}


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
