"""CreateAcls, DescribeAcls and DeleteAcls with an authorizer: Kafka's checks and messages, filters, restarts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.acl_filters import EVERY_RULE
from tests.support.recorded_frames import JAVA, SWEEP, recorded
from tests.support.secured import ADMIN, ALICE, STANDARD, SecuredBroker
from tests.support.wired import WiredBroker

from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.controller.requests import acls
from barnabas.controller.requests.result import ControllerEvent
from barnabas.metadata.acls import AclOperation, AclPattern, AclResource
from barnabas.protocol import codec
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

VALID: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": ALICE,
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
PROBLEMS = [
    ({"resource_type": 1}, "Invalid resourceType ANY"),
    ({"resource_type": 77}, "Invalid resourceType UNKNOWN"),
    ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    ({"resource_name": ""}, "Invalid empty resource name"),
    ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
    ({"operation": 1}, "Invalid operation ANY"),
    ({"permission_type": 1}, "Invalid permissionType ANY"),
    (
        {"principal": "alice"},
        "Could not parse principal from `alice` (no colon is present separating the principal type from the principal "
        "name)",
    ),
]


@pytest.fixture
def secured() -> SecuredBroker:
    return SecuredBroker()


def create(secured: SecuredBroker, *creations: dict[str, Any]) -> list[tuple[int, str | None]]:
    request = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**VALID | each) for each in creations])
    response = secured.connect().call(request, 3, CreateAclsResponse)
    return [(row.error_code, row.error_message) for row in response.results]


def described(secured: SecuredBroker, **chosen: Any) -> set[tuple[str, int, str]]:
    """Returns (name, pattern, host) of the rules that a filter matches."""
    response = secured.connect().call(DescribeAclsRequest(**EVERY_RULE | chosen), 3, DescribeAclsResponse)
    assert (response.error_code, response.error_message) == (0, "")
    return {(one.resource_name, one.pattern_type, acl.host) for one in response.resources for acl in one.acls}


@pytest.mark.parametrize("client", [SWEEP, JAVA])
def test_recorded_requests_have_the_bytes_of_kafka_for_answers(secured: SecuredBroker, client: str) -> None:
    """Rules are created, described and deleted, in all versions; some messages are empty, others null."""
    frames = recorded(30, client=client) + recorded(29, client=client) + recorded(31, client=client)
    assert len(frames) == {SWEEP: 9, JAVA: 3}[client]
    for _, version, request, kafkas in frames:
        ours = secured.connect().call(request, version, type(kafkas))
        assert codec.encode(ours, version) == codec.encode(kafkas, version)


@pytest.mark.parametrize(("wrong", "text"), PROBLEMS, ids=[text[:24] for _, text in PROBLEMS])
def test_a_rule_that_makes_no_sense_is_refused_alone(secured: SecuredBroker, wrong: dict[str, Any], text: str) -> None:
    assert create(secured, wrong, {}) == [(ErrorCode.INVALID_REQUEST, text), (0, "")]
    assert described(secured) == {("orders", 3, "*")}


def test_a_rule_that_exists_is_a_success_without_a_record(secured: SecuredBroker) -> None:
    assert create(secured, {}, {}) == [(0, "")] * 2
    assert create(secured, {}) == [(0, "")]
    assert len(secured.broker.metadata.image.security.acls) == 1
    assert secured.remove_rules() == 1


def test_filters_match_as_kafkas_do(secured: SecuredBroker) -> None:
    create(
        secured,
        {},
        {"resource_name": "*"},
        {"resource_name": "ord", "resource_pattern_type": 4},
        {"resource_name": "orders", "resource_pattern_type": 4, "host": "10.0.0.1"},
        {"resource_name": "payments", "resource_type": 3},
    )
    assert len(described(secured)) == 5
    assert described(secured, resource_type_filter=3) == {("payments", 3, "*")}
    assert described(secured, resource_name_filter="orders", pattern_type_filter=3) == {("orders", 3, "*")}
    assert described(secured, resource_name_filter="orders") == {("orders", 3, "*"), ("orders", 4, "10.0.0.1")}
    assert described(secured, resource_type_filter=2, resource_name_filter="orders-2", pattern_type_filter=2) == {
        ("*", 3, "*"),
        ("ord", 4, "*"),
        ("orders", 4, "10.0.0.1"),
    }
    assert described(secured, principal_filter="User:bob") == set()


def test_an_unknown_filter_is_refused(secured: SecuredBroker) -> None:
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=99, operation=1, permission_type=1),
        DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=99, permission_type=1),
    ]
    response = secured.connect().call(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
    assert [(row.error_code, row.error_message) for row in response.filter_results] == [
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter."),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter."),
    ]


def test_more_than_ten_thousand_rules_in_a_request_are_refused_together(secured: SecuredBroker) -> None:
    creations = [CreateAclsRequest.AclCreation(**VALID | {"resource_name": f"t{place}"}) for place in range(10_001)]
    response = secured.connect().call(CreateAclsRequest(creations=creations), 3, CreateAclsResponse, within_ms=60_000)
    assert {row.error_code for row in response.results} == {ErrorCode.POLICY_VIOLATION}
    assert not secured.broker.metadata.image.security.acls


def test_thousands_of_rules_take_several_turns(secured: SecuredBroker) -> None:
    """A turn of more than 50 ms would fail the test (`tests/support/turn_watch.py`); 10,000 rules took 300 ms."""
    creations = [CreateAclsRequest.AclCreation(**VALID | {"resource_name": f"t{place}"}) for place in range(6_000)]
    creations[4_000].principal = "nobody"
    request = CreateAclsRequest(creations=creations)
    response = secured.connect().call(request, 3, CreateAclsResponse, within_ms=60_000)
    codes = [row.error_code for row in response.results]
    assert (len(codes), codes.count(0), codes[4_000]) == (6_000, 5_999, ErrorCode.INVALID_REQUEST)
    assert len(secured.broker.metadata.image.security.acls) == 5_999
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    assert len(authorizer.index) == 5_999
    assert secured.remove_rules() == 5_999
    assert len(authorizer.index) == 0


def test_a_removal_in_portions_is_one_removal(secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are searched and removed a few at a time: of 100,000, one filter took 130 ms of a turn."""
    monkeypatch.setattr(acls, "_SEARCHED_IN_PORTION", 2)
    monkeypatch.setattr(acls, "_RULES_IN_PORTION", 2)
    creations = [
        CreateAclsRequest.AclCreation(**VALID | {"resource_name": f"t{place}", "principal": f"User:u{place % 2}"})
        for place in range(9)
    ]
    made = secured.connect().call(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
    assert [row.error_code for row in made.results] == [0] * 9
    every = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "host_filter": None}
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(**every, principal_filter="User:u0", operation=1, permission_type=1),  # type: ignore[arg-type]
        DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=99, operation=1, permission_type=1),
        DeleteAclsRequest.DeleteAclsFilter(**every, principal_filter="User:none", operation=1, permission_type=1),  # type: ignore[arg-type]
        DeleteAclsRequest.DeleteAclsFilter(**every, principal_filter=None, operation=1, permission_type=1),  # type: ignore[arg-type]
    ]
    deleted = secured.connect().call(DeleteAclsRequest(filters=filters[:3]), 3, DeleteAclsResponse).filter_results
    assert [(row.error_code, len(row.matching_acls)) for row in deleted] == [(0, 5), (42, 0), (0, 0)]
    assert {acl.resource_name for acl in deleted[0].matching_acls} == {"t0", "t2", "t4", "t6", "t8"}
    assert {name for name, _, _ in described(secured)} == {"t1", "t3", "t5", "t7"}
    left = secured.connect().call(DeleteAclsRequest(filters=filters[3:]), 3, DeleteAclsResponse).filter_results
    assert len(left[0].matching_acls) == 4
    assert described(secured) == set()


