"""SessionExpireListener, ZooKeeperClientMetrics, ControllerChannelManager, and deletions: metrics of ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, GAUGE, HISTOGRAM, UNTYPED, Family, histogram, labelled, single

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_SESSION: Final = "kafka_server_sessionexpirelistener_zookeeper"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"


def collect(broker: Broker) -> Iterator[Family]:
    services = broker.services.zookeeper
    counts, latency, gauges = services.sessions, services.latency, services.gauges
    yield single(
        f"{_SESSION}syncconnects_total", COUNTER, "Connections that began or continued a session", counts.connects
    )
    yield single(f"{_SESSION}disconnects_total", COUNTER, "Connections to ZooKeeper that ended", counts.disconnects)
    yield single(f"{_SESSION}expires_total", COUNTER, "Sessions with ZooKeeper that expired", counts.expiries)
    yield single(f"{_SESSION}authfailures_total", COUNTER, "Refused credentials", counts.auth_failures)
    yield single(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count",
        UNTYPED,
        "Answered requests to ZooKeeper",
        latency.count,
    )
    yield Family(
        "barnabas_zookeeper_request_seconds",
        HISTOGRAM,
        "Time from a request to ZooKeeper to its answer, with a resolution of 1 ms",
        histogram((), [latency]),
    )
    sizes = sorted(gauges.queue_sizes().items())
    yield labelled(
        f"{_CHANNELS}queuesize",
        GAUGE,
        "Requests of the controller that wait for a broker",
        "broker_id",
        [(str(broker_id), size) for broker_id, size in sizes],
    )
    yield single(f"{_CHANNELS}totalqueuesize", GAUGE, "Requests of the controller that wait", sum(s for _, s in sizes))
    deletions = gauges.deletions()
    for name, text, value in (
        ("topicstodeletecount", "Topics that wait for their deletion", deletions.topics),
        ("topicsineligibletodeletecount", "Topics whose deletion waits for a broker", deletions.ineligible_topics),
        ("replicastodeletecount", "Replicas that wait for their deletion", deletions.replicas),
        ("replicasineligibletodeletecount", "Replicas to delete on dead brokers", deletions.ineligible_replicas),
    ):
        yield single(_CONTROLLER + name, GAUGE, text, value)
