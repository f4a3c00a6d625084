"""The authorizer in ZooKeeper mode: rules are in znodes, any broker changes them, and all of them decide by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.acl_filters import EVERY_RULE
from tests.support.secured import ADMIN, ALICE
from tests.support.wired import WiredClient
from tests.support.zookeeper_broker import ZooKeeperBroker, ZooKeeperBrokerClient

from barnabas.broker.metrics import authorizations
from barnabas.common.authorizer_keys import ACL_AUTHORIZER
from barnabas.common.errors import NO_AUTHORIZER, ErrorCode
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.znodes.config_znodes import encode_config
from barnabas.zookeeper.client.store import MultiReply
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CreateRequest, SetDataRequest

ORDERS = "/kafka-acl/Topic/orders"
READ_ORDERS = (
    b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
#: The answer about a topic that may be described, and does not exist.
ALLOWED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
VALID: dict[str, Any] = {
    "resource_type": AclResource.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": AclPattern.LITERAL,
    "principal": ALICE,
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
}


def secured(first: ZooKeeperBroker | None = None, **properties: str) -> ZooKeeperBroker:
    """Starts a broker with an authorizer, in the cluster of another one if there is one."""
    chosen = {"authorizer_class_name": ACL_AUTHORIZER, "super_users": f"{ADMIN};User:ANONYMOUS", **properties}
    if first is None:
        return ZooKeeperBroker(None, None, **chosen).start()
    second = {"broker_id": "2", "listeners": "PLAINTEXT://localhost:9094", **chosen}
    broker = ZooKeeperBroker(first.tree, None, **second).start()
    broker.settle(6_000)
    first.settle()
    return broker


@pytest.fixture
def alone() -> ZooKeeperBroker:
    return secured()


def connect(broker: ZooKeeperBroker, principal: str = ADMIN) -> ZooKeeperBrokerClient:
    client = broker.connect()
    client.core.principal = principal
    return client


def creations(*chosen: dict[str, Any]) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**VALID | each) for each in chosen])


def create(client: WiredClient, *chosen: dict[str, Any]) -> list[tuple[int, str | None]]:
    response = client.call(creations(*chosen), 3, CreateAclsResponse)
    return [(row.error_code, row.error_message) for row in response.results]


def delete(client: WiredClient, *chosen: dict[str, Any]) -> list[list[tuple[str, int, int]]]:
    """Returns (name, operation, error) of the rules that each filter removed."""
    filters = [DeleteAclsRequest.DeleteAclsFilter(**EVERY_RULE | each) for each in chosen]
    response = client.call(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
    assert [row.error_code for row in response.filter_results] == [0] * len(chosen)
    return [
        sorted((rule.resource_name, rule.operation, rule.error_code) for rule in row.matching_acls)
        for row in response.filter_results
    ]


def described(broker: ZooKeeperBroker) -> set[tuple[str, int, str, int, int]]:
    response = connect(broker).call(DescribeAclsRequest(**EVERY_RULE), 3, DescribeAclsResponse)
    return {
        (each.resource_name, each.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for each in response.resources
        for acl in each.acls
    }


def seen(broker: ZooKeeperBroker, topic: str = "orders", principal: str = ALICE) -> int:
    """Returns the error of a topic that a principal describes."""
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    (row,) = connect(broker, principal).call(request, 9, MetadataResponse).topics
    return row.error_code


def data(broker: ZooKeeperBroker, path: str = ORDERS) -> tuple[bytes | None, int] | None:
    return broker.tree.content(path)


def notifications(broker: ZooKeeperBroker, folder: str = "/kafka-acl-changes") -> list[tuple[str, bytes | None]]:
    found = []
    for name in sorted(broker.tree.names(folder)):
        znode = broker.tree.content(f"{folder}/{name}")
        assert znode is not None
        found.append((name, znode.data))
    return found


def test_the_client_of_zookeeper_decides_who_can_change_the_znodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a write without an ACL gets the one that `zookeeper.set.acl` asks for."""
    broker = secured()
    written: list[CreateRequest] = []
    multi = broker.session.store.multi

    def noted(parts: Sequence[Part], answered: Callable[[MultiReply], None]) -> None:
        written.extend(part.record for part in parts if isinstance(part.record, CreateRequest))
        multi(parts, answered)

    monkeypatch.setattr(broker.session.store, "multi", noted)
    create(connect(broker), {})
    assert [(each.path.rpartition("/")[0], each.acl) for each in written] == [
        ("/kafka-acl/Topic", None),
        ("/kafka-acl-changes", None),
    ]


