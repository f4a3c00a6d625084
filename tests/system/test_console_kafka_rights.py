"""The console as a Kafka user whose password is wrong, and as one who can read one topic: every route says why it has
nothing, and a change is refused by the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.console_server import RunningConsole, embedded_target

from barnabas.console.state import ConsoleOptions
from barnabas.monitor.broker_connection import Security
from barnabas.testing import Cluster

READER, PASSWORD, WRONG = "reader", "reader-secret-1", "wrong-secret-2"
SEEN, HIDDEN = "seen", "hidden"
#: Reading routes with what they need, and what they answer for lack of rights: a reason in one of their fields.
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("overview", {}),
    ("map", {}),
    ("topics", {}),
    ("topics", {"format": "csv"}),
    ("topic-policies", {}),
    ("topic", {"name": SEEN}),
    ("partition", {"topic": SEEN, "partition": 0}),
    ("lanes", {"topic": SEEN}),
    ("brokers", {}),
    ("broker", {"id": 1}),
    ("quorum", {}),
    ("timeline", {}),
    ("groups", {}),
    ("links", {}),
    ("acls", {}),
    ("scram-users", {}),
    ("quotas", {}),
    ("whatif", {"ask": "lose-broker", "broker": 1}),
    ("moves", {}),
    ("search", {"q": ""}),
]
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("create-topic", {"name": "new", "partitions": 1, "replication": 1}),
    ("delete-topic", {"name": SEEN, "confirm": SEEN}),
    ("delete-topics", {"topics": [SEEN], "confirm": "1"}),
    ("alter-configs", {"kind": "topic", "name": SEEN, "set": {"retention.ms": "60000"}}),
    ("add-partitions", {"name": SEEN, "partitions": 5}),
    ("delete-records", {"topic": SEEN, "partitions": {"0": -1}}),
    ("elect", {"kind": "preferred", "partitions": [{"topic": SEEN, "partition": 0}]}),
    ("reassign", {"partitions": [{"topic": SEEN, "partition": 0, "replicas": [1]}]}),
    ("produce", {"topic": SEEN, "value": {"text": "x"}}),
    ("set-quotas", {"entity": {"user": READER}, "quotas": {"producer_byte_rate": 5}}),
    ("set-scram-user", {"user": "mine", "mechanism": "SCRAM-SHA-256", "password": "x" * 20}),
    (
        "add-acl",
        {"resource": "topic", "name": HIDDEN, "principal": f"User:{READER}", "operation": "all", "permission": "allow"},
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), secure=True) as running:
        settings = {"bootstrap.servers": running.bootstrap, **running.client_settings}
        client = AdminClient({**settings})
        for each in client.create_topics([NewTopic(SEEN, 1, 1), NewTopic(HIDDEN, 1, 1)]).values():
            each.result(20)
        producer = Producer(settings)
        producer.produce(SEEN, b"a record")
        assert producer.flush(20) == 0
        with console_of(running) as admin:
            user = {"user": READER, "mechanism": "SCRAM-SHA-256", "password": PASSWORD}
            assert admin.post("actions/set-scram-user", user).status == 200
            rule = {"resource": "topic", "name": SEEN, "principal": f"User:{READER}", "permission": "allow"}
            assert admin.post("actions/add-acl", rule | {"operation": "read"}).status == 200
        yield running


@contextmanager
def console_of(cluster: Cluster, **changed: str) -> Iterator[RunningConsole]:
    """Serves a console of a user of the cluster: the administrator, with other settings."""
    settings = {name: str(value) for name, value in cluster.client_settings.items()} | changed
    security = Security.from_properties(settings)
    target = replace(embedded_target(cluster.directory), security=security, directory=None)
    with RunningConsole([target], ConsoleOptions(interval_s=0.5, timeout_s=2.0)) as running:
        if "sasl.password" not in changed or changed["sasl.password"] != WRONG:
            running.filled()
        running.session()
        yield running


@pytest.fixture(scope="module")
def reader(cluster: Cluster) -> Iterator[RunningConsole]:
    settings = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": READER, "sasl.password": PASSWORD}
    with console_of(cluster, **settings) as running:
        running.until(lambda: running.ask("topic", name=SEEN).status == 200, "the topic is there")
        yield running


def test_a_wrong_password_is_said_on_every_screen_and_in_no_answer(cluster: Cluster) -> None:
    with console_of(cluster, **{"sasl.password": WRONG}) as console:
        console.until(lambda: console.ask("overview").json["problem"] is not None, "the problem is not known")
        assert "authentication" in console.ask("overview").json["problem"].lower()
        for route, parameters in ROUTES:
            answer = console.ask(route, **parameters)
            assert answer.status == 200 or answer.code == "unreachable", (route, answer.body)
            assert WRONG.encode() not in answer.body
        for route, body in CHANGES:
            answer = console.post(f"actions/{route}", body)
            assert answer.code == "unreachable", (route, answer.body)
            assert WRONG.encode() not in answer.body


@pytest.mark.parametrize(("route", "parameters"), ROUTES, ids=str)
def test_a_route_answers_without_the_rights(reader: RunningConsole, route: str, parameters: dict[str, Any]) -> None:
    answer = reader.ask(route, **parameters)
    assert answer.status == 200 or answer.code in ("refused", "unreachable"), answer.body
    assert HIDDEN.encode() not in answer.body
    assert PASSWORD.encode() not in answer.body
    if route in ("acls", "scram-users", "quotas"):
        assert answer.json["data"]["rows"] is None
        assert "AUTHORIZATION_FAILED" in answer.json["data"]["problem"]
    if route == "topic":
        assert "uthoriz" in answer.json["data"]["configs_problem"], answer.body


def test_records_are_those_that_the_user_can_read(reader: RunningConsole) -> None:
    found = reader.get("messages", topic=SEEN, **{"from": "start"})
    assert [each["value"]["text"] for each in found["records"]] == ["a record"]
    assert reader.ask("messages", topic=HIDDEN).code == "not-found"


@pytest.mark.parametrize(("route", "body"), CHANGES, ids=[route for route, _ in CHANGES])
def test_a_change_without_the_right_is_refused_and_in_the_audit_log(
    reader: RunningConsole, route: str, body: dict[str, Any]
) -> None:
    answer = reader.post(f"actions/{route}", body)
    assert answer.code == "refused", answer.body
    assert "AUTHORIZATION_FAILED" in answer.json["error"]["text"]
    entry = reader.get("audit")["entries"][0]
    assert (entry["action"], entry["result"]) == (route, "refused")
    assert "AUTHORIZATION_FAILED" in entry["text"]
