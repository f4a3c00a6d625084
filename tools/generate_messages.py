#!/usr/bin/env python3
"""Writes `src/barnabas/protocol/messages/*.py` from the schema facts in `tools/schemas/`.

    tools/generate_messages.py            write the files
    tools/generate_messages.py --check    write nothing; exit 1 and name the files that are not current

Each API (request and response) has one module; the formats on disk have a few. The output is already in the format of
`ruff format`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from message_schemas import FieldFacts, MessageFacts, Versions, load_union, snake_case

TARGET = Path(__file__).resolve().parents[1] / "src" / "barnabas" / "protocol" / "messages"
LINE_LENGTH = 120
PYTHON_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16"), "int"),
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Records",
}
RAFT_RECORDS = {
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
    "QuorumStateData",
}
MODULE_TEXTS = {
    "records_metadata": "records of the metadata log",
    "records_group": "keys and values in `__consumer_offsets`",
    "records_transaction": "keys and values in `__transaction_state`, and the transaction marker",
    "records_share": "keys and values in `__share_group_state`",
    "records_raft": "control records and the state file of the quorum",
    "records_misc": "other data",
    "consumer_protocol": "subscriptions and assignments of classic consumers inside JoinGroup and SyncGroup",
    "header": "request and response headers",
}


def module_of(message: MessageFacts) -> str:
    """Returns the module that declares a message."""
    name = message.name
    if message.kind in ("request", "response"):
        return snake_case(name.removesuffix("Request").removesuffix("Response"))
    if message.kind == "header":
        return "header"
    if message.kind == "metadata":
        return "records_metadata"
    if message.kind.startswith("coordinator"):
        if name.startswith("TransactionLog"):
            return "records_transaction"
        return "records_share" if name.startswith(("ShareSnapshot", "ShareUpdate")) else "records_group"
    if name in RAFT_RECORDS:
        return "records_raft"
    if name.startswith("ConsumerProtocol"):
        return "consumer_protocol"
    return "records_transaction" if name == "EndTxnMarker" else "records_misc"


def clamp(versions: Versions | None, bounds: Versions) -> Versions | None:
    """Returns the part of a range that lies in the message's own versions, or None."""
    if versions is None or versions[0] > bounds[1] or versions[1] < bounds[0]:
        return None
    return max(versions[0], bounds[0]), min(versions[1], bounds[1])


class FieldWriter:
    """The text of one field in the generated class."""

    def __init__(self, message: MessageFacts, facts: FieldFacts) -> None:
        self.facts = facts
        self.attribute = snake_case(facts.name)
        element = facts.type.removeprefix("[]")
        self.is_array = facts.type != element
        self.is_struct = element[0].isupper()
        self.element = f"{message.name}.{element}" if self.is_struct else PYTHON_TYPES[element]
        versions = clamp(facts.versions, message.versions)
        assert versions is not None, f"{message.name}.{facts.name} is in no version"
        self.versions = versions
        self.nullable = clamp(facts.nullable, versions)
        self.tagged = clamp(facts.tagged, versions)
        self.default = self._default()

    def _default(self) -> Any:
        """Returns the default value; () means a fresh list or struct."""
        text, element = self.facts.default, self.facts.type
        if text == "null":
            return None
        if self.is_array:
            return ()
        if self.is_struct:
            return None if self.tagged is not None and self.nullable is None else ()
        if element == "bool":
            return str(text).lower() == "true"
        if element == "string":
            return text or ""
        if element == "bytes":
            return b""
        if element == "uuid":
            return bytes(16)
        if element == "records":
            return None
        if element == "float64":
            return float(text or 0)
        return int(text, 0) if isinstance(text, str) and text else int(text or 0)

    @property
    def value_type(self) -> str:
        """The type of the attribute."""
        base = f"list[{self.element}]" if self.is_array else self.element
        return f"{base} | None" if self.nullable is not None or self.default is None else base

    def literal(self) -> str:
        if self.default == ():
            return "FRESH"
        if self.default == bytes(16):
            return "ZERO_UUID"
        return repr(self.default).replace("'", '"')

    def parameter(self, width: int) -> list[str]:
        """Returns the field's lines in the signature of `__init__`. None requests a fresh value unless the field can be
        null.
        """
        union, default = self.value_type.split(" | "), self.literal()
        if self.default == () and self.nullable is not None:
            union.insert(1, "tuple[()]")
        elif self.default == ():
            union, default = [*union, "None"], "None"
        line = f"{self.attribute}: {' | '.join(union)} = {default},"
        if len(line) <= width:
            return [line]
        return [f"{self.attribute}: {union[0]}", *(f"| {each}" for each in union[1:-1]), f"| {union[-1]} = {default},"]

    def assignments(self, width: int) -> list[str]:
        if self.default != ():
            return [f"self.{self.attribute} = {self.attribute}"]
        fresh = "[]" if self.is_array else f"{self.element}()"
        test = f"isinstance({self.attribute}, tuple)" if self.nullable is not None else f"{self.attribute} is None"
        line = f"self.{self.attribute}: {self.value_type} = {fresh} if {test} else {self.attribute}"
        if len(line) <= width:
            return [line]
        head, choice = f"self.{self.attribute}: {self.value_type} = (", f"{fresh} if {test} else {self.attribute}"
        if len(choice) + 4 <= width:
            return [head, f"    {choice}", ")"]
        return [head, f"    {fresh}", f"    if {test}", f"    else {self.attribute}", ")"]

    def declaration(self, width: int) -> list[str]:
        """Returns the `Field(...)` entry, on one line if it fits."""
        facts = self.facts
        values = [f'"{self.attribute}"', f'"{facts.name}"', f'"{facts.type}"', *map(str, self.versions), self.literal()]
        if self.nullable is not None:
            values.append(f"nullable={self.nullable}")
        if self.tagged is not None:
            values += [f"tag={facts.tag}", f"tagged={self.tagged}"]
        if facts.ignorable:
            values.append("ignorable=True")
        if not facts.flexible:
            values.append("flexible=False")
        return wrapped("Field(", values, "),", width)