def test_a_rule_is_written_acts_and_is_removed(alone: ZooKeeperBroker) -> None:
    client = connect(alone)
    assert seen(alone) == DENIED
    assert create(client, {}) == [(0, "")]
    assert seen(alone) == ALLOWED
    assert data(alone) == (READ_ORDERS, 0)
    assert described(alone) == {("orders", 3, ALICE, 3, 3)}
    assert create(client, {"operation": AclOperation.WRITE}, {}) == [(0, ""), (0, "")]
    assert delete(client, {"operation": AclOperation.READ}) == [[("orders", 3, 0)]]
    assert data(alone) == (READ_ORDERS.replace(b"Read", b"Write"), 2)
    assert seen(alone) == ALLOWED
    assert delete(client, {}) == [[("orders", 4, 0)]]
    assert data(alone) is None
    assert (seen(alone), described(alone)) == (DENIED, set())
    names = [f"acl_changes_{number:010d}" for number in range(4)]
    assert notifications(alone) == [(name, b"TOPIC:orders") for name in names]


def test_the_parents_are_those_of_kafka(alone: ZooKeeperBroker) -> None:
    types = {"Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"}
    assert set(alone.tree.names("/kafka-acl")) == set(alone.tree.names("/kafka-acl-extended/prefixed")) == types
    assert data(alone, "/kafka-acl-changes") == data(alone, "/kafka-acl-extended-changes") == (None, 0)


def test_rules_of_prefixes_have_znodes_and_notifications_of_their_own(alone: ZooKeeperBroker) -> None:
    client = connect(alone)
    prefixed = {"resource_name": "ord", "resource_pattern_type": AclPattern.PREFIXED}
    assert create(client, prefixed, {**prefixed, "resource_type": AclResource.GROUP}) == [(0, "")] * 2
    assert data(alone, "/kafka-acl-extended/prefixed/Topic/ord") == (READ_ORDERS, 0)
    assert data(alone, "/kafka-acl-extended/prefixed/Group/ord") == (READ_ORDERS, 0)
    shown = b'{"version":1,"resourceType":"%s","name":"ord","patternType":"PREFIXED"}'
    assert notifications(alone, "/kafka-acl-extended-changes") == [
        ("acl_changes_0000000000", shown % b"TOPIC"),
        ("acl_changes_0000000001", shown % b"GROUP"),
    ]
    assert (seen(alone), seen(alone, "other")) == (ALLOWED, DENIED)


def test_brokers_follow_rules_of_prefixes(alone: ZooKeeperBroker) -> None:
    other = secured(alone)
    prefixed = {"resource_name": "ord", "resource_pattern_type": AclPattern.PREFIXED}
    create(connect(alone), prefixed)
    other.settle()
    assert seen(other) == ALLOWED
    delete(connect(alone), {"pattern_type_filter": AclPattern.PREFIXED})
    other.settle()
    assert seen(other) == DENIED


def test_what_exists_is_not_written_again(alone: ZooKeeperBroker) -> None:
    client = connect(alone)
    assert create(client, {}, {}) == create(client, {}, {}) == [(0, "")] * 2
    assert data(alone) == (READ_ORDERS, 0)
    assert delete(client, {"principal_filter": "User:bob"}) == [[]]
    assert len(notifications(alone)) == 1


def test_a_rule_belongs_to_the_first_filter_that_matches_it(alone: ZooKeeperBroker) -> None:
    create(connect(alone), {}, {"operation": AclOperation.WRITE})
    assert delete(connect(alone), {"operation": AclOperation.WRITE}, {}, {}) == [
        [("orders", 4, 0)],
        [("orders", 3, 0)],
        [],
    ]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"resource_name": "a/b"}, "Failed to create ACL: the resource name a/b has a slash"),
    ({"operation": 15}, "Failed to create ACL: ZooKeeper mode has no operation TWO_PHASE_COMMIT"),
    ({"resource_name": ""}, "Invalid empty resource name"),
    ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    ({"operation": 1}, "Invalid operation ANY"),
]


