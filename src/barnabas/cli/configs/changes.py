"""The changes of `barnabas configs alter`: parsed from the command line, checked against what an entity has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.cli.configs.access import Entity, EntityKind, Entry
from barnabas.cli.options import read_text
from barnabas.common.errors import ConfigError
from barnabas.common.properties import parse_properties
from barnabas.embedded.failures import Failure

#: A comma or "=" that is not within brackets, as in Kafka's tool: `cleanup.policy=[compact,delete],retention.ms=1000`.
_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"
_COMMA: Final = re.compile("," + _OUTSIDE)
#: Keys that brokers accept but do not list (KIP-73, KIP-113).
_UNLISTED: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.")


def parse_added(texts: Iterable[str]) -> dict[str, str]:
    """Parses the values of --add: "a=1,b=[2,3]" -> {"a": "1", "b": "2,3"}."""
    added: dict[str, str] = {}
    for text in texts:
        for pair in _COMMA.split(text):
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise Failure(
                    f"--add {pair.strip()}: expected KEY=VALUE",
                    "a value with commas is written in brackets: cleanup.policy=[compact,delete]",
                )
            value = value.strip()
            bracketed = value.startswith("[") and value.endswith("]")
            if key.strip() in added:
                raise Failure(f"--add {key.strip()}: it is given twice")
            added[key.strip()] = value[1:-1] if bracketed else value
    return added


def read_added(path: Path) -> dict[str, str]:
    """Reads a properties file. Its values have no brackets."""
    try:
        return parse_properties(read_text(path))
    except ConfigError as error:
        raise Failure(f"{path}: {error}") from error


def parse_deleted(texts: Iterable[str]) -> list[str]:
    """Parses the values of --delete: "a,b" -> ["a", "b"]."""
    return list(dict.fromkeys(key.strip() for text in texts for key in text.split(",") if key.strip()))


def changes_of(added: Mapping[str, str], deleted: Sequence[str]) -> dict[str, str | None]:
    """Returns the config changes of --add and --delete as key -> value; the value of a key to delete is None. Raises
    Failure if a key is in both.
    """
    changes: dict[str, str | None] = dict(added)
    for key in deleted:
        if key in changes:
            raise Failure(f"{key} cannot be both added and deleted")
        changes[key] = None
    return changes


def check(entity: Entity, changes: Mapping[str, str | None], listed: Sequence[Entry], known: Iterable[str]) -> None:
    """Raises Failure for changes that the brokers would accept by mistake: keys to delete that are not set, and keys
    that no broker knows. Brokers keep any key, because it could belong to a plugin. `listed` are the entries of the
    entity, `known` more names of keys.
    """
    set_here = {entry.name for entry in listed if is_set(entity, entry)}
    for key, value in changes.items():
        if value is None and key not in set_here and entity.kind is not EntityKind.LOGGERS:
            others = ", ".join(sorted(set_here)) or "none"
            raise Failure(f"--delete {key}: it is not set on {entity}", f"keys that are set there: {others}")
    names = {entry.name for entry in listed} | set(known)
    if entity.kind is EntityKind.BROKERS:
        for key in changes:
            if not _is_known(key, names):
                raise Failure(
                    f"{entity} has no key {key}",
                    suggestion(key, names) or "--allow-unknown sets it nevertheless, for a plugin that reads it",
                )


def hint_for(changes: Iterable[str], listed: Sequence[Entry]) -> str | None:
    """Returns a hint for refused changes: a key that needs a restart, or keys similar to one that is not listed."""
    entries = {entry.name: entry for entry in listed}
    for key in changes:
        if key in entries and entries[key].read_only:
            return f"{key} is read-only: a broker reads it from its properties file when it starts"
    unknown = [key for key in changes if key not in entries]
    return suggestion(unknown[0], entries) if unknown else None


def suggestion(key: str, names: Iterable[str]) -> str | None:
    """Returns a hint with the most similar names; None if there are none."""
    similar = difflib.get_close_matches(key, list(names), n=3, cutoff=0.7)
    return f"similar keys: {', '.join(similar)}" if similar else None


def is_set(entity: Entity, entry: Entry) -> bool:
    """Whether the value of a key is set on the entity itself, not inherited."""
    return entry.source == entity.own_source


def after_deletion(entity: Entity, entry: Entry) -> tuple[str | None, str | None]:
    """Returns the value and the source that a key has without the value of the entity; (None, None) if unknown."""
    left = [synonym for synonym in entry.synonyms if synonym.source != entity.own_source]
    return (left[0].value, left[0].source) if left else (None, None)


def _is_known(key: str, names: set[str]) -> bool:
    return key in names or key in _UNLISTED or _LISTENER_PREFIX.sub("", key) in names
