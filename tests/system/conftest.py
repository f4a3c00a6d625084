"""Fixtures of the system tests: real processes, real sockets, unmodified clients.

The server is Barnabas, or Apache Kafka with BARNABAS_TARGET=kafka. Programs outside Python (kcat, Java, Maven, Go,
Node.js) are installed by tools/install_system_deps.sh; a failure names those that are missing.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from tests.clients import programs  # noqa: E402
from tests.clients.drivers import Client, Clients, ProcessClient  # noqa: E402
from tests.clients.dumps import faults_in  # noqa: E402
from tests.clients.kcat import Kcat  # noqa: E402
from tests.clients.python_clients import AioKafka, ConfluentKafka, KafkaPython  # noqa: E402
from tests.clients.servers import Server, new_cluster, new_server, target  # noqa: E402

ThreeBrokers = Callable[..., AbstractContextManager[tuple[Server, Clients]]]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One running server for all tests that only talk to it."""
    made = new_server(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def server(shared_server: Server) -> Server:
    """The server of a test; a module may put another one here."""
    return shared_server


@pytest.fixture(scope="session")
def left_directories(request: pytest.FixtureRequest) -> Iterator[list[Path] | None]:
    """Yields, in the full suite, a list for the directories of the tests' servers; at the end Kafka's dump tool finds
    no fault in them.
    """
    if "not full" in request.config.getoption("-m") or target() == "kafka":
        yield None
        return
    found: list[Path] = []
    yield found
    if found:
        java = programs.java("127.0.0.1:1")
        try:
            assert faults_in(java, found) == []
        finally:
            java.close()


@pytest.fixture
def own_server(tmp_path: Path, left_directories: list[Path] | None) -> Iterator[Callable[..., Server]]:
    """Makes servers for a test that starts, kills and restarts them itself; those still running are ended."""
    made: list[Server] = []

    def make(**properties: str) -> Server:
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        made.append(new_server(tmp_path / f"server-{len(made)}", settings))
        return made[-1]

    yield make
    for each in made:
        if left_directories is None:
            each.kill()
        else:
            each.stop()
            left_directories.append(each.data_dir)


@pytest.fixture(scope="session")
def shared_clients(shared_server: Server) -> Iterator[Clients]:
    """Clients by name; each program is started when it is first asked for and then kept."""
    with clients_of(shared_server) as by_name:
        yield by_name


@pytest.fixture(scope="session")
def clients(shared_clients: Clients) -> Clients:
    return shared_clients


@contextmanager
def clients_of(server: Server) -> Iterator[Clients]:
    makers: dict[str, Callable[[str], Client]] = {
        "confluent-kafka": ConfluentKafka,
        "aiokafka": AioKafka,
        "kafka-python": KafkaPython,
        "kcat": Kcat,
        "java": programs.java,
        "franz-go": programs.franz_go,
        "kafkajs": programs.kafkajs,
    }
    made: dict[str, Client] = {}

    def by_name(name: str) -> Client:
        if name == "kcat" and shutil.which("kcat") is None:
            pytest.fail("kcat not found: run tools/install_system_deps.sh")
        if name not in made:
            made[name] = makers[name](server.bootstrap)
        return made[name]

    try:
        yield by_name
    finally:
        for client in made.values():
            if isinstance(client, ProcessClient):
                client.close()


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> ThreeBrokers:
    """Starts a cluster of three, for as long as a `with` lasts, and clients of it. Its arguments: how many replicas a
    topic has that does not say so, and whether it is in ZooKeeper mode."""

    @contextmanager
    def start(replicas: int, *, zookeeper: bool = False) -> Iterator[tuple[Server, Clients]]:
        in_sync = str(max(1, replicas - 1))
        settings = {"default.replication.factor": str(replicas), "min.insync.replicas": in_sync}
        cluster = new_cluster(tmp_path_factory.mktemp("three"), 3, settings, zookeeper=zookeeper)
        cluster.start()
        try:
            with clients_of(cluster) as by_name:  # type: ignore[arg-type]
                yield cluster, by_name  # type: ignore[misc]
        finally:
            cluster.stop()

    return start


@pytest.fixture(scope="session")
def java(clients: Clients) -> ProcessClient:
    """The JVM that holds Kafka's Java client and its command line tools."""
    client = clients("java")
    assert isinstance(client, ProcessClient)
    return client


@pytest.fixture(scope="session")
def new_topic_name() -> Callable[[str], str]:
    numbers = itertools.count(1)
    return lambda stem: f"{stem}-{next(numbers)}"