def test_a_rule_that_cannot_be_is_refused_alone(alone: ZooKeeperBroker) -> None:
    rows = create(connect(alone), *[wrong for wrong, _ in REFUSED], {})
    assert rows == [*((ErrorCode.INVALID_REQUEST, text) for _, text in REFUSED), (0, "")]
    assert described(alone) == {("orders", 3, ALICE, 3, 3)}


def test_clients_without_the_right_change_nothing(alone: ZooKeeperBroker) -> None:
    client = connect(alone, ALICE)
    assert create(client, {})[0][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = client.call(
        DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**EVERY_RULE)]), 3, DeleteAclsResponse
    )
    assert [row.error_code for row in response.filter_results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert notifications(alone) == []


def test_a_resource_that_zookeeper_refuses_does_not_affect_the_others(alone: ZooKeeperBroker) -> None:
    long = [{"resource_name": "large", "host": f"{number}-{'x' * 30_000}"} for number in range(40)]
    rows = create(connect(alone), *long, {})
    text = "ZooKeeper refused the change of /kafka-acl/Topic/large: MARSHALLING_ERROR"
    assert rows == [*[(ErrorCode.UNKNOWN_SERVER_ERROR, text)] * 40, (0, "")]
    assert described(alone) == {("orders", 3, ALICE, 3, 3)}


def test_without_an_authorizer_there_are_no_rules() -> None:
    broker = ZooKeeperBroker().start()
    assert create(broker.connect(), {}) == [(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)]
    assert data(broker, "/kafka-acl") is None


# -- several brokers


def test_a_rule_of_one_broker_acts_on_the_other(alone: ZooKeeperBroker) -> None:
    """The rules that exist when a broker starts, and those that come later; any broker changes them."""
    create(connect(alone), {})
    other = secured(alone)
    assert seen(other) == ALLOWED
    assert not other.broker.side.controller.is_active
    denying = {"permission_type": AclPermission.DENY, "principal": "User:*", "operation": AclOperation.ALL}
    create(connect(other), denying)
    assert seen(other) == DENIED
    alone.settle()
    assert seen(alone) == DENIED
    delete(connect(alone), {"permission_type": AclPermission.DENY})
    other.settle()
    assert (seen(alone), seen(other)) == (ALLOWED, ALLOWED)


@pytest.mark.parametrize("exists", [False, True])
def test_two_brokers_change_one_resource_at_once(alone: ZooKeeperBroker, exists: bool) -> None:
    """Both have read the znode before either writes: the second write is made again on what the first one wrote."""
    other = secured(alone)
    if exists:
        create(connect(alone), {"operation": AclOperation.ALTER})
        other.settle()
    clients = connect(alone), connect(other)
    clients[0].send(creations({}), 3)
    clients[1].send(creations({"operation": AclOperation.WRITE}), 3)
    for broker in (alone, other, alone, other):
        broker.store.answer(1)
    assert not clients[1].received()
    for client, broker in zip(clients, (alone, other), strict=True):
        broker.settle()
        ((_, answer),) = client.received()
        assert isinstance(answer, CreateAclsResponse)
        assert [row.error_code for row in answer.results] == [0]
    alone.settle()
    expected = {("orders", 3, ALICE, each, 3) for each in (3, 4, *([7] if exists else []))}
    assert described(alone) == described(other) == expected
    assert len(notifications(alone)) == (3 if exists else 2)


@pytest.mark.parametrize("is_removed_first", [True, False])
def test_the_last_rule_is_removed_while_another_broker_adds_one(alone: ZooKeeperBroker, is_removed_first: bool) -> None:
    other = secured(alone)
    create(connect(alone), {})
    other.settle()
    alone.settle()
    adding, removing = connect(alone), connect(other)
    adding.send(creations({"operation": AclOperation.WRITE}), 3)
    only = EVERY_RULE | {"operation": AclOperation.READ}
    removing.send(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**only)]), 3)
    for broker in (alone, other):
        broker.store.answer(1)  # the read
    (other if is_removed_first else alone).store.answer(1)  # the write
    assert (data(alone) is None) == is_removed_first
    for _ in range(2):
        alone.settle()
        other.settle()
    assert described(alone) == described(other) == {("orders", 3, ALICE, 4, 3)}


