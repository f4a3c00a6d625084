"""Fixtures of the system tests: real processes, real sockets, unmodified clients.

The server is Barnabas, or Apache Kafka with BARNABAS_TARGET=kafka. Programs outside Python (kcat, Java, Maven, Go,
Node.js) are installed by tools/install_system_deps.sh; what is missing is named by the failure.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

from clients import programs  # noqa: E402
from clients.drivers import Client, Clients, ProcessClient  # noqa: E402
from clients.dumps import faults_in  # noqa: E402
from clients.kcat import Kcat  # noqa: E402
from clients.python_clients import AioKafka, ConfluentKafka, KafkaPython  # noqa: E402
from clients.servers import Server, new_server, target  # noqa: E402


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One running server for all tests that only talk to it."""
    made = new_server(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def left_directories(request: pytest.FixtureRequest) -> Iterator[list[Path] | None]:
    """In the full suite: what the tests' servers left behind; Kafka's dump tool finds no fault in it in the end."""
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
def clients(server: Server) -> Iterator[Clients]:
    """Clients by name; each program is started when it is first asked for and then kept."""
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

    yield by_name
    for client in made.values():
        if isinstance(client, ProcessClient):
            client.close()


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
