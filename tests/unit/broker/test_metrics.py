"""The metrics of a broker in memory on /metrics, after various events."""

from __future__ import annotations

from typing import Any

from tests.support.metrics import Metrics
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.worlds.replicated import Replicated
from barnabas.storage.log import Origin

TRAFFIC = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"


def test_records_and_bytes_are_counted_by_topic() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    client = wired.connect()
    first, second = batch_of(b"a", b"b"), batch_of(b"c")
    for data in (first, second, first):  # the second and later requests take the fast path of the connection
        produce(wired, client, data)
    answer = client.call(fetch_request(wired, 0, 12), 12, FetchResponse)
    sent = sum(len(row.records or b"") for topic in answer.responses for row in topic.partitions)
    metrics = Metrics.of(wired.broker)
    for labels in ({}, {"topic": "orders"}):
        assert metrics(f"{TRAFFIC}messagesin_total", **labels) == 5
        assert metrics(f"{TRAFFIC}bytesin_total", **labels) == 2 * len(first) + len(second)
        assert metrics(f"{TRAFFIC}bytesout_total", **labels) == sent > 0
        assert metrics(f"{TRAFFIC}totalproducerequests_total", **labels) == 3
    assert metrics(f"{TRAFFIC}replicationbytesout_total") == 0


def test_what_is_refused_is_counted_as_failed() -> None:
    wired = WiredBroker()
    properties: dict[str, Any] = {"max.message.bytes": "100"}
    wired.create_topic("orders", **properties)
    error, _ = produce(wired, wired.connect(), batch_of(b"x" * 1000))
    assert error != 0
    metrics = Metrics.of(wired.broker)
    assert metrics(f"{TRAFFIC}failedproducerequests_total", topic="orders") == 1
    assert metrics(f"{TRAFFIC}messagesin_total", topic="orders") == 0


def test_totals_keep_what_a_deleted_topic_had() -> None:
    wired = WiredBroker()
    wired.create_topic("gone")
    wired.create_topic("orders")
    produce(wired, wired.connect(), batch_of(b"a"))
    wired.create_topic("other")
    wired.delete_topic("orders")
    wired.host.time.run_for(100)
    metrics = Metrics.of(wired.broker)
    assert metrics(f"{TRAFFIC}messagesin_total") == 1
    assert (f"{TRAFFIC}messagesin_total", (("topic", "orders"),)) not in metrics._values


def test_requests_are_counted_with_their_times() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    client = wired.connect()
    for _ in range(3):
        produce(wired, client, batch_of(b"a"))
    # The fetch waits for records that do not come.
    client.call(fetch_request(wired, 3, 12, max_wait_ms=500, min_bytes=1), 12, FetchResponse)
    metrics = Metrics.of(wired.broker)
    assert metrics("kafka_network_requestmetrics_requests_total", request="Produce", version="11") == 3
    assert metrics("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 3
    assert metrics("barnabas_request_seconds_count", request="Fetch") == 1
    assert 0.5 <= metrics("barnabas_request_seconds_sum", request="Fetch") < 0.6
    assert metrics("barnabas_request_seconds_bucket", request="Fetch", le="0.256") == 0
    assert metrics("barnabas_request_seconds_bucket", request="Fetch", le="0.512") == 1


def test_versions_that_there_are_none_of_do_not_make_metrics() -> None:
    wired = WiredBroker()
    client = wired.connect()
    for version in (200, 3000, 32_000):
        frame = bytes((0, 18)) + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff\0"
        client.send_raw(len(frame).to_bytes(4, "big") + frame)
    wired.connect().call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, ApiVersionsResponse
    )
    text = Metrics.of(wired.broker).text
    shown = [line for line in text.splitlines() if line.startswith("kafka_network_requestmetrics_requests_total")]
    assert len(shown) <= 3, shown
    assert 'kafka_network_requestmetrics_requests_total{request="ApiVersions",version="99"} 3' in shown


def test_a_waiting_request_is_in_the_purgatory() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    client = wired.connect()
    client.send(fetch_request(wired, 0, 12, max_wait_ms=10_000, min_bytes=1), 12)
    wired.host.time.run_for(10)
    metrics = Metrics.of(wired.broker)
    name = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert metrics(name, delayedOperation="Fetch") == 1
    assert metrics(name, delayedOperation="Produce") == 0


def test_records_of_an_open_transaction_are_behind_the_last_stable_offset() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    (partition,) = wired.broker.replicas.partitions()
    records = [Record(0, 1, b"k", b"v", []) for _ in range(3)]
    batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    name, labels = "kafka_cluster_partition_laststableoffsetlag", {"topic": "orders", "partition": "0"}
    assert Metrics.of(wired.broker)(name, **labels) == 0
    partition.append(batch, wired.host.clock.wall_ms(), Origin.CLIENT)
    assert Metrics.of(wired.broker)(name, **labels) == 3


