"""Rights where they could be forgotten: forged replicas, fetch sessions, waiting fetches, the produce shortcut,
envelopes, groups, hidden topics. A right that was revoked is dead with the image that revokes it.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.support.metrics import Metrics, scraped
from tests.support.secured import ADMIN, ALICE, SecuredBroker
from tests.support.wired import WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce, topic_id

from barnabas.broker.audit_log import DENIED_MAX
from barnabas.broker.authorizer import Authorizer
from barnabas.broker.requests.forwarding import encode_principal, packed_address
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, Decision
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

TOPIC, CLUSTER, GROUP = AclResource.TOPIC, AclResource.CLUSTER, AclResource.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def secured() -> SecuredBroker:
    secured = SecuredBroker()
    secured.create_topic("orders")
    return secured


def fetched(client: WiredClient, request: FetchRequest, version: int = 12) -> tuple[int, bytes]:
    """Returns error code and records of the only partition."""
    response = client.call(request, version, FetchResponse)
    assert response.error_code == 0
    row = response.responses[0].partitions[0]
    return row.error_code, bytes(row.records or b"")


class _Alice:
    """The origin of a question without a connection."""

    api_key = 0
    principal = ALICE
    client_host = "/10.0.0.1"


# -- the places that keep an answer


def test_shortcut_of_a_producer_ends_with_its_right(secured: SecuredBroker) -> None:
    """Guard S10."""
    secured.allow(WRITE, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    assert [produce(secured, client, batch_of(b"x"), acks=1)[0] for _ in range(3)] == [0, 0, 0]
    assert client.core.shortcut is not None
    secured.remove_rules(ALICE)
    assert produce(secured, client, batch_of(b"x"), acks=1) == (TOPIC_REFUSED, -1)
    log = secured.broker.replicas.leader("orders", 0).log
    assert log.log_end_offset == 3


def test_shortcut_lives_on_under_the_same_rules(secured: SecuredBroker) -> None:
    secured.allow(WRITE, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    produce(secured, client, batch_of(b"x"), acks=1)
    shortcut: Any = client.core.shortcut
    produce(secured, client, batch_of(b"x"), acks=1)
    assert client.core.shortcut is shortcut


@pytest.mark.parametrize("version", [12, 16])
def test_fetch_session_reports_a_revoked_right_and_a_granted_one(secured: SecuredBroker, version: int) -> None:
    """Guard S10: the session's partitions are judged again when a rule changes, named by the request or not."""
    secured.allow(READ, TOPIC, "orders")
    produce(secured, secured.connect(), batch_of(b"x"))
    client = secured.connect_as(ALICE)
    opened = client.call(fetch_request(secured, 1, version, session_epoch=0), version, FetchResponse)
    assert opened.session_id != 0
    secured.remove_rules(ALICE)
    produce(secured, secured.connect(), batch_of(b"secret"))
    follow_up = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1)
    assert fetched(client, follow_up, version) == (TOPIC_REFUSED, b"")
    secured.allow(READ, TOPIC, "orders")
    follow_up.session_epoch = 2
    code, records = fetched(client, follow_up, version)
    assert code == 0
    assert b"secret" in records


def test_another_principal_cannot_use_a_session(secured: SecuredBroker) -> None:
    secured.allow(READ, TOPIC, "orders")
    opened = secured.connect_as(ALICE).call(fetch_request(secured, 0, 12, session_epoch=0), 12, FetchResponse)
    produce(secured, secured.connect(), batch_of(b"secret"))
    follow_up = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=1)
    assert fetched(secured.connect_as("User:mallory"), follow_up) == (TOPIC_REFUSED, b"")


