"""The metadata as a dict with a history: the second implementation of metadata records, snapshots and voters.

Each key has the values that it had, with the offsets of the records that set them, so that the state at any offset can
be returned. Keys are flat: a topic, a partition, a registration, one setting, one feature. Nothing of
`barnabas.metadata`, of `barnabas.raft` or of the codec is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas.simulation.plain_decoding import Body, PlainRecord, Schema, batches_with_records

Key = tuple[Any, ...]
State = dict[Key, Any]

#: The tag with the directories that take no writes (decision 0012).
_UNWRITABLE: Final = 8_193
_ENDPOINTS: Final[Schema] = [("name", "string"), ("host", "string"), ("port", "uint16"), ("protocol", "int16")]
_FEATURES: Final[Schema] = [("name", "string"), ("min", "int16"), ("max", "int16")]
_PARTITION: Final[Schema] = [
    ("index", "int32"),
    ("topic", "uuid"),
    ("replicas", ["int32"]),
    ("isr", ["int32"]),
    ("removing", ["int32"]),
    ("adding", ["int32"]),
    ("leader", "int32"),
    ("leader_epoch", "int32"),
    ("partition_epoch", "int32"),
    (0, "recovery", "int8"),
    (1, "elr", ["int32"]),
    (2, "last_known_elr", ["int32"]),
]
_CHANGE: Final[Schema] = [
    ("index", "int32"),
    ("topic", "uuid"),
    (0, "isr", ["int32"]),
    (1, "leader", "int32"),
    (2, "replicas", ["int32"]),
    (3, "removing", ["int32"]),
    (4, "adding", ["int32"]),
    (5, "recovery", "int8"),
    (6, "elr", ["int32"]),
    (7, "last_known_elr", ["int32"]),
    (8, "directories", ["uuid"]),
]
_BROKER: Final[Schema] = [
    ("id", "int32"),
    ("incarnation", "uuid"),
    ("epoch", "int64"),
    ("endpoints", [_ENDPOINTS]),
    ("features", [_FEATURES]),
    ("rack", "string"),
    ("fenced", "bool"),
    ("leaving", "bool"),
    (0, "directories", ["uuid"]),
    (_UNWRITABLE, "unwritable", "raw"),
]
_CONTROLLER: Final[Schema] = [
    ("id", "int32"),
    ("incarnation", "uuid"),
    ("migration_ready", "bool"),
    ("endpoints", [_ENDPOINTS]),
    ("features", [_FEATURES]),
]
_REGISTRATION_CHANGE: Final[Schema] = [
    ("id", "int32"),
    ("epoch", "int64"),
    (0, "fenced", "int8"),
    (1, "leaving", "int8"),
    (2, "directories", ["uuid"]),
    (_UNWRITABLE, "unwritable", "raw"),
]
_ACL: Final[Schema] = [
    ("id", "uuid"),
    ("resource_type", "int8"),
    ("resource_name", "string"),
    ("pattern_type", "int8"),
    ("principal", "string"),
    ("host", "string"),
    ("operation", "int8"),
    ("permission_type", "int8"),
]
_SCRAM: Final[Schema] = [
    ("name", "string"),
    ("mechanism", "int8"),
    ("salt", "bytes"),
    ("stored_key", "bytes"),
    ("server_key", "bytes"),
    ("iterations", "int32"),
]
_QUOTA: Final[Schema] = [
    ("entity", [[("type", "string"), ("name", "string")]]),
    ("key", "string"),
    ("value", "float64"),
    ("remove", "bool"),
]
_TOKEN: Final[Schema] = [
    ("owner", "string"),
    ("requester", "string"),
    ("renewers", ["string"]),
    ("issued", "int64"),
    ("max", "int64"),
    ("expires", "int64"),
    ("id", "string"),
]
_VOTER: Final[Schema] = [
    ("id", "int32"),
    ("directory", "uuid"),
    ("endpoints", [[("name", "string"), ("host", "string"), ("port", "uint16")]]),
    ("kraft_version", [("min", "int16"), ("max", "int16")]),
]
_BEGIN, _END, _ABORT = 23, 24, 25
_KRAFT_VERSION, _VOTERS = 5, 6


class MetadataDict:
    """The metadata by a replay of the log from its beginning, or from a snapshot."""

    def __init__(self) -> None:
        #: The end of the snapshot that the replay began from, 0 without one. Earlier states are not known.
        self.begin = 0
        #: The offset after the last record.
        self.end = 0
        #: Key -> (offset, value), in order; a value of None: the key was removed.
        self._values: dict[Key, list[tuple[int, Any]]] = {}
        #: The records of an open metadata transaction (KIP-868).
        self._open: list[tuple[int, bytes]] | None = None
        self._offset = 0

    @property
    def in_transaction(self) -> bool:
        return self._open is not None

    def state(self, end: int | None = None) -> State:
        """Returns the state of all records below `end`, which is not before `begin`; without it, of all."""
        assert end is None or end >= self.begin, f"the state at {end} of a replay that began at {self.begin}"
        found: State = {}
        for key, values in self._values.items():
            value = None
            for offset, each in reversed(values):
                if end is None or offset < end:
                    value = each
                    break
            if value is not None:
                found[key] = value
        return found

    def add(self, data: bytes, end: int | None = None) -> None:
        """Replays whole batches of the log, up to `end` if that is given, and skips those that were replayed before."""
        for batch, is_control, records in batches_with_records(data, self.end, end):
            assert batch.base_offset == self.end, f"a batch at {batch.base_offset} after {self.end}"
            self._add_records(records, is_control=is_control)
            self.end = batch.last_offset + 1

    def begin_from(self, snapshot: bytes, end: int) -> None:
        """Takes the content of a snapshot, which contains all records below `end`."""
        self._values.clear()
        self._open = None
        self._offset = end - 1
        for _, is_control, records in batches_with_records(snapshot):
            self._add_records(records, is_control=is_control, offset=end - 1)
        self.begin = self.end = end

    def _add_records(self, records: Any, *, is_control: bool, offset: int | None = None) -> None:
        for record in records:
            at = record.offset if offset is None else offset
            self._offset = at
            if is_control:
                self._control(record)
            else:
                self._framed(at, record.value)

    def _control(self, record: PlainRecord) -> None:
        key = Body(record.key or b"")
        key.number("int16")
        kind = key.number("int16")
        body = Body(record.value or b"")
        body.number("int16")
        if kind == _KRAFT_VERSION:
            self._set(("kraft.version",), body.number("int16"))
        elif kind == _VOTERS:
            voters = body.read([("voters", [_VOTER])])["voters"]
            self._set(("voters",), {voter["id"]: voter for voter in voters})

    def _framed(self, offset: int, value: bytes) -> None:
        body = Body(value)
        frame, kind = body.unsigned(), body.unsigned()
        assert frame == 1, f"a metadata record at {offset} in frame version {frame}"
        if kind == _BEGIN:
            self._open = []
        elif kind == _ABORT:
            self._open = None
        elif kind == _END:
            taken, self._open = self._open or [], None
            for _, each in taken:
                self._apply(Body(each))
        elif self._open is not None:
            self._open.append((offset, value))
        else:
            self._apply(Body(value))

    # -- records

    def _get(self, key: Key) -> Any:
        values = self._values.get(key)
        return values[-1][1] if values else None

    def _set(self, key: Key, value: Any) -> None:
        self._values.setdefault(key, []).append((self._offset, value))

    def _keys(self, *prefix: Any) -> Iterator[Key]:
        size = len(prefix)
        return (key for key in tuple(self._values) if key[:size] == prefix and self._get(key) is not None)

    def _apply(self, body: Body) -> None:
        body.unsigned()
        kind, version = body.unsigned(), body.unsigned()
        replay = _REPLAYS.get(kind)
        if replay is not None:
            replay(self, body, version)
            assert body.at == len(body.data), f"a metadata record of type {kind} has {len(body.data)} bytes"

    def _register_broker(self, body: Body, version: int) -> None:
        schema = [field for field in _BROKER if version >= 1 or field[0] != "leaving"]
        if version >= 2:
            schema.insert(1, ("migrating", "bool"))
        broker = {"migrating": False, "leaving": False, "directories": [], "unwritable": b"", **body.read(schema)}
        for name in ("endpoints", "features"):
            broker[name] = sorted(broker[name], key=lambda each: str(each["name"]))
        self._set(("broker", broker["id"]), broker)

    def _unregister_broker(self, body: Body, version: int) -> None:
        self._set(("broker", body.read([("id", "int32"), ("epoch", "int64")])["id"]), None)

    def _change_registration(self, body: Body, version: int) -> None:
        change = body.read(_REGISTRATION_CHANGE)
        key = ("broker", change["id"])
        broker = dict(self._get(key))
        for flag in ("fenced", "leaving"):
            if change.get(flag):
                broker[flag] = change[flag] > 0
        broker["directories"] = change.get("directories") or broker["directories"]
        broker["unwritable"] = change.get("unwritable", broker["unwritable"])
        self._set(key, broker)

    def _fence(self, body: Body, version: int) -> None:
        self._set_fenced(body, fenced=True)

    def _unfence(self, body: Body, version: int) -> None:
        self._set_fenced(body, fenced=False)

    def _set_fenced(self, body: Body, *, fenced: bool) -> None:
        key = ("broker", body.read([("id", "int32"), ("epoch", "int64")])["id"])
        self._set(key, {**self._get(key), "fenced": fenced})

    def _register_controller(self, body: Body, version: int) -> None:
        controller = body.read(_CONTROLLER)
        for name in ("endpoints", "features"):
            controller[name] = sorted(controller[name], key=lambda each: str(each["name"]))
        self._set(("controller", controller["id"]), controller)

    def _topic(self, body: Body, version: int) -> None:
        topic = body.read([("name", "string"), ("id", "uuid")])
        self._set(("topic", topic["id"]), topic["name"])

    def _remove_topic(self, body: Body, version: int) -> None:
        topic_id = body.read([("id", "uuid")])["id"]
        name = self._get(("topic", topic_id))
        for key in (("topic", topic_id), *self._keys("partition", topic_id), *self._keys("config", 2, name)):
            self._set(key, None)

    def _partition(self, body: Body, version: int) -> None:
        schema = [*_PARTITION, ("directories", ["uuid"])] if version >= 1 else _PARTITION
        partition = {"recovery": 0, "directories": [], **body.read(schema)}
        for name in ("elr", "last_known_elr"):
            partition[name] = partition.get(name) or []
        partition["directories"] = partition["directories"] or [bytes(16)] * len(partition["replicas"])
        key = ("partition", partition.pop("topic"), partition.pop("index"))
        self._set(key, partition)

    def _change_partition(self, body: Body, version: int) -> None:
        change = body.read(_CHANGE)
        key = ("partition", change.pop("topic"), change.pop("index"))
        before = self._get(key)
        partition = {**before, **{name: value for name, value in change.items() if value is not None}}
        if "leader" in change:
            partition["leader_epoch"] = before["leader_epoch"] + 1
        partition["partition_epoch"] = before["partition_epoch"] + 1
        if len(partition["directories"]) != len(partition["replicas"]):
            partition["directories"] = [bytes(16)] * len(partition["replicas"])
        self._set(key, partition)

    def _clear_elr(self, body: Body, version: int) -> None:
        name = body.read([("name", "string")])["name"]
        for key in self._keys("partition"):
            partition = self._get(key)
            is_meant = name in ("", self._get(("topic", key[1])))
            if is_meant and (partition["elr"] or partition["last_known_elr"]):
                epoch = partition["partition_epoch"] + 1
                self._set(key, {**partition, "elr": [], "last_known_elr": [], "partition_epoch": epoch})

    def _config(self, body: Body, version: int) -> None:
        schema: Schema = [("type", "int8"), ("resource", "string"), ("name", "string"), ("value", "string")]
        config = body.read(schema)
        self._set(("config", config["type"], config["resource"], config["name"]), config["value"])

    def _feature(self, body: Body, version: int) -> None:
        feature = body.read([("name", "string"), ("level", "int16")])
        self._set(("feature", feature["name"]), feature["level"] or None)


# -- records of security, of producer ids and of a migration


def _quota(replayed: MetadataDict, body: Body, version: int) -> None:
    quota = body.read(_QUOTA)
    entity = tuple(sorted((part["type"], part["name"]) for part in quota["entity"]))
    replayed._set(("quota", entity, quota["key"]), None if quota["remove"] else quota["value"])


def _producer_ids(replayed: MetadataDict, body: Body, version: int) -> None:
    found = body.read([("broker", "int32"), ("epoch", "int64"), ("next", "int64")])
    replayed._set(("producer ids",), found["next"])


def _acl(replayed: MetadataDict, body: Body, version: int) -> None:
    acl = body.read(_ACL)
    replayed._set(("acl", acl["id"]), acl)


def _remove_acl(replayed: MetadataDict, body: Body, version: int) -> None:
    replayed._set(("acl", body.read([("id", "uuid")])["id"]), None)


def _scram(replayed: MetadataDict, body: Body, version: int) -> None:
    credential = body.read(_SCRAM)
    replayed._set(("scram", credential["mechanism"], credential["name"]), credential)


def _remove_scram(replayed: MetadataDict, body: Body, version: int) -> None:
    credential = body.read([("name", "string"), ("mechanism", "int8")])
    replayed._set(("scram", credential["mechanism"], credential["name"]), None)


def _token(replayed: MetadataDict, body: Body, version: int) -> None:
    token = body.read(_TOKEN)
    replayed._set(("token", token["id"]), token)


def _remove_token(replayed: MetadataDict, body: Body, version: int) -> None:
    replayed._set(("token", body.read([("id", "string")])["id"]), None)


def _migration(replayed: MetadataDict, body: Body, version: int) -> None:
    replayed._set(("migration",), body.read([("state", "int8")])["state"] or None)


_REPLAYS: Final[dict[int, Callable[[MetadataDict, Body, int], None]]] = {
    0: MetadataDict._register_broker,
    1: MetadataDict._unregister_broker,
    2: MetadataDict._topic,
    3: MetadataDict._partition,
    4: MetadataDict._config,
    5: MetadataDict._change_partition,
    7: MetadataDict._fence,
    8: MetadataDict._unfence,
    9: MetadataDict._remove_topic,
    10: _token,
    11: _scram,
    12: MetadataDict._feature,
    14: _quota,
    15: _producer_ids,
    17: MetadataDict._change_registration,
    18: _acl,
    19: _remove_acl,
    21: _migration,
    22: _remove_scram,
    26: _remove_token,
    27: MetadataDict._register_controller,
    28: MetadataDict._clear_elr,
}
