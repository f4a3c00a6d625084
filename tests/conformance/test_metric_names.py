"""Every kafka_* metric is one of Kafka's, as Prometheus's JMX exporter names it with its example kafka-2_0_0.yml.

The rules are applied here to the MBeans of a running Apache Kafka 4.1.0 (tests/data/configs/4.1.0-mbeans.txt); beans
without a rule get the exporter's default names.
"""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.support.metrics import scraped
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, produce

MBEANS = Path(__file__).resolve().parents[1] / "data" / "configs" / "4.1.0-mbeans.txt"
#: (pattern, name, the groups that are label names) in the order of the example file; the first that matches counts.
_KEY_VALUE = r", (\S+)=([^,]+)"
RULES = [
    (r"kafka\.coordinator\.(\w+)<type=(.+), name=(.+)><>Value", r"kafka_coordinator_\1_\2_\3", ()),
    (rf"kafka\.(\w+)<type=(.+), name=(.+)PerSec\w*{_KEY_VALUE}{_KEY_VALUE}><>Count", r"kafka_\1_\2_\3_total", (4, 6)),
    (rf"kafka\.(\w+)<type=(.+), name=(.+)PerSec\w*{_KEY_VALUE}><>Count", r"kafka_\1_\2_\3_total", (4,)),
    (r"kafka\.(\w+)<type=(.+), name=(.+)PerSec\w*><>Count", r"kafka_\1_\2_\3_total", ()),
    (rf"kafka\.(\w+)<type=(.+), name=(.+){_KEY_VALUE}{_KEY_VALUE}><>Value", r"kafka_\1_\2_\3", (4, 6)),
    (rf"kafka\.(\w+)<type=(.+), name=(.+){_KEY_VALUE}><>Value", r"kafka_\1_\2_\3", (4,)),
    (r"kafka\.(\w+)<type=(.+), name=(.+)><>Value", r"kafka_\1_\2_\3", ()),
    (rf"kafka\.(\w+)<type=(.+), name=(.+){_KEY_VALUE}{_KEY_VALUE}><>Count", r"kafka_\1_\2_\3_count", (4, 6)),
    (rf"kafka\.(\w+)<type=(.+), name=(.+){_KEY_VALUE}><>Count", r"kafka_\1_\2_\3_count", (4,)),
    (r"kafka\.(\w+)<type=(.+), name=(.+)><>Count", r"kafka_\1_\2_\3_count", ()),
]


def spelled(bean: str, attribute: str) -> tuple[str, frozenset[str]]:
    """Returns the metric's name and its labels."""
    domain, _, properties = bean.partition(":")
    shown = f"{domain}<{', '.join(properties.split(','))}><>{attribute}"
    for pattern, name, labels in RULES:
        match = re.fullmatch(pattern, shown)
        if match is not None:
            return _safe(match.expand(name)), frozenset(match[group] for group in labels)
    pairs = [part.partition("=")[::2] for part in properties.split(",")]
    return _safe(f"{domain}_{pairs[0][1]}_{attribute}"), frozenset(key for key, _ in pairs[1:])


def _safe(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()


def kafkas_metrics() -> dict[str, set[frozenset[str]]]:
    found: dict[str, set[frozenset[str]]] = {}
    for line in MBEANS.read_text(encoding="utf-8").splitlines():
        bean, _, attributes = line.partition("\t")
        for attribute in attributes.split():
            name, labels = spelled(bean, attribute)
            found.setdefault(name, set()).add(labels)
    return found


def test_spelling() -> None:
    assert spelled("kafka.server:type=ReplicaManager,name=LeaderCount", "Value") == (
        "kafka_server_replicamanager_leadercount",
        frozenset(),
    )
    assert spelled("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*", "Count") == (
        "kafka_server_brokertopicmetrics_bytesin_total",
        frozenset({"topic"}),
    )
    assert spelled("kafka.server:type=raft-metrics", "current-epoch")[0] == "kafka_server_raft_metrics_current_epoch"


def test_every_kafka_metric_is_one_of_kafkas() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    produce(wired, wired.connect(), batch_of(b"a"))
    known = kafkas_metrics()
    ours = {
        (sample.name, frozenset(sample.labels))
        for family in text_string_to_metric_families(scraped(wired.broker))
        for sample in family.samples
        if sample.name.startswith("kafka_")
    }
    assert len({name for name, _ in ours}) > 60
    # Kafka splits connections by its network threads, and says the state of the quorum as text.
    ours -= {("kafka_server_socket_server_metrics_connection_count", frozenset({"listener"}))}
    ours -= {("kafka_server_raft_metrics_current_state", frozenset({"state"}))}
    # Kafka registers the beans of failed appends with the first failure.
    ours -= {("kafka_server_brokertopicmetrics_failedproducerequests_total", frozenset({"topic"}))}
    assert {(name, labels) for name, labels in ours if labels not in known.get(name, set())} == set()
