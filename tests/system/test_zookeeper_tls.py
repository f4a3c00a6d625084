"""Brokers whose connections to ZooKeeper have TLS: they register, and with `zookeeper.set.acl` their znodes have the
ACLs that those of Apache Kafka 3.9.1 have.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from tests.support.process_nodes import until
from tests.support.tls_stores import Stores
from tests.support.zookeeper_mode import OurBroker
from tests.support.zookeeper_process import OurZooKeeper, client_of
from tests.support.zookeeper_tls import SecureZooKeeper, client_settings, tls_before

import kafka39_jars
from kafka39_jars import KafkaBroker
from kafka_jars import free_ports

WAIT_S = 60.0
Broker = TypeVar("Broker", bound=KafkaBroker)
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
#: The numbers that sequential znodes end with.
_NUMBER = re.compile(r"[0-9]{10}$")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    made = Stores(tmp_path_factory.mktemp("stores"))
    for name in ("zookeeper", "broker", "stranger"):
        made.pem(name)
    return made


@pytest.fixture(scope="module")
def apache(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    server = SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), stores, "zookeeper")
    with server:
        yield server


def started(broker: Broker) -> Broker:
    broker.launch()
    try:
        broker.wait()
    except BaseException:
        broker.kill()
        raise
    return broker


@contextmanager
def secure_client(apache: SecureZooKeeper, stores: Stores, name: str) -> Iterator[KazooClient]:
    file = str(stores.authority.directory / f"{name}.pem")
    client = KazooClient(
        f"127.0.0.1:{apache.secure_port}", use_ssl=True, ca=str(stores.trusted), certfile=file, keyfile=file
    )
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def operate(broker: KafkaBroker) -> None:
    """Makes the changes that create a znode of each kind."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    # A request that arrives before Apache's broker knows its controller stays without an answer.
    until("a controller", lambda: admin.list_topics(timeout=10).controller_id == 1, WAIT_S)
    (created,) = admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "1000"})]).values()
    created.result(WAIT_S)
    credentials = UserScramCredentialUpsertion(
        "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    (user,) = admin.alter_user_scram_credentials([credentials]).values()
    user.result(WAIT_S)
    entry = ConfigEntry("log.retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    (config,) = admin.incremental_alter_configs([changed]).values()
    config.result(WAIT_S)


def acls_below(client: KazooClient, root: str) -> dict[str, list[tuple[int, str, str]]]:
    """Returns the ACL of each znode below a root, by its path without the root and without sequence numbers."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        acls, _ = client.get_acls(path)
        shown = _NUMBER.sub("N", path.removeprefix(root)) or "/"
        found[shown] = sorted((acl.perms, acl.id.scheme, acl.id.id) for acl in acls)
        waiting += [f"{path}/{name}" for name in client.get_children(path)]
    return found


@pytest.mark.full
def test_znodes_have_the_acls_that_those_of_kafka_have(apache: SecureZooKeeper, stores: Stores, tmp_path: Path) -> None:
    found = {}
    with secure_client(apache, stores, "broker") as client:
        for kind, store in ((OurBroker, "PEM"), (KafkaBroker, "PKCS12")):
            root = f"/{kind.__name__}"
            settings = {**SETTINGS, **client_settings(stores, store, "broker"), "zookeeper.set.acl": "true"}
            connect = f"localhost:{apache.secure_port}{root}"
            broker = started(kind(tmp_path / kind.__name__, connect, 1, properties=settings))
            try:
                operate(broker)
                assert json.loads(client.get(f"{root}/brokers/ids/1")[0])["port"] == broker.port
                found[kind] = acls_below(client, root)
            finally:
                broker.kill()
    ours, theirs = found[OurBroker], found[KafkaBroker]
    owner = (31, "x509", "CN=broker")
    assert ours["/brokers/ids/1"] == ours["/controller"] == ours["/"] == [(1, "world", "anyone"), owner]
    assert ours["/config/users/ann"] == ours["/config/brokers/1"] == ours["/config/users"] == [owner]
    assert ours["/consumers"] == [(31, "world", "anyone")]
    assert ours == theirs


@pytest.mark.full
def test_a_certificate_with_another_subject_reads_but_does_not_write(
    apache: SecureZooKeeper, stores: Stores, tmp_path: Path
) -> None:
    connect = f"localhost:{apache.secure_port}/owned"
    settings = {**SETTINGS, **client_settings(stores, "JKS", "broker"), "zookeeper.set.acl": "true"}
    broker = started(OurBroker(tmp_path / "1", connect, 1, properties=settings))
    try:
        operate(broker)
        with secure_client(apache, stores, "stranger") as client:
            assert client.get("/owned/brokers/topics/orders")
            with pytest.raises(NoAuthError):
                client.set("/owned/brokers/topics/orders", b"")
            with pytest.raises(NoAuthError):
                client.get("/owned/config/users/ann")
        settings |= client_settings(stores, "JKS", "stranger")
        line = refusal(OurBroker(tmp_path / "2", connect, 2, properties=settings))
        assert "/brokers/ids/2 cannot be created: NO_AUTH" in line
    finally:
        broker.kill()


@pytest.mark.full
@pytest.mark.parametrize("kinds", [(OurBroker, KafkaBroker), (KafkaBroker, OurBroker)], ids=["theirs", "ours"])
def test_a_broker_with_the_same_subject_takes_over_from_a_killed_controller(
    apache: SecureZooKeeper, stores: Stores, tmp_path: Path, kinds: tuple[type[KafkaBroker], type[KafkaBroker]]
) -> None:
    root = f"/taken-by-{kinds[1].__name__}"
    settings = {**SETTINGS, **client_settings(stores, "PKCS12", "broker"), "zookeeper.set.acl": "true"}
    brokers = [
        kind(tmp_path / str(number), f"localhost:{apache.secure_port}{root}", number, properties=settings)
        for number, kind in enumerate(kinds, 1)
    ]
    try:
        for broker in brokers:
            started(broker)
        operate(brokers[0])
        with secure_client(apache, stores, "broker") as client:
            assert json.loads(client.get(f"{root}/controller")[0])["brokerid"] == 1
            brokers[0].kill()
            until("another controller", lambda: _controller(client, root) == 2, WAIT_S)
            admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
            until("the new controller", lambda: admin.list_topics(timeout=10).controller_id == 2, WAIT_S)
            (created,) = admin.create_topics([NewTopic("later", 1, 1)]).values()
            created.result(WAIT_S)
            acls, _ = client.get_acls(f"{root}/brokers/topics/later/partitions/0/state")
            assert {(acl.perms, acl.id.scheme) for acl in acls} == {(31, "x509"), (1, "world")}
    finally:
        for broker in brokers:
            broker.kill()


def _controller(client: KazooClient, root: str) -> int:
    """Returns the id of the controller; -1 if there is none."""
    try:
        return int(json.loads(client.get(f"{root}/controller")[0])["brokerid"])
    except NoNodeError:
        return -1


@pytest.mark.full
def test_a_cluster_is_secured_while_it_runs(apache: SecureZooKeeper, stores: Stores, tmp_path: Path) -> None:
    """TLS first, then ACLs for new znodes, then Kafka's tool for those that exist."""
    connect = f"localhost:{apache.secure_port}/secured"
    broker = OurBroker(tmp_path / "1", connect, 1, properties=SETTINGS | client_settings(stores, "PKCS12", "broker"))
    owned, everybody = (31, "x509", "CN=broker"), (31, "world", "anyone")
    try:
        started(broker)
        operate(broker)
        broker.stop()
        broker.properties["zookeeper.set.acl"] = "true"
        started(broker)
        with secure_client(apache, stores, "broker") as client:
            before = acls_below(client, "/secured")
            assert before["/brokers/topics/orders"] == [everybody]
            assert owned in before["/brokers/ids/1"]
            file = str(broker.properties_path)
            migrator = ("kafka.admin.ZkSecurityMigrator", "--zookeeper.acl=secure", f"--zookeeper.connect={connect}")
            done = kafka39_jars.run_tool(*migrator, f"--zk-tls-config-file={file}")
            assert done.returncode == 0, done.stdout + done.stderr
            after = acls_below(client, "/secured")
            assert {path for path, acl in after.items() if owned not in acl} == {"/consumers"}
            assert after["/config/users/ann"] == [owned]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        until("a controller", lambda: admin.list_topics(timeout=10).controller_id == 1, WAIT_S)
        (deleted,) = admin.delete_topics(["orders"]).values()
        deleted.result(WAIT_S)
    finally:
        broker.kill()


@pytest.mark.full
def test_a_session_continues_over_tls_when_the_server_is_back(stores: Stores, tmp_path: Path) -> None:
    server = SecureZooKeeper(tmp_path / "zookeeper", stores, "zookeeper")
    server.start()
    settings = {**SETTINGS, **client_settings(stores, "PKCS12", "broker")}
    broker = started(OurBroker(tmp_path / "1", f"localhost:{server.secure_port}", 1, properties=settings))
    try:
        server.kill()
        server.start()
        until("the session continues", lambda: " continues at localhost" in broker.log, WAIT_S)
    finally:
        broker.kill()
        server.kill()


# -- our server, behind an end of TLS


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurZooKeeper]:
    with OurZooKeeper(tmp_path_factory.mktemp("ours")) as server:
        yield server


def refusal(broker: OurBroker) -> str:
    """Starts a broker that ends by itself. Returns its last line."""
    broker.launch()
    assert broker.process is not None
    assert broker.process.wait(60) in (1, 70)
    assert "Traceback" not in broker.log
    return broker.log.splitlines()[-1]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "barnabas.cli.entry", *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)