def test_a_fetch_that_waits_gets_nothing_after_its_right_ended(secured: SecuredBroker) -> None:
    """Guard S10; Kafka checks at the beginning of the wait only."""
    secured.allow(READ, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    client.send(fetch_request(secured, 0, 12, max_wait_ms=2_000), 12)
    secured.host.time.run_for(50)
    assert client.received() == []
    secured.remove_rules(ALICE)
    produce(secured, secured.connect(), batch_of(b"secret"))
    secured.host.time.run_for(50)
    ((_, response),) = client.received()
    assert isinstance(response, FetchResponse)
    row = response.responses[0].partitions[0]
    assert (row.error_code, row.records) == (TOPIC_REFUSED, b"")


def test_at_most_5_000_answers_are_kept_because_a_change_frees_all_of_them_at_once(secured: SecuredBroker) -> None:
    """A change took 2 ms, in which nobody was served, while 20,000 decisions were cached."""
    decided: list[str] = []

    class Counted(Authorizer):
        def decide(
            self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
        ) -> Decision:
            decided.append(name)
            return super().decide(principal, host, operation, resource, name)

    authorizer = Counted(secured.broker.config, secured.host.clock)
    names = [f"topic-{number}" for number in range(5_001)]

    def ask(asked: list[str]) -> list[str]:
        """Returns those names that were not cached."""
        decided.clear()
        authorizer.allowed_names(_Alice(), READ, TOPIC, asked, log_denied=False)
        return decided.copy()

    assert ask(names[:5_000]) == names[:5_000]
    assert ask(names[:5_000]) == []
    assert ask(names[5_000:]) == names[5_000:]
    assert ask(names[:2]) == names[:2], "the first 5,000 are gone"


def test_cached_answers_are_dropped_with_the_rules(secured: SecuredBroker) -> None:
    """Guard S10."""
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    client = secured.connect_as(ALICE)
    for _ in range(3):
        assert produce(secured, client, batch_of(b"x"))[0] == TOPIC_REFUSED
        secured.allow(WRITE, TOPIC, "orders")
        assert produce(secured, client, batch_of(b"x"))[0] == 0
        secured.add_rule(WRITE, TOPIC, "ord", permission=AclPermission.DENY, pattern=AclPattern.PREFIXED)
        assert produce(secured, client, batch_of(b"x"))[0] == TOPIC_REFUSED
        assert secured.remove_rules(ALICE) == 2


# -- forged replicas


@pytest.mark.parametrize("version", [11, 12, 15, 17])
@pytest.mark.parametrize("replica_id", [0, 1, 7])
def test_a_reader_cannot_fetch_in_the_name_of_a_replica(secured: SecuredBroker, version: int, replica_id: int) -> None:
    """Guard S1 (CVE-2018-1288)."""
    secured.allow(READ, TOPIC, "orders")
    produce(secured, secured.connect(), batch_of(b"x"))
    partition = secured.broker.replicas.leader("orders", 0)
    assert partition.leadership is not None
    before = (partition.high_watermark, partition.leadership.isr)
    request = fetch_request(secured, 1, version)
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica_id)
    else:
        request.replica_id = replica_id
    assert fetched(secured.connect_as(ALICE), request, version) == (TOPIC_REFUSED, b"")
    assert (partition.high_watermark, partition.leadership.isr) == before


def test_a_reader_cannot_look_up_offsets_in_the_name_of_a_replica(secured: SecuredBroker) -> None:
    """Guard S1: a replica sees the end of the log, a reader the HW."""
    secured.allow(DESCRIBE, TOPIC, "orders")
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[partition])
    client = secured.connect_as(ALICE)
    codes = []
    for replica_id in (-1, 2):
        response = client.call(ListOffsetsRequest(replica_id=replica_id, topics=[topic]), 7, ListOffsetsResponse)
        codes.append(response.topics[0].partitions[0].error_code)
    assert codes == [0, TOPIC_REFUSED]


# -- envelopes


def creation(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def envelope(request: Message, version: int, principal: str, host: str = "/10.0.0.9") -> EnvelopeRequest:
    key = type(request).API_KEY
    assert key is not None
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=5, client_id="c")
    frame = codec.encode(header, request_header_version(key, version))
    codec.encode_into(request, version, frame)
    return EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=encode_principal(principal),
        client_host_address=packed_address(host),
    )


def enveloped(secured: SecuredBroker, sender: str, request: EnvelopeRequest) -> EnvelopeResponse:
    return secured.connect_as(sender, listener="CONTROLLER").call(request, 0, EnvelopeResponse)


