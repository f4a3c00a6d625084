"""The same requests to two servers, and their answers in a form that can be compared.

Requests are written as plain dictionaries by field names; fields that a version lacks are left out. A topic id is
filled in from the topic's name. In the answers, everything that differs between any two clusters is replaced by a word:
topic ids by their topics' names, ports, folders, cluster ids, the time of day, member ids.
"""

from __future__ import annotations

import re
import struct
import time
from typing import Any

from tests.clients.servers import Server
from tests.clients.wire import Wire

from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import FRESH, Struct
from barnabas.protocol.messages.index import API_NAMES, request_class, response_class

ZERO = bytes(16)
API_KEYS = {name: key for key, name in API_NAMES.items()}
MEMBER_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NOW_MS = re.compile(r"-?\b(?:179|18\d|9223370)\d+")
#: Requests that identify topics only by id; elsewhere an id is an alternative.
BY_TOPIC_ID = ("Produce", "Fetch")
#: Fields by which lists are sorted that answers contain in hash order.
ORDERED_BY = (
    "resource_type",
    "resource_name",
    "partition_index",
    "partition",
    "name",
    "config_name",
    "group_id",
    "api_key",
)
VARYING = ("total_bytes", "usable_bytes", "finalized_features_epoch")
#: A time later than any timestamp that the tests choose.
NOW_MS_MIN = 1_750_000_000_000


def build(cls: type[Struct], values: dict[str, Any], version: int, topic_ids: dict[str, bytes]) -> Any:
    given = {}
    for field in cls.FIELDS:
        if not field.is_in(version):
            continue
        if field.attribute == "topic_id" and "topic_id" not in values and topic_ids:
            given["topic_id"] = topic_ids.get(values.get("name") or values.get("topic") or "", b"\x05" * 16)
        elif field.attribute in values:
            value = values[field.attribute]
            if field.is_struct and value is not None:
                inner = getattr(cls, field.element_type, None) or _find(cls, field.element_type)
                if field.is_array:
                    value = [build(inner, each, version, topic_ids) for each in value]
                else:
                    value = build(inner, value, version, topic_ids)
            given[field.attribute] = value
    return cls(**given)


_OUTER: dict[type[Struct], type[Struct]] = {}


def _find(cls: type[Struct], name: str) -> type[Struct]:
    """Returns a struct that is declared next to or above the one that uses it."""
    outer = _OUTER[cls]
    found: type[Struct] = getattr(outer, name)
    return found


def _remember(outer: type[Struct], top: type[Struct]) -> None:
    for value in vars(outer).values():
        if isinstance(value, type) and issubclass(value, Struct):
            _OUTER[value] = top
            _remember(value, top)


class Side:
    """One of the two servers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.topic_ids: dict[str, bytes] = {}
        self.cluster_id = ""
        self._words: dict[str, str] = {}

    def call(self, api: str, version: int, values: dict[str, Any]) -> Any:
        """Returns the answer in comparable form; "closed" when the server ends the connection, "silent" without an
        answer.
        """
        key = API_KEYS[api]
        cls = request_class(key)
        _remember(cls, cls)
        self._learn(api)
        request = build(cls, values, version, self.topic_ids if api in BY_TOPIC_ID else {})
        body = bytes(codec.encode(request, version))
        flexible = request_header_version(key, version) >= 2
        header = struct.pack(">hhih", key, version, 9, -1) + (b"\x00" if flexible else b"")
        with Wire(self.server.port, timeout_s=5) as wire:
            wire.send_frame(header + body)
            try:
                frame = wire.read_frame()
            except TimeoutError:
                return "silent"
        if frame is None:
            return "closed"
        start = 4 + (1 if response_header_version(key, version) >= 1 else 0)
        answer, end = codec.decode(response_class(key), version, frame, start)
        assert end == len(frame), f"{api} v{version}: {len(frame) - end} bytes after the answer"
        return self._plain(answer, version)

    def wait_for_group(self, group: str) -> None:
        """Waits for a group's coordinator. The first FindCoordinator creates the offsets topic; its partitions are
        loaded a moment later.
        """
        values = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        deadline = time.monotonic() + 120
        self.call("FindCoordinator", 1, {"key": group, "key_type": 0})
        while self.call("Heartbeat", 4, values)["error_code"] in (14, 15, 16):
            assert time.monotonic() < deadline, f"no coordinator for {group}"

    def _learn(self, api: str) -> None:
        """Looks up the topic ids (not through `call`, which needs them)."""
        if api == "Metadata" and not self.topic_ids:
            return
        answer = self._metadata()
        self.cluster_id = answer.cluster_id
        self.topic_ids.update({topic.name: topic.topic_id for topic in answer.topics})

    def _metadata(self) -> Any:
        body = bytes(codec.encode(request_class(3)(topics=None), 12))  # type: ignore[call-arg]
        with Wire(self.server.port, timeout_s=20) as wire:
            frame = wire.request(3, 12, b"\x00" + body)
        answer, _ = codec.decode(response_class(3), 12, frame, 1)
        return answer

    def _plain(self, value: Any, version: int, attribute: str = "") -> Any:
        if isinstance(value, Struct):
            fields = [field for field in value.FIELDS if field.is_in(version)]
            plain = {
                each.attribute: self._plain(getattr(value, each.attribute), version, each.attribute) for each in fields
            }
            tags = getattr(value, "unknown_tags", ())
            return {**plain, "unknown_tags": tags} if tags else plain
        if isinstance(value, list | tuple) and value is not FRESH:
            return sorted((self._plain(each, version) for each in value), key=_order)
        if isinstance(value, bytes) and len(value) == 16 and value != ZERO:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            return f"<id of {names[value]}>" if value in names else "<new id>"
        if isinstance(value, bytes | memoryview | bytearray):
            return bytes(value).hex()
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(int(value), attribute)
        return value

    def _text(self, text: str) -> str:
        text = text.replace(str(self.server.data_dir), "<dir>").replace(str(self.server.port), "<port>")
        if self.cluster_id:
            text = text.replace(self.cluster_id, "<cluster>")
        return NOW_MS.sub("<varies>", MEMBER_ID.sub("<uuid>", text))

    def _number(self, number: int, attribute: str) -> Any:
        if number >= NOW_MS_MIN or attribute in VARYING:
            return "<varies>"
        if number == self.server.port:
            return "<port>"
        if attribute == "session_id" and number:
            return "<session>"
        return number


def _order(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, dict):
        return ()
    return tuple(str(value[name]).zfill(9) for name in ORDERED_BY if name in value)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Returns the differences of two plain answers, as "path: Barnabas's / Kafka's"."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = {**ours, **theirs}
        return [line for key in keys for line in differences(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for at, (a, b) in pairs for line in differences(a, b, f"{path}[{at}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} / {theirs!r}"]
