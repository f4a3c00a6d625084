"""The schema facts of two Kafka releases as one: the input of `generate_messages.py`.

Kafka 4.1.0 decides names, types and flags. Versions and whole messages that only 3.9.1 has are kept, so that the
messages of ZooKeeper mode and the oldest versions of the others can still be read. `tools/schemas/*.json` hold the
facts of the schemas in the released jars (names, types, versions; no texts).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parent / "schemas"
RELEASES = ("3.9.1", "4.1.0")
#: Messages that only 3.9.1 has and that are superseded: the first is served as ListConfigResources 0, the others belong
#: to an early preview.
DROPPED = {
    "ListClientMetricsResourcesRequest",
    "ListClientMetricsResourcesResponse",
    "ShareGroupPartitionMetadataKey",
    "ShareGroupPartitionMetadataValue",
}
VERSION_MAX = 32767

Versions = tuple[int, int]


@dataclass
class FieldFacts:
    """A field. `fields` are those of the struct that it declares."""

    name: str
    type: str
    versions: Versions
    nullable: Versions | None
    tagged: Versions | None
    tag: int | None
    default: Any
    ignorable: bool
    flexible: bool
    fields: list[FieldFacts] = field(default_factory=list)


@dataclass
class MessageFacts:
    """One message with its common structs."""

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible_since: int | None
    fields: list[FieldFacts]
    common: dict[str, list[FieldFacts]]

    def structs(self) -> dict[str, list[FieldFacts]]:
        """Returns the fields of every struct by name. A struct follows those that it contains."""
        found: dict[str, list[FieldFacts]] = {}

        def visit(fields: list[FieldFacts]) -> None:
            for each in fields:
                element = each.type.removeprefix("[]")
                if element[0].isupper() and element not in found:
                    inner = each.fields or self.common[element]
                    visit(inner)
                    found[element] = inner

        visit(self.fields)
        return found


def parse_versions(text: str | None) -> Versions | None:
    """Returns the range of `3`, `0-4` or `2+`; None for `none` or no text."""
    if text is None or text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def _field_facts(raw: dict[str, Any]) -> FieldFacts:
    tagged = parse_versions(raw.get("taggedVersions"))
    versions = parse_versions(raw.get("versions")) or tagged
    assert versions is not None, raw
    return FieldFacts(
        name=raw["name"][0].upper() + raw["name"][1:],
        type=raw["type"],
        versions=versions,
        nullable=parse_versions(raw.get("nullableVersions")),
        tagged=tagged,
        tag=int(raw["tag"]) if "tag" in raw else None,
        default=raw.get("default"),
        ignorable=raw.get("ignorable", False),
        flexible=raw.get("flexibleVersions") != "none",
        fields=[_field_facts(inner) for inner in raw.get("fields", [])],
    )


def load_release(release: str) -> dict[str, MessageFacts]:
    """Returns the messages of one release that have any version, by name."""
    messages = {}
    for raw in json.loads((SCHEMAS / f"schemas-{release}.json").read_text()):
        versions = parse_versions(raw["validVersions"])
        if versions is None or raw["name"] in DROPPED:
            continue
        flexible = parse_versions(raw.get("flexibleVersions"))
        common = raw.get("commonStructs", [])
        messages[raw["name"]] = MessageFacts(
            name=raw["name"],
            kind=raw["type"],
            api_key=raw.get("apiKey"),
            versions=versions,
            flexible_since=flexible[0] if flexible else None,
            fields=[_field_facts(each) for each in raw["fields"]],
            common={each["name"]: [_field_facts(inner) for inner in each["fields"]] for each in common},
        )
    return messages


def is_decided_by_newer(new: MessageFacts) -> bool:
    """Returns whether 3.9.1 adds nothing to the message: that release declared the record types of coordinators as
    versions of their keys, and its share groups were an early preview that no later release supports.
    """
    return new.kind.startswith("coordinator") or "Share" in new.name


def load_union() -> dict[str, MessageFacts]:
    """Returns the messages of both releases as one."""
    older, newer = (load_release(release) for release in RELEASES)
    union = dict(older)
    for name, new in newer.items():
        old = older.get(name)
        if old is not None and not is_decided_by_newer(new):
            _merge_message(old, new)
        union[name] = new
    return union


def _merge_message(old: MessageFacts, new: MessageFacts) -> None:
    """Adds to `new` the versions that only `old` has, and the fields that exist only in those."""
    gone = (old.versions[0], min(old.versions[1], new.versions[0] - 1))
    new.fields = _merge_fields(old.fields, new.fields, gone)
    for name, fields in old.common.items():
        new.common[name] = _merge_fields(fields, new.common[name], gone) if name in new.common else fields
    new.versions = (min(old.versions[0], new.versions[0]), new.versions[1])


def _merge_fields(old: list[FieldFacts], new: list[FieldFacts], gone: Versions) -> list[FieldFacts]:
    merged = list(new)
    names = [each.name for each in new]
    position = 0
    for each in old:
        if each.name in names:
            index = [other.name for other in merged].index(each.name)
            merged[index].fields = _merge_fields(each.fields, merged[index].fields, gone)
            position = index + 1
        elif each.versions[0] <= gone[1] and each.versions[1] >= gone[0]:
            # A field that the newer release has under another name can also have versions outside `gone`: those are cut
            # off.
            each.versions = (max(each.versions[0], gone[0]), min(each.versions[1], gone[1]))
            merged.insert(position, each)
            position += 1
    return merged
