"""The state of groups and transactions, computed by a simple replay of a coordinator's log: the last value of each key
in a dict.

Keys and values are decoded with lists of their fields (`plain_decoding`); nothing of `barnabas.coordinators` is used. A
record of a transaction counts when its COMMIT marker is there, and only if no later record has its key.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from barnabas.simulation.plain_decoding import Body, Json, Schema, batches_with_records

State = dict[Any, Any]
_OFFSETS, _GROUP = (0, 1), 2
_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX = 3, 5, 6, 7, 8, 16

_GROUP_MEMBER: Final[Schema] = [
    ("id", "string"),
    ("instance", "string"),
    ("client", "string"),
    ("host", "string"),
    ("rebalance_ms", "int32"),
    ("session_ms", "int32"),
    ("subscription", "bytes"),
    ("assignment", "bytes"),
]
_GROUP_VALUE: Final[Schema] = [
    ("type", "string"),
    ("generation", "int32"),
    ("protocol", "string"),
    ("leader", "string"),
    ("since_ms", "int64"),
    ("members", [_GROUP_MEMBER]),
]
_PARTITIONS: Final[Schema] = [("topic", "uuid"), ("partitions", ["int32"])]
_MEMBER_VALUE: Final[Schema] = [
    ("instance", "string"),
    ("rack", "string"),
    ("client", "string"),
    ("host", "string"),
    ("topics", ["string"]),
    ("regex", "string"),
    ("rebalance_ms", "int32"),
    ("assignor", "string"),
    (0, "classic", "raw"),
]
_CLASSIC: Final[Schema] = [("session_ms", "int32"), ("protocols", [[("name", "string"), ("metadata", "bytes")]])]
_CURRENT_VALUE: Final[Schema] = [
    ("epoch", "int32"),
    ("previous_epoch", "int32"),
    ("state", "int8"),
    ("assigned", [_PARTITIONS]),
    ("revoking", [_PARTITIONS]),
]
_TRANSACTION: Final[Schema] = [
    ("producer", "int64"),
    ("epoch", "int16"),
    ("timeout_ms", "int32"),
    ("state", "int8"),
    ("partitions", [[("topic", "string"), ("indexes", ["int32"])]]),
    ("updated_ms", "int64"),
    ("started_ms", "int64"),
    (0, "previous_producer", "int64"),
    (1, "next_producer", "int64"),
    (2, "client_version", "int16"),
]


class CoordinatorDict:
    """A log of a coordinator, replayed up to `end`."""

    def __init__(self, first_offset: int = 0) -> None:
        self.end = first_offset
        #: Key -> offset and value of its last record that counts; a value of None: deleted.
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        #: Whether records were missing: compaction can have removed a tombstone, so a replay must start over.
        self.has_gap = False
        #: Producer id -> the last record of each key in its open transaction.
        self._open: defaultdict[int, dict[bytes, tuple[int, bytes | None]]] = defaultdict(dict)

    def add(self, data: bytes, end: int) -> None:
        """Replays whole batches up to `end`, and skips those that were replayed before. Compaction leaves gaps."""
        for batch, is_control, records in batches_with_records(data, self.end, end):
            self.has_gap |= batch.base_offset > self.end or len(records) <= batch.last_offset - batch.base_offset
            self.end = batch.last_offset + 1
            if is_control:
                written = self._open.pop(batch.producer_id, {})
                if batch.marker is not None and batch.marker[0]:
                    for key, entry in written.items():
                        if entry[0] > self._latest.get(key, (-1, None))[0]:
                            self._latest[key] = entry
                continue
            into = self._open[batch.producer_id] if batch.is_transactional else self._latest
            for record in records:
                if record.key is not None:
                    into[record.key] = (record.offset, record.value)

    def _values(self) -> dict[bytes, bytes]:
        return {key: value for key, (_, value) in self._latest.items() if value is not None}

    # -- groups

    def offsets(self) -> State:
        """Returns (group, topic, partition) -> (offset, leader epoch, metadata, commit time, expiry time)."""
        found: State = {}
        for key, value in self._values().items():
            place = _offset_place(key)
            if place is not None:
                found[place] = offset_of(value)
        return found

    def open_offsets(self) -> set[tuple[str, str, int]]:
        """Returns the (group, topic, partition)s whose offsets an open transaction can still change."""
        found = set()
        for written in self._open.values():
            for key, (offset, value) in written.items():
                place = _offset_place(key)
                if place is not None and value is not None and offset > self._latest.get(key, (-1, None))[0]:
                    found.add(place)
        return found

    def classic_groups(self) -> dict[str, Json]:
        """Returns the groups with a record of the classic protocol, by id."""
        found = {}
        for key, value in self._values().items():
            kind, name, _ = _names(key)
            if kind == _GROUP:
                body = Body(value)
                version = body.number("int16")
                assert version in (3, 4), f"the group {name} has version {version}"
                body.is_flexible = version > 3
                found[name] = body.read(_GROUP_VALUE)
        return found

    def consumer_groups(self) -> dict[str, Json]:
        """Returns the groups of the consumer protocol, by id."""
        found: dict[str, Json] = {}
        for key, value in self._values().items():
            kind, group_id, member = _names(key)
            if kind in (_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX):
                group = found.setdefault(group_id, {"members": {}, "targets": {}, "currents": {}, "regexes": {}})
                body = Body(value)
                body.number("int16")
                _read_consumer(group, kind, member, body)
        return {group_id: group for group_id, group in found.items() if "epoch" in group}

    # -- transactions

    def transactions(self) -> dict[str, Json]:
        found = {}
        for key, value in self._values().items():
            kind, name, _ = _names(key)
            if kind == 0:
                body = Body(value)
                body.is_flexible = body.number("int16") > 0
                defaults = {"previous_producer": -1, "next_producer": -1, "client_version": 0}
                transaction = {**defaults, **body.read(_TRANSACTION)}
                topics = transaction["partitions"] or ()
                transaction["partitions"] = {(row["topic"], index) for row in topics for index in row["indexes"]}
                found[name] = transaction
        return found


def _names(key: bytes) -> tuple[int, str, str]:
    """Returns the type of a key, its first name, and its second one if it has one."""
    body = Body(key, is_flexible=False)
    kind = body.number("int16")
    first = body.read([("name", "string")])["name"]
    is_longer = kind in (_MEMBER, _TARGET, _CURRENT, _REGEX)
    return kind, first, body.read([("name", "string")])["name"] if is_longer else ""


def _offset_place(key: bytes) -> tuple[str, str, int] | None:
    body = Body(key, is_flexible=False)
    if body.number("int16") not in _OFFSETS:
        return None
    place = body.read([("group", "string"), ("topic", "string"), ("partition", "int32")])
    return place["group"], place["topic"], place["partition"]


def offset_of(value: bytes) -> tuple[int, int, str, int, int]:
    """Returns offset, leader epoch, metadata, commit time and expiry time."""
    body = Body(value)
    version = body.number("int16")
    body.is_flexible = version >= 4
    schema: Schema = [("offset", "int64"), ("metadata", "string"), ("committed_ms", "int64")]
    if version >= 3:
        schema.insert(1, ("epoch", "int32"))
    if version == 1:
        schema.append(("expires_ms", "int64"))
    found = body.read(schema)
    return (
        found["offset"],
        found.get("epoch", -1),
        found["metadata"],
        found["committed_ms"],
        found.get("expires_ms", -1),
    )


def _read_consumer(group: Json, kind: int, member: str, body: Body) -> None:
    if kind == _EPOCH:
        group["epoch"] = {"hash": 0, **body.read([("epoch", "int32"), (0, "hash", "int64")])}
    elif kind == _TARGET_EPOCH:
        group["target_epoch"] = body.read([("epoch", "int32")])["epoch"]
    elif kind == _MEMBER:
        group["members"][member] = found = body.read(_MEMBER_VALUE)
        # A structure that can be null begins with a byte: 1, or -1 for null.
        classic = Body(found.get("classic") or b"\xff")
        found["classic"] = classic.read(_CLASSIC) if classic.number("int8") > 0 else None
    elif kind == _TARGET:
        group["targets"][member] = assigned(body.read([("topics", [_PARTITIONS])])["topics"])
    elif kind == _CURRENT:
        current = body.read(_CURRENT_VALUE)
        for name in ("assigned", "revoking"):
            current[name] = assigned(current[name])
        group["currents"][member] = current
    else:
        schema: Schema = [("topics", ["string"]), ("version", "int64"), ("at_ms", "int64")]
        group["regexes"][member] = body.read(schema)


def assigned(rows: Any) -> set[tuple[bytes, int]]:
    return {(row["topic"], index) for row in rows or () for index in row["partitions"]}
