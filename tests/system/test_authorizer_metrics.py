"""The metrics of the authorizer (KIP-877) have the names and labels of a running Apache Kafka's."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from tests.clients.servers import BarnabasServer
from tests.support.process_nodes import until

import kafka_jars

PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: A line of JmxTool: the object's keys, the attribute, its value.
_LINE: Final = re.compile(r"kafka\.server:type=plugins,(?P<keys>.*):(?P<name>[a-z-]+)=")
_SAMPLE: Final = re.compile(r"kafka_server_plugins_(?P<name>\w+)\{(?P<labels>.*)\} ")

Names = set[tuple[str, tuple[str, ...]]]


def of_kafka(folder: Path) -> Names:
    """Returns (name, labels) as Prometheus' JMX exporter writes them."""
    (port,) = kafka_jars.free_ports(1)
    remote = "com.sun.management.jmxremote"
    jvm = (
        *kafka_jars.LIGHT_JVM,
        f"-D{remote}.port={port}",
        f"-D{remote}.rmi.port={port}",
        f"-D{remote}.authenticate=false",
        f"-D{remote}.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    options = ("--one-time", "--object-name", "kafka.server:type=plugins,*", "--report-format", "properties")
    with kafka_jars.KafkaServer(folder, properties=PROPERTIES, jvm=jvm):
        shown = kafka_jars.run_tool("org.apache.kafka.tools.JmxTool", "--jmx-url", url, *options)
    assert shown.returncode == 0, shown.stderr
    found = [_LINE.match(line) for line in shown.stdout.splitlines()]
    return {(each["name"].replace("-", "_"), tuple(sorted(each["keys"].split(",")))) for each in found if each}


def of_barnabas(folder: Path) -> Names:
    (port,) = kafka_jars.free_ports(1)
    server = BarnabasServer(folder, properties=PROPERTIES | {"barnabas.metrics.listener": f"127.0.0.1:{port}"})
    server.start()
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        text: str = until("the metrics", lambda: urllib.request.urlopen(url, timeout=10).read().decode(), 20)
    finally:
        server.stop()
    found = [_SAMPLE.match(line) for line in text.splitlines()]
    return {(each["name"], tuple(sorted(each["labels"].replace('"', "").split(",")))) for each in found if each}


@pytest.mark.full
def test_names_and_labels_are_those_of_kafka(tmp_path: Path) -> None:
    kafka = of_kafka(tmp_path / "kafka")
    assert len(kafka) == 8, kafka
    # A node of Kafka with both roles has an authorizer for each; ours has one.
    assert of_barnabas(tmp_path / "barnabas") == {each for each in kafka if "role=broker" in each[1]}
