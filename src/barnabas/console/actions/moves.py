"""Actions on moves of replicas: begin, throttle, cancel, and verify, which also removes the last throttles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.console.actions.inputs import Inputs, Key, broker_ids, key_of
from barnabas.console.actions.outcome import Result, outcome, plan, reason
from barnabas.console.actions.replicas import rows_of
from barnabas.console.actions.requests import TIMEOUT_MS, ask_controller
from barnabas.console.actions.throttles import Copying, remove_throttles, throttle
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.views.moves import Move, running
from barnabas.console.watched import WatchedCluster
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

_SHOWN: Final = 50
_RATE_MAX: Final = (1 << 63) - 1
#: The word of a plan for a log directory that the broker chooses.
_ANY: Final = "any"
Targets = dict[Key, list[int] | None]


async def reassign(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Moves replicas to other brokers, with `throttle` bytes a second at each broker; null as the replicas of a
    partition cancels its move.
    """
    targets = targets_of(inputs)
    if not targets:
        raise Problem("bad-request", "partitions is empty")
    return await move(cluster, targets, is_dry_run=inputs.is_dry_run, rate=_rate(inputs))


async def move(
    cluster: WatchedCluster, targets: Targets, *, is_dry_run: bool, rate: int | None = None
) -> dict[str, Any]:
    """Begins moves, or says what they would do. Raises Problem."""
    rows_of(cluster, list(targets))
    unknown = {each for wanted in targets.values() for each in wanted or ()} - cluster.table.brokers.keys()
    if unknown:
        raise Problem("bad-request", f"there is no broker {min(unknown)}")
    if is_dry_run:
        return _move_plan(cluster, targets, rate)
    failed: list[Result] = []
    if rate is not None:
        # The throttle is there before the first byte is copied.
        failed = await throttle(cluster, _copying(cluster, targets), rate)
    results = await alter(cluster, targets)
    begun = sum(wanted is not None for wanted in targets.values())
    text = f"{begun} moves began, {len(targets) - begun} were cancelled"
    return outcome(
        text if rate is None else f"{text}, with at most {rate:,} bytes a second at a broker", results + failed
    )


async def cancel_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Cancels moves in progress, all of them if none are named. The throttles are removed with the last move."""
    named, ongoing = inputs.partitions(), await running(cluster)
    keys = sorted(ongoing if named is None else ongoing.keys() & set(named))
    if not keys:
        raise Problem("refused", "none of these moves is in progress")
    if inputs.is_dry_run:
        lines = [f"{topic}-{index}: replicas stay {_before(ongoing[topic, index])}" for topic, index in keys]
        return plan([f"cancels {len(keys)} moves", *_cut(lines)], ["the data copied so far is deleted"])
    results = await alter(cluster, dict.fromkeys(keys))
    if not ongoing.keys() - set(keys):
        results += await remove_throttles(cluster, {topic for topic, _ in keys})
    return outcome(f"{len(keys)} moves were cancelled", results)


async def throttle_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Sets the rate of the moves that run; without a rate, removes it."""
    ongoing, rate = await running(cluster), _rate(inputs, "rate")
    topics = sorted({topic for topic, _ in ongoing})
    if rate is None:
        if inputs.is_dry_run:
            lines = [f"removes the throttles of {len(cluster.table.brokers)} brokers and {len(topics)} topics"]
            return plan(lines, [f"{len(ongoing)} moves then continue without a limit"] if ongoing else [])
        return outcome("throttles were removed", await remove_throttles(cluster, topics))
    if not ongoing:
        raise Problem("refused", "no move is in progress, so there is nothing to throttle")
    moves = {
        key: Copying([each for each in one.replicas if each not in one.adding], one.adding)
        for key, one in ongoing.items()
    }
    if inputs.is_dry_run:
        brokers = sorted({each for one in moves.values() for each in (*one.have, *one.copy)})
        named = ", ".join(map(str, brokers))
        return plan([f"limits the copying of {len(moves)} partitions to {rate:,} bytes a second at brokers {named}"])
    failed = await throttle(cluster, moves, rate)
    return outcome(f"{len(moves)} moves have at most {rate:,} bytes a second at a broker", failed)


