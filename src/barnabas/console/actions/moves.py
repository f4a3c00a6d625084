"""Actions on moves of replicas: begin, throttle, cancel, and verify with the end of their throttles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.console.actions import directories
from barnabas.console.actions.directories import (
    COMPLETE,
    NOT_COMPLETE,
    NOT_KNOWN,
    RUNNING,
    Places,
    place_lines,
    places_of,
)
from barnabas.console.actions.inputs import Inputs, Key, broker_ids, key_of
from barnabas.console.actions.outcome import Result, outcome, plan, reason
from barnabas.console.actions.replicas import rows_of
from barnabas.console.actions.requests import TIMEOUT_MS, ask_controller
from barnabas.console.actions.throttles import Copying, remove_throttles, throttle, throttle_directories
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.views.directories import moving
from barnabas.console.views.moves import Move, running
from barnabas.console.watched import Replica, WatchedCluster
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

_SHOWN: Final = 50
_RATE_MAX: Final = (1 << 63) - 1
#: The states of a plan's moves, the worst last.
_ORDER: Final = (COMPLETE, RUNNING, NOT_COMPLETE, NOT_KNOWN)
Targets = dict[Key, list[int] | None]


class Limits(NamedTuple):
    """Bytes a second at a broker, of copying between brokers, and between log directories; None for no limit."""

    rate: int | None = None
    directory_rate: int | None = None


NO_LIMITS: Final = Limits()


async def reassign(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Moves replicas to other brokers, with `throttle` bytes a second at each broker, and to the log directories that
    `log_dirs` names, with `directory_throttle` bytes a second; null as the replicas of a partition cancels its move.
    """
    targets = targets_of(inputs)
    if not targets:
        raise Problem("bad-request", "partitions is empty")
    limits = Limits(_rate(inputs), _rate(inputs, "directory_throttle"))
    return await move(cluster, targets, is_dry_run=inputs.is_dry_run, places=places_of(inputs), limits=limits)


async def move(
    cluster: WatchedCluster,
    targets: Targets,
    *,
    is_dry_run: bool,
    places: Places | None = None,
    limits: Limits = NO_LIMITS,
) -> dict[str, Any]:
    """Begins moves, or says what they would do. Raises Problem."""
    rows_of(cluster, list(targets))
    unknown = {each for wanted in targets.values() for each in wanted or ()} - cluster.table.brokers.keys()
    if unknown:
        raise Problem("bad-request", f"there is no broker {min(unknown)}")
    places = {} if places is None else places
    found = await directories.locate(cluster, places)
    if is_dry_run:
        return _move_plan(cluster, targets, place_lines(places, found) if places else ([], []), limits)
    failed: list[Result] = []
    # Throttles are there before the first byte is copied.
    if limits.rate is not None:
        failed += await throttle(cluster, _copying(cluster, targets), limits.rate)
    if limits.directory_rate is not None and places:
        failed += await throttle_directories(cluster, places, limits.directory_rate)
    # A broker keeps the directory of a replica that it does not have yet, and creates the replica there.
    refused = await directories.begin(cluster, places, waits=False)
    results = await alter(cluster, targets)
    if refused:
        again = _only(places, refused.keys())
        refused = await directories.begin(cluster, again, waits=True)
    begun = sum(wanted is not None for wanted in targets.values())
    text = f"{begun} moves began, {len(targets) - begun} were cancelled"
    if places:
        text += f", {sum(map(len, places.values())) - len(refused)} replicas have their log directory, or move to it"
    limit = "" if limits.rate is None else f", with at most {limits.rate:,} bytes a second at a broker"
    return outcome(f"{text}{limit}", [*results, *failed, *refused.values()])


async def cancel_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Cancels moves that run, all of them if no `partitions` are named. A `broker` in one of them is that of a replica
    that moves between log directories: only this move is cancelled. Throttles end with the last move.
    """
    keys, replicas = _named(inputs)
    ongoing = await running(cluster)
    moves = sorted(ongoing if keys is None else ongoing.keys() & keys)
    asked = None if keys is None else keys | {(topic, index) for topic, index, _ in replicas}
    between, problems = await moving(cluster, asked)
    if keys is not None:
        between = {each: one for each, one in between.items() if each[:2] in keys or each in replicas}
    if not moves and not between:
        raise Problem("refused", "; ".join(["none of these moves is in progress", *problems.values()]))
    count = len(moves) + len(between)
    if inputs.is_dry_run:
        lines = [f"{topic}-{index}: replicas stay {_before(ongoing[topic, index])}" for topic, index in moves]
        lines += [f"{directories.name_of(each)}: stays in {one.path}" for each, one in sorted(between.items())]
        return plan(
            [f"cancels {plural(count, 'move')}", *_cut(lines)],
            ["the data copied so far is deleted", *problems.values()],
        )
    results = await alter(cluster, dict.fromkeys(moves)) if moves else []
    results += await directories.cancel(cluster, between)
    if not ongoing.keys() - set(moves) and not cluster.directory_moves:
        results += await remove_throttles(cluster, {topic for topic, _ in moves})
    return outcome(f"{plural(count, 'move')} cancelled", results)


async def throttle_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Sets the rates of the moves that run, between brokers and between log directories. A rate that is missing stays
    as it is; without any, both are removed.
    """
    ongoing, limits = await running(cluster), Limits(_rate(inputs, "rate"), _rate(inputs, "directory_rate"))
    if limits == NO_LIMITS:
        topics = sorted({topic for topic, _ in ongoing})
        if inputs.is_dry_run:
            lines = [f"removes the throttles of {len(cluster.table.brokers)} brokers and {len(topics)} topics"]
            return plan(lines, [f"{len(ongoing)} moves then continue without a limit"] if ongoing else [])
        return outcome("throttles were removed", await remove_throttles(cluster, topics))
    moves = {
        key: Copying([each for each in one.replicas if each not in one.adding], one.adding)
        for key, one in ongoing.items()
    }
    if limits.rate is not None and not moves:
        raise Problem("refused", "no move is in progress, so there is nothing to throttle")
    between = (
        sorted({each[2] for each in (await moving(cluster, None))[0]}) if limits.directory_rate is not None else []
    )
    if limits.directory_rate is not None and not between:
        raise Problem("refused", "no replica moves between log directories, so there is nothing to throttle")
    if inputs.is_dry_run:
        return plan(_limit_lines(moves, between, limits))
    failed: list[Result] = []
    if limits.rate is not None:
        failed += await throttle(cluster, moves, limits.rate)
    if limits.directory_rate is not None:
        failed += await throttle_directories(cluster, between, limits.directory_rate)
    return outcome("; ".join(_limit_lines(moves, between, limits)), failed)


