"""Records what Apache Kafka 4.1.0 answers to each API with no right, with each single right, and with each one denied.

python tools/record_rights.py            writes tests/data/wire/rights-4.1.0.json.gz
python tools/record_rights.py --check    only prints what would change

The server has log-ins by PLAIN on both listeners and StandardAuthorizer. The states and requests are those of
tests/support/rights_matrix.py. It takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import rights_matrix
from tests.support.logged_in import LoggedIn
from tests.support.rights_matrix import BROKER, CONTROLLER, NAME, RESOURCES, USER, Cluster, Probe, State

import kafka_jars
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse
from barnabas.protocol.sasl.logins import Login

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def _connected(port: int, user: str) -> LoggedIn:
    return LoggedIn(port, Login("PLAIN", user, user))


class Recorder:
    def __init__(self, folder: Path) -> None:
        self.port, self.controller_port = kafka_jars.free_ports(2)
        entry = (
            f'{_PLAIN} required username="node" password="node" user_node="node" user_admin="admin" user_alice="alice";'
        )
        self.server = kafka_jars.KafkaServer(
            folder,
            port=self.port,
            properties={
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
                "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.plaintext.plain.sasl.jaas.config": entry,
                "listener.name.controller.plain.sasl.jaas.config": entry,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:node;User:admin",
                "auto.create.topics.enable": "false",
                "delegation.token.secret.key": "the-secret-of-tokens",
                # The records of the probes are old.
                "log.retention.ms": "-1",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            },
        )

    def record(self) -> dict[str, dict[str, bytes]]:
        with self.server:
            self._prepare()
            answers: dict[str, dict[str, bytes]] = {}
            self._users: dict[str, LoggedIn] = {}
            for state in rights_matrix.states():
                self._set(state)
                for probe in rights_matrix.probes():
                    answers.setdefault(rights_matrix.title(probe), {})[state.name] = self._answer(probe)
                print(state.name, flush=True)
        return answers

    def _prepare(self) -> None:
        """Makes the topic and the group that the requests name, and wakes the coordinators."""
        admin = self._admin = _connected(self.port, "admin")
        topic = CreateTopicsRequest.CreatableTopic(name=NAME, num_partitions=1, replication_factor=1)
        assert admin.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7, CreateTopicsResponse)
        for kind in (0, 1):
            while admin.call(FindCoordinatorRequest(key=NAME, key_type=kind), 3, FindCoordinatorResponse).error_code:
                time.sleep(0.3)
        found = admin.call(MetadataRequest(topics=None), 12, MetadataResponse)
        topic_id = next(row.topic_id for row in found.topics if row.name == NAME)
        waking = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        while admin.call(waking, 5, InitProducerIdResponse).error_code:
            time.sleep(0.3)
        own = {str(found.cluster_id): "CLUSTER", "127.0.0.1": "HOST", str(self.server.data_dir): "DIRECTORY"}
        self._cluster = Cluster(topic_id, own, {self.port, self.controller_port})

    def _set(self, state: State) -> None:
        """Replaces the rules by those of a state, and waits until both listeners apply them."""
        every = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        self._admin.call(DeleteAclsRequest(filters=[every]), 3, DeleteAclsResponse)
        while self._admin.call(rights_matrix.commit(), 8, OffsetCommitResponse).topics[0].partitions[0].error_code:
            time.sleep(0.3)
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=rule.resource,
                resource_name=RESOURCES[rule.resource],
                resource_pattern_type=3,
                principal=USER,
                host="*",
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in state.rules
        ]
        if creations:
            made = self._admin.call(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
            assert not any(row.error_code for row in made.results), made
        wanted = {(rule.resource, rule.operation, rule.permission) for rule in state.rules}
        for port in (self.port, self.controller_port):
            asking = _connected(port, "admin")
            while self._rules(asking) != wanted:
                time.sleep(0.01)

    @staticmethod
    def _rules(connection: LoggedIn) -> set[tuple[int, int, int]]:
        every = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        found = connection.call(every, 3, DescribeAclsResponse)
        return {(row.resource_type, acl.operation, acl.permission_type) for row in found.resources for acl in row.acls}

    def _answer(self, probe: Probe) -> bytes:
        port = self.port if probe.listener == BROKER else self.controller_port
        assert probe.listener in (BROKER, CONTROLLER)
        connection = self._users.get(probe.listener)
        if connection is None:
            connection = self._users[probe.listener] = _connected(port, "alice")
        answer = connection.answer(probe.make(self._cluster.topic_id), probe.version)
        assert answer is not None, f"{rights_matrix.title(probe)}: the connection ended"
        return rights_matrix.leveled(probe, answer, self._cluster)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only print what would change")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = Recorder(Path(folder)).record()
    if not options.check:
        rights_matrix.save(answers)
        return
    known = rights_matrix.load()
    for name, by_state in answers.items():
        for state, answer in by_state.items():
            before = known.get(name, {}).get(state)
            if before != answer:
                print(f"{name}, {state}: {None if before is None else before.hex()} is now {answer.hex()}")


if __name__ == "__main__":
    main()
