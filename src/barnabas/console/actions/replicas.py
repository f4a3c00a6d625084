"""Elections of leaders."""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs, Key
from barnabas.console.actions.outcome import Result, outcome, plan, reason
from barnabas.console.actions.requests import TIMEOUT_MS, ask_controller
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.watched import WatchedCluster
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

_KINDS: Final = {"preferred": 0, "unclean": 1}
_SHOWN: Final = 50


async def elect(cluster: WatchedCluster, inputs: Inputs, role: Role) -> dict[str, Any]:
    """Elects preferred leaders, of all partitions if none are named; unclean ones only for an administrator."""
    kind, keys = inputs.choice("kind", tuple(_KINDS)), inputs.partitions()
    if kind == "unclean" and role < Role.ADMIN:
        raise Problem("role", "an unclean election can lose records: it needs the role admin")
    if kind == "unclean" and not keys:
        raise Problem("bad-request", "an unclean election must name its partitions")
    rows = rows_of(cluster, keys)
    if inputs.is_dry_run:
        return _election_plan(cluster, kind, rows)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in keys or ():
        by_topic.setdefault(topic, []).append(partition)
    request = ElectLeadersRequest(
        election_type=_KINDS[kind],
        topic_partitions=None
        if keys is None
        else [
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=places) for topic, places in by_topic.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )
    answer = await ask_controller(cluster, request, ElectLeadersResponse, lambda found: [found])
    results: list[Result] = [
        (f"{topic.topic}-{row.partition_id}", row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]
    if answer.error_code and not results:
        raise Problem("refused", reason(answer.error_code, None))
    elected = sum(not code for _, code, _ in results)
    return outcome(f"{elected} leaders were elected", results, frozenset({ErrorCode.ELECTION_NOT_NEEDED}))


def rows_of(cluster: WatchedCluster, keys: list[Key] | None) -> list[int]:
    """Returns the rows of these partitions, or of all. Raises Problem for one that does not exist."""
    if keys is None:
        return [int(row) for row in cluster.table.rows]
    found = []
    for topic, partition in keys:
        row = cluster.table.row_of(topic, partition)
        if row is None:
            raise Problem("not-found", f"there is no partition {topic}-{partition}")
        found.append(row)
    return found


def _election_plan(cluster: WatchedCluster, kind: str, rows: list[int]) -> dict[str, Any]:
    lines, skipped = [], 0
    for state in cluster.table.values(rows):
        preferred = state.replicas[0] if state.replicas else -1
        if kind == "preferred" and (state.leader == preferred or preferred not in state.isr):
            skipped += 1
        elif kind == "preferred":
            lines.append(f"{state.key}: leader {state.leader} -> {preferred}")
        elif state.leader < 0:
            lines.append(f"{state.key}: any replica of {', '.join(map(str, state.replicas))} that runs")
        else:
            skipped += 1
    warnings = ["records that the elected replica lacks are lost"] if kind == "unclean" and lines else []
    rest = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    kept = [f"{skipped} partitions need no election, or cannot have one"] if skipped else []
    return plan([*lines[:_SHOWN], *rest, *kept], warnings)
