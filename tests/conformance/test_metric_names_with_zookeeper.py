"""The metrics of a broker in ZooKeeper mode, by the names of a broker of Kafka 3.9.1 in this mode.

Its MBeans (tests/data/configs/3.9.1-mbeans-zookeeper-mode.txt) were recorded without their attributes, so each one
stands for a Value and a Count.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.test_metric_names import MBEANS, spelled
from tests.support.metrics import scraped
from tests.support.wired_requests import batch_of
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse

OF_THIS_MODE = MBEANS.with_name("3.9.1-mbeans-zookeeper-mode.txt")
Names = dict[str, set[frozenset[str]]]

#: Metrics that a broker of 3.9.1 in this mode does not have, and why ours does.
_MORE = {
    "kafka_controller_kafkacontroller_controlledshutdownbrokercount": "that of 4.1; always 0 here",
    "kafka_controller_kafkacontroller_lastappliedrecordoffset": "that of 4.1: changes of the image",
    "kafka_server_broker_metadata_metrics_last_applied_record_offset": "that of 4.1: changes of the image",
    "kafka_server_metadataloader_currentmetadataversion": "that of 4.1; 0 here",
    "kafka_server_group_coordinator_metrics_consumer_group_count": "the coordinator is that of 4.1",
    "kafka_server_group_coordinator_metrics_group_count": "the coordinator is that of 4.1",
    "kafka_server_group_coordinator_metrics_num_partitions": "the coordinator is that of 4.1",
    "kafka_server_socket_server_metrics_connection_count": "Kafka splits connections by its network threads",
    **{
        f"kafka_server_socket_server_metrics_{name}": "that of 4.1; the beans of 3.9.1 are recorded without attributes"
        for name in (
            "broker_connection_accept_rate",
            "connection_accept_rate",
            "connection_accept_throttle_time",
            "ip_connection_accept_throttle_time",
        )
    },
}

_TIMES_OF_EVENTS = "decisions are not events of a queue that can be timed; the journal has each with its cause"
#: MBeans that 3.9.1 has in this mode, and 4.1.0 has not, which our brokers leave out, and why.
_LEFT_OUT = {
    "ControllerChannelManager RequestRateAndQueueTimeMs": "requests do not wait in a queue of their own thread",
    "ControllerEventManager EventQueueSize": "there is no queue of events: each is handled when it comes",
    **{
        f"ControllerStats {name}RateAndTimeMs": _TIMES_OF_EVENTS
        for name in (
            "AutoLeaderBalance",
            "ControlledShutdown",
            "ControllerChange",
            "ControllerShutdown",
            "IsrChange",
            "LeaderAndIsrResponseReceived",
            "LeaderElection",
            "ListPartitionReassignment",
            "LogDirChange",
            "ManualLeaderBalance",
            "PartitionReassignment",
            "TopicChange",
            "TopicDeletion",
            "TopicUncleanLeaderElectionEnable",
            "UncleanLeaderElectionEnable",
            "UpdateFeatures",
        )
    },
    "KafkaController ControllerState": "the event that the controller's thread handles; there is no such thread",
    "KafkaController ZkMigrationState": "constant: online migration is not supported",
    "SessionExpireListener SessionState": "a text; the exporter leaves it out",
    "SessionExpireListener ZooKeeperReadOnlyConnectsPerSec": "read-only servers are not used",
    "SessionExpireListener ZooKeeperSaslAuthenticationsPerSec": "SASL to ZooKeeper is not supported",
    "SocketServer ControlPlaneExpiredConnectionsKilledCount": "one loop serves both planes",
    "SocketServer ControlPlaneNetworkProcessorAvgIdlePercent": "one loop serves both planes",
}


def beans(file: Path) -> set[str]:
    return {line.partition("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()}


def kafkas(bean: str) -> dict[str, frozenset[str]]:
    """Returns the names that an MBean can have, with their labels, as Prometheus spells them."""
    found = (spelled(bean, attribute) for attribute in ("Value", "Count"))
    return {name: frozenset(label.replace("-", "_") for label in labels) for name, labels in found}


def shown(bean: str) -> str:
    """Returns the type and the name of an MBean."""
    properties = dict(part.split("=", 1) for part in bean.partition(":")[2].split(","))
    return f"{properties['type']} {properties['name']}"


def ours() -> Names:
    broker = ZooKeeperBroker().start()
    client = broker.connect()
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=2_000), 7, CreateTopicsResponse)
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch_of(b"a"))
    data = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    client.call(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), 9, ProduceResponse)
    found: Names = {}
    for family in text_string_to_metric_families(scraped(broker.broker)):
        for sample in family.samples:
            if sample.name.startswith("kafka_"):
                found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return found


def test_every_metric_is_one_of_kafkas_in_this_mode() -> None:
    known: Names = {}
    for bean in beans(OF_THIS_MODE):
        for name, labels in kafkas(bean).items():
            known.setdefault(name, set()).add(labels)
    found = ours()
    assert len(found) > 60
    # The recorded broker had no traffic when its beans were listed; those of a topic come with its first record.
    for name in [name for name in known if name.startswith("kafka_server_brokertopicmetrics_")]:
        known[name].add(frozenset({"topic"}))
    unknown = {name for name, labels in found.items() if not labels <= known.get(name, set())}
    assert unknown == _MORE.keys()


def test_metrics_of_this_mode_alone_are_there_or_left_out_for_a_reason() -> None:
    found = ours()
    own = {bean for bean in beans(OF_THIS_MODE) - beans(MBEANS) if ",name=" in bean}
    missing = {shown(bean) for bean in own if not any(labels in found.get(n, ()) for n, labels in kafkas(bean).items())}
    assert missing == _LEFT_OUT.keys()
