"""`barnabas up --secure` and `Cluster(secure=True)`: TLS and a log-in on all listeners, users, and client settings."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.test_abuse import resident_bytes

from barnabas.cli import entry
from barnabas.embedded.failures import Failure
from barnabas.testing import Cluster

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("secure"), brokers=3, secure=True) as made:
        client = AdminClient({"bootstrap.servers": made.bootstrap, **made.client_settings})
        client.create_topics([NewTopic("orders", 3, 3)])["orders"].result(TIMEOUT_S)
        yield made


def written(cluster: Cluster, **changes: str) -> str | None:
    """Produces a record with the settings of the user admin and these changes. Returns the error, if there is one."""
    settings = {key.replace("_", "."): value for key, value in changes.items()}
    errors: list[str | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            **cluster.client_settings,
            **settings,
            "message.timeout.ms": 5_000,
            "acks": "all",
            "log_level": 0,
        }
    )
    producer.produce(
        "orders", b"one", on_delivery=lambda error, _: errors.append(None if error is None else str(error))
    )
    producer.flush(TIMEOUT_S)
    [error] = errors
    return error


def test_a_client_with_the_settings_is_served_after_a_kill_too(cluster: Cluster) -> None:
    assert written(cluster) is None
    cluster.kill(1)
    assert written(cluster) is None
    cluster.start_broker(1)
    assert written(cluster) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"sasl_password": "wrong"},
        {"sasl_username": "nobody"},
        {"security_protocol": "SASL_PLAINTEXT"},
        {"security_protocol": "PLAINTEXT"},
    ],
)
def test_other_clients_are_not_served(cluster: Cluster, changes: dict[str, str]) -> None:
    assert written(cluster, **changes) is not None


def test_an_idle_connection_takes_no_memory_for_a_buffer_that_it_does_not_use(tmp_path: Path) -> None:
    """The buffer of a TLS connection lay within the heap, on pages that earlier handshakes had used: 50 kB each."""
    # The cluster is new: freed memory of earlier connections would be used again.
    with Cluster(tmp_path, secure=True) as cluster, contextlib.ExitStack() as held:
        context = ssl.create_default_context(cafile=cluster.client_settings["ssl.ca.location"])
        host, _, port = cluster.bootstrap.rpartition(":")

        def connect(count: int) -> int:
            """Returns the memory of the broker after these connections."""
            for _ in range(count):
                plain = socket.create_connection((host, int(port)), TIMEOUT_S)
                held.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            return resident_bytes(cluster.pid)

        before = connect(50)
        assert connect(400) - before < 400 * 38_000


def test_a_certificate_of_another_authority_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster(tmp_path, secure=True) as other:
        assert written(cluster, ssl_ca_location=other.client_settings["ssl.ca.location"]) is not None
        assert other.client_settings["sasl.password"] != cluster.client_settings["sasl.password"]


def test_the_files_are_readable_by_their_owner_only(cluster: Cluster) -> None:
    security = Path(cluster.directory) / "security"
    assert stat.S_IMODE(security.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in security.iterdir() if file.name != "ca.pem"} == {0}


def test_commands_log_in_by_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        code = entry.run(list(arguments))
        printed = capsys.readouterr()
        assert code == 0, printed
        said.append(printed.err)
        return printed.out

    said: list[str] = []
    run("up", "--secure", "--port", "0", "--detach")
    try:
        settings = dict(line.strip().split("=", 1) for line in said[0].splitlines() if line.startswith("  "))
        file = Path("barnabas-data/security/admin.properties")
        written = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
        assert settings == {**written, "sasl.password": "(in the file)"}, "what a client must set"
        run("topics", "create", "ours", "--partitions", "2")
        assert "active controller" in run("status")
        assert "TRANSACTIONAL ID" in run("transactions", "list")
        assert "ours-0" in run("monitor", "--check")
        assert "admin" in Path("barnabas-data/security/admin-java.properties").read_text()
    finally:
        run("down")
    # The next start needs no option.
    run("up", "--detach")
    try:
        assert "ours" in run("topics", "list")
    finally:
        run("down")


def test_a_cluster_without_security_does_not_get_it_later(tmp_path: Path) -> None:
    with Cluster(tmp_path):
        pass
    with pytest.raises(Failure, match="has no security"):
        Cluster(tmp_path, secure=True).start()
    with pytest.raises(Failure, match="needs a metadata quorum"):
        Cluster(tmp_path / "other", secure=True, zookeeper=True).start()


def test_damaged_users_are_named(tmp_path: Path) -> None:
    with Cluster(tmp_path, secure=True) as cluster:
        assert cluster.client_settings
    (tmp_path / "security" / "users.json").write_text("[]")
    with pytest.raises(Failure, match=r"users\.json is damaged"):
        Cluster(tmp_path, secure=True).start()


def test_the_metadata_of_a_cluster_need_a_log_in(cluster: Cluster) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "socket.timeout.ms": 2_000})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