def wrapped(head: str, values: list[str], tail: str, width: int) -> list[str]:
    """Returns one line, or one line for each value if that is too long."""
    line = head + ", ".join(values) + tail
    if len(line) <= width:
        return [line]
    return [head, *(f"    {value}," for value in values), tail]


def natural_order(name: str) -> list[str | int]:
    """Returns a sort key that compares digits as numbers, as the linter sorts slots."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def struct_body(message: MessageFacts, fields: list[FieldFacts], depth: int) -> list[str]:
    """Returns the lines of `__slots__`, FIELDS and `__init__` of one class."""
    writers = [FieldWriter(message, each) for each in fields if clamp(each.versions, message.versions)]
    is_flexible = message.flexible_since is not None
    width = LINE_LENGTH - 4 * depth
    names = [writer.attribute for writer in writers] + ["unknown_tags"] * is_flexible
    slots = [f'"{name}"' for name in sorted(names, key=natural_order)]
    lines = wrapped("__slots__ = (", slots, ")", width) if len(slots) != 1 else [f"__slots__ = ({slots[0]},)"]
    declarations = [writer.declaration(width - 4) for writer in writers]
    if len(declarations) == 1 and len(declarations[0]) == 1 and len(declarations[0][0]) + 11 <= width:
        lines += ["", f"FIELDS = ({declarations[0][0]})"]
    elif declarations:
        lines += ["", "FIELDS = (", *indented([line for each in declarations for line in each]), ")"]
    parameters = [line for writer in writers for line in writer.parameter(width - 4)]
    assignments = [line for writer in writers for line in writer.assignments(width - 4)]
    if is_flexible:
        parameters.append("unknown_tags: UnknownTags = (),")
        assignments.append("self.unknown_tags = unknown_tags")
    if not parameters:
        return lines
    lines += ["", "def __init__(", "    self,", "    *,", *indented(parameters), ") -> None:", *indented(assignments)]
    return lines


def message_class(message: MessageFacts) -> list[str]:
    head = [f'NAME = "{message.name}"']
    if message.api_key is not None:
        head.append(f"API_KEY = {message.api_key}")
    head.append(f"VERSIONS = {message.versions}")
    if message.flexible_since is not None:
        head.append(f"FLEXIBLE = {message.flexible_since}")
    lines = [f"class {message.name}(Message):", *indented(head), ""]
    for name, fields in message.structs().items():
        lines += indented([f"class {name}(Struct):", *indented(struct_body(message, fields, 2)), ""])
    return lines + indented(struct_body(message, message.fields, 1))


def module_text(module: str, messages: list[MessageFacts]) -> str:
    """Returns the text of a whole file."""
    subject = MODULE_TEXTS.get(module)
    if subject is None:
        subject = messages[0].name.removesuffix("Request").removesuffix("Response")
        subject += f" (API key {messages[0].api_key})"
    body: list[str] = []
    for message in messages:
        body += ["", "", *message_class(message)]
    text = "\n".join(body)
    lines = [f'"""{subject[0].upper()}{subject[1:]}.', "", PROVENANCE, '"""', ""]
    lines += ["from __future__ import annotations", ""]
    if "ZERO_UUID" in text:
        lines.append("from barnabas.common.types import ZERO_UUID")
    names = ["Field", "Message"]
    names += [name for name, mark in (("Struct", "(Struct)"), ("UnknownTags", "UnknownTags")) if mark in text]
    names += ["FRESH"] * ("FRESH" in text)
    if "Field(" not in text:
        names.remove("Field")
    lines.append(f"from barnabas.protocol.message import {', '.join(sorted(names, key=lambda n: (n != 'FRESH', n)))}")
    if ": Records" in text:
        lines.append("from barnabas.protocol.wire import Records")
    return "\n".join(lines) + "\n" + text + "\n"


PROVENANCE = "Generated by tools/generate_messages.py from the schemas of Kafka 3.9.1 and 4.1.0; not edited by hand."
INDEX_HEAD = '''"""The module of each message, without importing any.

