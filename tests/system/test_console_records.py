"""Records by the console with a real broker: masks, schemas, files, the live tail, written and copied records; and who
may what, in a cluster with an authorizer.
"""

from __future__ import annotations

import csv
import http.client
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.console_server import RunningConsole, embedded_target
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.schema_values import ADDRESS, ORDER, avro

from barnabas.console.messages.masks import HIDDEN, Mask
from barnabas.console.state import ConsoleOptions
from barnabas.testing import Cluster

TOPICS = {"plain": 2, "cards": 1, "cards-copy": 1, "other": 3, "busy": 1, "avro": 1}
MASKS = (Mask(("cards*",), ("key", "value.number", "headers.auth")),)
ORDER_VALUE = {"id": 7, "card": {"number": "4111"}, "day": 20_000, "photo": None, "to": {"city": "Ulm"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), secure=True) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **running.client_settings})
        for each in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
            each.result(20)
        yield running


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture(scope="module")
def producer(cluster: Cluster) -> Producer:
    found = Producer({"bootstrap.servers": cluster.bootstrap, **cluster.client_settings})
    for number in range(10):
        found.produce(
            "plain", json.dumps({"n": number, "text": "=1+1"}).encode(), key=f"k{number}", partition=number % 2
        )
    headers: list[tuple[str, str | bytes | None]] = [("auth", b"Bearer 77"), ("trace", b"7")]
    for number in range(3):
        found.produce(
            "cards", json.dumps({"number": f"no411{number}", "n": number}).encode(), key="ann", headers=headers
        )
    assert found.flush(20) == 0
    return found


