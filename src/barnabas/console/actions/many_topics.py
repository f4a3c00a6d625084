"""Actions on many topics: each says what it will do with each topic, and what it did with each.

A topic that the user's patterns do not allow, that does not exist or that is internal is refused alone; the others are
changed. The controller gets portions of the topics, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs, Key
from barnabas.console.actions.outcome import outcome_of, plan, reason
from barnabas.console.actions.requests import TIMEOUT_MS, ask_controller
from barnabas.console.actions.topics import (
    DELETE_BY_NAME,
    PARTITIONS_MAX,
    alterations,
    alterations_of,
    delete_before,
)
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.security.scope_rules import NOT_ALLOWED
from barnabas.console.views.configs import values_of_topics
from barnabas.console.views.partitions import leader_sizes, messages_in
from barnabas.console.views.policies import CLEANUP
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPICS_MAX: Final = 1_000
_PER_REQUEST: Final = 100
#: Topics that one turn of the loop looks at.
_PER_TURN: Final = 50
_READERS_SHOWN: Final = 5
_INTERNAL: Final = "it is an internal topic, which only an action on it alone changes"
_AFTER_A_FAILURE: Final = "not tried, because an earlier request failed"
_DELETE: Final = "delete"
#: The offset in a request to delete records that stands for the high watermark.
_HIGH_WATERMARK: Final = -1

#: The error code of each topic, 0 for a change that was made, and the broker's message.
Answers = dict[str, tuple[int, str | None]]
#: A request about some topics.
Ask = Callable[[Sequence[str]], Awaitable[Answers]]
Rows = list[dict[str, Any]]


class Chosen:
    """The topics of a request in its order: `names` are those to change, `refused` has the reasons for the others."""

    def __init__(self, cluster: WatchedCluster, inputs: Inputs) -> None:
        self.asked = _asked(inputs)
        self.refused: dict[str, str] = {}
        self._table = cluster.table
        for name in self.asked:
            topic = self._table.topics.by_name.get(name)
            if not inputs.scope.sees_topic(name):
                self.refused[name] = f"{NOT_ALLOWED} this topic"
            elif topic is None or not topic.count:
                self.refused[name] = "there is no such topic"
            elif self._table.topics.internal()[topic.number]:
                self.refused[name] = _INTERNAL

    @property
    def names(self) -> list[str]:
        return [name for name in self.asked if name not in self.refused]

    def rows(self, name: str) -> Any:
        """Returns the rows of a topic in the table."""
        topic = self._table.topics.by_name.get(name)
        return [] if topic is None else topic.rows

    def shown(self, done: Mapping[str, str]) -> Rows:
        """Returns a row for each topic: what is done with it, or why not."""
        return [
            {"subject": name, "ok": False, "text": self.refused[name]}
            if name in self.refused
            else {"subject": name, "ok": True, "text": done.get(name, "")}
            for name in self.asked
        ]

    def take(self, answers: Answers) -> None:
        """Refuses the topics for which the cluster answered an error."""
        self.refused |= {name: reason(code, message) for name, (code, message) in answers.items() if code}


async def delete_topics(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Deletes topics. `confirm` must repeat the number of names."""
    chosen = Chosen(cluster, inputs)
    inputs.confirm("confirm", str(len(chosen.asked)))
    if inputs.is_dry_run:
        return _plan(
            chosen, await _deletions(cluster, inputs, chosen), f"deletes {_counted(chosen.names)}, permanently"
        )

    async def ask(names: Sequence[str]) -> Answers:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
        answer = await ask_controller(
            cluster, request, DeleteTopicsResponse, lambda found: found.responses, version_max=DELETE_BY_NAME
        )
        return {row.name or "": (row.error_code, row.error_message) for row in answer.responses}

    return await _done(chosen, ask, lambda topics: f"deleted {topics}")


