"""The body of an action, parsed and checked: each method raises Problem for a value that it does not accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.problems import Problem
from barnabas.console.security.scope import EVERYTHING, Scope

_MANY: Final = 100_000
_TEXT_MAX: Final = 65_536
Key = tuple[str, int]


class Inputs:
    def __init__(self, body: Mapping[str, Any], scope: Scope = EVERYTHING) -> None:
        self.body = body
        self.scope = scope

    @property
    def is_dry_run(self) -> bool:
        return self.body.get("dry_run") is True

    def text(self, name: str) -> str:
        value = self.body.get(name)
        if not isinstance(value, str) or not value or len(value) > _TEXT_MAX:
            raise Problem("bad-request", f"{name} is missing, or not a string")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        value = self.text(name)
        if value not in known:
            raise Problem("bad-request", f"{name} is not one of {', '.join(known)}")
        return value

    def number(self, name: str, *, least: int, most: int, default: int | None = None) -> int:
        """Returns a number. A form sends null for a field that is empty."""
        value = self.body.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Problem("bad-request", f"{name} is not a number between {least} and {most}")
        return value

    def confirm(self, name: str, wanted: str) -> None:
        """Requires the name of what is destroyed a second time; a dry run needs no such confirmation."""
        if not self.is_dry_run and self.body.get(name) != wanted:
            raise Problem("bad-request", f"{name} must repeat the name {wanted}")

    def texts(self, name: str) -> dict[str, str]:
        value = self.body.get(name, {})
        is_right = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
        if not is_right or len(value) > _MANY:
            raise Problem("bad-request", f"{name} is not an object of strings")
        return dict(value)

    def names(self, name: str) -> list[str]:
        value = self.body.get(name, [])
        if not isinstance(value, list) or len(value) > _MANY or not all(isinstance(each, str) for each in value):
            raise Problem("bad-request", f"{name} is not a list of strings")
        return value

    def partitions(self, name: str = "partitions") -> list[Key] | None:
        """Returns partitions; None for all of them."""
        rows = self.rows(name)
        return None if rows is None else [key_of(row) for row in rows]

    def rows(self, name: str) -> list[dict[str, Any]] | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > _MANY or not all(isinstance(each, dict) for each in value):
            raise Problem("bad-request", f"{name} is not a list of objects")
        return value


def key_of(row: Mapping[str, Any]) -> Key:
    topic, partition = row.get("topic"), row.get("partition")
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
        raise Problem("bad-request", "a partition must have a topic and a number")
    return topic, partition


def broker_ids(value: Any) -> list[int]:
    is_right = isinstance(value, list) and 0 < len(value) <= 1_000
    if not is_right or not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value):
        raise Problem("bad-request", "replicas is not a list of brokers")
    if len(set(value)) < len(value):
        raise Problem("bad-request", "replicas contains a broker twice")
    return list(value)
