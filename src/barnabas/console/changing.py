"""The routes of the actions, of the lab and of the audit log."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from barnabas.console.actions import acknowledge as acknowledgements
from barnabas.console.actions import copies, groups, many_topics, moves, replicas, topics, transactions
from barnabas.console.actions.inputs import Inputs
from barnabas.console.csv_text import CSV, csv_text
from barnabas.console.lab import ACTIONS
from barnabas.console.problems import Problem
from barnabas.console.reading import require_filled
from barnabas.console.security.rights import Role
from barnabas.console.visit import Handler, Visit, file_response, json_response
from barnabas.console.watched import WatchedCluster

Action = Callable[[WatchedCluster, Inputs, Role], Awaitable[dict[str, Any]]]
VisitedAction = Callable[[Visit, Inputs], Awaitable[dict[str, Any]]]
#: Names of sensitive configurations; Kafka's chains of certificates are among them.
_SECRET: Final = re.compile(r"password|passphrase|secret|token|jaas|\.key$|credential|certificate", re.IGNORECASE)
_HIDDEN: Final = "(hidden)"
_AUDIT_COLUMNS: Final = (
    "id",
    "time_ms",
    "user",
    "role",
    "address",
    "cluster",
    "action",
    "result",
    "text",
    "arguments",
)
#: Arguments that are or can be content of records, or passwords.
_CONTENT: Final = frozenset({"headers", "password", "filter", "q"})
#: Arguments that are content unless they are numbers: an offset, or a time.
_FIELDS: Final = frozenset({"key", "value"})
_CONFIGS: Final = ("set", "configs")


async def audited(visit: Visit, action: str, arguments: dict[str, Any], work: Callable[[], Awaitable[Any]]) -> Any:
    """Does a piece of work, and writes it to the audit log with its result."""
    audit = visit.console.audit
    entry = {
        "user": visit.user,
        "role": visit.role.name.lower(),
        "address": visit.address,
        "cluster": visit.live.cluster.name,
        "action": action,
        "arguments": arguments,
    }
    audit.write({**entry, "result": "begun", "text": ""})
    try:
        result = await work()
    except Problem as problem:
        audit.write({**entry, "result": "refused", "text": problem.text})
        raise
    except BaseException as error:
        audit.write({**entry, "result": "failed", "text": str(error) or type(error).__name__})
        raise
    shown = result if isinstance(result, dict) else {}
    audit.write({**entry, "result": "ok" if shown.get("ok", True) else "partial", "text": shown.get("text", "")})
    return result


async def lab(visit: Visit) -> Response:
    return visit.answer_of_console(await visit.console.labs[visit.live.cluster.name].state())


async def audit(visit: Visit) -> Response:
    parameters = visit.parameters
    limit = parameters.number("limit", 100, least=1, most=1_000)
    scope, user = visit.scope, visit.user

    def is_seen(entry: Mapping[str, Any]) -> bool:
        # The arguments of others' actions can name anything, so a user with patterns of topics or groups sees only the
        # user's own; another one sees those of the clusters that the patterns allow.
        is_own = entry.get("user") == user
        return is_own or (not scope.is_restricted and scope.sees_cluster(str(entry.get("cluster", ""))))

    entries = visit.console.audit.entries(before=parameters.maybe_number("before"), limit=limit, is_seen=is_seen)
    if parameters.choice("format", ("json", "csv"), "json") == "csv":
        rows = (entry | {"arguments": json.dumps(entry.get("arguments"))} for entry in entries)
        return file_response(csv_text(_AUDIT_COLUMNS, rows), "audit.csv", CSV)
    return visit.answer_of_console({"entries": entries, "problem": visit.console.audit.problem})


def _lab_action(action: str) -> Handler:
    async def handler(visit: Visit) -> Response:
        broker_id = (await visit.body()).get("broker")
        if not isinstance(broker_id, int) or isinstance(broker_id, bool):
            raise Problem("bad-request", "broker is not a number")
        found = visit.console.labs[visit.live.cluster.name]

        async def work() -> dict[str, Any]:
            return {"ok": True, "text": await found.act(action, broker_id), "results": []}

        return json_response(await audited(visit, f"lab-{action}", {"broker": broker_id}, work))

    return handler


def action(name: str, act: Action) -> Handler:
    async def visited(visit: Visit, inputs: Inputs) -> dict[str, Any]:
        return await act(visit.live.watched, inputs, visit.role)

    return visited_action(name, visited)


def visited_action(name: str, act: VisitedAction) -> Handler:
    """Returns the handler of an action that needs more of the console than its cluster."""

    async def handler(visit: Visit) -> Response:
        body = await visit.body()
        inputs = Inputs(body, visit.scope)
        require_filled(visit.live)

        async def work() -> dict[str, Any]:
            return await act(visit, inputs)

        if inputs.is_dry_run:
            return json_response(await work())
        return json_response(await audited(visit, name, _without_secrets(body), work))

    return handler


async def _acknowledged(visit: Visit, inputs: Inputs) -> dict[str, Any]:
    return await acknowledgements.acknowledge(visit.live.watched, inputs, visit.user)


def _without_secrets(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments for the audit log: values of configurations whose names look like secrets, passwords and
    the content of records are hidden.
    """
    return {key: _without_secret(key, value) for key, value in body.items()}


def _without_secret(key: str, value: Any) -> Any:
    if key in _CONTENT:
        return _HIDDEN if value else value
    if key in _FIELDS:
        return value if value is None or isinstance(value, (int, float)) else _HIDDEN
    if key not in _CONFIGS:
        return value
    if not isinstance(value, dict):
        return _HIDDEN
    return {name: _HIDDEN if _SECRET.search(name) else each for name, each in value.items()}


_ACTIONS: Final[dict[str, Action]] = {
    "elect": replicas.elect,
    "create_topic": topics.create_topic,
    "delete_topic": topics.delete_topic,
    "alter_configs": topics.alter_configs,
    "add_partitions": topics.add_partitions,
    "delete_records": topics.delete_records,
    "delete_topics": many_topics.delete_topics,
    "delete_records_of_topics": many_topics.delete_records_of_topics,
    "alter_configs_of_topics": many_topics.alter_configs_of_topics,
    "add_partitions_to_topics": many_topics.add_partitions_to_topics,
    "reset_offsets": groups.reset_offsets,
    "delete_group": groups.delete_group,
    "delete_offsets": groups.delete_offsets,
    "clone_topic": copies.clone_topic,
    "recreate_topic": copies.recreate_topic,
    "change_replication": copies.change_replication,
    "abort_transaction": transactions.abort_transaction,
    "reassign": moves.reassign,
    "throttle_moves": moves.throttle_moves,
    "cancel_moves": moves.cancel_moves,
    "verify_moves": moves.verify_moves,
}
HANDLERS: Final[dict[str, Handler]] = {
    "lab": lab,
    "audit": audit,
    "acknowledge": visited_action("acknowledge", _acknowledged),
    **{name: action(name.replace("_", "-"), act) for name, act in _ACTIONS.items()},
    **{f"lab_{action}": _lab_action(action) for action in ACTIONS},
}
