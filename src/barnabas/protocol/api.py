"""The APIs and versions that each kind of listener offers, for ApiVersions responses and for the dispatcher's check.

The ranges are Kafka 4.1.0's. An API that is not fully supported is not listed. Kafka still lists 0 as Produce's lowest
version, for librdkafka before 2.x (KIP-896), though versions 0-2 are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18


class Offer(NamedTuple):
    """One API key: its handler's module, the versions served, and the lowest one listed."""

    name: str
    version_min: int
    version_max: int
    shown_min: int
    #: Whether only the active controller decides this: a broker forwards it, wherever the controller is (KIP-590).
    is_forwarded: bool = False


def _offer(name: str, version_min: int, version_max: int, shown_min: int | None = None) -> Offer:
    return Offer(name, version_min, version_max, version_min if shown_min is None else shown_min)


def _forwarded(name: str, version_min: int, version_max: int) -> Offer:
    return Offer(name, version_min, version_max, version_min, is_forwarded=True)


BROKER_APIS: Mapping[int, Offer] = {
    0: _offer("produce", 3, 13, 0),
    1: _offer("fetch", 4, 18),
    2: _offer("list_offsets", 1, 10),
    3: _offer("metadata", 0, 13),
    8: _offer("offset_commit", 2, 9),
    9: _offer("offset_fetch", 1, 9),
    10: _offer("find_coordinator", 0, 6),
    11: _offer("join_group", 0, 9),
    12: _offer("heartbeat", 0, 4),
    13: _offer("leave_group", 0, 5),
    14: _offer("sync_group", 0, 5),
    15: _offer("describe_groups", 0, 6),
    16: _offer("list_groups", 0, 5),
    18: _offer("api_versions", 0, 4),
    19: _forwarded("create_topics", 2, 7),
    20: _forwarded("delete_topics", 1, 6),
    21: _offer("delete_records", 0, 2),
    22: _offer("init_producer_id", 0, 5),
    23: _offer("offset_for_leader_epoch", 2, 4),
    24: _offer("add_partitions_to_txn", 0, 5),
    25: _offer("add_offsets_to_txn", 0, 4),
    26: _offer("end_txn", 0, 5),
    27: _offer("write_txn_markers", 1, 1),
    28: _offer("txn_offset_commit", 0, 5),
    29: _offer("describe_acls", 1, 3),
    30: _offer("create_acls", 1, 3),
    31: _offer("delete_acls", 1, 3),
    32: _offer("describe_configs", 1, 4),
    33: _offer("alter_configs", 0, 2),
    34: _offer("alter_replica_log_dirs", 1, 2),
    35: _offer("describe_log_dirs", 1, 4),
    37: _forwarded("create_partitions", 0, 3),
    42: _offer("delete_groups", 0, 2),
    43: _forwarded("elect_leaders", 0, 2),
    44: _offer("incremental_alter_configs", 0, 1),
    45: _forwarded("alter_partition_reassignments", 0, 1),
    46: _forwarded("list_partition_reassignments", 0, 0),
    47: _offer("offset_delete", 0, 0),
    55: _forwarded("describe_quorum", 0, 2),
    57: _forwarded("update_features", 0, 2),
    60: _offer("describe_cluster", 0, 2),
    61: _offer("describe_producers", 0, 0),
    64: _forwarded("unregister_broker", 0, 0),
    65: _offer("describe_transactions", 0, 0),
    66: _offer("list_transactions", 0, 2),
    68: _offer("consumer_group_heartbeat", 0, 1),
    69: _offer("consumer_group_describe", 0, 1),
    74: _offer("list_config_resources", 0, 1),
    75: _offer("describe_topic_partitions", 0, 0),
    80: _forwarded("add_raft_voter", 0, 0),
    81: _forwarded("remove_raft_voter", 0, 0),
}

CONTROLLER_APIS: Mapping[int, Offer] = {
    1: _offer("fetch_metadata", 4, 18),
    18: _offer("api_versions", 0, 4),
    19: _offer("create_topics", 2, 7),
    20: _offer("delete_topics", 1, 6),
    29: _offer("describe_acls", 1, 3),
    30: _offer("create_acls", 1, 3),
    31: _offer("delete_acls", 1, 3),
    32: _offer("describe_configs", 1, 4),
    33: _offer("alter_configs", 0, 2),
    37: _offer("create_partitions", 0, 3),
    43: _offer("elect_leaders", 0, 2),
    44: _offer("incremental_alter_configs", 0, 1),
    45: _offer("alter_partition_reassignments", 0, 1),
    46: _offer("list_partition_reassignments", 0, 0),
    52: _offer("vote", 0, 2),
    53: _offer("begin_quorum_epoch", 0, 1),
    54: _offer("end_quorum_epoch", 0, 1),
    55: _offer("describe_quorum", 0, 2),
    56: _offer("alter_partition", 2, 3),
    57: _offer("update_features", 0, 2),
    58: _offer("envelope", 0, 0),
    59: _offer("fetch_snapshot", 0, 1),
    60: _offer("describe_cluster", 0, 2),
    62: _offer("broker_registration", 0, 4),
    63: _offer("broker_heartbeat", 0, 1),
    64: _offer("unregister_broker", 0, 0),
    67: _offer("allocate_producer_ids", 0, 0),
    70: _offer("controller_registration", 0, 0),
    73: _offer("assign_replicas_to_dirs", 0, 0),
    80: _offer("add_raft_voter", 0, 0),
    81: _offer("remove_raft_voter", 0, 0),
    82: _offer("update_raft_voter", 0, 0),
}
