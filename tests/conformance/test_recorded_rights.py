"""The matrix of rights as Apache Kafka 4.1.0 answered it: each API with no right, with each single right, and with each
right denied. Ours has the same responses, except for the deviations that are listed here.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import rights_matrix
from tests.support.log_in import SECURED
from tests.support.rights_matrix import BROKER, CONTROLLER, NAME, REQUEST_TEXT, RESOURCES, USER, Probe, State, title
from tests.support.secured import SecuredBroker
from tests.support.wired import WiredClient
from tests.support.wired_requests import topic_id

from barnabas.metadata.acls import AclResource
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse

RECORDED = rights_matrix.load()
#: Requests of APIs that are offered here. Those of delegation tokens are recorded before they are.
PROBES = {
    title(probe): probe
    for probe in rights_matrix.probes()
    if probe.key in (BROKER_APIS if probe.listener == BROKER else CONTROLLER_APIS)
}
STATES = {state.name: state for state in rights_matrix.states()}


class _LoggedIn(SecuredBroker):
    """A broker on whose listener users log in; its clients here have."""

    def connect_as(self, principal: str, host: str = "/10.0.0.1", listener: str = "PLAINTEXT") -> WiredClient:
        client = super().connect_as(principal, host, listener)
        client.core.gate = None
        return client


@pytest.fixture(scope="module")
def secured() -> SecuredBroker:
    secured = _LoggedIn(
        None,
        **SECURED,
        delegation_token_secret_key="the-secret-of-tokens",
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )
    secured.create_topic(NAME)
    admin = secured.connect()
    for kind in (0, 1):
        request = FindCoordinatorRequest(key=NAME, key_type=kind)
        while admin.call(request, 3, FindCoordinatorResponse).error_code:
            secured.host.time.run_for(100)
    return secured


def _set(secured: SecuredBroker, state: State) -> None:
    secured.remove_rules()
    while secured.connect().call(rights_matrix.commit(), 8, OffsetCommitResponse).topics[0].partitions[0].error_code:
        secured.host.time.run_for(100)
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=rule.resource,
            resource_name=RESOURCES[AclResource(rule.resource)],
            resource_pattern_type=3,
            principal=USER,
            host="*",
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in state.rules
    ]
    if creations:
        made = secured.connect().call(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
        assert not any(row.error_code for row in made.results)


def _ours(secured: SecuredBroker, probe: Probe) -> Any:
    client = secured.connect_as(USER, listener="CONTROLLER" if probe.listener == CONTROLLER else "PLAINTEXT")
    known = topic_id(secured, NAME)
    response = client.call(probe.make(known), probe.version, response_class(probe.key), within_ms=30_000)
    client.core.closed()
    return rights_matrix.outcome(probe, response, known)


def _is_same(ours: Any, kafkas: Any) -> bool:
    """Returns whether two outcomes are the same, where Kafka repeats the request in a message with any message."""
    if kafkas == REQUEST_TEXT:
        return isinstance(ours, str)
    if isinstance(kafkas, dict) and isinstance(ours, dict):
        return kafkas.keys() == ours.keys() and all(_is_same(ours[key], kafkas[key]) for key in kafkas)
    if isinstance(kafkas, list) and isinstance(ours, list):
        return len(ours) == len(kafkas) and all(map(_is_same, ours, kafkas))
    return bool(ours == kafkas)


@pytest.mark.parametrize("state", STATES)
def test_responses_are_those_of_kafka(secured: SecuredBroker, state: str) -> None:
    """Guards S11 and S18."""
    _set(secured, STATES[state])
    differing = []
    for name, probe in PROBES.items():
        ours, kafkas = _ours(secured, probe), RECORDED[name][state]
        if not _is_same(ours, kafkas):
            differing.append(f"{name}: {ours} instead of {kafkas}")
    assert differing == []
