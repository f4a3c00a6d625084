"""`barnabas acls` on a secure cluster: rules act on other clients, and `explain` names the one that decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.process_nodes import until

from barnabas.cli import entry
from barnabas.testing import Cluster

TIMEOUT_S = 30
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("acls"), secure=True) as made:
        client = AdminClient({"bootstrap.servers": made.bootstrap, **made.client_settings})
        client.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
        yield made


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = [f"-X{key}={value}" for key, value in cluster.client_settings.items()]

    def call(*arguments: str) -> tuple[int, str, str]:
        code = entry.run([*arguments, "--bootstrap", cluster.bootstrap, *settings])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def sees_orders(cluster: Cluster) -> bool:
    settings = {**cluster.client_settings, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, **settings, "sasl.password": "alice-secret"})
    found = client.list_topics("orders", timeout=TIMEOUT_S).topics["orders"]
    return found.error is None


def test_a_rule_is_added_explained_and_removed(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("alice-secret\n")
    with password.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("users", "add", "alice")[0] == 0
    question = ("acls", "explain", "User:alice", "describe", "topic:orders")
    code, out, err = run(*question)
    assert (code, "denied, because the resource has no rule" in out, "super.users" in err) == (1, True, True)
    assert not sees_orders(cluster)

    assert run("acls", "add", "User:alice", "read", "topic:ord", "--prefixed")[0] == 0
    code, out, _ = run(*question)
    assert (code, "allowed by the rule allow User:alice read topic:ord" in out) == (0, True)
    assert sees_orders(cluster)
    # The first rule of a cluster creates the journal, a second later.
    until("who added it", lambda: "\nthe rule was added by User:admin at 20" in run(*question)[1], TIMEOUT_S)

    assert run("acls", "add", "User:*", "describe", "topic:orders", "--deny")[0] == 0
    code, out, _ = run(*question)
    assert (code, "denied by the rule deny User:* describe topic:orders" in out) == (1, True)
    assert not sees_orders(cluster)
    listed = json.loads(run("acls", "list", "--json")[1])
    assert [(rule["permission"], rule["pattern"], rule["name"]) for rule in listed] == [
        ("allow", "prefixed", "ord"),
        ("deny", "literal", "orders"),
    ]

    assert run("acls", "remove", "User:*", "describe", "topic:orders", "--deny")[0] == 0
    assert sees_orders(cluster)
    code, _, err = run("acls", "remove", "User:*", "describe", "topic:orders", "--deny")
    assert (code, "there is no such rule" in err) == (1, True)


@pytest.mark.parametrize(
    ("operation", "resource", "shown"),
    [
        ("create-tokens", "user:User:bob", "user"),
        ("describe", "delegation-token:*", "delegation-token"),
        ("two-phase-commit", "transactional-id:payments", "transactional-id"),
        ("alter", "cluster", "cluster"),
    ],
)
def test_each_type_of_resource_has_rules(run: Run, operation: str, resource: str, shown: str) -> None:
    """Rules that librdkafka does not know were listed as "unknown", and could be neither added nor explained."""
    rule = ("User:carol", operation, resource)
    assert run("acls", "add", *rule)[0] == 0
    code, out, _ = run("acls", "explain", *rule)
    assert (code, f"allowed by the rule allow User:carol {operation} {resource}" in out) == (0, True)
    listed = json.loads(run("acls", "list", "--json")[1])
    assert [(each["operation"], each["resource"]) for each in listed if each["principal"] == "User:carol"] == [
        (operation, shown)
    ]
    assert run("acls", "remove", *rule)[0] == 0
    assert run("acls", "explain", *rule)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("alice", "read", "topic:orders"), "is not a principal"),
        (("User:alice", "read", "orders"), "is not a resource"),
        (("User:alice", "read", "topic:"), "is not a resource"),
        (("User:alice", "alter", "cluster:other"), "is not a resource"),
        (("User:alice", "create-tokens", "user:bob"), "give it as user:User:NAME"),
    ],
)
def test_wrong_arguments_are_named(run: Run, arguments: tuple[str, ...], text: str) -> None:
    code, _, err = run("acls", "add", *arguments)
    assert (code, text in err) == (1, True), err


def test_without_an_authorizer_everything_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with Cluster() as plain:
        code = entry.run(["acls", "explain", "User:x", "read", "topic:y", "--bootstrap", plain.bootstrap])
        assert (code, "the cluster has no authorizer" in capsys.readouterr().out) == (0, True)
        assert entry.run(["acls", "list", "--bootstrap", plain.bootstrap]) == 0
        assert "the cluster has no authorizer" in capsys.readouterr().out
        assert entry.run(["acls", "add", "User:x", "read", "topic:y", "--bootstrap", plain.bootstrap]) == 1
        assert "SECURITY_DISABLED" in capsys.readouterr().err