def test_a_broker_and_the_commands_reach_zookeeper_over_tls(
    zookeeper: OurZooKeeper, stores: Stores, tmp_path: Path
) -> None:
    with tls_before(zookeeper.port, stores, "zookeeper") as port:
        connect = f"localhost:{port}/kafka"
        (metrics_port,) = free_ports(1)
        settings = {
            **SETTINGS,
            **client_settings(stores, "PEM", "broker"),
            "barnabas.metrics.listener": f"127.0.0.1:{metrics_port}",
        }
        broker = started(OurBroker(tmp_path / "1", connect, 1, properties=settings))
        try:
            with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as response:
                name = 'barnabas_certificate_not_after_seconds{listener="zookeeper",subject="CN=broker"}'
                assert name in response.read().decode()
            with client_of(zookeeper.port) as client:
                registered: Any = json.loads(client.get("/kafka/brokers/ids/1")[0])
                assert registered["port"] == broker.port
            shown = command("znodes", "/controller", "-z", connect, "--zk-tls-config-file", broker.properties_path)
            assert "broker_id=1" in shown.stdout, shown.stderr
        finally:
            assert broker.stop() == 0
        file = broker.properties_path
        directory = broker.properties["log.dirs"]
        moved = command(
            "migrate-zookeeper", "--connect", connect, "--log-dirs", directory, "--zk-tls-config-file", file
        )
        assert moved.returncode == 0, moved.stderr
        assert "becomes a directory of KRaft node 1" in moved.stdout