def created_code(response: EnvelopeResponse) -> int:
    assert response.error_code == 0
    assert response.response_data is not None
    found, _ = codec.decode(CreateTopicsResponse, 7, response.response_data, 5)
    return int(found.topics[0].error_code)


@pytest.mark.parametrize("sender", [ALICE, "User:other-broker"])
def test_an_envelope_needs_cluster_action(secured: SecuredBroker, sender: str) -> None:
    """Guard S14: nobody acts as the administrator by saying so."""
    assert enveloped(secured, sender, envelope(creation("new"), 7, ADMIN)).error_code == CLUSTER_REFUSED
    assert "new" not in secured.broker.metadata.image.topics_by_name


def test_the_request_in_an_envelope_is_judged_with_its_own_principal_and_host(secured: SecuredBroker) -> None:
    """Guard S14: the broker's rights do not become those of its client."""
    secured.add_rule(AclOperation.CREATE, CLUSTER, "kafka-cluster", host="10.0.0.9")
    codes = [
        created_code(enveloped(secured, "User:broker", envelope(creation(f"t{place}"), 7, principal, host)))
        for place, (principal, host) in enumerate(
            [(ALICE, "/10.0.0.9"), (ALICE, "/10.0.0.8"), ("User:bob", "/10.0.0.9")]
        )
    ]
    assert codes == [0, TOPIC_REFUSED, TOPIC_REFUSED]


def test_an_envelope_holds_only_apis_that_brokers_forward(secured: SecuredBroker) -> None:
    """Guard S14."""
    for request, version in ((MetadataRequest(), 12), (DescribeGroupsRequest(groups=["g"]), 5)):
        response = enveloped(secured, "User:broker", envelope(request, version, ALICE))
        assert response.error_code == ErrorCode.INVALID_REQUEST


def test_forwarded_requests_are_judged_at_the_controller(secured: SecuredBroker) -> None:
    client = secured.connect_as(ALICE)
    answer = client.call(creation("new"), 7, CreateTopicsResponse).topics[0]
    assert (answer.error_code, answer.error_message) == (TOPIC_REFUSED, "Authorization failed.")
    secured.add_rule(AclOperation.CREATE, TOPIC, "ne", pattern=AclPattern.PREFIXED)
    answer = client.call(creation("new"), 7, CreateTopicsResponse).topics[0]
    assert (answer.error_code, answer.topic_config_error_code, answer.configs) == (0, TOPIC_REFUSED, [])


# -- what stays hidden


def test_a_hidden_topic_and_a_missing_one_look_the_same(secured: SecuredBroker) -> None:
    """Guard S18: by name, a client without DESCRIBE gets the same bytes whether the topic exists or not."""
    client = secured.connect_as(ALICE)

    def rows(name: str) -> list[Any]:
        metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        pages = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name)])
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)])
        offsets = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=3)]
                )
            ],
        )
        found: list[Any] = [
            client.call(metadata, 12, MetadataResponse).topics[0],
            client.call(pages, 0, DescribeTopicPartitionsResponse).topics[0],
            client.call(deletion, 6, DeleteTopicsResponse).responses[0],
            client.call(offsets, 7, ListOffsetsResponse).topics[0],
        ]
        for row in found:
            row.name = ""
        return [repr(codec_dump(row)) for row in found]

    assert rows("orders") == rows("absent")


def codec_dump(struct: Any) -> Any:
    """Returns a struct as plain values."""
    if isinstance(struct, list):
        return [codec_dump(each) for each in struct]
    fields = getattr(struct, "FIELDS", None)
    return (
        struct if fields is None else {each.attribute: codec_dump(getattr(struct, each.attribute)) for each in fields}
    )


def test_lists_leave_out_what_may_not_be_described(secured: SecuredBroker) -> None:
    secured.create_topic("payments")
    client = secured.connect_as(ALICE)
    assert client.call(MetadataRequest(topics=None), 12, MetadataResponse).topics == []
    secured.allow(DESCRIBE, TOPIC, "orders")
    assert [row.name for row in client.call(MetadataRequest(topics=None), 12, MetadataResponse).topics] == ["orders"]
    pages = client.call(DescribeTopicPartitionsRequest(), 0, DescribeTopicPartitionsResponse)
    assert [row.name for row in pages.topics] == ["orders"]