def test_the_answer_waits_for_the_own_image_only(alone: ZooKeeperBroker) -> None:
    client = connect(alone)
    client.send(creations({}), 3)
    alone.store.answer(1)
    assert not client.received()
    alone.store.answer(1)
    assert client.received()
    assert described_without_waiting(alone) == {("orders", 3, ALICE, 3, 3)}


def test_a_filter_that_names_a_resource_removes_what_this_broker_has_not_seen(alone: ZooKeeperBroker) -> None:
    other = secured(alone)
    create(connect(alone), {})
    assert ("orders", 3, ALICE, 3, 3) not in described_without_waiting(other)
    named = {"resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 3}
    assert delete(connect(other), named) == [[("orders", 3, 0)]]
    assert data(alone) is None


def described_without_waiting(broker: ZooKeeperBroker) -> set[tuple[str, int, str, int, int]]:
    rules = broker.broker.metadata.image.security.acl_ids
    return {(rule.resource_name, rule.pattern_type, rule.principal, rule.operation, rule.permission) for rule in rules}


def test_requests_at_one_broker_do_not_overtake_each_other(alone: ZooKeeperBroker) -> None:
    clients = [connect(alone) for _ in range(30)]
    for number, client in enumerate(clients):
        client.send(creations({"host": f"10.0.0.{number}"}), 3)
    alone.settle(50)
    for client in clients:
        ((_, answer),) = client.received()
        assert isinstance(answer, CreateAclsResponse)
        assert [row.error_code for row in answer.results] == [0]
    znode = data(alone)
    assert znode is not None
    assert znode[1] == 29


def test_a_broker_that_is_always_overtaken_gives_up(alone: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, attempts = alone.tree.apply, 0

    def overtaken(parts: Sequence[Part], session_id: int) -> MultiReply:
        nonlocal attempts
        if session_id and parts[0].type == OpCode.SET_DATA:
            attempts += 1
            other = READ_ORDERS.replace(b'"*"', b'"10.0.0.%d"' % attempts)
            apply([Part(OpCode.SET_DATA, SetDataRequest(ORDERS, other, ANY_VERSION))], 0)
        return apply(parts, session_id)

    client = connect(alone)
    create(client, {})
    monkeypatch.setattr(alone.tree, "apply", overtaken)
    text = f"Failed to update ACLs in {ORDERS} after trying a maximum of 10 times"
    assert create(client, {"operation": AclOperation.WRITE}) == [(ErrorCode.UNKNOWN_SERVER_ERROR, text)]
    assert attempts == 11
    assert len(notifications(alone)) == 1
    monkeypatch.undo()
    assert create(client, {"operation": AclOperation.WRITE}) == [(0, "")]


# -- connections and sessions


@pytest.mark.parametrize("happened", [0, 1])
def test_a_write_without_an_answer_is_made_once_and_notified(alone: ZooKeeperBroker, happened: int) -> None:
    client = connect(alone)
    client.send(creations({}), 3)
    alone.store.answer(1)  # the read
    alone.store.disconnect(happened)
    assert not client.received()
    alone.store.reconnect()
    alone.settle()
    ((_, answer),) = client.received()
    assert isinstance(answer, CreateAclsResponse)
    assert [row.error_code for row in answer.results] == [0]
    assert data(alone) == (READ_ORDERS, 0)
    assert notifications(alone) == [("acl_changes_0000000000", b"TOPIC:orders")]


def test_a_new_session_finds_what_was_changed_meanwhile(alone: ZooKeeperBroker) -> None:
    create(connect(alone), {}, {"resource_name": "old"})
    alone.store.expire()
    alone.tree.delete("/kafka-acl/Topic/old")
    alone.tree.set("/kafka-acl/Topic/new", READ_ORDERS)
    alone.settle(6_000)
    assert described(alone) == {("orders", 3, ALICE, 3, 3), ("new", 3, ALICE, 3, 3)}


def test_many_rules_are_read_in_windows_over_lost_connections(alone: ZooKeeperBroker) -> None:
    for number in range(250):
        alone.tree.set(f"/kafka-acl/Topic/t{number}", READ_ORDERS)
    alone.tree.set(ORDERS, b"{")
    alone.store.expire()
    while alone.store.waiting < 100:
        alone.store.answer(1)
    alone.store.answer(60)
    alone.store.disconnect()
    alone.settle()
    assert len(described_without_waiting(alone)) == 59  # `orders` is read again when the others are known
    alone.store.reconnect()
    alone.settle()
    assert len(described_without_waiting(alone)) == 251
    assert ("orders", 3, "User:*", AclOperation.ALL, AclPermission.DENY) in described_without_waiting(alone)


def test_a_notification_is_processed_once(alone: ZooKeeperBroker) -> None:
    create(connect(alone), {})
    alone.settle()
    alone.tree.set(ORDERS, READ_ORDERS.replace(b"Read", b"Write"))  # without a notification
    create(connect(alone), {"resource_name": "new"})
    alone.settle()
    assert described(alone) == {("orders", 3, ALICE, 3, 3), ("new", 3, ALICE, 3, 3)}


def test_parents_that_an_operator_deleted_are_made_again(alone: ZooKeeperBroker) -> None:
    for path in ("/kafka-acl-changes", "/kafka-acl/Topic"):
        alone.tree.delete(path)
    assert create(connect(alone), {}) == [(0, "")]
    assert data(alone) == (READ_ORDERS, 0)


def test_the_first_image_of_a_broker_has_the_rules(alone: ZooKeeperBroker) -> None:
    """The authorizer applies its default from then on."""
    create(connect(alone), {}, {"resource_name": "new"})
    alone.tree.set("/config/brokers/<default>", encode_config({"log.cleaner.threads": "1"}))
    other = ZooKeeperBroker(
        alone.tree, broker_id="2", listeners="PLAINTEXT://localhost:9094", authorizer_class_name=ACL_AUTHORIZER
    )
    assert other.broker.authorizer is not None
    found: list[tuple[bool, int]] = []
    other.broker.metadata.subscribe(lambda delta, image: found.append((bool(image.configs), len(image.security.acls))))
    other.start()
    assert found[0] == (False, 2)
    assert (True, 2) in found


def test_notifications_end_after_fifteen_minutes(alone: ZooKeeperBroker) -> None:
    create(connect(alone), {})
    alone.host.time.run_for(15 * 60_000 - 1_000)
    alone.tree.wall_ms = alone.host.clock.wall_ms()
    create(connect(alone), {"resource_name": "new"})
    alone.settle()
    assert len(notifications(alone)) == 2
    create(connect(alone), {"resource_name": "newer"})
    alone.tree.wall_ms -= 15 * 60_000 + 1
    alone.tree.set("/kafka-acl-changes/acl_changes_0000000007", b"TOPIC:orders")
    alone.settle()
    assert notifications(alone) == []


# -- znodes that are not what they should be


@pytest.fixture(params=[b"{", b'{"version":2,"acls":[]}', READ_ORDERS.replace(b"Read", b"Look")])
def broken(request: pytest.FixtureRequest) -> bytes:
    return bytes(request.param)


@pytest.mark.parametrize("default", ["false", "true"])
def test_a_broken_znode_denies_everything_on_its_resource_alone(broken: bytes, default: str) -> None:
    """The rules in it could deny; a resource without any rule would be open to everybody."""
    first = secured(allow_everyone_if_no_acl_found=default)
    assert seen(first) == (ALLOWED if default == "true" else DENIED)
    first.tree.set(ORDERS, broken)
    first.tree.set("/kafka-acl/Topic/payments", READ_ORDERS)
    other = secured(first, allow_everyone_if_no_acl_found=default)
    assert (seen(other), seen(other, principal=ADMIN), seen(other, "payments")) == (DENIED, ALLOWED, ALLOWED)
    assert seen(other, "other") == (ALLOWED if default == "true" else DENIED)
    text = f"The ACLs in {ORDERS} cannot be read; see the log of the broker."
    assert create(connect(other), {}, {"resource_name": "payments"}) == [
        (ErrorCode.UNKNOWN_SERVER_ERROR, text),
        (0, ""),
    ]
    assert any(f"znode {ORDERS}" in line for line, _ in other.host.faults.reported)
    other.tree.set(ORDERS, READ_ORDERS)  # without a notification
    other.settle()
    assert seen(other) == ALLOWED
    assert described(other) == {(name, 3, ALICE, 3, 3) for name in ("orders", "payments")}


def test_the_last_rules_stay_in_force_while_a_znode_is_broken(alone: ZooKeeperBroker, broken: bytes) -> None:
    create(connect(alone), {})
    alone.tree.set(ORDERS, broken)
    alone.tree.set("/kafka-acl-changes/acl_changes_0000000005", b"TOPIC:orders")
    alone.settle()
    assert (seen(alone), described(alone)) == (ALLOWED, {("orders", 3, ALICE, 3, 3)})
    alone.tree.delete(ORDERS)
    alone.settle()
    assert seen(alone) == DENIED


@pytest.mark.parametrize("content", [b"orders", b"PLANET:mars", b"TOPIC:", b"TOPIC:a/b", b"\xff", None])
def test_a_broken_notification_does_not_hide_the_next_one(alone: ZooKeeperBroker, content: bytes | None) -> None:
    alone.tree.set("/kafka-acl-changes/acl_changes_0000000004", content)
    alone.settle()
    assert alone.host.faults.reported
    alone.tree.set(ORDERS, READ_ORDERS)
    alone.tree.set("/kafka-acl-changes/acl_changes_0000000005", b"TOPIC:orders")
    alone.settle()
    assert seen(alone) == ALLOWED


# -- brokers are clients of each other


def test_a_rule_is_enough_for_the_controller(alone: ZooKeeperBroker) -> None:
    """Rules are read before the registration, so that brokers need not be super users."""
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=0, broker_epoch=0)
    client = connect(alone, "User:broker")
    refused = client.call(request, 8, UpdateMetadataResponse).error_code
    assert refused == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster = {"resource_type": AclResource.CLUSTER, "resource_name": "kafka-cluster", "principal": "User:broker"}
    create(connect(alone), {**cluster, "operation": AclOperation.CLUSTER_ACTION})
    assert client.call(request, 8, UpdateMetadataResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_the_authorizer_is_ready_without_any_rule_and_before_the_controller_speaks() -> None:
    broker = secured(allow_everyone_if_no_acl_found="true")
    other = ZooKeeperBroker(
        broker.tree,
        broker_id="2",
        listeners="PLAINTEXT://localhost:9094",
        authorizer_class_name=ACL_AUTHORIZER,
        allow_everyone_if_no_acl_found="true",
    ).start()
    assert other.broker.authorizer is not None
    assert other.broker.authorizer.is_ready
    assert not other.opened


def test_the_log_has_the_lines_of_kafkas_authorizer(alone: ZooKeeperBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "kafka.authorizer.logger"):
        assert create(connect(alone, ALICE), {})[0][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert caplog.messages == [
        "Principal = User:alice is Denied Operation = Alter from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = CreateAcls with resourceRefCount = 1"
    ]


def test_the_metrics_name_the_class(alone: ZooKeeperBroker) -> None:
    create(connect(alone), {}, {"operation": AclOperation.WRITE})
    found = {family.name: family.samples for family in authorizations.collect(alone.broker)}
    (sample,) = found["kafka_server_plugins_acls_total_count"]
    labels = (("config", "authorizer.class.name"), ("class", "AclAuthorizer"), ("role", "broker"))
    assert (sample.labels, sample.value) == (labels, 2.0)


def test_changes_are_multis_of_the_acls_and_the_notification(alone: ZooKeeperBroker) -> None:
    client = connect(alone)
    alone.store.log.clear()
    create(client, {})
    create(client, {"operation": AclOperation.WRITE})
    delete(client, {})
    note = (OpCode.CREATE, "/kafka-acl-changes/acl_changes_")
    assert alone.store.log == [[(code, ORDERS), note] for code in (OpCode.CREATE, OpCode.SET_DATA, OpCode.DELETE)]
