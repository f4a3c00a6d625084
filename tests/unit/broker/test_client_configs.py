"""Quotas and SCRAM credentials below /config, as a broker in ZooKeeper mode follows them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.broker.throttling.connection_limits import Slot
from barnabas.metadata.security import SecurityImage
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.znodes import paths
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import DeleteRequest

#: The writes of the recorded steps that Apache Kafka 3.9.1 made.
RECORDED = Path(__file__).parents[2] / "data" / "znodes" / "recorded_writes.json"
BATCH = bytes(encode_batch([Record(0, EPOCH_WALL_MS, None, bytes(1_000), [])]))
_SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def content(**overrides: str) -> bytes:
    fields = ",".join(f'"{key.replace("__", "-")}":"{value}"' for key, value in overrides.items())
    return f'{{"version":1,"config":{{{fields}}}}}'.encode()


def security(broker: ZooKeeperBroker) -> SecurityImage:
    return broker.broker.metadata.image.security


def quotas(broker: ZooKeeperBroker) -> dict[object, dict[str, float]]:
    return {entity: dict(values) for entity, values in security(broker).quotas.items()}


class Operator:
    """Writes configurations, each with its notification, as `kafka-configs` does."""

    def __init__(self, broker: ZooKeeperBroker) -> None:
        self._broker = broker
        self._count = 0

    def write(self, entity: str, data: bytes, notification: bytes | None = None) -> None:
        self._broker.tree.set(f"{paths.CONFIG}/{entity}", data)
        text = notification or f'{{"version":2,"entity_path":"{entity}"}}'.encode()
        self._broker.tree.set(f"{paths.NEW_CONFIG_CHANGE}{self._count:010}", text)
        self._count += 1
        self._broker.settle()


def test_what_is_there_when_a_broker_starts_is_read() -> None:
    broker = ZooKeeperBroker()
    for entity, data in {
        "users/User%3Aann%20b": content(SCRAM__SHA__256=_SCRAM, producer_byte_rate="7"),
        "users/<default>": content(SCRAM__SHA__512=_SCRAM, request_percentage="12.5"),
        "users/ann/clients": b"",
        "users/ann/clients/c%2F1": content(consumer_byte_rate="8"),
        "users/ann/clients/<default>": content(consumer_byte_rate="9"),
        "clients/%3Cdefault%3E": content(consumer_byte_rate="10"),
        "ips/10.0.0.1": content(connection_creation_rate="3"),
    }.items():
        broker.tree.set(f"{paths.CONFIG}/{entity}", data)
    broker.start()
    assert quotas(broker) == {
        (("user", "User:ann b"),): {"producer_byte_rate": 7.0},
        (("user", None),): {"request_percentage": 12.5},
        (("client-id", "c/1"), ("user", "ann")): {"consumer_byte_rate": 8.0},
        (("client-id", None), ("user", "ann")): {"consumer_byte_rate": 9.0},
        (("client-id", "<default>"),): {"consumer_byte_rate": 10.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }
    # Kafka ignores credentials of the default user.
    assert list(security(broker).scram) == [(1, "User:ann b")]
    assert security(broker).scram[1, "User:ann b"].salt == b"salt"


def test_changes_and_removals_are_followed() -> None:
    broker = ZooKeeperBroker().start()
    operator = Operator(broker)
    operator.write("users/ann", content(SCRAM__SHA__256=_SCRAM, SCRAM__SHA__512=_SCRAM, producer_byte_rate="7"))
    operator.write("users/ann/clients/c%201", content(consumer_byte_rate="8", producer_byte_rate="9"))
    assert sorted(security(broker).scram) == [(1, "ann"), (2, "ann")]
    operator.write("users/ann", content(SCRAM__SHA__512=_SCRAM.replace("4096", "8192")))
    operator.write("users/ann/clients/c%201", content(consumer_byte_rate="10"))
    assert quotas(broker) == {(("client-id", "c 1"), ("user", "ann")): {"consumer_byte_rate": 10.0}}
    assert [each.iterations for each in security(broker).scram.values()] == [8192]
    operator.write(
        "clients/old", content(producer_byte_rate="1"), b'{"version":1,"entity_type":"clients","entity_name":"old"}'
    )
    assert (("client-id", "old"),) in quotas(broker)


def test_what_was_changed_while_the_session_was_gone_is_found_without_a_notification() -> None:
    """G42."""
    broker = ZooKeeperBroker()
    broker.tree.set("/config/users/ann", content(SCRAM__SHA__256=_SCRAM, producer_byte_rate="7"))
    broker.tree.set("/config/ips/10.0.0.1", content(connection_creation_rate="3"))
    broker.tree.set("/config/clients/same+one", content(producer_byte_rate="1"))
    broker.start()
    broker.tree.apply([Part(OpCode.DELETE, DeleteRequest("/config/users/ann", ANY_VERSION))], 0)
    broker.tree.set("/config/ips/10.0.0.1", content())
    broker.store.expire()
    broker.settle()
    assert quotas(broker) == {(("client-id", "same one"),): {"producer_byte_rate": 1.0}}
    assert not security(broker).scram


def test_an_invalid_one_keeps_its_last_values_and_stops_no_other() -> None:
    broker = ZooKeeperBroker().start()
    operator = Operator(broker)
    operator.write("users/ann", content(producer_byte_rate="7"))
    operator.write("users/ann", content(producer_byte_rate="much"))
    operator.write("users/%zz", content(producer_byte_rate="7"))
    operator.write("users/ann/friends/bob", content(producer_byte_rate="7"))
    operator.write("clients/c", content(producer_byte_rate="8"))
    kept = {(("user", "ann"),): {"producer_byte_rate": 7.0}, (("client-id", "c"),): {"producer_byte_rate": 8.0}}
    assert quotas(broker) == kept
    broker.store.expire()
    broker.settle()
    assert quotas(broker) == kept
    texts = [text for text, _ in broker.host.faults.reported]
    for problem in (
        "/config/users/ann: config.producer_byte_rate is 'much'",
        "/config/users/%zz: has the name '%zz', which is not percent-encoded UTF-8",
        "/config/users/ann/friends/bob: names neither a user",
    ):
        assert any(problem in text for text in texts), (problem, texts)
    operator.write("users/ann", content(producer_byte_rate="9"))
    assert quotas(broker)[("user", "ann"),] == {"producer_byte_rate": 9.0}


def produced(broker: ZooKeeperBroker, client_id: str, count: int) -> list[int]:
    """Returns the throttle times of Produce requests of a kilobyte."""
    row = ProduceRequest.PartitionProduceData(index=0, records=BATCH)
    request = ProduceRequest(
        acks=1, timeout_ms=100, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[row])]
    )
    client = broker.connect(client_id)
    return [client.call(request, 9, ProduceResponse, within_ms=60_000).throttle_time_ms for _ in range(count)]


def test_quotas_in_znodes_throttle_clients() -> None:
    broker = ZooKeeperBroker()
    broker.tree.set("/config/clients/%3Cdefault%3E", content(producer_byte_rate="999999"))
    broker.tree.set("/config/clients/<default>", content(producer_byte_rate="100"))
    broker.start()
    assert max(produced(broker, "app", 3)) > 0
    operator = Operator(broker)
    operator.write("clients/app", content(producer_byte_rate="1000000"))
    assert produced(broker, "app", 5) == [0] * 5
    operator.write("users/ANONYMOUS/clients/app", content(producer_byte_rate="100"))
    assert max(produced(broker, "app", 3)) > 0
    # A quota that limits nothing, which only znodes can hold.
    for value in ("0", "-1", "NaN"):
        operator.write("users/ANONYMOUS/clients/app", content(producer_byte_rate=value))
        assert produced(broker, "app", 3) == [0] * 3
    operator.write("users/ANONYMOUS/clients/app", content())
    operator.write("clients/app", content())
    operator.write("clients/<default>", content())
    assert broker.broker.services.throttles is not None
    operator.write("clients/%3Cdefault%3E", content())  # a client id of that name
    assert broker.broker.services.throttles is None


def test_quotas_of_addresses_in_znodes_limit_connections() -> None:
    broker = ZooKeeperBroker()
    broker.tree.set("/config/ips/10.0.0.1", content(connection_creation_rate="1"))
    broker.start()
    limits = broker.broker.connection_limits["PLAINTEXT"]

    def taken(address: str) -> int:
        now_ms = broker.host.clock.now_ms()
        return sum(isinstance(limits.take("PLAINTEXT", address, now_ms), Slot) for _ in range(20))

    assert (taken("10.0.0.1"), taken("10.0.0.2")) == (10, 20)
    operator = Operator(broker)
    operator.write("ips/<default>", content(connection_creation_rate="1"))
    operator.write("ips/10.0.0.4", content(connection_creation_rate="0"))
    for address, value in {"10.0.0.5": "NaN", "10.0.0.6": "-1", "10.0.0.7": "Infinity", "10.0.0.8": "0.5"}.items():
        operator.write(f"ips/{address}", content(connection_creation_rate=value))
    assert [taken(f"10.0.0.{each}") for each in (5, 6, 7, 8)] == [0, 20, 20, 0]
    assert (taken("10.0.0.3"), taken("10.0.0.4")) == (10, 0)
    operator.write("ips/<default>", content())
    operator.write("ips/10.0.0.1", content())
    assert (taken("10.0.0.1"), taken("10.0.0.3"), taken("10.0.0.4")) == (20, 20, 0)


Alter = AlterClientQuotasRequest
Entity = dict[str, str | None]
Row = tuple[int, str | None]


def altered(
    broker: ZooKeeperBroker, *changes: tuple[Entity, str, float | None], validate_only: bool = False
) -> list[Row]:
    """Sets quotas, and removes those without a value. Returns the errors."""
    entries = [
        Alter.EntryData(
            entity=[Alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[Alter.OpData(key=key, value=value or 0.0, remove=value is None)],
        )
        for entity, key, value in changes
    ]
    request = Alter(entries=entries, validate_only=validate_only)
    answer = broker.connect().call(request, 1, AlterClientQuotasResponse, within_ms=10_000)
    return [(row.error_code, row.error_message) for row in answer.entries]


def test_quotas_are_set_and_removed_by_requests() -> None:
    broker = ZooKeeperBroker().start()
    other = ZooKeeperBroker(broker.tree, broker__id="2").start()
    Operator(broker).write("users/ann", content(SCRAM__SHA__256=_SCRAM))
    ann: Entity = {"user": "ann"}
    everyone: Entity = {"client-id": None, "user": None}
    assert (
        altered(
            broker,
            (ann, "producer_byte_rate", 7.0),
            (ann | {"client-id": "c/1"}, "request_percentage", 12.5),
            (everyone, "consumer_byte_rate", 8.0),
            ({"client-id": "app"}, "controller_mutation_rate", 3.0),
            ({"ip": "::1"}, "connection_creation_rate", 9.0),
        )
        == [(0, None)] * 5
    )
    texts = {}
    for path in ("users/ann", "users/ann/clients/c%2F1", "users/<default>/clients/<default>", "ips/%3A%3A1"):
        znode = broker.tree.content(f"/config/{path}")
        assert znode is not None, path
        texts[path] = bytes(znode.data or b"")
    assert b'"producer_byte_rate":"7"' in texts["users/ann"]
    assert b"SCRAM-SHA-256" in texts["users/ann"]
    assert b'"request_percentage":"12.5"' in texts["users/ann/clients/c%2F1"]
    assert b'"consumer_byte_rate":"8"' in texts["users/<default>/clients/<default>"]
    assert b'"connection_creation_rate":"9"' in texts["ips/%3A%3A1"]
    other.settle()
    assert quotas(other) == quotas(broker)
    assert len(quotas(broker)) == 5
    described = broker.connect().call(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse)
    assert described.entries is not None
    assert len(described.entries) == 5

    assert altered(broker, (ann, "producer_byte_rate", None), validate_only=True) == [(0, None)]
    assert len(quotas(broker)) == 5
    gone = altered(broker, (ann, "producer_byte_rate", None), ({"client-id": "app"}, "controller_mutation_rate", None))
    assert gone == [(0, None)] * 2
    assert len(quotas(broker)) == 3
    assert list(security(broker).scram) == [(1, "ann")]


def test_invalid_changes_of_quotas_write_nothing() -> None:
    broker = ZooKeeperBroker().start()
    broker.tree.set("/config/users/bad", b"{")
    errors = altered(
        broker,
        ({"user": "ann"}, "producer_byte_rate", -1.0),
        ({"user": "ann", "ip": "::1"}, "producer_byte_rate", 1.0),
        ({"user": ""}, "producer_byte_rate", 1.0),
        ({"planet": "earth"}, "producer_byte_rate", 1.0),
        ({"user": "bad"}, "producer_byte_rate", 1.0),
        ({"user": "bob"}, "producer_byte_rate", 5.0),
    )
    assert [code for code, _ in errors] == [42, 42, 42, 42, -1, 0]
    assert errors[4][1] == "/config/users/bad is not a configuration; see the log of the broker."
    assert quotas(broker) == {(("user", "bob"),): {"producer_byte_rate": 5.0}}


def test_a_change_of_quotas_survives_the_loss_of_the_session() -> None:
    broker = ZooKeeperBroker().start()
    client = broker.connect()
    row = Alter.EntryData(
        entity=[Alter.EntityData(entity_type="user", entity_name="ann")],
        ops=[Alter.OpData(key="producer_byte_rate", value=7.0)],
    )
    client.send(Alter(entries=[row]), 1)
    broker.store.expire()
    broker.settle(1_000)
    ((_, answer),) = client.received()
    assert isinstance(answer, AlterClientQuotasResponse)
    assert [each.error_code for each in answer.entries] == [0]
    assert quotas(broker) == {(("user", "ann"),): {"producer_byte_rate": 7.0}}


def test_quotas_are_written_as_kafka_wrote_them() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    writes = recorded["22-quotas"]
    broker = ZooKeeperBroker().start()
    assert (
        altered(
            broker,
            ({"client-id": "c 1/x"}, "producer_byte_rate", 1024.0),
            ({"user": "alice"}, "consumer_byte_rate", 2048.0),
            ({"client-id": None, "user": "alice"}, "request_percentage", 50.0),
            ({"ip": "127.0.0.9"}, "connection_creation_rate", 10.0),
        )
        == [(0, None)] * 4
    )
    expected = {path: text for path, ((_, text),) in writes.items()}
    notified = [text for path, text in expected.items() if path.startswith(paths.CONFIG_CHANGES)]
    found = {path: broker.tree.content(path) for path in expected if not path.startswith(paths.CONFIG_CHANGES)}
    texts = {path: None if each is None or not each.data else bytes(each.data).decode() for path, each in found.items()}
    assert texts == {path: expected[path] for path in texts}
    changes = [broker.tree.content(f"{paths.NEW_CONFIG_CHANGE}{number:010}") for number in range(len(notified))]
    assert [bytes(each.data or b"").decode() for each in changes if each is not None] == notified
