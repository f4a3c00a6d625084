"""The tests of kafkajs 2.2.4 from a clone of its repository (checkout_suites.py), on three brokers as they expect them.

The brokers have the ports and users that testHelpers/ names. Tokens are unsecured ones, on a cluster of their
own, as in the project's own runs. With BARNABAS_TARGET=kafka the brokers are those of Apache Kafka 4.1.0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.clients.checkout_suites import KAFKAJS, sources
from tests.clients.foreign_suites import Result, Results, cached, junit_cases, run_or_raise
from tests.clients.toxiproxy import Toxiproxy
from tests.support.apache_nodes import ApacheNode
from tests.support.docker_commands import DockerCommands, write_tool
from tests.support.process_nodes import Node, Nodes
from tests.support.tls_stores import Stores

import kafka_jars

#: The ports of the first broker; those of the others are 3 and 6 higher.
PORTS: Final = {"HOST": 9_092, "TLS": 9_093, "LOGIN": 9_094}
#: The delay of a network: a test expects no answer within 1 ms.
LATENCY_MS: Final = 5
SPECS: Final = ("src/admin/", "src/broker/", "src/cluster/", "src/consumer/", "src/network/", "src/producer/")
TOKEN_SPECS: Final = (
    "src/producer/index.spec.js",
    "src/broker/__tests__/connect.spec.js",
    "src/consumer/__tests__/connection.spec.js",
    "src/broker/__tests__/disconnect.spec.js",
    "src/admin/__tests__/connection.spec.js",
    "src/broker/__tests__/reauthenticate.spec.js",
)
_CREATION: Final = "expects LEADER_NOT_AVAILABLE for a topic that is being created"
_JOIN: Final = (
    "joins with a rebalance timeout of 0 ms: a member is removed unless its SyncGroup arrives in the same instant"
)
_NO_TEXT: Final = "expects null in place of an empty error message"
#: Tests that may fail, by the beginning of their names, with the reason. They are written for Kafka 2.4 and older, and
#: fail at Apache Kafka 4.1.0 with the same listeners and settings as well.
FAILING: Final = {
    "src/admin/__tests__/fetchTopicMetadata.spec.js.Admin fetchTopicMetadata creates a new topic": _CREATION,
    "src/broker/__tests__/createAcls.spec.js.Broker > createAcls request": _NO_TEXT,
    "src/broker/__tests__/describeAcls.spec.js.Broker > describeAcls request": _NO_TEXT,
    "src/broker/__tests__/describeConfigs.spec.js.Broker > describeConfigs request": _NO_TEXT,
    "src/broker/__tests__/describeGroups.spec.js.Broker > DescribeGroups request": _CREATION,
    "src/broker/__tests__/heartbeat.spec.js.Broker > Heartbeat request": _JOIN,
    "src/broker/__tests__/listOffsets.spec.js.Broker > ListOffsets v0 request": "Kafka 4.0 removed version 0",
    "src/broker/__tests__/offsetCommit.spec.js.Broker > OffsetCommit request": _JOIN,
    "src/broker/__tests__/offsetFetch.spec.js.Broker > OffsetFetch request": _JOIN,
    "src/broker/__tests__/produce.spec.js.Broker > Produce Record batch request to a topic with max timestamp": (
        "sets message.timestamp.difference.max.ms, which Kafka 4.0 removed"
    ),
    "src/broker/__tests__/txnOffsetCommit.spec.js.Broker > TxnOffsetCommit ignores invalid transaction fields": (
        "expects that they are ignored"
    ),
    "src/cluster/__tests__/brokerPool.spec.js.": _CREATION,
    "src/consumer/__tests__/errorRecovery.spec.js.Consumer recovers from offset out of range": _JOIN,
}
_MODULES: Final = "org.apache.kafka.common.security"
_USERS: Final = 'user_test="testtest" user_bob="bobbob" user_alice="alicealice"'
#: The user of SCRAM and its passwords, as scripts/createScramCredentials.sh makes it.
_SCRAM: Final = (
    ("testscram", ScramMechanism.SCRAM_SHA_256, b"testtestscram=256"),
    ("testscram", ScramMechanism.SCRAM_SHA_512, b"testtestscram=512"),
)


class KafkajsCluster:
    """Three brokers, with the log-ins by passwords or that by unsecured tokens."""

    def __init__(self, folder: Path, *, has_tokens: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # OpenSSL refuses the store of the checkout, whose certificate is signed by way of SHA-1; the tests accept any
        # other one.
        stores = Stores(folder)
        stores.pem("broker")
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,TLS:SSL,"
            "LOGIN:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            **stores.settings("JKS", "broker"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "true",
            "default.replication.factor": "2",
            "num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            **(_tokens() if has_tokens else _passwords()),
        }
        self._has_tokens = has_tokens
        roles = dict.fromkeys((0, 1, 2), "broker,controller")
        makers = dict.fromkeys(roles, ApacheNode if os.environ.get("BARNABAS_TARGET") == "kafka" else Node)
        self.nodes = Nodes(folder, roles, properties=properties, makers=makers)
        own = iter(kafka_jars.free_ports(3 * len(PORTS) + 1))
        self._proxies = Toxiproxy(folder, next(own))
        for node in self.nodes.all:
            node.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{node.port}"
            for name, first in PORTS.items():
                port, proxy = next(own), first + 3 * node.node_id
                node.settings["listeners"] += f",{name}://127.0.0.1:{port}"
                node.settings["advertised.listeners"] += f",{name}://localhost:{proxy}"
                self._proxies.add(f"{name}-{node.node_id}", proxy, port, latency_ms=LATENCY_MS)
        where = ("--bootstrap-server", f"localhost:{PORTS['HOST']}")
        write_tool(folder / "kafka-topics", "org.apache.kafka.tools.TopicCommand", *where, dropped="--zookeeper")
        self.docker = DockerCommands({}, {}, folder)

    def start(self) -> KafkajsCluster:
        self.nodes.start()
        if not self._has_tokens:
            settings: dict[str, Any] = {"bootstrap.servers": f"localhost:{PORTS['HOST']}"}
            admin = AdminClient(settings)
            for name, mechanism, password in _SCRAM:
                change = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 8_192), password)
                for done in admin.alter_user_scram_credentials([change]).values():
                    done.result(30)
        return self

    def close(self) -> None:
        self.docker.close()
        self._proxies.close()
        self.nodes.close()


def _passwords() -> dict[str, str]:
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {_USERS};",
        "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
    }


def _tokens() -> dict[str, str]:
    module = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.login.oauthbearer.sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="admin";',
        "connections.max.reauth.ms": "15000",
    }


def kafkajs(folder: Path, cluster: KafkajsCluster, specs: Sequence[str] = ()) -> Results:
    """Runs the tests of these files or folders; by default, all that need brokers with the cluster's log-ins."""
    checkout = _kafkajs_tests()
    folder.mkdir(parents=True, exist_ok=True)
    has_tokens = "listener.name.login.oauthbearer.sasl.jaas.config" in cluster.nodes[0].settings
    environment = {
        **os.environ,
        **cluster.docker.environment,
        "NODE_ENV": "test",
        "KAFKA_VERSION": "2.4",
        "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1",
        "OAUTHBEARER_ENABLED": str(int(has_tokens)),
        "JEST_JUNIT_OUTPUT_DIR": str(folder),
        "JEST_JUNIT_OUTPUT_NAME": "kafkajs.xml",
        "JEST_JUNIT_CLASSNAME": "{filepath}",
        "JEST_JUNIT_TITLE": "{classname} {title}",
    }
    report = folder / "kafkajs.xml"
    command = ["node_modules/.bin/jest", "--ci", "--runInBand", "--no-watchman", "--forceExit"]
    chosen = specs or (TOKEN_SPECS if has_tokens else SPECS)
    done = subprocess.run(
        [*command, *chosen], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    (folder / "kafkajs.log").write_text(done.stdout + done.stderr)
    if not report.exists():
        return {"the process": Result("failed", done.stdout[-2000:] + done.stderr[-2000:])}
    found: dict[str, Result] = {}
    for name, result in junit_cases(report):
        # Some tests of a file have the same name: one that fails counts.
        if name not in found or result.outcome == "failed":
            found[name] = result
    return found


def may_fail(name: str) -> bool:
    return name.startswith(tuple(FAILING))


def _kafkajs_tests() -> Path:
    """Returns the folder of the sources with the packages that they need."""
    if shutil.which("npm") is None:
        raise RuntimeError("npm not found: run tools/install_system_deps.sh")

    def build(target: Path) -> None:
        made = sources(KAFKAJS, target / "kafkajs")
        run_or_raise(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"], made)

    return cached("kafkajs", KAFKAJS.tag.encode(), build) / "kafkajs"