def test_three_brokers_of_which_one_is_lost() -> None:
    """G30: what metrics say follows what happens, on leaders and controllers."""
    world = Replicated()
    world.create_topic("orders", [[1, 2, 3]], **{"min.insync.replicas": "2"})
    world.await_isr((1, 2, 3))
    before = Metrics.of(world.broker(1))
    assert before(f"{REPLICAS}leadercount") == before(f"{REPLICAS}partitioncount") == 1
    assert before(f"{REPLICAS}underreplicatedpartitions") == 0
    assert before("kafka_cluster_partition_insyncreplicascount", topic="orders", partition="0") == 3
    assert Metrics.of(world.controller)(f"{CONTROLLER}activecontrollercount") == 1
    assert f"{CONTROLLER}activecontrollercount" not in before.names
    assert f"{REPLICAS}leadercount" not in Metrics.of(world.controller).names

    world.node(3).kill()
    world.run_until(lambda: set(world.partition(1).in_sync) == {1, 2}, "the leader knows", 60_000)
    after = Metrics.of(world.broker(1))
    assert after(f"{REPLICAS}underreplicatedpartitions") == 1
    assert after(f"{REPLICAS}atminisrpartitioncount") == 1
    assert after(f"{REPLICAS}underminisrpartitioncount") == 0
    assert after("kafka_cluster_partition_atminisr", topic="orders", partition="0") == 1
    of_all = Metrics.of(world.controller)
    assert of_all(f"{CONTROLLER}fencedbrokercount") == 1
    assert of_all(f"{CONTROLLER}activebrokercount") == 2
    assert of_all(f"{CONTROLLER}offlinepartitionscount") == 0

    world.node(3).start()
    world.run_until(lambda: set(world.partition(1).in_sync) == {1, 2, 3}, "the leader knows", 60_000)
    world.run_for(100)  # the metadata may be here before the controller's answer
    back = Metrics.of(world.broker(1))
    assert back(f"{REPLICAS}isrexpands_total") == before(f"{REPLICAS}isrexpands_total") + 1
    assert back("barnabas_partition_replica_lag", topic="orders", partition="0", replica="3") == 0


def test_a_replica_that_is_being_added_is_not_missed() -> None:
    world = Replicated()
    world.create_topic("orders", [[1, 2]])
    world.await_isr((1, 2))
    world.node(3).kill()
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="orders", partitions=[wanted])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    world.client.call("broker1", request, AlterPartitionReassignmentsResponse)
    world.run_until(lambda: world.image().adding_replicas == (3,), "a reassignment", 60_000)
    world.run_for(100)
    metrics = Metrics.of(world.broker(1))
    assert metrics(f"{REPLICAS}reassigningpartitions") == 1
    assert metrics(f"{REPLICAS}underreplicatedpartitions") == 0
    assert metrics("kafka_cluster_partition_replicascount", topic="orders", partition="0") == 2


def test_offline_partitions() -> None:
    world = Replicated()
    world.create_topic("orders", [[3], [1]])
    world.await_isr((3,))
    world.node(3).kill()
    world.run_until(lambda: world.image().leader == -1, "offline", 60_000)
    metrics = Metrics.of(world.controller)
    assert metrics(f"{CONTROLLER}offlinepartitionscount") == 1
    assert metrics(f"{CONTROLLER}preferredreplicaimbalancecount") == 1
    assert metrics(f"{CONTROLLER}globalpartitioncount") == 2


def test_sizes_and_ends_of_logs() -> None:
    wired = WiredBroker()
    wired.create_topic("orders", 2)
    data = batch_of(b"a", b"b")
    produce(wired, wired.connect(), data)
    metrics = Metrics.of(wired.broker)
    labels = {"topic": "orders", "partition": "0"}
    assert metrics("kafka_log_log_logendoffset", **labels) == 2
    assert metrics("kafka_log_log_logstartoffset", **labels) == 0
    assert metrics("kafka_log_log_size", **labels) == len(data)
    assert metrics("kafka_log_log_size", topic="orders", partition="1") == 0
    assert metrics("kafka_log_log_logendoffset", topic="__cluster_metadata", partition="0") > 0
    assert metrics("kafka_log_logmanager_logdirectoryoffline", logDirectory="/data") == 0


def test_rates_of_connections_are_shown_by_listener_and_address() -> None:
    wired = WiredBroker()
    limits = wired.broker.connection_limits["PLAINTEXT"]
    limits.follow({(("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0}})
    now_ms = wired.host.clock.now_ms()
    for _ in range(11):
        limits.arrive("PLAINTEXT", now_ms)
        limits.take("PLAINTEXT", "10.0.0.1", now_ms)
    limits.waited("PLAINTEXT", 7)
    metrics = Metrics.of(wired.broker)
    prefix = "kafka_server_socket_server_metrics_"
    assert metrics(f"{prefix}connection_accept_rate", listener="PLAINTEXT") == 1.0
    assert metrics(f"{prefix}connection_accept_rate", listener="CONTROLLER") == 0.0
    assert metrics(f"{prefix}connection_accept_rate", ip="10.0.0.1") == 1.0
    assert metrics(f"{prefix}broker_connection_accept_rate") == 1.0
    assert metrics(f"{prefix}connection_accept_throttle_time", listener="PLAINTEXT") == 0.0
    assert metrics(f"{prefix}ip_connection_accept_throttle_time", listener="PLAINTEXT") == 1_000
    assert metrics("kafka_network_acceptor_acceptorblockedpercent_count", listener="PLAINTEXT") == 7_000_000