def test_a_server_without_the_expected_name_is_refused(zookeeper: OurZooKeeper, stores: Stores, tmp_path: Path) -> None:
    stores.pem("elsewhere", "elsewhere.example")
    settings = {**client_settings(stores, "PEM", "broker"), "zookeeper.connection.timeout.ms": "2000"}
    with tls_before(zookeeper.port, stores, "elsewhere") as port:
        broker = OurBroker(tmp_path / "1", f"localhost:{port}", 1, properties=settings)
        assert "the stores of zookeeper.ssl, and that the servers are running" in refusal(broker)
        assert (
            f"TLS with the node at localhost:{port} failed: the peer's certificate is refused: Hostname" in broker.log
        )
        settings["zookeeper.ssl.endpoint.identification.algorithm"] = ""
        started(OurBroker(tmp_path / "2", f"localhost:{port}", 2, properties=settings)).kill()


def test_a_store_that_cannot_be_read_is_refused_before_any_dial(stores: Stores, tmp_path: Path) -> None:
    settings = client_settings(stores, "PEM", "broker") | {"zookeeper.ssl.keystore.location": "/no/such.pem"}
    line = refusal(OurBroker(tmp_path, "localhost:1", 1, properties=settings))
    assert "zookeeper.ssl.keystore.location=/no/such.pem: cannot be read: No such file" in line
