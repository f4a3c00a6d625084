"""The matrix of rights: each API asked with no right, with each single right, and with all rights but one that is
denied. The responses of Apache Kafka 4.1.0 are recorded (`tools/record_rights.py`), ours are compared with them.

A probe is one request. Its outcome is "served" if the response has no error of authorization, else the response itself;
of lists and of authorized operations it is always what the response shows. What differs between two clusters is left
out: times to pause, ids of topics, and the texts of whole requests.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.asking_requests import AUTHORIZATION_CODES, NAME, asking_request, codes_in

from barnabas.metadata.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResource
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.kafka_json import to_json_object
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.records.batch import Record, encode_batch

RECORDING: Final = Path(__file__).resolve().parents[1] / "data" / "wire" / "rights-4.1.0.json.gz"
BROKER, CONTROLLER = "broker", "controller"
USER: Final = "User:alice"
#: A name of which nothing exists.
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
#: APIs whose lists are compared: the array's field, and the field of the name in its elements.
_LISTS: Final = {
    "list_groups": ("groups", "group_id"),
    "metadata-all": ("topics", "name"),
    "pages-all": ("topics", "name"),
}
_TOPIC_ID: Final = b"\xaa" * 16


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


def outcome(probe: Probe, response: Message, topic_id: bytes) -> Any:
    """Returns the outcome of a probe as a JSON value."""
    if probe.name in _LISTS:
        array, name = _LISTS[probe.name]
        return sorted(getattr(row, name) for row in getattr(response, array) if not getattr(row, name).startswith("__"))
    if probe.name == "metadata-operations":
        return [row.topic_authorized_operations for row in response.topics]  # type: ignore[attr-defined]
    if probe.name == "cluster-operations":
        return response.cluster_authorized_operations  # type: ignore[attr-defined]
    if probe.name == "group-operations":
        return [row.authorized_operations for row in response.groups]  # type: ignore[attr-defined]
    if not _REFUSALS & set(codes_in(response)):
        return "served"
    _level(response, topic_id)
    if isinstance(response, MetadataResponse):
        response.brokers, response.cluster_id = [], None
    decoded, _ = codec.decode(response_class(probe.key), probe.version, codec.encode(response, probe.version))
    return to_json_object(decoded, probe.version)


def _level(struct: Any, topic_id: bytes) -> None:
    """Sets the fields in which two clusters differ to the same values."""
    for field in struct.FIELDS:
        value = getattr(struct, field.attribute)
        if field.attribute == "throttle_time_ms":
            setattr(struct, field.attribute, 0)
        elif value == topic_id and field.element_type == "uuid":
            setattr(struct, field.attribute, _TOPIC_ID)
        elif field.attribute == "error_message" and value is not None and value.startswith("Request Request("):
            setattr(struct, field.attribute, REQUEST_TEXT)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    _level(each, topic_id)
        elif isinstance(value, Struct):
            _level(value, topic_id)


#: The message of a refusal in which Kafka repeats the request.
REQUEST_TEXT: Final = "the request"


def commit() -> OffsetCommitRequest:
    """Returns the request that creates the group; some states let a probe delete it."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=NAME, partitions=[partition])
    return OffsetCommitRequest(group_id=NAME, topics=[topic])


def save(outcomes: dict[str, dict[str, Any]]) -> None:
    """Writes outcomes by probe and state. Equal outcomes of a probe are written once, with their states."""
    rows = []
    for name, by_state in outcomes.items():
        groups: dict[str, list[str]] = {}
        for state, value in by_state.items():
            groups.setdefault(json.dumps(value, sort_keys=True), []).append(state)
        rows.append({"probe": name, "outcomes": [[json.loads(text), found] for text, found in groups.items()]})
    with RECORDING.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(json.dumps(rows, indent=0).encode())


def load() -> dict[str, dict[str, Any]]:
    with gzip.open(RECORDING, "rt") as file:
        rows = json.load(file)
    return {row["probe"]: {state: value for value, found in row["outcomes"] for state in found} for row in rows}


def title(probe: Probe) -> str:
    return f"{probe.listener} {probe.name} v{probe.version}"


__all__ = ["NAME", "Probe", "Rule", "State", "load", "outcome", "probes", "save", "states", "title"]
