"""Keys of the configuration: one that the broker reads is not described as without effect, and one that is described
as heeded is read somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from barnabas.common.config_docs import HEEDED, note_on
from barnabas.common.config_keys import TOPIC_KEYS
from barnabas.common.config_table import BROKER, TOPIC

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "barnabas"
READ = re.compile(r'_of\(\s*"([a-z0-9.]+)"')
#: Settings of a topic that a client may make, for groups that are not served.
MADE_FOR_OTHERS = "share."
#: Files that list keys without reading their values.
LISTS = frozenset({"config_docs.py", "config_table.py", "config_keys.py"})
#: Keys whose name the code puts together: the key and the beginning that it names.
COMPOSED = {
    "follower.replication.throttled.replicas": "follower.replication.throttled",
    "leader.replication.throttled.replicas": "leader.replication.throttled",
}
#: A field that is read is an attribute of some object: `config.retention_bytes`.
FIELD = re.compile(r"\.([a-z0-9_]+)\b(?!\()")


#: The packages of the broker.
ROOMS = ("common", "raft", "replication", "controller", "coordinators", "broker", "server", "storage", "records")


def sources() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            if path.name not in LISTS:
                yield path


@cache
def named() -> frozenset[str]:
    """Every string constant of the code that is not a docstring."""
    found: set[str] = set()
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                continue
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Constant) and isinstance(child.value, str):
                    found.add(child.value)
    return frozenset(found)


@cache
def fields_read() -> frozenset[str]:
    return frozenset(name for path in sources() for name in FIELD.findall(path.read_text(encoding="utf-8")))


def has_reader(key: str) -> bool:
    """The code names the key, or reads the field of a topic's configuration whose default it is."""
    fields = {name.replace(".", "_") for name, topic in TOPIC_KEYS.items() if key in (name, topic.server_default)}
    return COMPOSED.get(key, key) in named() or bool(fields & fields_read())


def test_keys_that_are_read_are_heeded() -> None:
    known = {row[0] for row in (*BROKER, *TOPIC)}
    read = {
        key
        for room in ("raft", "replication", "controller", "coordinators", "broker", "server", "storage", "records")
        for path in (PACKAGE / room).rglob("*.py")
        for key in READ.findall(path.read_text(encoding="utf-8"))
    }
    assert len(read) > 60
    assert {key for key in read & known if note_on(key) is not None and not key.startswith(MADE_FOR_OTHERS)} == set()


def test_keys_that_are_described_as_heeded_have_a_reader() -> None:
    assert {key for key in HEEDED if not has_reader(key)} == set()


def test_a_key_without_a_reader_would_be_found() -> None:
    assert has_reader("socket.listen.backlog.size")
    assert has_reader("log.retention.bytes")
    assert not has_reader("socket.connection.setup.timeout.ms")
    assert not has_reader("remote.log.storage.system.enable")
