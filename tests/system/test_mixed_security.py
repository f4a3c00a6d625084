"""Brokers of Barnabas and of Apache Kafka 4.1.0 in one cluster over SASL_SSL, with an authorizer on both: replicas are
in sync both ways, and rules and users that are made through one act on the other.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.apache_nodes import ApacheNode
from tests.support.logged_in import LoggedIn
from tests.support.process_nodes import WAIT_S, Node, Nodes, until
from tests.support.tls_stores import Stores

from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.sasl.log_in_requests import LogInFailed
from barnabas.protocol.sasl.logins import Login
from barnabas.protocol.sasl.scram_server import salted_password
from barnabas.simulation.worlds.replicated import batch_of, values_in

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOPIC: Final = "orders"
OURS, THEIRS = 2, 3
REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SALT: Final = b"the salt of the test"
ADMIN: Final = Login("PLAIN", "admin", "admin-secret")


class SecuredApacheNode(ApacheNode):
    """A node whose listeners need TLS and a log-in."""

    def wait(self, timeout_s: float = WAIT_S) -> None:
        process = self.process
        assert process is not None

        def serves() -> bool:
            assert process.poll() is None, f"node {self.node_id} ended:\n{self.log[-4000:]}"
            return _open(self.port or self.controller_port)

        until(f"start of node {self.node_id}", serves, timeout_s)


def _open(port: int) -> bool:
    """Returns whether something listens."""
    with socket.create_connection(("127.0.0.1", port), 2):
        return True


class Cluster:
    """A controller of one kind, and a broker of each."""

    def __init__(self, folder: Path, controller: type[Node]) -> None:
        stores = Stores(folder)
        stores.pem("node")
        self.tls = ssl.create_default_context(cafile=str(stores.trusted))
        entry = f'{_PLAIN} required username="node" password="n" user_node="n" user_admin="{ADMIN.password}";'
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": entry,
            "listener.name.plaintext.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.controller.plain.sasl.jaas.config": entry,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:admin",
            "auto.create.topics.enable": "false",
            **stores.settings("PEM", "node"),
        }
        self.nodes = Nodes(
            folder,
            {1: "controller", OURS: "broker", THEIRS: "broker"},
            properties=properties,
            makers={1: controller, THEIRS: SecuredApacheNode},
        )

    def at(self, node_id: int, login: Login = ADMIN) -> LoggedIn:
        return LoggedIn(self.nodes[node_id].port, login, self.tls)

    def prepare(self) -> None:
        """Starts all nodes, and creates a topic with one partition led by each broker."""
        self.nodes.start()
        self.admin = {node_id: until("a log-in", lambda n=node_id: self.at(n)) for node_id in (OURS, THEIRS)}  # type: ignore[misc]
        assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(([OURS, THEIRS], [THEIRS, OURS]))
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)

        def created() -> bool:
            code = self.admin[OURS].call(request, 7, CreateTopicsResponse).topics[0].error_code
            return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        until("the topic", created)
        for node_id in self.admin:
            until("the topic on each broker", lambda n=node_id: self.in_sync(n))  # type: ignore[misc]

    def in_sync(self, node_id: int) -> bool:
        """Returns whether a broker knows that both partitions have both replicas in sync, each with its own leader."""
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        rows = self.admin[node_id].call(wanted, 12, MetadataResponse).topics[0].partitions
        return {(row.partition_index, row.leader_id, len(row.isr_nodes)) for row in rows} == {
            (0, OURS, 2),
            (1, THEIRS, 2),
        }


@pytest.fixture(params=[Node, SecuredApacheNode], ids=["ours-decides", "kafka-decides"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    try:
        made.prepare()
        yield made
    finally:
        made.nodes.close()
        for node in made.nodes.all:
            print(f"--- node {node.node_id} ({type(node).__name__})\n{node.log[-6000:]}")


def _partition_of(node_id: int) -> int:
    """Returns the partition that this broker leads."""
    return 0 if node_id == OURS else 1


def _write(client: LoggedIn, node_id: int, value: bytes) -> int:
    rows = [ProduceRequest.PartitionProduceData(index=_partition_of(node_id), records=batch_of(value))]
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=rows)
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def _read(client: LoggedIn, node_id: int) -> tuple[int, list[bytes | None]]:
    partition = FetchRequest.FetchPartition(
        partition=_partition_of(node_id), fetch_offset=0, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    row = client.call(request, 12, FetchResponse).responses[0].partitions[0]
    return row.error_code, [value for _, value in values_in(bytes(row.records or b""))]


def _rule(operation: AclOperation, *, name: str = TOPIC, is_denied: bool = False) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=AclResource.TOPIC,
                resource_name=name,
                resource_pattern_type=AclPattern.LITERAL if name == TOPIC else AclPattern.PREFIXED,
                principal="User:alice",
                host="*",
                operation=operation,
                permission_type=AclPermission.DENY if is_denied else AclPermission.ALLOW,
            )
        ]
    )


def _add(cluster: Cluster, through: int, rule: CreateAclsRequest) -> None:
    made = cluster.admin[through].call(rule, 3, CreateAclsResponse)
    assert [row.error_code for row in made.results] == [0], made


def _remove(cluster: Cluster, through: int, permission: AclPermission) -> None:
    every = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=AclResource.ANY,
        resource_name_filter=None,
        pattern_type_filter=AclPattern.ANY,
        principal_filter="User:alice",
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=permission,
    )
    removed = cluster.admin[through].call(DeleteAclsRequest(filters=[every]), 3, DeleteAclsResponse)
    assert len(removed.filter_results[0].matching_acls) >= 1


def _set_password(cluster: Cluster, through: int, password: str) -> None:
    salted = salted_password("sha256", password, SALT, 4_096)
    change = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4_096, salt=SALT, salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    made = cluster.admin[through].call(request, 0, AlterUserScramCredentialsResponse)
    assert [row.error_code for row in made.results] == [0], made


def _logged_in(cluster: Cluster, node_id: int, password: str) -> LoggedIn:
    def attempt() -> LoggedIn | None:
        try:
            return cluster.at(node_id, Login("SCRAM-SHA-256", "alice", password))
        except LogInFailed:
            return None

    return until(f"alice logs in at {node_id}", attempt)


@pytest.mark.full
def test_rules_users_and_replicas_of_one_kind_count_at_the_other(cluster: Cluster) -> None:
    kinds = (OURS, THEIRS)
    for node_id in kinds:
        for number in range(5):
            assert _write(cluster.admin[node_id], node_id, b"by admin %d" % number) == 0
        assert len(_read(cluster.admin[node_id], node_id)[1]) == 5, "acks=all: the other broker has them"
    for through, password in ((OURS, "first"), (THEIRS, "second")):
        _set_password(cluster, through, password)
        alice = {node_id: _logged_in(cluster, node_id, password) for node_id in kinds}
        _rules_act_everywhere(cluster, through, alice)
    for node_id in kinds:
        with pytest.raises(LogInFailed):
            cluster.at(node_id, Login("SCRAM-SHA-256", "alice", "first"))
        until("both replicas of both partitions", lambda n=node_id: cluster.in_sync(n))  # type: ignore[misc]


def _rules_act_everywhere(cluster: Cluster, through: int, alice: dict[int, LoggedIn]) -> None:
    """Adds and removes rules through one broker. Each acts on both."""
    other = THEIRS if through == OURS else OURS

    def everywhere(what: str, code: int, act: Callable[[LoggedIn, int], int]) -> None:
        for node_id, client in alice.items():
            until(f"{what} at {node_id}", lambda c=client, n=node_id: act(c, n) == code)  # type: ignore[misc]

    def write(client: LoggedIn, node_id: int) -> int:
        return _write(client, node_id, b"by alice")

    def read(client: LoggedIn, node_id: int) -> int:
        return _read(client, node_id)[0]

    everywhere("no rule", REFUSED, write)
    everywhere("no rule", REFUSED, read)
    _add(cluster, through, _rule(AclOperation.WRITE))
    everywhere("a rule to write", 0, write)
    everywhere("a rule to write only", REFUSED, read)
    _add(cluster, through, _rule(AclOperation.READ))
    everywhere("a rule to read", 0, read)
    _add(cluster, other, _rule(AclOperation.ALL, name="ord", is_denied=True))
    everywhere("a deny of the prefix", REFUSED, write)
    everywhere("a deny of the prefix", REFUSED, read)
    _remove(cluster, through, AclPermission.DENY)
    everywhere("no deny any longer", 0, write)
    _remove(cluster, other, AclPermission.ALLOW)
    everywhere("no rule any longer", REFUSED, write)
    everywhere("no rule any longer", REFUSED, read)