@pytest.fixture(scope="module")
def console(
    cluster: Cluster, registry: SchemaRegistryServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    target = replace(embedded_target(cluster.directory), schema_registry=registry.url)
    with RunningConsole([target], ConsoleOptions(masks=MASKS, interval_s=0.5, audit=audit)) as running:
        running.filled()
        running.session()
        running.until(lambda: len(running.get("topics", internal=0)["rows"]) == len(TOPICS), "the topics are there")
        yield running


@contextmanager
def tail(console: RunningConsole, **parameters: object) -> Iterator[Iterator[tuple[str, Any]]]:
    """Opens a live tail. Yields its messages as (event, data)."""
    parts = urlsplit(console.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", f"/api/tail?{urlencode(parameters)}", headers={"Cookie": console.cookie})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()

    def messages() -> Iterator[tuple[str, Any]]:
        event = ""
        for raw in answer:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, json.loads(value)

    try:
        yield messages()
    finally:
        connection.close()


def records_of(cluster: Cluster, topic: str) -> list[Any]:
    """Returns the records of a topic as an ordinary client reads them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **cluster.client_settings, "group.id": "test"})
    places = [TopicPartition(topic, place, 0) for place in range(TOPICS[topic])]
    ends = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    consumer.assign(places)
    found: list[Any] = []
    while len(found) < ends:
        message = consumer.poll(10)
        assert message is not None, "the records do not arrive"
        found.append(message)
    consumer.close()
    return found


@pytest.mark.usefixtures("producer")
def test_masked_fields_are_in_no_list_record_file_or_question(console: RunningConsole) -> None:
    answers = [
        console.ask("messages", topic="cards"),
        console.ask("messages", topic="cards", body="hex", key="hex"),
        console.ask("messages", topic="cards", format="jsonl"),
        console.ask("messages", topic="cards", format="csv"),
        console.ask("message", topic="cards", partition=0, offset=1),
        console.ask("message", topic="cards", partition=0, offset=1, body="text"),
    ]
    for answer in answers:
        assert answer.status == 200, answer.body
        assert HIDDEN.encode() in answer.body or HIDDEN.encode().hex().encode() in answer.body
        for secret in (b"no411", b"ann", b"Bearer", b"no411".hex().encode(), b"616e6e"):
            assert secret not in answer.body, answer.body
    for question in ({"q": "no4111"}, {"filter": 'value.number == "no4111"'}, {"filter": 'key == "ann"'}):
        assert console.get("messages", topic="cards", **question)["records"] == []
    assert len(console.get("messages", topic="cards", filter="value.n == 1")["records"]) == 1


@pytest.mark.usefixtures("producer")
def test_an_export_of_records_is_in_the_audit_without_their_content(console: RunningConsole) -> None:
    shown = console.ask("messages", topic="cards", **{"from": "start"})
    assert shown.status == 200
    before = console.get("audit")["entries"]
    answer = console.ask(
        "messages", topic="cards", q="ann-7", filter='key == "4110"', format="csv", **{"from": "start"}
    )
    assert answer.status == 200
    entries = console.get("audit")["entries"][: -len(before) or None]
    assert [(each["action"], each["result"]) for each in entries] == [
        ("export-records", "ok"),
        ("export-records", "begun"),
    ]
    assert entries[0]["arguments"] == {"topic": "cards", "format": "csv", "limit": 50}
    assert entries[0]["text"] == "0 records"
    for content in ("ann-7", "4110"):
        assert content not in json.dumps(entries)


@pytest.mark.usefixtures("producer")
def test_a_file_has_no_formulas_and_a_record_has_an_address(console: RunningConsole) -> None:
    answer = console.ask("messages", topic="plain", q="=1+1", format="csv", limit=10_000, **{"from": "start"})
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert len(rows) == 10
    assert answer.headers["content-disposition"].endswith('plain.csv"')
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    lines = console.ask("messages", topic="plain", format="jsonl", **{"from": "start"}).body.splitlines()
    assert [json.loads(line)["offset"] for line in lines].count(4) == 2
    assert console.ask("messages", topic="plain", limit=5_000).code == "bad-request"


def test_avro_is_read_with_the_schema_of_the_registry(
    console: RunningConsole, producer: Producer, registry: SchemaRegistryServer
) -> None:
    registry.add("address", json.dumps(ADDRESS))
    reference = {"name": "Address", "subject": "address", "version": 1}
    schema_id = registry.add("avro-value", json.dumps(ORDER), references=(reference,))
    for each in (schema_id, schema_id, 999):
        producer.produce("avro", avro(each, ORDER_VALUE))
    assert producer.flush(20) == 0
    found = console.get("messages", topic="avro", filter='value.to.city == "Ulm"', **{"from": "start"})
    assert [record["value"]["schema"] for record in found["records"]] == [{"id": schema_id, "name": "Order"}] * 2
    (_, _, third) = console.get("messages", topic="avro", **{"from": "start"})["records"]
    assert "does not have it" in third["value"]["problem"]
    assert registry.asked.count(f"/schemas/ids/{schema_id}") == 1


def test_a_tail_shows_what_is_written_masked_and_filtered(console: RunningConsole, producer: Producer) -> None:
    with tail(console, topic="cards-copy", filter="value.n > 1") as messages:
        assert next(messages) == ("records", {"records": [], "dropped": 0, "searched": 0, "problems": []})
        for number in range(3):
            producer.produce("cards-copy", json.dumps({"number": "4111", "n": number}).encode(), key="ann")
        producer.flush(20)
        event, data = next(messages)
        assert event == "records"
        assert [json.loads(each["value"]["text"]) for each in data["records"]] == [{"number": HIDDEN, "n": 2}]
        assert "ann" not in json.dumps(data)
    with tail(console, topic="plain", filter="value.n >") as messages:
        event, data = next(messages)
        assert (event, data["code"]) == ("problem", "filter")
    assert console.ask("tail", topic="nothing").code == "not-found"
    console.until(lambda: console.console is not None and console.console.streams.open == 0, "the tails have ended", 15)


def test_a_tail_of_a_busy_topic_drops_and_counts(console: RunningConsole, producer: Producer) -> None:
    with tail(console, topic="busy") as messages:
        next(messages)
        written = 20_000
        for number in range(written):
            producer.produce("busy", str(number).encode())
        assert producer.flush(30) == 0
        shown, dropped = 0, 0
        for _, data in messages:
            shown, dropped = shown + len(data["records"]), data["dropped"]
            assert len(data["records"]) <= 100
            if shown + dropped >= written:
                break
        assert dropped > 10_000
        assert shown >= 100


def test_a_record_is_written_and_written_again(console: RunningConsole, cluster: Cluster) -> None:
    body = {
        "topic": "other",
        "key": {"text": "21"},
        "value": {"json": '{"a": 1}'},
        "headers": [{"name": "h", "value": {"hex": "00ff"}}],
    }
    planned = console.post("actions/produce", body | {"dry_run": True}).json
    assert "writes a record of 10 bytes to other-" in planned["plan"][0]
    done = console.post("actions/produce", body).json
    assert done["ok"] is True
    again = {"topic": "other", "partition": done["partition"], "offset": done["offset"], "to": "other"}
    assert console.post("actions/produce-again", again | {"dry_run": True}).json["ok"] is True
    assert console.post("actions/produce-again", again).json["ok"] is True
    first, second = records_of(cluster, "other")
    assert (first.key(), first.value(), first.headers()) == (b"21", b'{"a": 1}', [("h", b"\x00\xff")])
    assert (second.key(), second.value(), second.headers()) == (first.key(), first.value(), first.headers())
    assert first.partition() == second.partition() == (-973932308 & 0x7FFFFFFF) % 3
    missing = again | {"offset": 99}
    assert console.post("actions/produce-again", missing).code == "not-found"
    audit = json.dumps(console.get("audit")["entries"])
    assert '{"a": 1}' not in audit.replace("\\", "")
    assert "produce-again" in audit


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"topic": "nothing", "value": None}, "not-found"),
        ({"topic": "__consumer_offsets", "value": {"text": "x"}}, "refused"),
        ({"topic": "other", "partition": 9, "value": None}, "bad-request"),
        ({"topic": "other", "value": "x"}, "bad-request"),
        ({"topic": "other", "value": {"json": "{"}}, "bad-request"),
        ({"topic": "other", "value": {"hex": "0"}}, "bad-request"),
        ({"topic": "other", "value": {"text": "\ud800"}}, "bad-request"),
        ({"topic": "other", "headers": [{"name": 5}]}, "bad-request"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(console: RunningConsole, body: dict[str, Any], code: str) -> None:
    assert console.post("actions/produce", body).code == code


@pytest.mark.usefixtures("producer")
def test_records_are_copied_with_their_times_and_masks_are_kept(console: RunningConsole, cluster: Cluster) -> None:
    body = {"topic": "plain", "to": "other", "filter": "value.n < 4"}
    before = len(records_of(cluster, "other"))
    planned = console.post("actions/copy-records", body | {"dry_run": True}).json
    assert planned["plan"][0] == "copies 4 records of plain to other"
    assert console.post("actions/copy-records", body).json["records"] == 4
    copied = records_of(cluster, "other")
    assert len(copied) == before + 4
    originals = {(each.key(), each.value(), each.timestamp()) for each in records_of(cluster, "plain")}
    assert sum((each.key(), each.value(), each.timestamp()) in originals for each in copied) == 4
    for to, code in (("other", "refused"), ("cards", "bad-request"), ("nothing", "refused")):
        assert console.post("actions/copy-records", {"topic": "cards", "to": to}).code == code
    again = {"topic": "cards", "partition": 0, "offset": 0, "to": "plain"}
    assert console.post("actions/produce-again", again).code == "refused"
    done = console.post("actions/copy-records", {"topic": "cards", "to": "cards-copy", "limit": 2})
    assert done.json["records"] == 2
    assert any(each.value() == b'{"number": "no4110", "n": 0}' for each in records_of(cluster, "cards-copy"))


# -- who may what

RULE = {"resource": "topic", "name": "plain", "principal": "User:ann", "operation": "read", "permission": "allow"}


def test_rules_are_added_listed_and_removed(console: RunningConsole) -> None:
    shown = {"pattern": "literal", "host": "*"} | RULE
    assert console.post("actions/add-acl", RULE | {"dry_run": True}).json["plan"] == [
        "adds the rule: allow User:ann read topic plain"
    ]
    assert shown not in console.get("acls")["rows"]
    assert console.post("actions/add-acl", RULE).json["ok"] is True
    console.until(lambda: shown in console.get("acls")["rows"], "the rule is listed")
    assert console.post("actions/add-acl", RULE | {"dry_run": True}).json["warnings"]
    assert console.post("actions/remove-acl", RULE).json["ok"] is True
    console.until(lambda: shown not in console.get("acls")["rows"], "the rule is gone")
    assert console.post("actions/remove-acl", RULE).code == "not-found"
    assert console.post("actions/add-acl", RULE | {"principal": "ann"}).code == "bad-request"
    assert console.post("actions/add-acl", RULE | {"operation": "fly"}).code == "bad-request"


def test_users_get_passwords_that_nobody_sees(console: RunningConsole, cluster: Cluster) -> None:
    body = {"user": "bob", "mechanism": "SCRAM-SHA-512", "password": "correct horse battery"}
    assert console.post("actions/set-scram-user", body | {"dry_run": True}).json["ok"] is True
    assert not any(row["user"] == "bob" for row in console.get("scram-users")["rows"])
    assert console.post("actions/set-scram-user", body).json["ok"] is True
    row = {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    console.until(lambda: row in console.get("scram-users")["rows"], "the user is listed")
    assert console.console is not None
    assert console.console.options.audit is not None
    assert "correct horse" not in console.console.options.audit.read_text()
    removed = {"user": "bob", "mechanism": "SCRAM-SHA-512"}
    assert console.post("actions/remove-scram-user", removed).json["ok"] is True
    console.until(lambda: row not in console.get("scram-users")["rows"], "the user is gone")


def test_quotas_are_set_and_removed(console: RunningConsole) -> None:
    body = {"entity": {"user": "ann", "client-id": None}, "quotas": {"producer_byte_rate": 1_000_000}}
    planned = console.post("actions/set-quotas", body | {"dry_run": True}).json
    assert planned["plan"] == ["client-id (default), user ann: producer_byte_rate none -> 1e+06"]
    assert console.post("actions/set-quotas", body).json["ok"] is True
    row = {"entity": {"client-id": None, "user": "ann"}, "quotas": {"producer_byte_rate": 1_000_000.0}}
    console.until(lambda: row in console.get("quotas")["rows"], "the quota is listed")
    assert console.post("actions/set-quotas", body | {"quotas": {"producer_byte_rate": None}}).json["ok"] is True
    console.until(lambda: row not in console.get("quotas")["rows"], "the quota is gone")
    for bad in ({"entity": {"group": "x"}}, {"quotas": {"x": 1}}, {"quotas": {"producer_byte_rate": -1}}):
        assert console.post("actions/set-quotas", body | bad).code == "bad-request"


def test_rules_users_and_quotas_are_files_without_formulas_and_secrets(console: RunningConsole) -> None:
    rule = {"resource": "group", "name": "=1+1", "pattern": "literal", "principal": "User:ann", "host": "*"}
    rule |= {"operation": "read", "permission": "allow"}
    quota = {"entity": {"user": "+ann", "client-id": None}, "quotas": {"request_percentage": 12.5}}
    made = [
        ("add-acl", rule),
        ("set-scram-user", {"user": "=bob", "mechanism": "SCRAM-SHA-256", "password": "correct horse battery"}),
        ("set-quotas", quota),
    ]
    for action, body in made:
        assert console.post(f"actions/{action}", body).json["ok"] is True
    user = {"user": "=bob", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    for route, row in (("acls", rule), ("scram-users", user), ("quotas", quota)):
        listed = partial(lambda name, wanted: wanted in console.get(name)["rows"], route, row)
        console.until(listed, f"{route} are listed")
        answer = console.ask(route, format="json-file")
        assert answer.headers["content-disposition"] == f'attachment; filename="{_cluster_name(console)}-{route}.json"'
        assert (answer.json["kind"], answer.json["cluster"]) == (route, _cluster_name(console))
        assert answer.json["rows"] == console.get(route)["rows"]
        assert row in answer.json["rows"]
    files = {route: console.ask(route, format="csv") for route in ("acls", "scram-users", "quotas")}
    tables = {route: list(csv.DictReader(io.StringIO(each.body.decode()))) for route, each in files.items()}
    assert [row["principal"] for row in tables["acls"] if row["name"] == "'=1+1"] == ["User:ann"]
    assert {"user": "'=bob", "mechanism": "SCRAM-SHA-256", "iterations": "4096"} in tables["scram-users"]
    assert list(tables["scram-users"][0]) == ["user", "mechanism", "iterations"]
    (limited,) = (row for row in tables["quotas"] if row["user"] == "'+ann")
    assert (limited["client-id"], limited["request_percentage"]) == ("<default>", "12.5")
    assert limited["producer_byte_rate"] == ""
    entries = console.get("audit", limit=20)["entries"]
    exports = [(each["action"], each["result"]) for each in entries if each["action"].startswith("export-")]
    assert exports[:6] == [
        (f"export-{route}", result) for route in ("quotas", "scram-users", "acls") for result in ("ok", "begun")
    ]
    assert entries[0]["arguments"] == {"format": "csv"}
    assert "correct horse" not in json.dumps(entries)
    # A row of the file is the body of the action about it.
    body = next(row for row in console.ask("acls", format="json-file").json["rows"] if row["name"] == "=1+1")
    assert console.post("actions/remove-acl", body).json["ok"] is True


def _cluster_name(console: RunningConsole) -> str:
    return str(console.session()["cluster"])