Generated by tools/generate_messages.py from the schemas of Kafka 3.9.1 and 4.1.0; not edited by hand.

API_NAMES       API key -> Kafka's name
FLEXIBLE_SINCE  API key -> first flexible version of its requests (and so of the header)
MESSAGES        (module, class) of every message
*_RECORDS       type id of a record on disk -> its class, or (key class, value class)
"""

from __future__ import annotations

from functools import cache

from barnabas.common import late_imports
from barnabas.protocol.message import Message
'''

INDEX_TAIL = '''

def load(module: str, name: str) -> type[Message]:
    """Returns one class of MESSAGES."""
    found: type[Message] = getattr(late_imports.load(f"barnabas.protocol.messages.{module}"), name)
    return found


@cache
def request_class(api_key: int) -> type[Message]:
    """Returns the class of a request. Raises KeyError for an unknown key."""
    return load(API_MODULES[api_key], f"{API_NAMES[api_key]}Request")


@cache
def response_class(api_key: int) -> type[Message]:
    """Returns the class of a response. Raises KeyError for an unknown key."""
    return load(API_MODULES[api_key], f"{API_NAMES[api_key]}Response")


def metadata_record_class(type_id: int) -> type[Message]:
    """Returns the class of a metadata record. Raises KeyError for an unknown type."""
    return load("records_metadata", METADATA_RECORDS[type_id])
'''


def table(name: str, annotation: str, entries: list[str], brackets: str = "{}") -> list[str]:
    return [f"{name}: {annotation} = {brackets[0]}", *(f"    {entry}," for entry in entries), brackets[1], ""]


def coordinator_table(name: str, messages: list[MessageFacts]) -> list[str]:
    values = {m.api_key: m.name for m in messages if m.kind == "coordinator-value"}
    keys = sorted((m.api_key or 0, m.name) for m in messages if m.kind == "coordinator-key")
    entries = [f'{key}: ("{class_name}", "{values[key]}")' for key, class_name in keys]
    return table(name, "dict[int, tuple[str, str]]", entries)


def index_text(modules: dict[str, list[MessageFacts]]) -> str:
    requests = sorted((m.api_key or 0, module, m) for module, ms in modules.items() for m in ms if m.kind == "request")
    never = 32768
    lines = [INDEX_HEAD]
    names = [f'{key}: "{m.name.removesuffix("Request")}"' for key, _, m in requests]
    lines += table("API_NAMES", "dict[int, str]", names)
    lines += table("API_MODULES", "dict[int, str]", [f'{key}: "{module}"' for key, module, _ in requests])
    flexible = [f"{key}: {never if m.flexible_since is None else m.flexible_since}" for key, _, m in requests]
    lines += table("FLEXIBLE_SINCE", "dict[int, int]", flexible)
    metadata = [f'{m.api_key}: "{m.name}"' for m in modules["records_metadata"]]
    lines += table("METADATA_RECORDS", "dict[int, str]", metadata)
    lines += coordinator_table("GROUP_RECORDS", modules["records_group"])
    lines += coordinator_table("TRANSACTION_RECORDS", modules["records_transaction"])
    lines += coordinator_table("SHARE_RECORDS", modules["records_share"])
    every = [f'("{module}", "{m.name}")' for module, ms in modules.items() for m in ms]
    lines += table("MESSAGES", "tuple[tuple[str, str], ...]", every, "()")
    return "\n".join(lines) + INDEX_TAIL


def generate() -> dict[str, str]:
    """Returns the text of every file in the package except `__init__.py`, by file name."""
    modules: dict[str, list[MessageFacts]] = {}
    for message in load_union().values():
        modules.setdefault(module_of(message), []).append(message)
    for messages in modules.values():
        messages.sort(key=lambda m: (m.kind.endswith(("response", "value")), m.api_key or 0, m.name))
    modules = dict(sorted(modules.items()))
    files = {f"{module}.py": module_text(module, messages) for module, messages in modules.items()}
    return {**files, "index.py": index_text(modules)}


def stale_files() -> list[str]:
    """Returns the names of files that are missing, differ or are not generated."""
    files = generate()
    present = {path.name for path in TARGET.glob("*.py")} - {"__init__.py"}
    wrong = [name for name, text in files.items() if name not in present or (TARGET / name).read_text() != text]
    return sorted({*wrong, *(present - set(files))})


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = stale_files()
        print("\n".join(stale) or "all generated messages are current")
        return 1 if stale else 0
    files = generate()
    for path in TARGET.glob("*.py"):
        if path.name not in files and path.name != "__init__.py":
            path.unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text)
    print(f"{len(files)} files in {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
