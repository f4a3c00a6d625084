"""Actions on consumer groups: reset offsets, delete offsets, and delete groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs, Key
from barnabas.console.actions.outcome import Result, outcome, plan, reason
from barnabas.console.actions.requests import ask_broker
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.look_requests import CONSUMER, EARLIEST, LATEST, offsets_of, offsets_request
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

_TARGETS: Final = ("earliest", "latest", "time", "offset", "shift")
_SHOWN: Final = 50
_INT64: Final = (1 << 63) - 1
#: The last versions that name one group, and topics by name.
_ONE_GROUP: Final = 3
_COMMIT_BY_NAME: Final = 9


async def reset_offsets(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Commits new offsets for a group without members: the earliest, the latest, those of a time, or shifted ones."""
    group, target = inputs.text("group"), inputs.choice("to", _TARGETS)
    value = inputs.number("value", least=-_INT64, most=_INT64, default=0)
    state = cluster.groups.get(group)
    if state is None:
        raise Problem("not-found", f"there is no group {group}")
    keys = inputs.partitions() or sorted(state.offsets)
    if not keys:
        raise Problem("bad-request", f"group {group} has committed nothing, so partitions must be named")
    after = await _new_offsets(cluster, keys, target, value, state.offsets)
    preview = [
        {"topic": topic, "partition": partition, "before": state.offsets.get((topic, partition)), "after": offset}
        for (topic, partition), offset in sorted(after.items())
    ]
    missing = [
        f"{topic}-{partition}: its leader does not answer" for topic, partition in sorted(set(keys) - set(after))
    ]
    if inputs.is_dry_run:
        if state.members:
            missing.append(f"group {group} has {state.members} members: it must be stopped first")
        return plan([f"commits {len(after)} offsets of group {group}"], missing, preview=preview)
    if not after:
        raise Problem("unreachable", missing[0])
    return await _commit(cluster, group, after) | {"preview": preview, "warnings": missing}


async def delete_group(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    group = inputs.text("group")
    inputs.confirm("confirm", group)
    state = cluster.groups.get(group)
    if state is None:
        raise Problem("not-found", f"there is no group {group}")
    if not all(inputs.scope.sees_topic(topic) for topic, _ in state.offsets):
        raise Problem("role", f"group {group} has offsets in topics that no pattern of this user allows")
    if inputs.is_dry_run:
        has_members = [f"it has {state.members} members: it must be stopped first"] if state.members else []
        return plan([f"deletes group {group} with {len(state.offsets)} committed offsets"], has_members)
    coordinator = await _coordinator(cluster, group)
    request = DeleteGroupsRequest(groups_names=[group])
    answer = await ask_broker(cluster, coordinator, request, DeleteGroupsResponse)
    return outcome(f"group {group} was deleted", [(row.group_id, row.error_code, None) for row in answer.results])


async def delete_offsets(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Deletes committed offsets of a group: those of a topic, or of named partitions."""
    group, keys = inputs.text("group"), inputs.partitions()
    state = cluster.groups.get(group)
    if state is None:
        raise Problem("not-found", f"there is no group {group}")
    topic = inputs.text("topic") if keys is None else ""
    chosen = sorted(key for key in state.offsets if (key[0] == topic if keys is None else key in keys))
    if not chosen:
        raise Problem("refused", f"group {group} has committed no offsets there")
    if inputs.is_dry_run:
        lines = [f"{name}-{partition}: {state.offsets[name, partition]}" for name, partition in chosen[:_SHOWN]]
        more = [f"and {len(chosen) - _SHOWN} more"] if len(chosen) > _SHOWN else []
        where = "readers without an offset begin where auto.offset.reset says"
        return plan([f"deletes {len(chosen)} offsets of group {group}", *lines, *more], [where])
    by_topic: dict[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]] = {}
    for name, partition in chosen:
        row = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
        by_topic.setdefault(name, []).append(row)
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()
    ]
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    answer = await ask_broker(cluster, await _coordinator(cluster, group), request, OffsetDeleteResponse)
    if answer.error_code:
        raise Problem("refused", f"group {group}: {reason(answer.error_code, None)}")
    results: list[Result] = [
        (f"{each.name}-{row.partition_index}", row.error_code, _hint(row.error_code))
        for each in answer.topics
        for row in each.partitions
    ]
    return outcome(f"{len(chosen)} offsets of group {group} were deleted", results)


async def _commit(cluster: WatchedCluster, group: str, offsets: Mapping[Key, int]) -> dict[str, Any]:
    by_topic: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        by_topic.setdefault(topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)
            for topic, rows in by_topic.items()
        ],
    )
    coordinator = await _coordinator(cluster, group)
    answer = await ask_broker(cluster, coordinator, request, OffsetCommitResponse, version_max=_COMMIT_BY_NAME)
    results: list[Result] = [
        (f"{topic.name}-{row.partition_index}", row.error_code, _hint(row.error_code))
        for topic in answer.topics
        for row in topic.partitions
    ]
    return outcome(f"offsets of group {group} were reset", results)


def _hint(code: int) -> str | None:
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "members of the group read this topic: stop them first"
    has_members = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    return "the group has members: stop them first" if code in has_members else None


async def _coordinator(cluster: WatchedCluster, group: str) -> int:
    request = FindCoordinatorRequest(key=group, key_type=0)
    try:
        answer = await cluster.questions.of_any(request, FindCoordinatorResponse, version_max=_ONE_GROUP)
    except NoAnswer as error:
        raise Problem("unreachable", f"no broker answers: {error}") from error
    if answer.error_code:
        raise Problem("refused", f"the coordinator of group {group}: {reason(answer.error_code, answer.error_message)}")
    return answer.node_id


async def _new_offsets(
    cluster: WatchedCluster, keys: list[Key], target: str, value: int, committed: Mapping[Key, int]
) -> dict[Key, int]:
    """Returns the new offsets, which lie in the logs; partitions whose leader does not answer are missing."""
    starts, ends = await asyncio.gather(_logs(cluster, keys, EARLIEST), _logs(cluster, keys, LATEST))
    if target == "earliest":
        return starts
    if target == "latest":
        return ends
    if target == "time":
        found = await _logs(cluster, keys, value)
        return {key: found.get(key, end) for key, end in ends.items()}
    if target == "offset":
        wanted = dict.fromkeys(keys, value)
    else:
        without = [f"{topic}-{partition}" for topic, partition in keys if (topic, partition) not in committed]
        if without:
            raise Problem("bad-request", f"there is no committed offset to shift: {', '.join(without[:10])}")
        wanted = {key: committed[key] + value for key in keys}
    return {
        key: min(max(offset, starts[key]), ends[key]) for key, offset in wanted.items() if key in starts and key in ends
    }


async def _logs(cluster: WatchedCluster, keys: list[Key], timestamp: int) -> dict[Key, int]:
    by_leader: dict[int, list[Key]] = {}
    for topic, partition in keys:
        row = cluster.table.row_of(topic, partition)
        if row is None:
            raise Problem("not-found", f"there is no partition {topic}-{partition}")
        by_leader.setdefault(int(cluster.table.states.leader[row]), []).append((topic, partition))

    async def one(leader: int, own: list[Key]) -> Mapping[Key, int]:
        request = offsets_request(sorted(own), timestamp=timestamp, replica_id=CONSUMER)
        try:
            return offsets_of(await cluster.questions.of(leader, request, ListOffsetsResponse))
        except NoAnswer:
            return {}

    answers = await asyncio.gather(*(one(leader, own) for leader, own in by_leader.items()))
    return {key: offset for each in answers for key, offset in each.items()}
