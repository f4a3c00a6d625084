"""The APIs that the listeners offer, with their versions: for ApiVersions responses, the dispatcher and the envelope.

One row registers an API; its handler is the module of that name in `broker/handlers/`. The ranges are Kafka 4.1.0's. An
API that is not fully supported is not listed. Kafka still lists 0 as Produce's lowest version, for librdkafka before
2.x (KIP-896), though versions 0-2 are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

PRODUCE = 0
API_VERSIONS = 18


class Offer(NamedTuple):
    """An API in the form in which one kind of listener offers it: its handler's module, the versions served, and the
    lowest one listed."""

    name: str
    version_min: int
    version_max: int
    shown_min: int
    #: Whether only the active controller decides this: a broker forwards it, wherever the controller is (KIP-590).
    is_forwarded: bool = False
    #: Whether this listener's node decides it as the active controller, and answers once the decision is committed.
    is_decided: bool = False


class Listeners(Enum):
    """The listeners that offer an API."""

    BROKER = "brokers"
    CONTROLLER = "controllers"
    #: Every node serves the API itself.
    BOTH = "both"
    #: Controllers serve the API, and brokers forward it to the active one.
    FORWARDED = "controllers, and brokers for them"


class _Api(NamedTuple):
    key: int
    name: str
    version_min: int
    version_max: int
    listeners: Listeners
    #: The lowest version listed, if that is not the lowest one served.
    shown_min: int | None = None

    def offer(self, *, is_forwarded: bool = False, is_decided: bool = False) -> Offer:
        shown_min = self.version_min if self.shown_min is None else self.shown_min
        return Offer(self.name, self.version_min, self.version_max, shown_min, is_forwarded, is_decided)


_BROKER: Final = Listeners.BROKER
_CONTROLLER: Final = Listeners.CONTROLLER
_BOTH: Final = Listeners.BOTH
_FORWARDED: Final = Listeners.FORWARDED

_APIS: Final = (
    _Api(0, "produce", 3, 13, _BROKER, shown_min=0),
    _Api(1, "fetch", 4, 18, _BROKER),
    _Api(1, "fetch_metadata", 4, 18, _CONTROLLER),
    _Api(2, "list_offsets", 1, 10, _BROKER),
    _Api(3, "metadata", 0, 13, _BROKER),
    _Api(8, "offset_commit", 2, 9, _BROKER),
    _Api(9, "offset_fetch", 1, 9, _BROKER),
    _Api(10, "find_coordinator", 0, 6, _BROKER),
    _Api(11, "join_group", 0, 9, _BROKER),
    _Api(12, "heartbeat", 0, 4, _BROKER),
    _Api(13, "leave_group", 0, 5, _BROKER),
    _Api(14, "sync_group", 0, 5, _BROKER),
    _Api(15, "describe_groups", 0, 6, _BROKER),
    _Api(16, "list_groups", 0, 5, _BROKER),
    _Api(17, "sasl_handshake", 0, 1, _BOTH),
    _Api(18, "api_versions", 0, 4, _BOTH),
    _Api(19, "create_topics", 2, 7, _FORWARDED),
    _Api(20, "delete_topics", 1, 6, _FORWARDED),
    _Api(21, "delete_records", 0, 2, _BROKER),
    _Api(22, "init_producer_id", 0, 5, _BROKER),
    _Api(23, "offset_for_leader_epoch", 2, 4, _BROKER),
    _Api(24, "add_partitions_to_txn", 0, 5, _BROKER),
    _Api(25, "add_offsets_to_txn", 0, 4, _BROKER),
    _Api(26, "end_txn", 0, 5, _BROKER),
    _Api(27, "write_txn_markers", 1, 1, _BROKER),
    _Api(28, "txn_offset_commit", 0, 5, _BROKER),
    _Api(29, "describe_acls", 1, 3, _BOTH),
    _Api(30, "create_acls", 1, 3, _FORWARDED),
    _Api(31, "delete_acls", 1, 3, _FORWARDED),
    _Api(32, "describe_configs", 1, 4, _BOTH),
    _Api(33, "alter_configs", 0, 2, _BOTH),
    _Api(34, "alter_replica_log_dirs", 1, 2, _BROKER),
    _Api(35, "describe_log_dirs", 1, 4, _BROKER),
    _Api(36, "sasl_authenticate", 0, 2, _BOTH),
    _Api(37, "create_partitions", 0, 3, _FORWARDED),
    _Api(38, "create_delegation_token", 1, 3, _BOTH),
    _Api(39, "renew_delegation_token", 1, 2, _BOTH),
    _Api(40, "expire_delegation_token", 1, 2, _BOTH),
    _Api(41, "describe_delegation_token", 1, 3, _BROKER),
    _Api(42, "delete_groups", 0, 2, _BROKER),
    _Api(43, "elect_leaders", 0, 2, _FORWARDED),
    _Api(44, "incremental_alter_configs", 0, 1, _BOTH),
    _Api(45, "alter_partition_reassignments", 0, 1, _FORWARDED),
    _Api(46, "list_partition_reassignments", 0, 0, _FORWARDED),
    _Api(47, "offset_delete", 0, 0, _BROKER),
    _Api(48, "describe_client_quotas", 0, 1, _BROKER),
    _Api(49, "alter_client_quotas", 0, 1, _FORWARDED),
    _Api(50, "describe_user_scram_credentials", 0, 0, _BROKER),
    _Api(51, "alter_user_scram_credentials", 0, 0, _FORWARDED),
    _Api(52, "vote", 0, 2, _CONTROLLER),
    _Api(53, "begin_quorum_epoch", 0, 1, _CONTROLLER),
    _Api(54, "end_quorum_epoch", 0, 1, _CONTROLLER),
    _Api(55, "describe_quorum", 0, 2, _FORWARDED),
    _Api(56, "alter_partition", 2, 3, _CONTROLLER),
    _Api(57, "update_features", 0, 2, _FORWARDED),
    _Api(58, "envelope", 0, 0, _CONTROLLER),
    _Api(59, "fetch_snapshot", 0, 1, _CONTROLLER),
    _Api(60, "describe_cluster", 0, 2, _BOTH),
    _Api(61, "describe_producers", 0, 0, _BROKER),
    _Api(62, "broker_registration", 0, 4, _CONTROLLER),
    _Api(63, "broker_heartbeat", 0, 1, _CONTROLLER),
    _Api(64, "unregister_broker", 0, 0, _FORWARDED),
    _Api(65, "describe_transactions", 0, 0, _BROKER),
    _Api(66, "list_transactions", 0, 2, _BROKER),
    _Api(67, "allocate_producer_ids", 0, 0, _CONTROLLER),
    _Api(68, "consumer_group_heartbeat", 0, 1, _BROKER),
    _Api(69, "consumer_group_describe", 0, 1, _BROKER),
    _Api(70, "controller_registration", 0, 0, _CONTROLLER),
    _Api(73, "assign_replicas_to_dirs", 0, 0, _CONTROLLER),
    _Api(74, "list_config_resources", 0, 1, _BROKER),
    _Api(75, "describe_topic_partitions", 0, 0, _BROKER),
    _Api(80, "add_raft_voter", 0, 0, _FORWARDED),
    _Api(81, "remove_raft_voter", 0, 0, _FORWARDED),
    _Api(82, "update_raft_voter", 0, 0, _CONTROLLER),
)

#: The APIs of which a broker decides a part, and forwards the rest: AlterConfigs, IncrementalAlterConfigs, and the
#: changes of delegation tokens.
FORWARDED_IN_PART: Final = frozenset({33, 38, 39, 40, 44})

BROKER_APIS: Final[Mapping[int, Offer]] = {
    api.key: api.offer(is_forwarded=api.listeners is _FORWARDED) for api in _APIS if api.listeners is not _CONTROLLER
}
CONTROLLER_APIS: Final[Mapping[int, Offer]] = {
    api.key: api.offer(is_decided=api.listeners is _FORWARDED or api.key in FORWARDED_IN_PART)
    for api in _APIS
    if api.listeners is not _BROKER
}

#: The highest versions in ZooKeeper mode, those of Kafka 3.9.1; the lowest ones are those of KRaft mode.
_ZOOKEEPER_MODE: Final = {
    0: 11,
    1: 17,
    2: 9,
    3: 12,
    8: 9,
    9: 9,
    10: 6,
    11: 9,
    12: 4,
    13: 5,
    14: 5,
    15: 5,
    16: 5,
    17: 1,
    18: 4,
    19: 7,
    20: 6,
    21: 2,
    22: 5,
    23: 4,
    24: 5,
    25: 4,
    26: 4,
    27: 1,
    28: 4,
    29: 3,
    30: 3,
    31: 3,
    32: 4,
    33: 2,
    34: 2,
    35: 4,
    36: 2,
    37: 3,
    42: 2,
    43: 2,
    44: 1,
    45: 0,
    46: 0,
    47: 0,
    48: 1,
    49: 1,
    50: 0,
    51: 0,
    57: 1,
    60: 1,
    61: 0,
    65: 0,
    66: 1,
    67: 0,
    68: 0,
    69: 0,
}
#: The APIs between controller and brokers in ZooKeeper mode, which a client's listener offers too, as in Kafka 3.9.1.
_OF_ZOOKEEPER_CONTROLLERS: Final = (
    _Api(4, "leader_and_isr", 0, 7, _BOTH),
    _Api(5, "stop_replica", 0, 4, _BOTH),
    _Api(6, "update_metadata", 0, 8, _BOTH),
    _Api(7, "controlled_shutdown", 0, 3, _BOTH),
    _Api(56, "alter_partition", 2, 3, _BOTH),
)
#: The APIs of a broker in ZooKeeper mode, on all its listeners. Nothing is forwarded.
ZOOKEEPER_APIS: Final[Mapping[int, Offer]] = {
    **{
        key: {**CONTROLLER_APIS, **BROKER_APIS}[key]._replace(version_max=version, is_forwarded=False, is_decided=False)
        for key, version in _ZOOKEEPER_MODE.items()
    },
    **{api.key: api.offer() for api in _OF_ZOOKEEPER_CONTROLLERS},
}
#: The APIs that a broker in ZooKeeper mode serves before it knows the cluster.
EARLY_ZOOKEEPER_APIS: Final[Mapping[int, Offer]] = {key: ZOOKEEPER_APIS[key] for key in (4, 5, 6, API_VERSIONS)}


def handler_name(api_key: int) -> str:
    """Returns the name of an API's handler: that of brokers, if brokers and controllers have different ones."""
    return (BROKER_APIS.get(api_key) or CONTROLLER_APIS.get(api_key) or ZOOKEEPER_APIS[api_key]).name
