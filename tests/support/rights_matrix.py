"""The matrix of rights: each API asked with no right, with each single right, and with all rights but one that is
denied. The answers of Apache Kafka 4.1.0 are recorded (`tools/record_rights.py`), ours are compared with them.

A probe is one request. Its answer is kept as bytes, those after the correlation id. `leveled` has replaced what two
clusters cannot have in common: times, addresses, ids, directories and sizes of disks, and the text in which Kafka
repeats a request. Bytes are replaced by decoding, and encoding again: it is an error if an answer is not the same bytes
after both, so nothing else is lost.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.asking_requests import AUTHORIZATION_CODES, NAME, asking_request, codes_in

from barnabas.metadata.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResource
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.header import response_header_version
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.records.batch import Record, encode_batch

RECORDING: Final = Path(__file__).resolve().parents[1] / "data" / "wire" / "rights-4.1.0.json.gz"
BROKER, CONTROLLER = "broker", "controller"
USER: Final = "User:alice"
#: The name of resources that do not exist.
ABSENT: Final = "absent"
RESOURCES: Final = {
    AclResource.TOPIC: "*",
    AclResource.GROUP: "*",
    AclResource.CLUSTER: CLUSTER_NAME,
    AclResource.TRANSACTIONAL_ID: "*",
    AclResource.DELEGATION_TOKEN: "*",
    AclResource.USER: "*",
}
#: The operations that Kafka allows in rules for each type.
_OPERATIONS: Final = {
    AclResource.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    AclResource.GROUP: (3, 6, 8, 10, 11),
    AclResource.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
    AclResource.TRANSACTIONAL_ID: (4, 8, 15),
    AclResource.DELEGATION_TOKEN: (8,),
    AclResource.USER: (13, 14),
}
#: APIs that are served before the log-in or without the authorizer, or whose effect would change the recording.
_LEFT_OUT: Final = frozenset({"api_versions", "sasl_handshake", "sasl_authenticate"})
#: The APIs of delegation tokens in Kafka, with their newest versions; they are recorded whether they are offered here
#: or not.
_OF_TOKENS: Final = {
    "create_delegation_token": (38, 3),
    "renew_delegation_token": (39, 2),
    "expire_delegation_token": (40, 2),
    "describe_delegation_token": (41, 3),
}
_REFUSALS: Final = AUTHORIZATION_CODES | {64, 65}
#: APIs whose topic must not exist, because they would delete it if they are allowed to.
_OF_ABSENT: Final = frozenset({"delete_topics"})
#: The ids that `leveled` writes for the topic of the probes and for others.
_TOPIC_ID, _OTHER_ID = b"\xaa" * 16, b"\xbb" * 16
#: The beginning of a text in which Kafka repeats the request, and what such a text is here.
_REPEATED: Final = "Request Request("
_REFUSED: Final = "Cluster authorization failed."
#: Numbers that depend on the clock, the disk, or on how many ids were given away.
_OWN_NUMBERS: Final = frozenset({"last_timestamp", "total_bytes", "usable_bytes", "producer_id"})


class Rule(NamedTuple):
    """A rule of a state, for `USER` and any host."""

    permission: AclPermission
    resource: AclResource
    operation: AclOperation


class State(NamedTuple):
    name: str
    rules: tuple[Rule, ...]


class Probe(NamedTuple):
    """A request to a listener. `make` gets the id of the topic."""

    name: str
    listener: str
    key: int
    version: int
    make: Callable[[bytes], Message]


def states() -> list[State]:
    """Returns all states: no right, each single right, all rights without one."""
    found = [State("none", ())]
    everything = tuple(Rule(AclPermission.ALLOW, resource, AclOperation.ALL) for resource in RESOURCES)
    for resource, operations in _OPERATIONS.items():
        for operation in (AclOperation.ALL, *map(AclOperation, operations)):
            name = f"{resource.name} {operation.name}"
            found.append(State(f"allow {name}", (Rule(AclPermission.ALLOW, resource, operation),)))
            found.append(State(f"deny {name}", (*everything, Rule(AclPermission.DENY, resource, operation))))
    return found


def probes() -> list[Probe]:
    """Returns the probes of all APIs in their newest and oldest versions, and some with other fields."""
    found = []
    for listener, offers in ((BROKER, BROKER_APIS), (CONTROLLER, CONTROLLER_APIS)):
        for key, offer in sorted(offers.items()):
            if offer.name in _LEFT_OUT or offer.name in _OF_TOKENS:
                continue
            for version in dict.fromkeys((offer.version_max, offer.version_min)):
                name = offer.name if version == offer.version_max else f"{offer.name}-oldest"
                found.append(Probe(name, listener, key, version, _asking(key, version, offer.name)))
    for name, (key, version) in _OF_TOKENS.items():
        found.append(Probe(name, BROKER, key, version, _asking(key, version, name)))
    return found + list(_special_probes())


def _special_probes() -> Iterator[Probe]:
    def probe(name: str, key: int, change: Callable[[Any], None], listener: str = BROKER) -> Probe:
        version = BROKER_APIS[key].version_max

        def make(topic_id: bytes) -> Message:
            made = asking_request(key, version, topic_id)
            change(made)
            return made

        return Probe(name, listener, key, version, make)

    def set_all(**values: object) -> Callable[[Any], None]:
        def change(message: Any) -> None:
            for attribute, value in values.items():
                setattr(message, attribute, value)

        return change

    def with_operations(message: Any) -> None:
        message.include_topic_authorized_operations = True

    def by_id(message: Any) -> None:
        message.topics[0].name = None
        message.topics[0].topic_id = bytes(16)

    yield probe("metadata-all", 3, set_all(topics=None))
    yield probe("metadata-operations", 3, with_operations)
    yield probe("metadata-unknown-id", 3, by_id)
    yield probe("cluster-operations", 60, set_all(include_cluster_authorized_operations=True))
    yield probe("pages-all", 75, set_all(topics=[]))
    yield probe("group-operations", 15, set_all(include_authorized_operations=True))
    yield probe("init_producer_id-idempotent", 22, set_all(transactional_id=None, transaction_timeout_ms=1_000))
    yield probe("find_coordinator-transaction", 10, set_all(key_type=1))


def _asking(key: int, version: int, api: str) -> Callable[[bytes], Message]:
    def make(topic_id: bytes) -> Message:
        made: Any = asking_request(key, version, topic_id)
        if api == "produce":
            records = encode_batch([Record(0, 1_735_689_600_000, b"k", b"v")])
            made.topic_data[0].partition_data[0].records = bytes(records)
        elif api == "fetch":
            made.session_epoch = -1
        elif api in _OF_ABSENT:
            if version >= 6:
                made.topics[0].name = ABSENT
            else:
                made.topic_names = [ABSENT]
        return made  # type: ignore[no-any-return]

    return make


class Cluster(NamedTuple):
    """The values that are a cluster's own."""

    topic_id: bytes
    #: Texts that `leveled` replaces, such as the cluster's id.
    texts: Mapping[str, str]
    ports: Collection[int]


