#!/usr/bin/env python3
"""Reads the facts of Kafka's message schemas from the jars of one release, for `tools/schemas/`.

    tools/read_message_schemas.py tools/schemas/schemas-4.1.0.json DIRECTORY-WITH-THE-JARS

It keeps names, types, numbers and flags, which decide the bytes, and drops descriptions and comments.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

ENTRY = re.compile(r"common/(message|metadata)/\w+\.json")
#: A comment on its own line or after a value. No schema has ` // ` inside a string.
COMMENT = re.compile(r"^\s*//.*$|\s//\s.*$", re.MULTILINE)
MESSAGE_FACTS = ("apiKey", "type", "listeners", "validVersions", "deprecatedVersions", "flexibleVersions")
FIELD_FACTS = (
    "name",
    "type",
    "versions",
    "nullableVersions",
    "taggedVersions",
    "flexibleVersions",
    "tag",
    "default",
    "ignorable",
    "mapKey",
    "entityType",
    "zeroCopy",
)
FACTS = {*MESSAGE_FACTS, *FIELD_FACTS, "latestVersionUnstable", "fields", "commonStructs"}


def only_facts(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: only_facts(value) for key, value in node.items() if key in FACTS}
    return [only_facts(each) for each in node] if isinstance(node, list) else node


def read_jar(jar: Path) -> list[dict[str, Any]]:
    found = []
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if match := ENTRY.fullmatch(name):
                schema = json.loads(COMMENT.sub("", archive.read(name).decode()))
                found.append({"kind": match[1], **only_facts(schema)})
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__)
        return 2
    target, directory = map(Path, arguments)
    messages = [message for jar in sorted(directory.glob("kafka-*.jar")) for message in read_jar(jar)]
    messages.sort(key=lambda m: (m["kind"], m["type"], m.get("apiKey", -1), m["name"]))
    target.write_text("[\n" + ",\n".join(json.dumps(m, separators=(",", ":")) for m in messages) + "\n]\n")
    print(f"{len(messages)} messages in {target}")
    return 0 if messages else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
