"""Clusters whose nodes log in to each other on all listeners, in virtual time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from itertools import product
from typing import Final

import pytest
from tests.support.log_in import jaas
from tests.support.memory_kerberos import MemoryKerberos

from barnabas.broker.assembly import Broker
from barnabas.cli.add_scram import scram_records
from barnabas.common.kerberos_settings import KerberosKeys
from barnabas.controller.requests.result import Versioned
from barnabas.metadata.features import DEFAULT_FEATURES
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from barnabas.protocol.peer_security import PLAINTEXT, ChannelSecurity
from barnabas.protocol.sasl.logins import Login
from barnabas.simulation.node import Node
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import World
from barnabas.simulation.worlds.replicated import (
    SHORT_TIMES,
    RawClient,
    Replicated,
    batch_of,
    fetch_request,
    produce_request,
)

PASSWORD: Final = "node-marker-Secret"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI")
NONE: Final = "none"
#: Tokens, and so sessions, of three seconds; the machines' clocks differ.
UNSECURED: Final = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="node" '
    'unsecuredLoginLifetimeSeconds="3" unsecuredValidatorAllowableClockSkewMs="2000";'
)
KEYS: Final = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/keys" principal="*" '
    'serviceName="kafka";'
)
ALICE: Final = ChannelSecurity(login=lambda: Login("PLAIN", "alice", "alice-Secret"))


def _properties(controllers: str = "PLAIN", brokers: str | None = None, **more: str) -> dict[str, str]:
    """Returns the properties of nodes that log in by these mechanisms to controllers and to brokers."""
    brokers = brokers or ("OAUTHBEARER" if controllers == "OAUTHBEARER" else "PLAIN")
    users = f' user_node="{PASSWORD}" user_alice="alice-Secret";'
    used = [mechanism for mechanism in (controllers, brokers) if mechanism != NONE]
    found = {
        "listener.security.protocol.map": f"CONTROLLER:{_protocol(controllers)},PLAINTEXT:{_protocol(brokers)}",
        "sasl.enabled.mechanisms": ",".join(dict.fromkeys(["PLAIN", "SCRAM-SHA-512", *used])),
    }
    if controllers != NONE:
        found["sasl.mechanism.controller.protocol"] = controllers
    if brokers != NONE:
        found["sasl.mechanism.inter.broker.protocol"] = brokers
    for listener in ("plaintext", "controller"):
        prefix = f"listener.name.{listener}"
        found[f"{prefix}.plain.sasl.jaas.config"] = jaas("node", PASSWORD).rstrip(";") + users
        for mechanism in SCRAM:
            found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = jaas("node", PASSWORD, mechanism)
        if "OAUTHBEARER" in used:
            found[f"{prefix}.oauthbearer.sasl.jaas.config"] = UNSECURED
        if "GSSAPI" in used:
            found[f"{prefix}.gssapi.sasl.jaas.config"] = KEYS
    return found | more


def _protocol(mechanism: str) -> str:
    return "PLAINTEXT" if mechanism == NONE else "SASL_PLAINTEXT"


def _write_and_read(cluster: Replicated, value: bytes) -> None:
    leader = f"broker{cluster.leader()}"
    request = produce_request(cluster.topic_id(), 0, batch_of(value))
    answer = cluster.client.call(leader, request, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    offset = answer.responses[0].partition_responses[0].base_offset
    read = cluster.client.call(leader, fetch_request(cluster.topic_id(), 0, offset), FetchResponse)
    assert value in bytes(read.responses[0].partitions[0].records or b"")


def _formatted() -> list[Versioned]:
    features: list[Versioned] = [
        (FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in DEFAULT_FEATURES
    ]
    users = [f"{mechanism}=[name=node,password={PASSWORD}]" for mechanism in SCRAM]
    return [*features, *scram_records(users, LATEST_METADATA_VERSION)]


def _broker(node: Node) -> Broker:
    assert node.broker is not None, "the node runs"
    return node.broker


class Secured(Replicated):
    """A cluster whose nodes and clients log in."""

    def __init__(self, controllers: int, properties: Mapping[str, str], security: ChannelSecurity = ALICE) -> None:
        self.bootstrap = _formatted()
        self.security = security
        super().__init__(controllers=controllers, **properties)  # type: ignore[arg-type]


def _notes(cluster: Replicated) -> list[str]:
    return [note.text for note in cluster.world.trace.notes]


def _principals(cluster: Replicated) -> set[str]:
    return {end._connection.principal for node in cluster.cluster.nodes.values() for end in node._open}


def _starts_cold(cluster: Replicated) -> None:
    """Asserts that a cluster whose nodes all die serves again, and that what was written is there."""
    cluster.create_topic("orders", [[1, 2, 3]])
    _write_and_read(cluster, b"first")
    nodes = cluster.cluster.nodes
    for node in nodes.values():
        node.kill()
    cluster.run_for(100)
    cluster.run_until(lambda: all(node.broker is not None for node in nodes.values()), "all nodes run again")
    cluster.run_until(lambda: "orders" in cluster.decided.topics_by_name and cluster.settled(), "the cluster is back")
    # The client waits before it connects again.
    cluster.run_for(1_000)
    _write_and_read(cluster, b"second")
    assert _principals(cluster) <= {"User:node", "User:alice", "User:ANONYMOUS"}
    assert "User:node" in _principals(cluster)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("controllers", [1, 3])
@pytest.mark.parametrize(("at_controllers", "at_brokers"), list(product(MECHANISMS, MECHANISMS)))
def test_a_cluster_starts_cold_with_a_log_in_on_all_listeners(
    controllers: int, at_controllers: str, at_brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S21."""
    monkeypatch.setattr("barnabas.simulation.machine.NoKerberos", MemoryKerberos)
    _starts_cold(Secured(controllers, _properties(at_controllers, at_brokers)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("controllers", [1, 3])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("is_at_brokers", [False, True])
def test_a_cluster_starts_cold_with_a_log_in_on_one_listener(
    controllers: int, mechanism: str, is_at_brokers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S21. tests/system/test_cold_starts.py has certificates on the other listener."""
    monkeypatch.setattr("barnabas.simulation.machine.NoKerberos", MemoryKerberos)
    if is_at_brokers:
        cluster = Secured(controllers, _properties(NONE, mechanism))
    else:
        cluster = Secured(controllers, _properties(mechanism, NONE), PLAINTEXT)
    _starts_cold(cluster)


def test_scram_among_controllers_needs_credentials_from_the_format() -> None:
    """Guard S21."""
    world = World(1)
    properties = {**SHORT_TIMES, **_properties("SCRAM-SHA-512")}
    Cluster(world, Layout(1, 3, properties)).start()
    world.run_for(1_000_000)
    refusals = {note.text for note in world.trace.notes if "did not start" in note.text}
    (told,) = refusals
    assert (
        "sasl.mechanism.controller.protocol=SCRAM-SHA-512 cannot work: /data has no credential of node; format each "
        "controller with --add-scram, or use PLAIN"
    ) in told


@pytest.mark.parametrize("controllers", [1, 3])
def test_a_cluster_whose_nodes_log_in_by_kerberos(controllers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.simulation.machine.NoKerberos", MemoryKerberos)
    properties = _properties("GSSAPI", "GSSAPI", **{"connections.max.reauth.ms": "3000"})
    cluster = Secured(controllers, properties)
    cluster.create_topic("orders", [[1, 2, 3]])
    for number in range(10):
        _write_and_read(cluster, b"value %d" % number)
        cluster.run_for(1_000)
    assert _principals(cluster) <= {"User:node", "User:alice"}
    counts = [each for node in cluster.cluster.nodes.values() for _, each in _broker(node).services.log_in_counts]
    assert sum(each.renewals.total for each in counts) > 10
    assert [each.failures.total for each in counts] == [each.expired for each in counts] == [0] * len(counts)


def test_a_node_without_tickets_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.simulation.machine.NoKerberos", MemoryKerberos)
    cluster = Secured(1, _properties())
    keys = KerberosKeys(None, "/missing", "kafka")
    stranger = RawClient(cluster.cluster, "stranger", security=ChannelSecurity(keys=lambda: keys))
    answers: list[Message | None] = []
    for _ in range(3):
        stranger.process.enter(lambda: stranger.send("broker1", MetadataRequest(topics=[]), answers.append))
        cluster.run_for(1_000)
    assert answers == [None] * 3
    told = "warns: cannot log in at broker1:9092: Key table file '/missing' not found"
    assert [text for text in _notes(cluster) if "cannot log in" in text] == [told]


def test_wrong_passwords_are_logged_once_and_do_no_harm() -> None:
    wrong = ChannelSecurity(login=lambda: Login("PLAIN", "alice", "guess-marker-Secret"))
    cluster = Secured(1, _properties())
    stranger = RawClient(cluster.cluster, "stranger", security=wrong)
    answers: list[Message | None] = []
    for _ in range(3):
        stranger.process.enter(lambda: stranger.send("broker1", MetadataRequest(topics=[]), answers.append))
        cluster.run_for(1_000)
    assert answers == [None] * 3
    told = "warns: cannot log in at broker1:9092: Authentication failed: Invalid username or password"
    assert [text for text in _notes(cluster) if "cannot log in" in text] == [told]
    assert not [text for text in _notes(cluster) if "marker-Secret" in text]
    cluster.create_topic("orders", [[1, 2, 3]])
    _write_and_read(cluster, b"value")


def test_sessions_of_nodes_are_renewed_under_load() -> None:
    """KIP-368: no connection between nodes is closed, although each session lasts two seconds."""
    cluster = Secured(3, _properties(**{"connections.max.reauth.ms": "2000"}))
    cluster.create_topic("orders", [[1, 2, 3]])
    for number in range(40):
        _write_and_read(cluster, b"value %d" % number)
        cluster.run_for(250)
    counts = [each for node in cluster.cluster.nodes.values() for _, each in _broker(node).services.log_in_counts]
    assert sum(each.renewals.total for each in counts) > 20
    assert [each.renewal_failures.total for each in counts] == [0] * len(counts)
    assert [each.failures.total for each in counts] == [0] * len(counts)
    assert [each.expired for each in counts] == [0] * len(counts)


def test_nodes_renew_their_sessions_with_new_tokens() -> None:
    """KIP-368: each session ends with its token, and no node notices."""
    cluster = Secured(3, _properties("OAUTHBEARER"))
    cluster.create_topic("orders", [[1, 2, 3]])
    for number in range(30):
        _write_and_read(cluster, b"value %d" % number)
        cluster.run_for(500)
    counts = [each for node in cluster.cluster.nodes.values() for _, each in _broker(node).services.log_in_counts]
    assert sum(each.renewals.total for each in counts) > 20
    assert [each.renewal_failures.total for each in counts] == [0] * len(counts)
    assert [each.failures.total for each in counts] == [0] * len(counts)
    assert [each.expired for each in counts] == [0] * len(counts)


def test_every_link_of_a_cluster_has_logged_in() -> None:
    cluster = Secured(3, _properties())
    cluster.run_for(5_000)
    assert _principals(cluster) <= {"User:node", "User:alice"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_promise_holds_with_a_log_in_between_nodes_and_controllers(seed: int) -> None:
    """Faults of all kinds, while the sessions of brokers with controllers last two seconds."""
    properties = {
        **_properties(**{"connections.max.reauth.ms": "2000"}),
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    outcome = run(Settings(seed=seed, faults_s=15, layout=Layout(3, properties=properties)))
    assert not outcome.failed, "\n".join(outcome.problems[:5])
    assert outcome.acked > 100


def test_rules_and_super_users_survive_a_lost_log_and_a_cold_start() -> None:
    """Guard S21: super users come from the file, so the first rule can be made, and the quorum needs none; a controller
    whose disk is lost gets rules and credentials from the others, and all of them start together afterwards."""
    properties = _properties(
        **{
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:alice",
        }
    )
    cluster = Secured(3, properties)
    cluster.create_topic("orders", [[1, 2, 3]])
    rule = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=3,
    )
    made = cluster.client.call("broker1", CreateAclsRequest(creations=[rule]), CreateAclsResponse)
    assert made.results[0].error_code == 0
    nodes = cluster.cluster.nodes
    lost = nodes["controller1"]
    cluster.run_until(lambda: _rules(lost) == 1, "the rule is everywhere")
    cluster.cluster.prevent_start("controller1")
    lost.kill()
    lost.machine.disk.remove_tree("/data")
    cluster.cluster.allow_start("controller1")
    cluster.run_until(lambda: lost.broker is not None and _rules(lost) == 1, "the lost log is copied")
    for node in nodes.values():
        node.kill()
    cluster.run_for(100)
    cluster.run_until(lambda: all(node.broker is not None for node in nodes.values()), "all nodes run again")
    cluster.run_until(lambda: all(_rules(node) == 1 for node in nodes.values()), "each authorizer has the rule")
    cluster.run_until(lambda: "orders" in cluster.decided.topics_by_name and cluster.settled(), "the cluster is back")
    cluster.run_for(1_000)
    _write_and_read(cluster, b"value")


def _rules(node: Node) -> int:
    """Returns the number of rules that the authorizer of a node has."""
    authorizer = _broker(node).authorizer if node.broker is not None else None
    return -1 if authorizer is None else len(authorizer.index)


# -- delegation tokens

_TOKENS: Final = {
    "delegation.token.secret.key": "key-marker-Secret",
    "delegation.token.expiry.check.interval.ms": "1000",
}


def _active(cluster: Secured) -> str:
    for name, node in cluster.cluster.nodes.items():
        if node.broker is not None and node.broker.services.controller.is_active:
            return name
    return ""


def _image_tokens(broker: Broker) -> set[str]:
    return set(broker.metadata.image.security.tokens)


def _brokers(cluster: Secured) -> list[Broker]:
    return [node.broker for node in cluster.cluster.nodes.values() if node.broker is not None]


def _create(cluster: Secured, lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=lifetime_ms
    )
    answer = cluster.client.call("broker1", request, CreateDelegationTokenResponse, within_ms=20_000)
    assert answer.error_code == 0
    return answer


def _by_token(cluster: Secured, name: str, token: CreateDelegationTokenResponse, mechanism: str) -> RawClient:
    login = Login(mechanism, token.token_id, base64.b64encode(token.hmac).decode(), by_token=True)
    return RawClient(cluster.cluster, name, security=ChannelSecurity(login=lambda: login))


def test_tokens_survive_the_failover_of_the_controller() -> None:
    """Tokens are renewed and used for log-ins after it, on every broker; the next controller removes expired ones."""
    cluster = Secured(3, _properties(**_TOKENS))
    first, brief = _create(cluster), _create(cluster, lifetime_ms=20_000)
    before = _active(cluster)
    cluster.cluster.nodes[before].kill()
    cluster.run_until(lambda: _active(cluster) not in ("", before), "another controller is active")
    second = _create(cluster)
    wanted = {first.token_id, brief.token_id, second.token_id}
    cluster.run_until(
        lambda: all(_image_tokens(broker) == wanted for broker in _brokers(cluster)), "all nodes know the tokens"
    )
    renewal = RenewDelegationTokenRequest(hmac=bytes(first.hmac), renew_period_ms=60_000)
    answer = cluster.client.call("broker2", renewal, RenewDelegationTokenResponse, within_ms=20_000)
    assert answer.error_code == 0
    assert answer.expiry_timestamp_ms < first.expiry_timestamp_ms
    for place, token in ((1, first), (2, second), (3, brief)):
        client = _by_token(cluster, f"holder{place}", token, "SCRAM-SHA-512")
        assert client.call(f"broker{place}", MetadataRequest(topics=[]), MetadataResponse).brokers
    cluster.run_for(25_000)
    assert [_image_tokens(broker) for broker in _brokers(cluster)] == [wanted - {brief.token_id}] * len(
        _brokers(cluster)
    )
    principals = {end._connection.principal for node in cluster.cluster.nodes.values() for end in node._open}
    assert "User:alice" in principals
