"""Masks: parts of records that never leave the server.

    key                       the whole key; with a path, a field of it
    value                     the whole value
    value.card.number         a field of a value in JSON, Avro or Protobuf
    value.items[*].iban       of every element of a list; so does value.items.iban
    value.**.password         at any depth; * is any field, ["a.b"] a field whose name has dots
    headers.authorization     a header; headers.x-* those that begin with x-

A record is masked before anything else is done with it, so that no filter, search, size or file depends on what is
hidden. A key or value that has fields to hide, but cannot be read as fields, is hidden as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.security.scope import EVERY, fits

HIDDEN: Final = "***"
KEY: Final = "key"
VALUE: Final = "value"
_HEADERS: Final = "headers."
_STEP: Final = re.compile(r"\[(?:(\d+|\*)|\"([^\"]+)\")\]|\.?([^.\[\]\"]+)")
_DEEP: Final = "**"
#: Levels of a value that are looked at; a value that is deeper is hidden as a whole.
_LEVELS_MAX: Final = 200

Path = tuple[str, ...]


class MaskError(ValueError):
    """The error for a field that cannot be masked."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The fields that are hidden in the topics of some clusters."""

    topics: tuple[str, ...]
    fields: tuple[str, ...]
    clusters: tuple[str, ...] = EVERY

    def __post_init__(self) -> None:
        Hidden.of(self.fields)


@dataclass(frozen=True, slots=True)
class Hidden:
    """The parts of a topic's records that are hidden. An empty path is the whole key or value."""

    key: tuple[Path, ...] = ()
    value: tuple[Path, ...] = ()
    headers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.headers)

    @classmethod
    def of(cls, fields: Iterable[str]) -> Hidden:
        """Parses the names of hidden fields. Raises MaskError."""
        paths: dict[str, list[Path]] = {KEY: [], VALUE: []}
        headers = []
        for each in fields:
            if each.startswith(_HEADERS) and len(each) > len(_HEADERS):
                headers.append(each.removeprefix(_HEADERS))
                continue
            part = next(
                (part for part in (KEY, VALUE) if each == part or each.startswith((f"{part}.", f"{part}["))), None
            )
            if part is None:
                raise MaskError(f"{each!r} is not a field: a field begins with key, value or headers.")
            paths[part].append(_path(each, each[len(part) :]))
        return cls(tuple(paths[KEY]), tuple(paths[VALUE]), tuple(headers))


def fields_of(masks: Sequence[Mask], cluster: str, topic: str) -> tuple[str, ...]:
    """Returns the fields that are hidden in a topic."""
    found = (mask for mask in masks if fits(mask.clusters, cluster) and fits(mask.topics, topic))
    return tuple(dict.fromkeys(field for mask in found for field in mask.fields))


def is_whole(paths: Sequence[Path]) -> bool:
    return () in paths


def masked(value: Any, paths: Sequence[Path]) -> Any:
    """Returns a value, which it changes, with these fields hidden."""
    for path in paths:
        try:
            value = _masked(value, path, 0)
        except RecursionError:
            return HIDDEN
    return value


def masks_header(hidden: Hidden, name: str) -> bool:
    return bool(hidden.headers) and fits(hidden.headers, name)


def _masked(value: Any, path: Path, level: int) -> Any:
    if not path:
        return HIDDEN
    if level > _LEVELS_MAX:
        raise RecursionError
    if not isinstance(value, (dict, list)):
        # `**` fits no further field here; any other step names one that is not there.
        return value
    first, rest = path[0], path[1:]
    if first == _DEEP:
        value = _masked(value, rest, level + 1) if rest else HIDDEN
        if isinstance(value, (dict, list)):
            for name in _names(value, "*"):
                value[name] = _masked(value[name], path, level + 1)
        return value
    is_of_elements = isinstance(value, list) and first != "*" and not first.isdecimal()
    for name in _names(value, "*" if is_of_elements else first):
        value[name] = _masked(value[name], path if is_of_elements else rest, level + 1)
    return value


def _names(value: Any, step: str) -> list[Any]:
    """Returns the fields, or the places in a list, that a step names."""
    if isinstance(value, dict):
        return list(value) if step == "*" else [step] if step in value else []
    if step == "*":
        return list(range(len(value)))
    return [int(step)] if step.isdecimal() and int(step) < len(value) else []


def _path(field: str, text: str) -> Path:
    steps, place = [], 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise MaskError(f"{field!r} is not a field: {text[place:]!r} is not a step of a path")
        steps.append(found[1] or found[2] or found[3])
        place = found.end()
    return tuple(steps)