def test_rules_survive_a_restart(secured: SecuredBroker) -> None:
    """Guard S9 (CVE-2024-27309): removed rules stay removed, others stay."""
    secured.allow(AclOperation.READ, AclResource.TOPIC, "kept")
    secured.allow(AclOperation.READ, AclResource.TOPIC, "removed", "User:bob")
    assert secured.remove_rules("User:bob") == 1
    secured.restart(clean=False)
    assert described(secured) == {("kept", AclPattern.LITERAL, "*")}
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    decide = authorizer.decide
    topic = AclResource.TOPIC
    assert decide(ALICE, "10.0.0.1", AclOperation.READ, topic, "kept").allowed
    assert not decide("User:bob", "10.0.0.1", AclOperation.READ, topic, "removed").allowed


def test_the_cause_of_a_rule_names_who_made_it(secured: SecuredBroker) -> None:
    seen: list[tuple[str, str, str]] = []
    proposals = secured.broker.quorum.controller.proposals
    propose = proposals.propose

    def watched(result: Any, *args: Any, **options: Any) -> bool:
        if result.cause.event in (ControllerEvent.CREATE_ACLS, ControllerEvent.DELETE_ACLS):
            seen.append((result.cause.event.value, result.cause.actor, result.cause.detail))
        return propose(result, *args, **options)

    proposals.propose = watched  # type: ignore[method-assign]
    create(secured, {})
    secured.remove_rules()
    rule = "ALLOW User:alice READ TOPIC orders from *"
    assert seen == [("CreateAcls", ADMIN, rule), ("DeleteAcls", ADMIN, rule)]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}, f"{STANDARD} is allowed"),
        ({"super_users": "User:a;bob"}, "Invalid value bob for configuration super.users"),
        ({"principal_builder_class": "com.example.Builder"}, "it decides who a client is"),
        ({"client_quota_callback_class": "com.example.Quotas"}, "quotas are those of AlterClientQuotas"),
    ],
)
def test_a_configuration_that_would_not_protect_is_refused(wrong: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SecuredBroker(None, **wrong)


def test_super_users_without_an_authorizer_are_warned_of() -> None:
    warnings = WiredBroker(super_users=ADMIN).broker.config.warnings
    assert "super.users has no effect: authorizer.class.name is not set" in warnings