async def delete_records_of_topics(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Deletes all records of topics, up to the high watermarks. `confirm` must repeat the number of names."""
    chosen = Chosen(cluster, inputs)
    inputs.confirm("confirm", str(len(chosen.asked)))
    chosen.refused |= await _that_keep_records(cluster, chosen.names)
    if inputs.is_dry_run:
        return _plan(
            chosen,
            await _emptied(cluster, chosen),
            f"deletes all records of {_counted(chosen.names)}; that cannot be undone",
        )

    async def ask(names: Sequence[str]) -> Answers:
        return await _delete_records(cluster, {name: chosen.rows(name) for name in names})

    return await _done(chosen, ask, lambda topics: f"deleted all records of {topics}")


async def alter_configs_of_topics(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Sets and removes the same keys of all topics."""
    chosen, changes = Chosen(cluster, inputs), alterations(inputs)

    async def ask(names: Sequence[str]) -> Answers:
        resources = [alterations_of("topic", name, changes) for name in names]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=inputs.is_dry_run)
        answer = await ask_controller(cluster, request, IncrementalAlterConfigsResponse, lambda found: found.responses)
        return {row.resource_name: (row.error_code, row.error_message) for row in answer.responses}

    if not inputs.is_dry_run:
        return await _done(chosen, ask, lambda topics: f"changed {', '.join(changes)} of {topics}")
    chosen.take(await _in_portions(chosen.names, ask))
    before = await _values(cluster, chosen.names, list(changes))
    done = {
        name: ", ".join(f"{key}: {_value(before, name, key)} -> {_after(value)}" for key, value in changes.items())
        for name in chosen.names
    }
    return _plan(chosen, done, f"changes {', '.join(changes)} of {_counted(chosen.names)}")