async def verify_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Returns which moves of a plan are complete. If no move is in progress any more, removes the throttles."""
    targets, ongoing = targets_of(inputs), await running(cluster)
    rows = rows_of(cluster, list(targets))
    lines, states = [], []
    for row, ((topic, index), wanted) in zip(rows, targets.items(), strict=True):
        replicas = list(cluster.table.state(row).replicas)
        if (topic, index) in ongoing:
            state = "running"
        else:
            state = "complete" if wanted is None or replicas == wanted else "not complete"
        states.append({"topic": topic, "partition": index, "state": state, "replicas": replicas})
        if state == "not complete":
            lines.append(f"{topic}-{index}: replicas {replicas} rather than {wanted}, and no move is in progress")
    counts = {name: sum(each["state"] == name for each in states) for name in ("complete", "running", "not complete")}
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "the plan is empty"
    topics = sorted({topic for topic, _ in targets})
    if inputs.is_dry_run:
        end = [] if ongoing else [f"removes the throttles of all brokers and of {len(topics)} topics"]
        return plan([text, *_cut(lines), *end], states=states)
    failed = [] if ongoing else await remove_throttles(cluster, topics)
    return outcome(text if ongoing else f"{text}; throttles were removed", failed) | {"states": states}


def targets_of(inputs: Inputs) -> Targets:
    """Returns the replicas that a plan wants for each partition. Raises Problem."""
    targets: Targets = {}
    for row in inputs.rows("partitions") or []:
        replicas, directories = row.get("replicas"), row.get("log_dirs")
        if isinstance(directories, list) and any(each != _ANY for each in directories):
            raise Problem("bad-request", "the console cannot choose log directories: use `barnabas reassign`")
        key = key_of(row)
        if key in targets:
            raise Problem("bad-request", f"{key[0]}-{key[1]} is listed twice")
        targets[key] = None if replicas is None else broker_ids(replicas)
    return targets


async def alter(cluster: WatchedCluster, targets: Mapping[Key, list[int] | None]) -> list[Result]:
    """Sends the moves to the controller. Raises Problem if it refuses all of them."""
    by_topic: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for (topic, partition), wanted in sorted(targets.items()):
        one = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=wanted)
        by_topic.setdefault(topic, []).append(one)
    topics = [
        AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=parts)
        for topic, parts in by_topic.items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
    answer = await ask_controller(
        cluster, request, AlterPartitionReassignmentsResponse, lambda found: found.error_code, version_max=0
    )
    if answer.error_code:
        raise Problem("refused", reason(answer.error_code, answer.error_message))
    return [
        (f"{topic.name}-{part.partition_index}", part.error_code, part.error_message)
        for topic in answer.responses
        for part in topic.partitions
    ]


def _rate(inputs: Inputs, name: str = "throttle") -> int | None:
    """Returns bytes a second; None for no limit."""
    return None if inputs.body.get(name) is None else inputs.number(name, least=1, most=_RATE_MAX)


def _copying(cluster: WatchedCluster, targets: Targets) -> dict[Key, Copying]:
    moves = {key: wanted for key, wanted in targets.items() if wanted is not None}
    table, found = cluster.table, {}
    for row, (key, wanted) in zip(rows_of(cluster, list(moves)), moves.items(), strict=True):
        before = table.state(row).replicas
        found[key] = Copying(before, [each for each in wanted if each not in before])
    return found


def _before(one: Move) -> list[int]:
    return [each for each in one.replicas if each not in one.adding]


def _cut(lines: list[str]) -> Iterable[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"]


def _move_plan(cluster: WatchedCluster, targets: Targets, rate: int | None) -> dict[str, Any]:
    rows = rows_of(cluster, list(targets))
    table = cluster.table
    lines, total, warnings = [], 0, []
    for row, ((topic, partition), wanted) in zip(rows, targets.items(), strict=True):
        state = table.state(row)
        if wanted is None:
            lines.append(f"{topic}-{partition}: its move is cancelled")
            continue
        new = [each for each in wanted if each not in state.replicas]
        size = state.size_bytes or 0
        total += size * len(new)
        lines.append(
            f"{topic}-{partition}: replicas {list(state.replicas)} -> {wanted}, {size * len(new):,} bytes to copy"
        )
        if len(wanted) < len(state.replicas):
            warnings.append(f"{topic}-{partition} has {len(wanted)} replicas afterwards, {len(state.replicas)} now")
        warnings += [f"broker {each} does not answer" for each in new if table.brokers[each].problem is not None]
    limit = [] if rate is None else [f"at most {rate:,} bytes a second are copied from and to each broker"]
    return plan([*_cut(lines), f"{total:,} bytes are copied in all", *limit], list(dict.fromkeys(warnings))[:_SHOWN])