def test_names_behind_ids_stay_hidden(secured: SecuredBroker) -> None:
    """Guard S18."""
    known = topic_id(secured, "orders")
    client = secured.connect_as(ALICE)
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=known, name=None)])
    row = client.call(metadata, 12, MetadataResponse).topics[0]
    assert (row.error_code, row.name, row.topic_id, row.partitions) == (TOPIC_REFUSED, None, known, [])
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=known)])
    deleted = client.call(deletion, 6, DeleteTopicsResponse).responses[0]
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (TOPIC_REFUSED, None, known)
    secured.allow(DESCRIBE, TOPIC, "orders")
    deleted = client.call(deletion, 6, DeleteTopicsResponse).responses[0]
    assert (deleted.error_code, deleted.name) == (TOPIC_REFUSED, "orders")


def test_authorized_operations_are_those_of_the_client(secured: SecuredBroker) -> None:
    """KIP-430: DESCRIBE is implied by READ."""
    secured.allow(READ, TOPIC, "orders")
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="orders")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = secured.connect_as(ALICE).call(request, 9, MetadataResponse)
    assert response.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
    assert response.cluster_authorized_operations == 0
    secured.allow(DESCRIBE, CLUSTER, "kafka-cluster")
    response = secured.connect_as(ALICE).call(request, 9, MetadataResponse)
    assert response.cluster_authorized_operations == 1 << DESCRIBE
    secured.allow(DESCRIBE, GROUP, "g")
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    group = secured.connect_as(ALICE).call(groups, 5, DescribeGroupsResponse).groups[0]
    assert group.authorized_operations in (1 << DESCRIBE, -(1 << 31))  # the coordinator has loaded, or not yet


def test_allowed_rows_are_served_next_to_refused_ones(secured: SecuredBroker) -> None:
    secured.create_topic("payments")
    secured.allow(DESCRIBE, TOPIC, "orders")
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        for name in ("payments", "orders")
    ]
    response = secured.connect_as(ALICE).call(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse)
    found = {topic.name: (topic.partitions[0].error_code, topic.partitions[0].offset) for topic in response.topics}
    assert found == {"orders": (0, 0), "payments": (TOPIC_REFUSED, -1)}


# -- before the rules are known


def test_nobody_is_allowed_by_default_before_the_rules_are_known() -> None:
    """Guard S21: with allow.everyone.if.no.acl.found, a node that starts does not know yet which resources have rules.
    Kafka's authorizer is not ready then, either; super users may do everything."""
    secured = SecuredBroker(allow_everyone_if_no_acl_found="true")
    authorizer = Authorizer(secured.broker.config, secured.host.clock)

    def may(principal: str, name: str) -> bool:
        return authorizer.decide(principal, "10.0.0.1", READ, TOPIC, name).allowed

    assert [may(ADMIN, "orders"), may(ALICE, "orders"), may(ALICE, "other")] == [True, False, False]
    secured.add_rule(READ, TOPIC, "orders", "User:bob")
    image = secured.broker.metadata.image
    authorizer.on_image(MetadataDelta.between(EMPTY_IMAGE, image), EMPTY_IMAGE)
    assert [may("User:bob", "orders"), may(ALICE, "orders"), may(ALICE, "other")] == [True, False, True]
    client = secured.connect_as(ALICE)
    secured.create_topic("other")
    assert client.call(MetadataRequest(topics=None), 12, MetadataResponse).topics[0].name == "other"


def test_a_controller_that_does_not_know_the_rules_yet_serves_super_users_alone() -> None:
    """Guard S21: clients see Kafka's AuthorizerNotReadyException as UNKNOWN_SERVER_ERROR, which is no refusal for
    good."""
    secured = SecuredBroker(allow_everyone_if_no_acl_found="true")
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    request = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)

    def code(principal: str) -> int:
        client = secured.connect_as(principal, listener="CONTROLLER")
        return client.call(request, 3, DescribeAclsResponse).error_code

    authorizer.is_ready = False
    assert [code(ADMIN), code(ALICE)] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
    open_to_all = secured.connect_as(ALICE, listener="CONTROLLER").call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert open_to_all.error_code == 0
    authorizer.is_ready = True
    assert code(ALICE) == 0