async def add_partitions_to_topics(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Gives all topics the same number of partitions; one that has as many already is refused."""
    chosen, count = Chosen(cluster, inputs), inputs.number("partitions", least=1, most=PARTITIONS_MAX)
    before = {name: len(chosen.rows(name)) for name in chosen.names}
    chosen.refused |= {name: f"it has {known} partitions already" for name, known in before.items() if known >= count}

    async def ask(names: Sequence[str]) -> Answers:
        topic = CreatePartitionsRequest.CreatePartitionsTopic
        topics = [topic(name=name, count=count, assignments=None) for name in names]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=inputs.is_dry_run)
        answer = await ask_controller(
            cluster,
            request,
            CreatePartitionsResponse,
            lambda found: found.results,
        )
        return {row.name: (row.error_code, row.error_message) for row in answer.results}

    if not inputs.is_dry_run:
        return await _done(chosen, ask, lambda topics: f"added partitions to {topics}, up to {count}")
    chosen.take(await _in_portions(chosen.names, ask))
    done = {name: f"adds {count - before[name]} partitions, it has {before[name]}" for name in chosen.names}
    moved = "records with keys go to other partitions than before"
    return _plan(chosen, done, f"adds partitions to {_counted(chosen.names)}", [moved])


def _asked(inputs: Inputs) -> list[str]:
    """Returns the names of a request, each once. Raises Problem."""
    names = list(dict.fromkeys(inputs.names("topics")))
    if not names or not all(names):
        raise Problem("bad-request", "topics is not a list of names")
    if len(names) > TOPICS_MAX:
        raise Problem("bad-request", f"one request can change at most {TOPICS_MAX} topics, not {len(names)}")
    return names


def _counted(topics: Collection[str]) -> str:
    return "1 topic" if len(topics) == 1 else f"{len(topics)} topics"


def _plan(chosen: Chosen, done: Mapping[str, str], text: str, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Returns what will be done with each topic. Raises Problem if nothing will be done."""
    shown = outcome_of("", chosen.shown(done))["results"]
    refused = [f"{_counted(chosen.refused)} will not be changed"] if chosen.refused else []
    return plan([text], [*refused, *warnings], results=shown)


async def _done(chosen: Chosen, ask: Ask, text: Callable[[str], str]) -> dict[str, Any]:
    """Changes the topics; `text` says it of their number. Raises Problem if none was changed."""
    chosen.take(await _in_portions(chosen.names, ask))
    return outcome_of(text(_counted(chosen.names)), chosen.shown({}))


async def _in_portions(names: Sequence[str], ask: Ask) -> Answers:
    """Asks for portions of the names. After a request without an answer, the names of later ones are not tried."""
    found: Answers = {}
    for begin in range(0, len(names), _PER_REQUEST):
        portion = names[begin : begin + _PER_REQUEST]
        try:
            answers = await ask(portion)
        except Problem as problem:
            failed = (int(ErrorCode.UNKNOWN_SERVER_ERROR), problem.text)
            rest = (int(ErrorCode.UNKNOWN_SERVER_ERROR), _AFTER_A_FAILURE)
            return dict.fromkeys(names, rest) | found | dict.fromkeys(portion, failed)
        missing = (int(ErrorCode.UNKNOWN_SERVER_ERROR), "the answer does not name it")
        found |= {name: answers.get(name, missing) for name in portion}
    return found


async def _deletions(cluster: WatchedCluster, inputs: Inputs, chosen: Chosen) -> dict[str, str]:
    """Returns what the deletion of each topic deletes, and the groups that have offsets there."""
    readers: dict[str, set[str]] = {name: set() for name in chosen.names}
    for group, state in cluster.groups.items():
        if inputs.scope.sees_group(group):
            for topic in {topic for topic, _ in state.offsets} & readers.keys():
                readers[topic].add(group)
    found = {}
    async for name, rows in _in_turns(chosen):
        sizes = leader_sizes(cluster.table, rows)
        found[name] = f"deletes {len(rows)} partitions and {int(sizes[sizes >= 0].sum()):,} bytes by replica"
        groups = sorted(readers[name])
        if groups:
            more = f" and {len(groups) - _READERS_SHOWN} more" if len(groups) > _READERS_SHOWN else ""
            found[name] += f"; groups have offsets there: {', '.join(groups[:_READERS_SHOWN])}{more}"
    return found


async def _emptied(cluster: WatchedCluster, chosen: Chosen) -> dict[str, str]:
    """Returns the records that each topic loses."""
    found = {}
    async for name, rows in _in_turns(chosen):
        counts = messages_in(cluster.table, rows)
        known = f"about {int(counts[counts >= 0].sum()):,} records" if (counts >= 0).any() else "all records"
        found[name] = f"deletes {known} of {len(rows)} partitions"
    return found


async def _in_turns(chosen: Chosen) -> AsyncIterator[tuple[str, Any]]:
    """Yields the topics with their rows, in several turns of the loop: other requests are answered between them."""
    for number, name in enumerate(chosen.names):
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
        yield name, chosen.rows(name)


async def _that_keep_records(cluster: WatchedCluster, names: Sequence[str]) -> dict[str, str]:
    """Returns the topics whose policy forbids the deletion of records, with the reason."""
    known = await _values(cluster, names, [CLEANUP])
    policies = {name: values.get(CLEANUP) for name, values in known.items()}
    return {
        name: f"brokers delete no records of a topic whose {CLEANUP} is {policy}"
        for name, policy in policies.items()
        if policy and _DELETE not in policy
    }


async def _values(
    cluster: WatchedCluster, names: Sequence[str], keys: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Returns the present values; without an answer none, because they only explain the plan."""
    try:
        return await values_of_topics(cluster, names, keys)
    except NoAnswer:
        return {}


def _value(before: Mapping[str, Mapping[str, str | None]], name: str, key: str) -> str:
    value = before.get(name, {}).get(key)
    return "?" if value is None else value or "(empty)"


def _after(value: str | None) -> str:
    return "the default" if value is None else value or "(empty)"


async def _delete_records(cluster: WatchedCluster, topics: Mapping[str, Any]) -> Answers:
    """Deletes all records of topics. The answer of a topic is the first error of its partitions."""
    states = cluster.table.states
    leaders: dict[int, list[Key]] = {}
    for name, rows in topics.items():
        for row in rows.tolist():
            leaders.setdefault(int(states.leader[row]), []).append((name, int(states.partition[row])))
    answers = await asyncio.gather(
        *(delete_before(cluster, leader, dict.fromkeys(keys, _HIGH_WATERMARK)) for leader, keys in leaders.items())
    )
    errors: dict[str, list[tuple[int, str | None]]] = {name: [] for name in topics}
    for (name, _), code, message in (each for found in answers for each in found):
        if code:
            errors[name].append((code, message))
    return {
        name: (found[0][0], f"{len(found)} of {len(topics[name])} partitions: {found[0][1] or 'refused'}")
        if found
        else (0, None)
        for name, found in errors.items()
    }
