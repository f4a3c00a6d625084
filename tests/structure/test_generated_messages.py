"""The generated messages are the generator's present output, and contain all of both releases."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.message import Struct
from barnabas.protocol.messages.index import API_NAMES, MESSAGES, load, request_class, response_class

TOOLS = Path(__file__).resolve().parents[2] / "tools"
#: The fields of VoteRequest that 4.1.0 calls otherwise (KIP-996).
RENAMED = {
    "CandidateEpoch": "ReplicaEpoch",
    "CandidateId": "ReplicaId",
    "CandidateDirectoryId": "ReplicaDirectoryId",
}


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    for name in ("generate_messages", "message_schemas"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("tools")
def test_generated_files_are_current() -> None:
    stale = import_module("generate_messages").stale_files()
    assert stale == []


def is_in(versions: tuple[int, int] | None, version: int) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]


def declared(facts: list[Any], release: Any, version: int) -> list[Any]:
    """Returns the facts that decide the bytes of one version of a struct, from the release's schema."""
    found = []
    for field in facts:
        if is_in(field.versions, version):
            element = field.type.removeprefix("[]")
            inner = (field.fields or release.common[element]) if element[0].isupper() else []
            tag = field.tag if is_in(field.tagged, version) else None
            kind = field.type.removesuffix(element) if inner else field.type
            found.append((field.name, kind, is_in(field.nullable, version), tag, declared(inner, release, version)))
    return found


def generated(struct: type[Struct], message: Any, version: int) -> list[Any]:
    """Returns the same facts from the generated class."""
    found = []
    for field in struct.FIELDS:
        if field.is_in(version):
            inner = generated(getattr(message, field.element_type), message, version) if field.is_struct else []
            tag = field.tag if field.is_tagged_in(version) else None
            kind = field.type.removesuffix(field.element_type) if field.is_struct else field.type
            found.append((field.name, kind, field.is_nullable_in(version), tag, inner))
    return found


def rename(fields: list[Any]) -> list[Any]:
    return [
        (RENAMED.get(name, name), kind, nullable, tag, rename(inner)) for name, kind, nullable, tag, inner in fields
    ]


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("release", ["3.9.1", "4.1.0"])
def test_every_version_of_a_release_has_the_fields_of_its_schema(release: str) -> None:
    message_schemas = import_module("message_schemas")
    classes = {name: load(module, name) for module, name in MESSAGES}
    compared = 0
    for name, facts in message_schemas.load_release(release).items():
        cls = classes[name]
        if release == "3.9.1" and (name.endswith(("Key", "Value")) or "Share" in name):
            continue  # The schemas that come from 4.1.0 alone.
        assert facts.flexible_since == cls.FLEXIBLE
        for version in range(facts.versions[0], facts.versions[1] + 1):
            expected = declared(facts.fields, facts, version)
            expected = rename(expected) if name == "VoteRequest" else expected
            found = generated(cls, cls, version)
            assert found == expected, (name, version)
            compared += 1
    assert compared > 500


def test_index_finds_both_sides_of_every_api() -> None:
    assert len(API_NAMES) > 85
    for api_key, name in API_NAMES.items():
        request, response = request_class(api_key), response_class(api_key)
        names = [request.NAME, response.NAME]
        assert names == [f"{name}Request", f"{name}Response"]
        assert request.API_KEY == response.API_KEY == api_key
        assert request.VERSIONS == response.VERSIONS


@pytest.mark.parametrize(("module", "name"), MESSAGES)
def test_slots_hold_the_fields_and_nothing_else(module: str, name: str) -> None:
    message = load(module, name)
    nested = [each for each in vars(message).values() if isinstance(each, type) and issubclass(each, Struct)]
    for struct in [message, *nested]:
        tags = {"unknown_tags"} if message.FLEXIBLE is not None else set()
        slots = set(struct.__slots__)
        assert slots == {field.attribute for field in struct.FIELDS} | tags
        assert not hasattr(struct(), "__dict__")
