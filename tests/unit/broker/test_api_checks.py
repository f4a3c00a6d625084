"""Every API is authorized: the table of checks against the offered APIs, and every API and version without a
right, and with every single one.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.asking_requests import AUTHORIZATION_CODES, NAME, asking_request, codes_in
from tests.support.secured import ALICE, SecuredBroker
from tests.support.wired_requests import topic_id

from barnabas.broker.requests.api_checks import CHECKS, check_of
from barnabas.broker.requests.authorization import ByHandler, Open
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.handlers import Handler, load
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, ZOOKEEPER_APIS
from barnabas.protocol.messages.index import request_class, response_class
from barnabas.protocol.messages.produce import ProduceRequest

#: APIs that everybody may use, because their responses leave out what the client may not see.
FILTERED = {"list_groups", "list_transactions"}
#: APIs whose older versions have no field for the refusal: their responses are empty.
WITHOUT_FIELD = {("describe_log_dirs", 1), ("describe_log_dirs", 2)}
#: APIs that no client in the clear may use: no right is checked. test_delegation_tokens.py sends them after a log-in.
AUTHENTICATED = {
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
}
LISTENERS = [("PLAINTEXT", BROKER_APIS), ("CONTROLLER", CONTROLLER_APIS)]
CASES = [
    pytest.param(listener, key, version, id=f"{listener}-{offer.name}-{version}")
    for listener, offers in LISTENERS
    for key, offer in offers.items()
    for version in range(offer.version_min, offer.version_max + 1)
]


@pytest.fixture(scope="module")
def secured() -> SecuredBroker:
    secured = SecuredBroker()
    secured.create_topic(NAME)
    return secured


def test_every_offered_api_has_a_question() -> None:
    offered = {offer.name for offers in (BROKER_APIS, CONTROLLER_APIS, ZOOKEEPER_APIS) for offer in offers.values()}
    assert offered - set(CHECKS) == set()


def test_only_versions_log_in_and_the_cluster_ask_nothing() -> None:
    open_to_all = {name for name, check in CHECKS.items() if isinstance(check, Open)}
    # The controller compares the client of the last two with the owner and the renewers of the token.
    assert open_to_all == {
        *("api_versions", "describe_cluster", "sasl_handshake", "sasl_authenticate"),
        *("renew_delegation_token", "expire_delegation_token"),
    }
    assert not isinstance(check_of("describe_cluster", on_controller=True), Open)


@pytest.mark.parametrize(("listener", "key", "version"), CASES)
def test_a_refused_request_without_rows_is_answered(
    secured: SecuredBroker, listener: str, key: int, version: int
) -> None:
    """A response whose errors are in its rows had none, and the broker closed the connection with a traceback."""
    request = request_class(key)()
    if isinstance(request, ProduceRequest):
        request.acks = 1
    secured.connect_as(ALICE, listener=listener).call(request, version, response_class(key))
    assert (secured.closes.errors, secured.closes.failures) == ([], [])


@pytest.mark.parametrize(("listener", "key", "version"), CASES)
def test_before_the_rules_are_known_no_handler_serves_a_request(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, listener: str, key: int, version: int
) -> None:
    """A request without rows was served, because a response without rows has no error: ElectLeaders for all topics."""
    name = dict(LISTENERS)[listener][key].name
    if isinstance(check_of(name, on_controller=listener == "CONTROLLER"), Open | ByHandler):
        return
    served: list[Any] = []

    def noted(handler: str) -> Handler:
        def handle(context: RequestContext, request: Any, services: Services) -> None:
            served.append(request)
            context.reply(response_class(key)())

        return load(handler)._replace(handle=handle) if handler == name else load(handler)

    monkeypatch.setattr("barnabas.broker.requests.dispatch.load", noted)
    monkeypatch.setattr("barnabas.broker.requests.inner_requests.load", noted)
    monkeypatch.setattr(secured.broker.authorizer, "is_ready", False)
    secured.connect_as(ALICE, listener=listener).call(request_class(key)(), version, response_class(key))
    assert served == []


@pytest.mark.parametrize(("listener", "key", "version"), CASES)
def test_without_any_right_an_api_is_refused(secured: SecuredBroker, listener: str, key: int, version: int) -> None:
    """Guard S11 (CVE-2023-50976): a spy sees each check, and each response has the refusal."""
    offers = dict(LISTENERS)[listener]
    name = offers[key].name
    client = secured.connect_as(ALICE, listener=listener)
    authorizer = secured.broker.authorizer
    assert authorizer is not None
    before = list(authorizer.counts)
    request = asking_request(key, version, topic_id(secured, NAME))
    response = client.call(request, version, response_class(key))
    allowed, denied = (now - then for now, then in zip(authorizer.counts, before, strict=True))
    check = check_of(name, on_controller=listener == "CONTROLLER")
    if name in AUTHENTICATED:
        assert allowed == denied == 0
        assert set(codes_in(response)) == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
    elif isinstance(check, Open):
        assert allowed == denied == 0
    elif name not in FILTERED:
        assert denied > 0
        assert allowed == 0
        codes = set(codes_in(response))
        if (name, version) in WITHOUT_FIELD:
            assert codes <= {0}
            assert not response.results  # type: ignore[attr-defined]
        else:
            assert codes & AUTHORIZATION_CODES, codes
            assert codes <= AUTHORIZATION_CODES | {0}, codes
    assert secured.closes.errors == []


OPERATIONS = [operation for operation in AclOperation if operation >= AclOperation.ALL]
RESOURCES = {
    AclResource.TOPIC: NAME,
    AclResource.GROUP: NAME,
    AclResource.CLUSTER: CLUSTER_NAME,
    AclResource.TRANSACTIONAL_ID: NAME,
}
#: Handler -> the single rights with which its request of the newest version has no error of authorization. The other
#: APIs need two.
ENOUGH = {
    "list_offsets": "TOPIC: ALL READ WRITE DELETE ALTER DESCRIBE",
    "metadata": "TOPIC: ALL READ WRITE DELETE ALTER DESCRIBE",
    "describe_groups": "GROUP: ALL READ WRITE DELETE ALTER DESCRIBE",
    "delete_groups": "GROUP: ALL DELETE",
    "heartbeat": "GROUP: ALL READ",
    "end_txn": "TRANSACTIONAL_ID: ALL WRITE",
    "describe_configs": "TOPIC: ALL DESCRIBE_CONFIGS ALTER_CONFIGS",
    "list_partition_reassignments": "CLUSTER: ALL READ WRITE DELETE ALTER DESCRIBE",
    "describe_producers": "TOPIC: ALL READ",
    "delete_records": "TOPIC: ALL DELETE",
    "find_coordinator": "GROUP: ALL READ WRITE DELETE ALTER DESCRIBE",
    "describe_acls": "CLUSTER: ALL READ WRITE DELETE ALTER DESCRIBE",
    "offset_for_leader_epoch": "TOPIC: ALL READ WRITE DELETE ALTER DESCRIBE; CLUSTER: ALL CLUSTER_ACTION",
    "create_partitions": "TOPIC: ALL ALTER",
    "create_topics": "TOPIC: ALL CREATE; CLUSTER: ALL CREATE",
    "elect_leaders": "CLUSTER: ALL ALTER",
    "write_txn_markers": "CLUSTER: ALL ALTER CLUSTER_ACTION",
}


@pytest.mark.parametrize("name", sorted(ENOUGH))
def test_each_single_right_allows_what_it_should(secured: SecuredBroker, name: str) -> None:
    key, version = next((key, offer.version_max) for key, offer in BROKER_APIS.items() if offer.name == name)
    found: dict[str, list[str]] = {}
    for resource, resource_name in RESOURCES.items():
        for operation in OPERATIONS:
            secured.remove_rules(ALICE)
            secured.allow(operation, resource, resource_name)
            response = secured.connect_as(ALICE).call(
                asking_request(key, version, topic_id(secured, NAME)), version, response_class(key), within_ms=20_000
            )
            # A created topic without DESCRIBE_CONFIGS has this code at its configurations only.
            codes = [row.error_code for row in response.topics] if name == "create_topics" else codes_in(response)  # type: ignore[attr-defined]
            if not AUTHORIZATION_CODES & set(codes):
                found.setdefault(resource.name, []).append(operation.name)
    secured.remove_rules(ALICE)
    shown = "; ".join(f"{resource}: {' '.join(operations)}" for resource, operations in found.items())
    assert shown == ENOUGH[name]
