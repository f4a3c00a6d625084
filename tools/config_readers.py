"""The code that reads each configuration key, from the syntax trees of the broker's packages.

A key is read where its name is a string in the code, where a property of `BrokerConfig` that returns it is used, or,
for settings of topics, where the field of `LogConfig` is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.config_keys import BROKER_KEYS, GROUP_KEYS, OWN_KEYS, TOPIC_KEYS, broker_synonyms
from barnabas.common.log_config import field_name

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "barnabas"
#: The packages of a node; the others are clients or tests, with settings of their own.
PACKAGES: Final = (
    "common",
    "decisions",
    "metadata",
    "raft",
    "replication",
    "controller",
    "coordinators",
    "journal",
    "broker",
    "server",
    "storage",
    "tls",
    "records",
)
#: Files that define or check keys without using their values.
DEFINITIONS: Final = frozenset(
    {
        "checkpoints.py",
        "config_docs.py",
        "oauth_config_docs.py",
        "config_table.py",
        "config_keys.py",
        "config_changes.py",
        "zookeeper_config_table.py",
    }
)
#: Pairs of names of the same key.
ALIASES: Final = {"broker.id": "node.id"}
CONFIG: Final = "common/config.py"
LOG_CONFIG: Final = "common/log_config.py"
#: Tools that read files of a stopped broker.
OFFLINE: Final = "storage/offline/"
#: Functions that run once, before the node serves: a later change of a key that they read has no effect.
AT_START: Final = frozenset(
    {"__init__", "_make_services", "_open_all", "dispatcher", "from_broker", "from_config", "main", "of", "start"}
)
#: Keys whose name the code composes: the key and the beginning that it names.
COMPOSED: Final = {
    "follower.replication.throttled.replicas": "follower.replication.throttled",
    "leader.replication.throttled.replicas": "leader.replication.throttled",
}
#: Names of the objects whose attributes are settings.
_CONFIGS: Final = frozenset({"config", "_config", "broker", "copy", "proposed"})


class Site(NamedTuple):
    """A place that reads a key: a file below the package, and a function (`Class.method`; empty for the module)."""

    file: str
    function: str

    @property
    def is_at_start(self) -> bool:
        return self.function.rpartition(".")[2] in AT_START


class _Reads(NamedTuple):
    """The places that read keys: string constants, attributes of configurations, and fields of other objects."""

    constants: dict[str, set[Site]]
    attributes: dict[str, set[Site]]
    fields: dict[str, set[Site]]


def readers(key: str) -> list[Site]:
    """Returns the places that read a key of brokers or of Barnabas, or a key of topics."""
    reads = _reads()
    key = ALIASES.get(key, key)
    found = {site for site in reads.constants.get(COMPOSED.get(key, key), ()) if site.file != CONFIG}
    for name, keys in _properties(CONFIG).items():
        if key in keys:
            found |= reads.attributes.get(name, set())
    for name, topic in TOPIC_KEYS.items():
        if key == name or topic.server_default in broker_synonyms(key):
            field = field_name(name)
            for each in (field, *(each for each, fields in _properties(LOG_CONFIG).items() if field in fields)):
                sites = reads.attributes.get(each) or reads.fields.get(each, set())
                found |= {site for site in sites if not site.file.startswith("common/")}
    return sorted(site for site in found if site.file != CONFIG)


def group_readers(key: str) -> list[Site]:
    """Returns the places that read a group's own setting, which overrides the broker's key `group.` + `key`."""
    return sorted(_reads().constants.get(key, set()) | set(readers(f"group.{key}")))


def is_read_live(key: str) -> bool:
    """Returns whether a change of the value at run time is noticed: by a reader at each use, or through a log."""
    if any(topic.server_default == key for topic in TOPIC_KEYS.values()):
        return True
    return any(not site.is_at_start for site in readers(key))


@cache
def _reads() -> _Reads:
    reads = _Reads({}, {}, {})
    known = {*BROKER_KEYS, *OWN_KEYS, *TOPIC_KEYS, *GROUP_KEYS, *COMPOSED.values()}
    for package in PACKAGES:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            name = path.relative_to(PACKAGE).as_posix()
            if path.name not in DEFINITIONS and not name.startswith(OFFLINE):
                for node, function in _nodes(ast.parse(path.read_text(encoding="utf-8"))):
                    site = Site(name, function)
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
                        reads.constants.setdefault(node.value, set()).add(site)
                    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                        reads.fields.setdefault(node.attr, set()).add(site)
                        if _last_name(node.value) in _CONFIGS:
                            reads.attributes.setdefault(node.attr, set()).add(site)
    return reads


def _nodes(tree: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yields every node with the function that contains it; docstrings are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node, function
        inner = function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{function}.{node.name}" if function else node.name
        yield from _nodes(node, inner)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def _properties(file: str) -> dict[str, frozenset[str]]:
    """Returns the properties of the configuration class of a file, each with the keys or fields that it reads, itself
    or through another method."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    owners = [owner for owner in tree.body if isinstance(owner, ast.ClassDef)]
    methods = {node.name: node for owner in owners for node in owner.body if isinstance(node, ast.FunctionDef)}
    fields = {field_name(name) for name in TOPIC_KEYS}

    def keys_of(name: str, seen: frozenset[str]) -> frozenset[str]:
        found: set[str] = set()
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BROKER_KEYS:
                found.add(node.value)
            elif isinstance(node, ast.Attribute) and node.attr in fields:
                found.add(node.attr)
            elif isinstance(node, ast.Attribute) and node.attr in methods and node.attr not in seen:
                found |= keys_of(node.attr, seen | {node.attr})
        if name == "listeners":  # parsed once, by the constructor
            found |= keys_of("_parse_listeners", seen | {"_parse_listeners"})
        return frozenset(found)

    return {
        name: keys_of(name, frozenset({name}))
        for name, node in methods.items()
        if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    }
