"""Source and sink against a cluster of Apache Kafka with SASL and TLS listeners."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import types

import kafka_jars
from barnabas.spark import sink_options, source_options
from barnabas.spark.batch_reader import BatchReader
from barnabas.spark.errors import RequestRefused
from barnabas.spark.sink import RecordWriter

pytestmark = pytest.mark.full

JAAS = 'org.apache.kafka.common.security.{} required username="alice" password="{}";'
PLAIN, SCRAM = "plain.PlainLoginModule", "scram.ScramLoginModule"
ROWS = types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.StringType())])
#: A password that Kafka takes byte for byte, and SASLprep would change.
PASSWORD = "s3;cr=et,Ⅷ"


@dataclass
class Secured:
    kafka: kafka_jars.KafkaServer
    ports: dict[str, int]
    trusted: Path
    own: Path

    def options(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, str]:
        found = {"bootstrap.servers": f"127.0.0.1:{self.ports[protocol]}", "security.protocol": protocol}
        if mechanism:
            module = PLAIN if mechanism == "PLAIN" else SCRAM
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": JAAS.format(module, password)}
        if protocol.endswith("SSL"):
            found |= {"ssl.truststore.location": str(self.trusted), "ssl.truststore.type": "PEM"}
        if protocol == "SSL":
            found |= {"ssl.keystore.location": str(self.own), "ssl.keystore.type": "PEM"}
        return {f"kafka.{key}": value for key, value in found.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Listeners of all four kinds; the one with TLS alone wants the client's certificate."""
    directory = tmp_path_factory.mktemp("secured")
    certificate, both = directory / "certificate.pem", directory / "both.pem"
    key = directory / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key)]
    subprocess.run([*made, "-out", str(certificate), *name], check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    numbers = kafka_jars.free_ports(len(names) + 1)
    ports = dict(zip(names, numbers[1:], strict=True))
    jaas = f'org.apache.kafka.common.security.{PLAIN} required user_alice="{PASSWORD}";'
    properties = {
        "listeners": ",".join(
            [*(f"{each}://127.0.0.1:{port}" for each, port in ports.items()), f"CONTROLLER://127.0.0.1:{numbers[0]}"]
        ),
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in names)]),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{numbers[0]}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for each in ("sasl_plaintext", "sasl_ssl"):
        properties[f"listener.name.{each}.plain.sasl.jaas.config"] = _escaped(jaas)
        for scram in ("scram-sha-256", "scram-sha-512"):
            module = f"org.apache.kafka.common.security.{SCRAM} required;"
            properties[f"listener.name.{each}.{scram}.sasl.jaas.config"] = module
    kafka = kafka_jars.KafkaServer(directory, port=ports["PLAINTEXT"], properties=properties)
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        _add_scram(admin)
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(timeout=60)
        yield Secured(kafka, ports, certificate, both)
    finally:
        kafka.stop()


def _escaped(text: str) -> str:
    """Returns text in the form of Java's property files."""
    return "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in text)


def _add_scram(admin: AdminClient) -> None:
    for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(each, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(timeout=60)


def _write(options: dict[str, str], values: list[str]) -> None:
    batch = pa.RecordBatch.from_pydict({"key": values, "value": values})
    parsed = sink_options.parse(options | {"topic": "t"}, ROWS, overwrite=False)
    RecordWriter(parsed, "test/0/0").write(iter([batch]))


def _read(options: dict[str, str]) -> list[str]:
    reader = BatchReader(source_options.parse(options | {"subscribe": "t"}, is_stream=False))
    batches: list[Any] = [batch for each in reader.partitions() for batch in reader.read(each)]
    return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


WAYS = [
    ("SSL", ""),
    *((protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in ("PLAIN", "SCRAM-SHA-256")),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.mark.parametrize("protocol, mechanism", WAYS)
def test_what_the_sink_writes_the_source_reads(secured: Secured, protocol: str, mechanism: str) -> None:
    options = secured.options(protocol, mechanism)
    mark = f"{protocol}-{mechanism}-"
    _write(options, [f"{mark}{number}" for number in range(3)])
    assert [each for each in _read(options) if each.startswith(mark)] == [f"{mark}{number}" for number in range(3)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_one_clear_line(secured: Secured, mechanism: str) -> None:
    options = secured.options("SASL_SSL", mechanism, "guess")
    for act in (lambda: _read(options), lambda: _write(options, ["never"])):
        with pytest.raises(RequestRefused, match=r"[Aa]uthentication failed") as refused:
            act()
        assert "\n" not in str(refused.value)
        assert "guess" not in str(refused.value)


def test_a_certificate_that_nobody_vouches_for(secured: Secured) -> None:
    options = secured.options("SASL_SSL", "PLAIN")
    del options["kafka.ssl.truststore.location"]
    for act in (lambda: _read(options), lambda: _write(options, ["never"])):
        with pytest.raises(RequestRefused, match=r"certificate"):
            act()


def test_in_spark(spark: Any, secured: Secured) -> None:
    options = secured.options("SASL_SSL", "SCRAM-SHA-256")
    rows = spark.range(5).selectExpr("cast(id as string) key", "concat('spark-', id) value")
    rows.write.format("barnabas").options(**options, topic="t").mode("append").save()
    read = spark.read.format("barnabas").options(**options, subscribe="t").load()
    assert read.where("cast(value as string) like 'spark-%'").count() == 5
