"""The acknowledgement of partitions that are unwell."""

from __future__ import annotations

from typing import Any, Final

from barnabas.console.acknowledged import Acknowledgement
from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.outcome import plan
from barnabas.console.problems import Problem
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.severity import Severity

_NOTE_MAX: Final = 500


async def acknowledge(cluster: WatchedCluster, inputs: Inputs, user: str) -> dict[str, Any]:
    """Records that a user takes care of these partitions (of all that are unwell, if none are named), or removes that
    record.
    """
    note, named = str(inputs.body.get("note") or "")[:_NOTE_MAX], inputs.partitions()
    wanted = None if named is None else set(named)
    by_severity: dict[Severity, list[tuple[str, int]]] = {}
    for state in cluster.table.values(cluster.table.by_severity()):
        key = (state.topic, state.partition)
        if state.severity is not Severity.OK and (wanted is None or key in wanted):
            by_severity.setdefault(state.severity, []).append(key)
    keys = [key for each in by_severity.values() for key in each]
    if not keys:
        raise Problem("refused", "these partitions are healthy" if named else "every partition is healthy")
    is_taken_back = inputs.body.get("withdraw") is True
    verb = "withdraws the acknowledgement of" if is_taken_back else "acknowledges"
    if inputs.is_dry_run:
        names = [f"{topic}-{partition}" for topic, partition in keys[:20]]
        more = [f"and {len(keys) - len(names)} more"] if len(keys) > len(names) else []
        return plan([f"{verb} {len(keys)} partitions, until their state changes", *names, *more])
    acknowledged = cluster.acknowledged
    for severity, found in by_severity.items():
        if is_taken_back:
            acknowledged.remove(found)
        else:
            acknowledged.put(found, Acknowledgement(severity, user, cluster.clock_ms(), note))
    cluster.wake()
    return {"ok": True, "text": f"{user} {verb} {len(keys)} partitions", "results": []}
