"""The routes of a user with patterns: those that answer from what the patterns allow, and the names in each change.

A change of many topics decides about each of them (`actions.many_topics`): only one that names none of the allowed
topics is refused here. A route that is in none of the tables is refused to such a user, so that a new route shows
nothing until it is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.console.problems import Problem
from barnabas.console.security.scope import Scope

#: Routes that need no rule: they name no topic and no group, or answer from the screens of the scope.
READS: Final = frozenset(
    {
        "session",
        "login",
        "logout",
        "logout_everywhere",
        "overview",
        "map",
        "topics",
        "topic_policies",
        "topic",
        "partition",
        "brokers",
        "broker",
        "cluster_configs",
        "quorum",
        "timeline",
        "search",
        "lanes",
        "groups",
        "group",
        "messages",
        "message",
        "tail",
        "history",
        "whatif",
        "compare",
        "move_plan",
        "directory_plan",
        "live",
        "links",
        "audit",
    }
)
NOT_ALLOWED: Final = "no pattern of this user allows"
_NO_RULE: Final = "a user whose access is limited by patterns of topics or groups cannot do this"


class Named(NamedTuple):
    """The kind of a name, topic or group, and the name. The action itself refuses a name that is not a text."""

    kind: str
    name: Any


Rule = Callable[[Mapping[str, Any]], Iterator[Named]]


def _field(kind: str, name: str) -> Rule:
    def rule(body: Mapping[str, Any]) -> Iterator[Named]:
        yield Named(kind, body.get(name))

    return rule


def _partitions(body: Mapping[str, Any]) -> Iterator[Named]:
    """Yields the topics of named partitions. Raises Problem if none are named, which would mean all partitions: so does
    an empty list in some actions.
    """
    rows = body.get("partitions")
    if not isinstance(rows, list) or not rows:
        raise Problem("role", "a user whose access is limited by patterns must name the partitions")
    for row in rows:
        yield Named("topic", row.get("topic") if isinstance(row, dict) else None)


def _configs(body: Mapping[str, Any]) -> Iterator[Named]:
    if body.get("kind") != "topic":
        raise Problem("role", _NO_RULE)
    yield Named("topic", body.get("name"))


def _offsets(body: Mapping[str, Any]) -> Iterator[Named]:
    """Yields the group and the topics of the offsets that are deleted."""
    yield Named("group", body.get("group"))
    if body.get("partitions") is None:
        yield Named("topic", body.get("topic"))
    else:
        yield from _partitions(body)


def _all_of(*rules: Rule) -> Rule:
    def rule(body: Mapping[str, Any]) -> Iterator[Named]:
        for each in rules:
            yield from each(body)

    return rule


#: The names in the body of each change.
CHANGES: Final[Mapping[str, Rule]] = {
    "elect": _partitions,
    "create_topic": _field("topic", "name"),
    "delete_topic": _field("topic", "name"),
    "alter_configs": _configs,
    "add_partitions": _field("topic", "name"),
    "delete_records": _field("topic", "topic"),
    "reset_offsets": _all_of(_field("group", "group"), _partitions),
    "delete_group": _field("group", "group"),
    "reassign": _partitions,
    "cancel_moves": _partitions,
    "acknowledge": _partitions,
    "clone_topic": _all_of(_field("topic", "source"), _field("topic", "name")),
    "recreate_topic": _field("topic", "name"),
    "change_replication": _field("topic", "topic"),
    "abort_transaction": _field("topic", "topic"),
    "delete_offsets": _offsets,
    "produce": _field("topic", "topic"),
    "produce_again": _all_of(_field("topic", "topic"), _field("topic", "to")),
    "copy_records": _all_of(_field("topic", "topic"), _field("topic", "to")),
}


#: Changes of many topics, which refuse those that the scope does not allow and change the others.
OF_MANY_TOPICS: Final = frozenset(
    {"delete_topics", "delete_records_of_topics", "alter_configs_of_topics", "add_partitions_to_topics"}
)


def check(scope: Scope, route: str, body: Mapping[str, Any] | None) -> None:
    """Raises Problem unless a visitor with this scope can use a route; `body` is that of a change."""
    if not scope.is_restricted or route in READS:
        return
    if route in OF_MANY_TOPICS and body is not None:
        _check_some(scope, body.get("topics"))
        return
    rule = CHANGES.get(route)
    if rule is None or body is None:
        raise Problem("role", _NO_RULE)
    for kind, name in rule(body):
        is_seen = isinstance(name, str) and (scope.sees_topic(name) if kind == "topic" else scope.sees_group(name))
        if not is_seen:
            raise Problem("role", f"{NOT_ALLOWED} the {kind} {str(name)[:200]}")


def _check_some(scope: Scope, names: Any) -> None:
    is_list = isinstance(names, list)
    if not is_list or not any(isinstance(name, str) and scope.sees_topic(name) for name in names):
        raise Problem("role", f"{NOT_ALLOWED} any of the topics")
