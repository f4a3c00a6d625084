"""BrokerTopicMetrics: data in and out, for all topics together (no label) and by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, Family, Sample

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_brokertopicmetrics_"
#: (metric, attribute of TopicTraffic, help, whether Kafka has the metric by topic too)
_METRICS: Final = (
    ("messagesin", "messages_in", "Records appended by producers and coordinators", True),
    ("bytesin", "bytes_in", "Bytes appended by producers and coordinators, as stored in the log", True),
    ("bytesout", "bytes_out", "Bytes of records sent to consumers", True),
    ("totalproducerequests", "produce_requests", "Appends, one for each partition of a request", True),
    ("failedproducerequests", "failed_produce_requests", "Appends that were refused or failed", True),
    ("replicationbytesin", "replication_bytes_in", "Bytes of records fetched from leaders", False),
    ("replicationbytesout", "replication_bytes_out", "Bytes of records sent to followers", False),
)


def collect(broker: Broker) -> Iterator[Family]:
    if not broker.config.is_broker:
        return
    traffic = broker.replicas.traffic
    total, topics = traffic.total(), list(traffic.topics())
    for name, attribute, text, by_topic in _METRICS:
        samples = [Sample((), getattr(total, attribute))]
        if by_topic:
            samples += [Sample((("topic", topic),), getattr(each, attribute)) for topic, each in topics]
        yield Family(f"{_PREFIX}{name}_total", COUNTER, text, samples)