# -- what is counted and logged


def test_metrics_of_the_authorizer(secured: SecuredBroker) -> None:
    """KIP-877: the names and labels are those of Kafka's StandardAuthorizer."""
    client = secured.connect_as(ALICE)
    scraped(secured.broker)
    secured.host.time.run_for(60_000)
    scraped(secured.broker)
    secured.host.time.run_for(30_000)
    for _ in range(6):
        produce(secured, client, batch_of(b"x"))
    secured.allow(WRITE, TOPIC, "orders")
    produce(secured, client, batch_of(b"x"))
    secured.host.time.run_for(30_000)
    metrics = Metrics(scraped(secured.broker))
    labels = {"config": "authorizer.class.name", "class": "StandardAuthorizer", "role": "broker"}

    def value(name: str) -> float:
        return metrics(f"kafka_server_plugins_{name}", **labels)

    assert value("acls_total_count") == 1
    assert value("authorization_denied_rate_per_minute") == pytest.approx(6, rel=0.05)
    assert value("authorization_allowed_rate_per_minute") >= 2, "the write, and the administrator's CreateAcls"
    total = value("authorization_allowed_rate_per_minute") + value("authorization_denied_rate_per_minute")
    assert value("authorization_request_rate_per_minute") == pytest.approx(total)


def test_the_level_of_the_audit_log_changes_while_the_broker_runs(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def set_level(level: str | None) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name="kafka.authorizer.logger", value=level, config_operation=0 if level is not None else 1
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=8, resource_name="1", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (row,) = secured.connect().call(request, 1, IncrementalAlterConfigsResponse).responses
        assert (row.error_code, row.error_message) == (0, None)

    secured.allow(WRITE, TOPIC, "orders")
    client = secured.connect_as(ALICE)
    set_level("DEBUG")
    try:
        produce(secured, client, batch_of(b"x"))
        assert "Principal = User:alice is Allowed operation = WRITE" in caplog.text
        set_level("ERROR")
        caplog.clear()
        produce(secured, secured.connect_as("User:bob"), batch_of(b"x"))
        assert caplog.text == ""
    finally:
        set_level(None)


def test_audit_log_has_kafkas_lines_and_one_per_second(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    client = secured.connect_as(ALICE)
    for _ in range(50):
        produce(secured, client, batch_of(b"x"))
    line = (
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:orders "
        "for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert [record.message for record in caplog.records] == [line]
    secured.add_rule(WRITE, TOPIC, "*", "User:*", permission=AclPermission.DENY)
    secured.host.time.run_for(1_000)
    produce(secured, client, batch_of(b"x"))
    assert caplog.records[-1].message == line.replace(
        "DefaultDeny",
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=*, patternType=LITERAL, principal=User:*, "
        "host=*, operation=WRITE, permissionType=DENY)) (49 more in the last 1 s)",
    )


def test_audit_log_is_bounded_whatever_names_a_client_requests(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each name had its own line in each second, and a client chooses the names."""
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    for n in range(5_000):
        assert not authorizer.allows(_Alice(), WRITE, TOPIC, f"name-{n}")
    assert len(caplog.records) == DENIED_MAX + 1
    assert caplog.records[-1].message == "Principal = User:alice is Denied so often that this second has no more lines"
    caplog.clear()

    class Bob(_Alice):
        principal = "User:bob"

    authorizer.allows(Bob(), WRITE, TOPIC, "name-1")
    (line,) = caplog.records
    assert line.message.startswith("Principal = User:bob is Denied operation = WRITE"), "others are still logged"
    caplog.clear()
    secured.host.time.run_for(1_000)
    authorizer.allows(_Alice(), WRITE, TOPIC, "name-1")
    (line,) = caplog.records
    assert line.message.endswith(f" ({5_000 - DENIED_MAX} lines about User:alice were left out before)")
