"""The configuration file of the console (TOML): clusters, security, masks, users, history, port, TLS.

    port = 8088
    read_only = true
    [tls]
    certificate = "console.pem"
    [[clusters]]
    name = "shop"
    bootstrap = "broker1:9092,broker2:9092"
    schema_registry = "http://registry:8081"
    [[masks]]
    topics = ["payments*"]
    fields = ["value.card.number", "headers.authorization"]
    [roles.viewer]
    topics = ["shop-*"]

A key that does not exist, and a value of another type, are errors that say what is allowed. Paths are relative to the
file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.console.messages.masks import Mask, MaskError
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.security.rights import ROLES, Role
from barnabas.console.security.scope import PATTERN_MAX, Patterns

_PORT_MAX: Final = 65_535
_TYPES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "a number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
}
_TOP: Final[Mapping[str, type]] = {
    "host": str,
    "port": int,
    "read_only": bool,
    "insecure": bool,
    "users": str,
    "history": str,
    "audit": str,
    "allowed_hosts": list,
    "tls": dict,
    "clusters": list,
    "masks": list,
    "roles": dict,
}
_TLS: Final[Mapping[str, type]] = {"certificate": str, "key": str}
_CLUSTER: Final[Mapping[str, type]] = {
    "name": str,
    "bootstrap": str,
    "context": str,
    "directory": str,
    "properties": dict,
    "controllers": str,
    "controllers_properties": dict,
    "schema_registry": str,
    "production": bool,
    "colour": str,
}
_MASK: Final[Mapping[str, type]] = {"topics": list, "fields": list, "clusters": list}
_ROLE: Final[Mapping[str, type]] = {"clusters": list, "topics": list, "groups": list}
#: Lists whose members are tables.
_TABLES: Final = frozenset({"clusters", "masks"})
_PLACES: Final = ("bootstrap", "context", "directory")


class ConfigFileError(Exception):
    """The error for an invalid configuration file. Its text is one line."""


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster in the file. One of `bootstrap`, `context` and `directory` says where the cluster is."""

    name: str = ""
    bootstrap: str | None = None
    context: str | None = None
    directory: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    controllers: str | None = None
    controllers_properties: Mapping[str, str] = field(default_factory=dict)
    schema_registry: str | None = None
    production: bool = False
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the file; None for keys that it lacks."""

    host: str | None = None
    port: int | None = None
    read_only: bool | None = None
    insecure: bool | None = None
    users: Path | None = None
    history: Path | None = None
    audit: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    clusters: tuple[ClusterEntry, ...] = ()
    masks: tuple[Mask, ...] = ()
    roles: Mapping[Role, Patterns] = field(default_factory=dict)


def read(path: Path) -> ConfigFile:
    """Reads the configuration file. Raises ConfigFileError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigFileError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigFileError(f"{path}: {error}") from error
    try:
        return _parsed(content, path.resolve().parent)
    except ConfigFileError as error:
        raise ConfigFileError(f"{path}: {error}") from error


def _parsed(content: Mapping[str, Any], folder: Path) -> ConfigFile:
    found = dict(_checked(content, _TOP, ""))
    tls = dict(_checked(found.pop("tls", {}), _TLS, "tls."))
    paths = {name: folder / found.pop(name) for name in ("users", "history", "audit") if name in found}
    if not 0 <= found.get("port", 0) <= _PORT_MAX:
        raise ConfigFileError(f"port is not between 0 and {_PORT_MAX}: {found['port']}")
    clusters = tuple(_cluster(each, index, folder) for index, each in enumerate(found.pop("clusters", ())))
    names = [each.name for each in clusters]
    if len(set(names)) < len(names):
        raise ConfigFileError(f"two clusters have the name {next(name for name in names if names.count(name) > 1)}")
    return ConfigFile(
        **paths,
        **{name: folder / value for name, value in tls.items()},
        allowed_hosts=tuple(found.pop("allowed_hosts", ())),
        clusters=clusters,
        masks=tuple(_mask(each, index) for index, each in enumerate(found.pop("masks", ()))),
        roles=_roles(found.pop("roles", {})),
        **found,
    )


def _cluster(content: Any, index: int, folder: Path) -> ClusterEntry:
    where = f"clusters[{index}]"
    found = dict(_checked(content, _CLUSTER, f"{where}."))
    if sum(name in found for name in _PLACES) != 1:
        raise ConfigFileError(f"{where} needs one of {', '.join(_PLACES)}")
    if "directory" in found:
        found["directory"] = folder / found["directory"]
    for name in ("properties", "controllers_properties"):
        for key, value in found.get(name, {}).items():
            if not isinstance(value, (str, int, float, bool)):
                raise ConfigFileError(f"{where}.{name}.{key} is not a string")
        shown = {key: _property(value) for key, value in found.get(name, {}).items()}
        found[name] = shown
    if "schema_registry" in found:
        try:
            SchemaRegistry(found["schema_registry"])
        except ValueError as error:
            raise ConfigFileError(f"{where}.schema_registry: {error}") from error
    found.setdefault("name", found.get("context") or (found["directory"].name if "directory" in found else "cluster"))
    return ClusterEntry(**found)


def _property(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mask(content: Any, index: int) -> Mask:
    where = f"masks[{index}]"
    found = dict(_checked(content, _MASK, f"{where}."))
    for name in ("topics", "fields"):
        if not found.get(name):
            raise ConfigFileError(f"{where} needs {name}, a list of strings")
    try:
        return Mask(**{name: tuple(value) for name, value in found.items()})
    except MaskError as error:
        raise ConfigFileError(f"{where}.fields: {error}") from error


def _roles(content: Mapping[str, Any]) -> dict[Role, Patterns]:
    found: dict[Role, Patterns] = {}
    for name, table in content.items():
        if name not in ROLES:
            raise ConfigFileError(f'there is no key "roles.{name}"; allowed: {", ".join(ROLES)}')
        patterns = dict(_checked(table, _ROLE, f"roles.{name}."))
        found[ROLES[name]] = Patterns(**{kind: tuple(value) for kind, value in patterns.items()})
    return found


def _checked(content: Any, allowed: Mapping[str, type], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields the values of a table. Raises ConfigFileError for a key that does not exist, or a value of another
    type.
    """
    if not isinstance(content, dict):
        raise ConfigFileError(f"{prefix.rstrip('.')} is not a table")
    for name, value in content.items():
        wanted = allowed.get(name)
        if wanted is None:
            raise ConfigFileError(f'there is no key "{prefix}{name}"; allowed: {", ".join(allowed)}')
        is_right = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
        is_list = wanted is list and not (prefix == "" and name in _TABLES)
        if is_right and is_list:
            is_right = all(isinstance(each, str) and len(each) <= PATTERN_MAX for each in value)
        if not is_right:
            kind = "a list of tables" if wanted is list and not is_list else _TYPES[wanted]
            raise ConfigFileError(f"{prefix}{name} must be {kind}, not {value!r:.60}")
        yield name, value
