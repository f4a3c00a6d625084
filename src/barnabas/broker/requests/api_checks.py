"""The table of authorization checks: the rights that each API requires, and what a client without them gets.

The key is the name of the API's handler. A test compares the table with the APIs that listeners offer, so none is
unchecked; docs/authorization.md is generated from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.requests import group_checks, topic_checks, transaction_checks
from barnabas.broker.requests.authorization import All, AuthorizationCheck, ByHandler, Open, Rows, Whole
from barnabas.broker.requests.error_responses import INDEXES, TOPICS, ErrorRows
from barnabas.metadata.acls import AclOperation, AclResource

_CLUSTER_ACTION: Final = Whole(AclOperation.CLUSTER_ACTION)
_ALTER: Final = Whole(AclOperation.ALTER)
_DESCRIBE: Final = Whole(AclOperation.DESCRIBE)
_MEMBER: Final = Whole(AclOperation.READ, AclResource.GROUP, "group_id")
_IN_TRANSACTION: Final = Whole(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id")
_RESOURCES: Final = ErrorRows("responses", "resources")
_EACH_TOPIC: Final = "TOPIC_AUTHORIZATION_FAILED for each one"

CHECKS: Final[Mapping[str, AuthorizationCheck]] = {
    # Records
    "produce": ByHandler(
        "WRITE on the transactional id, WRITE on each topic",
        f"TRANSACTIONAL_ID_AUTHORIZATION_FAILED for everything; {_EACH_TOPIC}",
    ),
    "fetch": ByHandler(
        "READ on each topic; CLUSTER_ACTION on the cluster in the name of a replica",
        f"{_EACH_TOPIC}",
    ),
    "list_offsets": topic_checks.ListOffsets(
        "DESCRIBE on each topic; CLUSTER_ACTION on the cluster in the name of a replica", _EACH_TOPIC
    ),
    "offset_for_leader_epoch": Rows(
        AclOperation.DESCRIBE, AclResource.TOPIC, TOPICS, "topic", unless=AclOperation.CLUSTER_ACTION
    ),
    "delete_records": Rows(AclOperation.DELETE, AclResource.TOPIC, TOPICS, "name", values=(("low_watermark", -1),)),
    "describe_producers": Rows(
        AclOperation.READ, AclResource.TOPIC, ErrorRows("topics", "topics", inner=INDEXES), "name"
    ),
    # Topics
    "metadata": ByHandler(
        "DESCRIBE on each topic; CREATE on the cluster or the topic for one that is created",
        "TOPIC_AUTHORIZATION_FAILED without the id of a topic requested by name, and without the name of one requested "
        "by id; of all topics, those that may be described",
    ),
    "describe_topic_partitions": ByHandler(
        "DESCRIBE on each topic", f"{_EACH_TOPIC}; of all topics, those that may be described"
    ),
    "create_topics": topic_checks.CreateTopics(
        "CREATE on the cluster or on each topic; DESCRIBE_CONFIGS on it for the configuration in the response",
        f"{_EACH_TOPIC}; the configuration is left out",
    ),
    "delete_topics": topic_checks.DeleteTopics(
        "DELETE on the cluster, or DESCRIBE and DELETE on each topic", _EACH_TOPIC
    ),
    "create_partitions": Rows(
        AclOperation.ALTER, AclResource.TOPIC, ErrorRows("results", "topics"), "name", is_silent=True
    ),
    # Groups
    "find_coordinator": group_checks.FindCoordinator(
        "DESCRIBE on each group or transactional id; CLUSTER_ACTION on the cluster for share groups",
        "GROUP_, TRANSACTIONAL_ID_ or CLUSTER_AUTHORIZATION_FAILED for each one",
    ),
    "join_group": _MEMBER,
    "sync_group": _MEMBER,
    "heartbeat": _MEMBER,
    "leave_group": _MEMBER,
    "consumer_group_heartbeat": All(
        _MEMBER,
        group_checks.SubscribedTopics(
            "DESCRIBE on each topic subscribed to by name", "TOPIC_AUTHORIZATION_FAILED for the member"
        ),
    ),
    "offset_commit": All(_MEMBER, Rows(AclOperation.READ, AclResource.TOPIC, TOPICS, "name")),
    "offset_fetch": group_checks.OffsetFetch(
        "DESCRIBE on each group and on each topic",
        "GROUP_AUTHORIZATION_FAILED for a group, TOPIC_AUTHORIZATION_FAILED for a topic; of all topics, those that may "
        "be described",
    ),
    "offset_delete": group_checks.OffsetDelete(
        "DELETE on the group; READ on each topic", f"GROUP_AUTHORIZATION_FAILED for the whole request; {_EACH_TOPIC}"
    ),
    "describe_groups": Rows(
        AclOperation.DESCRIBE, AclResource.GROUP, ErrorRows("groups", "groups", key="group_id"), is_silent=True
    ),
    "consumer_group_describe": group_checks.ConsumerGroupDescribe(
        "DESCRIBE on each group, and on each topic of its members",
        "GROUP_AUTHORIZATION_FAILED for each one; TOPIC_AUTHORIZATION_FAILED for a group with a hidden topic",
    ),
    "list_groups": group_checks.ListGroups(
        "DESCRIBE on the cluster or on each group", "groups that may not be described are left out"
    ),
    "delete_groups": Rows(
        AclOperation.DELETE, AclResource.GROUP, ErrorRows("results", "groups_names", key="group_id"), is_silent=True
    ),
    # Transactions
    "init_producer_id": transaction_checks.InitProducerId(
        "WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
        "TRANSACTIONAL_ID_ or CLUSTER_AUTHORIZATION_FAILED",
    ),
    "add_partitions_to_txn": transaction_checks.AddPartitionsToTxn(
        "WRITE on the transactional id and on each topic; from version 4, CLUSTER_ACTION on the cluster",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED for everything; TOPIC_AUTHORIZATION_FAILED for a topic, and "
        "OPERATION_NOT_ATTEMPTED for the others; CLUSTER_AUTHORIZATION_FAILED",
    ),
    "add_offsets_to_txn": All(_IN_TRANSACTION, _MEMBER),
    "end_txn": _IN_TRANSACTION,
    "txn_offset_commit": All(_IN_TRANSACTION, _MEMBER, Rows(AclOperation.READ, AclResource.TOPIC, TOPICS, "name")),
    "write_txn_markers": transaction_checks.WriteTxnMarkers(
        "ALTER or CLUSTER_ACTION on the cluster", "CLUSTER_AUTHORIZATION_FAILED for everything"
    ),
    "describe_transactions": transaction_checks.DescribeTransactions(
        "DESCRIBE on each transactional id, and on each of its topics",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED for each one; topics are left out",
    ),
    "list_transactions": transaction_checks.ListTransactions(
        "DESCRIBE on each transactional id", "those that may not be described are left out"
    ),
    # The cluster
    "api_versions": Open("a client must know what it can send"),
    "describe_cluster": Open("on a broker's listener; the authorized operations need DESCRIBE on the cluster"),
    "sasl_handshake": Open("after the login, the handler refuses it"),
    "sasl_authenticate": Open("after the login, the handler refuses it"),
    "create_delegation_token": ByHandler(
        "CREATE_TOKENS on the user, for a token of another user", "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    ),
    "renew_delegation_token": Open("only the owner and the renewers can renew a token"),
    "expire_delegation_token": Open("only the owner and the renewers can expire a token"),
    "describe_delegation_token": ByHandler(
        "DESCRIBE on the token or DESCRIBE_TOKENS on its owner, for tokens in which the client has no part",
        "those that may not be described are left out",
    ),
    "describe_user_scram_credentials": _DESCRIBE,
    "alter_user_scram_credentials": _ALTER,
    "describe_client_quotas": Whole(AclOperation.DESCRIBE_CONFIGS),
    "alter_client_quotas": Whole(AclOperation.ALTER_CONFIGS),
    "describe_acls": _DESCRIBE,
    "create_acls": _ALTER,
    "delete_acls": _ALTER,
    "describe_configs": topic_checks.Configs(AclOperation.DESCRIBE_CONFIGS, ErrorRows("results", "resources")),
    "alter_configs": topic_checks.Configs(AclOperation.ALTER_CONFIGS, _RESOURCES),
    "incremental_alter_configs": topic_checks.Configs(AclOperation.ALTER_CONFIGS, _RESOURCES),
    "list_config_resources": Whole(AclOperation.DESCRIBE_CONFIGS),
    "describe_log_dirs": topic_checks.DescribeLogDirs(
        "DESCRIBE on the cluster", "CLUSTER_AUTHORIZATION_FAILED; before version 3, no directory"
    ),
    "alter_replica_log_dirs": _ALTER,
    "elect_leaders": _ALTER,
    "alter_partition_reassignments": _ALTER,
    "list_partition_reassignments": _DESCRIBE,
    "unregister_broker": _ALTER,
    "update_features": _ALTER,
    "describe_quorum": _DESCRIBE,
    "add_raft_voter": _ALTER,
    "remove_raft_voter": _ALTER,
    # APIs that nodes call on each other
    "fetch_metadata": ByHandler("CLUSTER_ACTION on the cluster", "CLUSTER_AUTHORIZATION_FAILED for the whole request"),
    **dict.fromkeys(
        (
            "vote",
            "begin_quorum_epoch",
            "end_quorum_epoch",
            "fetch_snapshot",
            "update_raft_voter",
            "envelope",
            "alter_partition",
            "broker_registration",
            "broker_heartbeat",
            "controller_registration",
            "allocate_producer_ids",
            "assign_replicas_to_dirs",
            "leader_and_isr",
            "stop_replica",
            "update_metadata",
            "controlled_shutdown",
        ),
        _CLUSTER_ACTION,
    ),
}

#: The checks that differ on a controller's listener.
CONTROLLER_CHECKS: Final[Mapping[str, AuthorizationCheck]] = {"describe_cluster": _ALTER}


def check_of(handler: str, *, on_controller: bool) -> AuthorizationCheck:
    """Returns the check of an API, by its handler's name."""
    return (CONTROLLER_CHECKS.get(handler) if on_controller else None) or CHECKS[handler]