async def verify_moves(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Says which moves of a plan are complete. If none runs any more, the throttles end."""
    targets, ongoing = targets_of(inputs), await running(cluster)
    rows = rows_of(cluster, list(targets))
    between = await directories.verify(cluster, places_of(inputs))
    lines, states = [], []
    for row, ((topic, index), wanted) in zip(rows, targets.items(), strict=True):
        replicas = list(cluster.table.state(row).replicas)
        if (topic, index) in ongoing:
            state = RUNNING
        else:
            state = COMPLETE if wanted is None or replicas == wanted else NOT_COMPLETE
        if state == NOT_COMPLETE:
            lines.append(f"{topic}-{index}: replicas {replicas} rather than {wanted}, and no move is in progress")
        state = max((state, *(each.state for each in between.get((topic, index), ()))), key=_ORDER.index)
        states.append({"topic": topic, "partition": index, "state": state, "replicas": replicas})
    lines += [each.text for found in between.values() for each in found if each.text]
    counts = {name: sum(each["state"] == name for each in states) for name in _ORDER}
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "the plan is empty"
    topics = sorted({topic for topic, _ in targets})
    # A broker that does not answer can have a move that still runs.
    runs = bool(ongoing or counts[RUNNING] or counts[NOT_KNOWN])
    if inputs.is_dry_run:
        end = [] if runs else [f"removes the throttles of all brokers and of {len(topics)} topics"]
        return plan([text, *_cut(lines), *end], states=states)
    failed = [] if runs else await remove_throttles(cluster, topics)
    return outcome(text if runs else f"{text}; throttles were removed", failed) | {"states": states}


def targets_of(inputs: Inputs) -> Targets:
    """Returns the replicas that a plan wants for each partition. Raises Problem."""
    targets: Targets = {}
    for row in inputs.rows("partitions") or []:
        replicas, key = row.get("replicas"), key_of(row)
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
        cluster, request, AlterPartitionReassignmentsResponse, lambda found: [found], version_max=0
    )
    if answer.error_code:
        raise Problem("refused", reason(answer.error_code, answer.error_message))
    return [
        (f"{topic.name}-{part.partition_index}", part.error_code, part.error_message)
        for topic in answer.responses
        for part in topic.partitions
    ]


def _named(inputs: Inputs) -> tuple[set[Key] | None, set[Replica]]:
    """Returns the partitions whose moves are named, None for all, and the replicas that are named with their broker."""
    rows = inputs.rows("partitions")
    if rows is None:
        return None, set()
    keys, replicas = set[Key](), set[Replica]()
    for row in rows:
        topic, partition = key_of(row)
        broker = row.get("broker")
        if broker is None:
            keys.add((topic, partition))
        elif isinstance(broker, int) and not isinstance(broker, bool):
            replicas.add((topic, partition, broker))
        else:
            raise Problem("bad-request", "broker is not a number")
    return keys, replicas


def _only(places: Places, replicas: Collection[Replica]) -> Places:
    found: Places = {}
    for topic, partition, broker in replicas:
        found.setdefault(broker, {})[topic, partition] = places[broker][topic, partition]
    return found


def _limit_lines(moves: Mapping[Key, Copying], between: Sequence[int], limits: Limits) -> list[str]:
    lines = []
    if limits.rate is not None:
        named = _listed({each for one in moves.values() for each in (*one.have, *one.copy)})
        lines.append(
            f"limits the copying of {len(moves)} partitions to {limits.rate:,} bytes a second at brokers {named}"
        )
    if limits.directory_rate is not None:
        rate = f"{limits.directory_rate:,} bytes a second"
        lines.append(f"limits the copying between log directories to {rate} at brokers {_listed(between)}")
    return lines


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


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


def _move_plan(
    cluster: WatchedCluster, targets: Targets, directory_lines: tuple[list[str], list[str]], limits: Limits
) -> dict[str, Any]:
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
    ends = [f"{total:,} bytes are copied in all"]
    if limits.rate is not None:
        ends.append(f"at most {limits.rate:,} bytes a second are copied from and to each broker")
    ends += _cut(directory_lines[0])
    if limits.directory_rate is not None and directory_lines[0]:
        ends.append(f"at most {limits.directory_rate:,} bytes a second are copied between log directories of a broker")
    warnings += directory_lines[1]
    return plan([*_cut(lines), *ends], list(dict.fromkeys(warnings))[:_SHOWN])