def leveled(probe: Probe, answer: bytes, cluster: Cluster) -> bytes:
    """Returns the bytes of an answer without what is a cluster's own."""
    position = 1 if response_header_version(probe.key, probe.version) else 0
    response, _ = codec.decode(response_class(probe.key), probe.version, answer, position)
    again = bytes(codec.encode(response, probe.version))
    assert again == answer[position:], f"{title(probe)}: {answer.hex()} is {again.hex()} when it is encoded again"
    _level(response, cluster)
    if isinstance(response, MetadataResponse):
        # Kafka lists all topics in the order of a hash table.
        response.topics.sort(key=lambda row: row.name or "")
    return answer[:position] + bytes(codec.encode(response, probe.version))


def is_served(probe: Probe, answer: bytes) -> bool:
    """Returns whether an answer has no error of authorization."""
    return not _REFUSALS & set(codes_in(decoded(probe, answer)))


def decoded(probe: Probe, answer: bytes) -> Message:
    position = 1 if response_header_version(probe.key, probe.version) else 0
    return codec.decode(response_class(probe.key), probe.version, answer, position)[0]


def _level(struct: Any, cluster: Cluster) -> None:
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    _level(each, cluster)
        elif isinstance(value, Struct):
            _level(value, cluster)
        elif value is not None:
            setattr(struct, field.attribute, _leveled_value(field.attribute, field.element_type, value, cluster))


def _leveled_value(attribute: str, kind: str, value: Any, cluster: Cluster) -> Any:
    if attribute == "throttle_time_ms":
        return 0
    if attribute in _OWN_NUMBERS:
        return min(value, 0)
    if attribute == "port":
        return 1 if value in cluster.ports else value
    if kind == "uuid" and any(value):
        return _TOPIC_ID if value == cluster.topic_id else _OTHER_ID
    if kind == "string":
        if value.startswith(_REPEATED):
            return _REFUSED
        for own, common in cluster.texts.items():
            value = value.replace(own, common)
    return value


def commit() -> OffsetCommitRequest:
    """Returns the request that creates the group; some states let a probe delete it."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=NAME, partitions=[partition])
    return OffsetCommitRequest(group_id=NAME, topics=[topic])


def save(answers: dict[str, dict[str, bytes]]) -> None:
    """Writes answers by probe and state. Equal answers to a probe are written once, with their states."""
    rows = []
    for name, by_state in answers.items():
        groups: dict[str, list[str]] = {}
        for state, answer in by_state.items():
            groups.setdefault(answer.hex(), []).append(state)
        rows.append({"probe": name, "answers": list(groups.items())})
    with RECORDING.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(json.dumps(rows, indent=0).encode())


def load() -> dict[str, dict[str, bytes]]:
    with gzip.open(RECORDING, "rt") as file:
        rows = json.load(file)
    return {
        row["probe"]: {state: bytes.fromhex(text) for text, found in row["answers"] for state in found} for row in rows
    }


def title(probe: Probe) -> str:
    return f"{probe.listener} {probe.name} v{probe.version}"


__all__ = [
    "NAME",
    "Cluster",
    "Probe",
    "Rule",
    "State",
    "is_served",
    "leveled",
    "load",
    "probes",
    "save",
    "states",
    "title",
]
