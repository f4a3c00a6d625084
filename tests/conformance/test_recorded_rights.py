"""The matrix of rights as Apache Kafka 4.1.0 answered it: each API with no right, with each single right, and with each
right denied.

Ours are compared byte for byte: what is refused, and what is served. Equal are all bytes of an answer after its
correlation id, except for those that `rights_matrix.leveled` replaces on both sides: throttle times, addresses, ids of
the cluster, topics and producers, the log directory and the sizes of its disk, the times of markers, the order of the
topics in Metadata, and the text "Request Request(...) is not authorized.", with which Kafka repeats a request. Answers
that Kafka gives because of a fault of its own are in `UNLIKE`: they are served here as well.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from tests.support import rights_matrix
from tests.support.log_in import SECURED
from tests.support.rights_matrix import CONTROLLER, NAME, RESOURCES, USER, Cluster, Probe, State, title
from tests.support.secured import SecuredBroker
from tests.support.wired import WiredClient
from tests.support.wired_requests import topic_id

from barnabas.metadata.acls import AclResource
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse

RECORDED: Final = rights_matrix.load()
PROBES: Final = {title(probe): probe for probe in rights_matrix.probes()}
STATES: Final = {state.name: state for state in rights_matrix.states()}
#: Probes that Kafka serves with other bytes, with the reason.
UNLIKE: Final = {
    "fetch_snapshot": "of a partition that it does not know, Kafka answers UNKNOWN_SERVER_ERROR for the request",
    "fetch_snapshot-oldest": "the same",
    "metadata-unknown-id": "an id of zeros without a name is UNKNOWN_SERVER_ERROR in Kafka",
    "controller_registration": "Kafka's controller fails at it, and resigns",
    "assign_replicas_to_dirs": "Kafka's controller has just resigned, and says so",
    "update_raft_voter": "the epoch of Kafka's controller is higher, because it was elected again",
}


class _LoggedIn(SecuredBroker):
    """A broker on whose listener users log in; its clients here have."""

    def connect_as(self, principal: str, host: str = "/10.0.0.1", listener: str = "PLAINTEXT") -> WiredClient:
        client = super().connect_as(principal, host, listener)
        client.core.gate = None
        return client


def _secured() -> SecuredBroker:
    secured = _LoggedIn(
        None,
        **SECURED,
        delegation_token_secret_key="the-secret-of-tokens",
        log_retention_ms="-1",
        # Kafka has no topic of this kind.
        barnabas_cluster_events_enable="false",
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


def _answer(secured: SecuredBroker, probe: Probe, cluster: Cluster) -> bytes:
    client = secured.connect_as(USER, listener="CONTROLLER" if probe.listener == CONTROLLER else "PLAINTEXT")
    answer = client.answer(probe.make(cluster.topic_id), probe.version, within_ms=30_000)
    client.core.closed()
    return rights_matrix.leveled(probe, answer, cluster)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, bytes]]:
    """Returns our answers by state and probe. Each depends on what was asked before, as the recorded ones do."""
    secured = _secured()
    own = {secured.broker.services.cluster_id: "CLUSTER", "localhost": "HOST", "/data": "DIRECTORY"}
    cluster = Cluster(topic_id(secured, NAME), own, {9_092, 9_093})
    found = {}
    for name, state in STATES.items():
        _set(secured, state)
        found[name] = {each: _answer(secured, probe, cluster) for each, probe in PROBES.items()}
    return found


def _verdict(name: str, ours: bytes, kafkas: bytes) -> str:
    probe = PROBES[name]
    if ours == kafkas:
        return "equal bytes"
    if probe.name in UNLIKE and rights_matrix.is_served(probe, ours) and rights_matrix.is_served(probe, kafkas):
        return "both served"
    return f"{rights_matrix.decoded(probe, ours)} instead of {rights_matrix.decoded(probe, kafkas)}"


@pytest.mark.parametrize("state", STATES)
def test_responses_are_those_of_kafka(answers: dict[str, dict[str, bytes]], state: str) -> None:
    """Guards S11 and S18."""
    verdicts = {name: _verdict(name, ours, RECORDED[name][state]) for name, ours in answers[state].items()}
    assert {name: text for name, text in verdicts.items() if text not in ("equal bytes", "both served")} == {}


def test_all_but_a_few_served_answers_are_compared_as_bytes(answers: dict[str, dict[str, bytes]]) -> None:
    verdicts = [
        (PROBES[name].name, _verdict(name, ours, RECORDED[name][state]))
        for state, by_name in answers.items()
        for name, ours in by_name.items()
    ]
    assert len(verdicts) == len(PROBES) * len(STATES) == sum(map(len, RECORDED.values()))
    assert Counter(text for _, text in verdicts) == {"equal bytes": 10_501, "both served": 224}
    assert {name for name, text in verdicts if text == "both served"} == UNLIKE.keys()
