"""`barnabas quotas`, and limits of connections: what the commands change acts on the next connection."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs

from barnabas.cli import entry
from barnabas.testing import Cluster

Run = Callable[..., tuple[int, str, str]]
#: An ApiVersions request of version 0.
REQUEST = bytes.fromhex("0000000a00120000000000010000")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(properties={"quota.window.num": "3"}) as made:
        yield made


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = entry.run([*arguments, "--bootstrap", cluster.bootstrap])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def listed(run: Run, *entity: str) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    code, out, err = run("quotas", "list", *entity, "--json")
    assert code == 0, err
    return [(each["entity"], each["quotas"]) for each in json.loads(out)]


def port_of(cluster: Cluster) -> int:
    return int(cluster.bootstrap.rpartition(":")[2])


def is_served(link: socket.socket) -> bool:
    """Returns whether a connection gets an answer; False if it is closed."""
    link.settimeout(10)
    try:
        link.sendall(REQUEST)
        return bool(link.recv(1))
    except ConnectionError:
        return False


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    assert run("quotas", "list")[1] == "there is no quota\n"
    code, out, _ = run("quotas", "set", "--user", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert (code, out) == (0, "user alice: producer_byte_rate=1048576, request_percentage=12.5\n")
    assert run("quotas", "set", "--user", "alice", "--client-defaults", "consumer_byte_rate=5")[0] == 0
    assert run("quotas", "set", "--user-defaults", "producer_byte_rate=7")[0] == 0
    assert run("quotas", "set", "--ip", "10.1.2.3", "connection_creation_rate=9")[0] == 0
    assert listed(run) == [
        ({"client-id": None, "user": "alice"}, {"consumer_byte_rate": 5.0}),
        ({"ip": "10.1.2.3"}, {"connection_creation_rate": 9.0}),
        ({"user": None}, {"producer_byte_rate": 7.0}),
        ({"user": "alice"}, {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}),
    ]
    assert len(listed(run, "--user", "alice")) == 2
    assert listed(run, "--user-defaults") == [({"user": None}, {"producer_byte_rate": 7.0})]
    lines = [line.split() for line in run("quotas", "list", "--user", "alice")[1].splitlines()]
    assert ["user", "alice,", "client-id", "<default>", "consumer_byte_rate", "5"] in lines

    assert run("quotas", "remove", "--user", "alice", "request_percentage")[0] == 0
    code, _, err = run("quotas", "remove", "--user", "alice", "request_percentage")
    assert (code, "there is no request_percentage of user alice" in err) == (1, True)
    assert run("quotas", "remove", "--user", "alice")[1] == "user alice: removed producer_byte_rate\n"
    assert [entity for entity, _ in listed(run, "--user", "alice")] == [{"client-id": None, "user": "alice"}]
    for entity in (("--user", "alice", "--client-defaults"), ("--user-defaults",), ("--ip", "10.1.2.3")):
        assert run("quotas", "remove", *entity)[0] == 0
    assert listed(run) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("set", "producer_byte_rate=1"), "no entity is named"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=1"), "not both"),
        (("set", "--user", "", "producer_byte_rate=1"), "needs a name"),
        (("set", "--user", "a", "--ip", "::1", "producer_byte_rate=1"), "for no user or client id"),
        (("set", "--user", "a", "producer_byte_rate"), "give it as KEY=VALUE"),
        (("set", "--user", "a", "byte_rate=1"), "its quotas are producer_byte_rate, consumer_byte_rate"),
        (("set", "--user", "a", "producer_byte_rate=0"), "must be a number above 0"),
        (("set", "--user", "a", "producer_byte_rate=1.5"), "producer_byte_rate cannot be a fractional value."),
        (("set", "--ip", "10.0.0.1", "producer_byte_rate=1"), "its quotas are connection_creation_rate"),
        (("set", "--ip", "host", "connection_creation_rate=1"), "host is not a valid IP or resolvable host."),
        (("remove", "--user", "nobody"), "there is no quota of user nobody"),
    ],
)
def test_wrong_arguments_are_named(run: Run, arguments: tuple[str, ...], text: str) -> None:
    code, _, err = run("quotas", *arguments)
    assert (code, text in err) == (1, True), err


def test_the_quota_of_an_address_acts_on_the_next_connection(cluster: Cluster, run: Run) -> None:
    # The commands connect from 127.0.0.1, the connections of the test from another address.
    assert run("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=2")[0] == 0

    def connected() -> bool:
        with socket.create_connection(("127.0.0.1", port_of(cluster)), 10, ("127.0.0.9", 0)) as link:
            return is_served(link)

    results = [connected() for _ in range(6)]
    # The two windows of a second admit four connections; the others are closed after a second.
    assert results[:4] == [True] * 4
    assert not all(results)
    assert run("quotas", "remove", "--ip", "127.0.0.9")[0] == 0
    assert all(connected() for _ in range(20))


def test_limits_change_while_the_broker_runs(cluster: Cluster, run: Run) -> None:
    def change(*arguments: str) -> None:
        code, _, err = run("configs", "alter", "--broker-defaults", *arguments)
        assert code == 0, err

    change("--add-config", "max.connections.per.ip.overrides=127.0.0.8:2")
    links = [socket.create_connection(("127.0.0.1", port_of(cluster)), 10, ("127.0.0.8", 0)) for _ in range(3)]
    try:
        assert [is_served(link) for link in links] == [True, True, False]
        change("--add-config", "listener.name.plaintext.max.connection.creation.rate=1000")
        change("--delete-config", "max.connections.per.ip.overrides")
        links.append(socket.create_connection(("127.0.0.1", port_of(cluster)), 10, ("127.0.0.8", 0)))
        assert is_served(links[3])
    finally:
        for link in links:
            link.close()
        change("--delete-config", "listener.name.plaintext.max.connection.creation.rate")


@pytest.mark.full
def test_the_tool_of_kafka_sees_and_makes_the_same_quotas(cluster: Cluster, run: Run) -> None:
    java = programs.java(cluster.bootstrap)

    def kafka_configs(*arguments: str) -> str:
        done = java.tool("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap, *arguments)
        assert done.code == 0, done.text
        return done.out

    assert run("quotas", "set", "--user", "bob", "--client", "app", "producer_byte_rate=1000")[0] == 0
    assert run("quotas", "set", "--ip-defaults", "connection_creation_rate=500")[0] == 0
    time.sleep(0.1)
    described = kafka_configs(
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
        "--entity-type",
        "clients",
        "--entity-name",
        "app",
    )
    assert "user-principal 'bob'" in described
    assert "producer_byte_rate=1000.0" in described
    assert "connection_creation_rate=500.0" in kafka_configs("--describe", "--entity-type", "ips", "--entity-default")
    kafka_configs(*("--alter", "--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=77"))
    assert listed(run, "--client-defaults") == [({"client-id": None}, {"consumer_byte_rate": 77.0})]
    kafka_configs("--alter", "--entity-type", "ips", "--entity-default", "--delete-config", "connection_creation_rate")
    assert listed(run, "--ip-defaults") == []
    for entity in (("--user", "bob", "--client", "app"), ("--client-defaults",)):
        assert run("quotas", "remove", *entity)[0] == 0
