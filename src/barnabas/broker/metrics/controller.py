"""KafkaController, ControllerStats and KafkaServer: the cluster according to this node's metadata.

As with Kafka, every controller reports the whole cluster, whether it is active or not; only the active one has
ActiveControllerCount 1. A node without the controller role does not report it. In ZooKeeper mode, again as with Kafka,
every broker reports, and those that are not the controller report 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, GAUGE, Family, Number, single
from barnabas.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
# The values of Kafka's BrokerState.
_STARTING, _RECOVERY, _RUNNING, _LEAVING = 1, 2, 3, 6


def collect(broker: Broker) -> Iterator[Family]:
    if broker.config.is_controller:
        yield from _controller(broker)
    image = broker.metadata.image
    if broker.config.is_broker:
        yield single(
            "kafka_server_kafkaserver_brokerstate",
            GAUGE,
            "State of the broker: 1 starting, 2 fenced, 3 running, 6 in controlled shutdown",
            _state(broker),
        )
    loader = "kafka_server_metadataloader_"
    yield single(
        f"{loader}currentcontrollerid",
        GAUGE,
        "Id of the active controller; -1 if none is known",
        broker.side.controller.leader_id,
    )
    yield single(f"{loader}currentmetadataversion", GAUGE, "Feature level of metadata.version", image.metadata_version)
    yield single(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        GAUGE,
        "Offset up to which this node has applied the metadata",
        image.offset,
    )


def _controller(broker: Broker) -> Iterator[Family]:
    is_reporting = broker.is_in_quorum or broker.side.controller.is_active
    image = broker.metadata.image if is_reporting else EMPTY_IMAGE
    partitions = offline = imbalanced = 0
    for topic in image.topics_by_name.values():
        for partition in topic.partitions:
            partitions += 1
            offline += not partition.has_leader
            imbalanced += partition.leader != partition.preferred_leader
    fenced = sum(each.fenced for each in image.brokers.values())
    leaving = sum(each.in_controlled_shutdown for each in image.brokers.values())
    gauges: tuple[tuple[str, str, Number], ...] = (
        ("activecontrollercount", "1 on the active controller, 0 on others", int(broker.side.controller.is_active)),
        ("activebrokercount", "Registered brokers that are not fenced", len(image.brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced", fenced),
        ("controlledshutdownbrokercount", "Brokers in controlled shutdown", leaving),
        ("globaltopiccount", "Topics in the cluster", len(image.topics_by_name)),
        ("globalpartitioncount", "Partitions in the cluster", partitions),
        ("offlinepartitionscount", "Partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "Partitions whose leader is not the preferred replica", imbalanced),
        ("lastappliedrecordoffset", "Offset of the last applied metadata record", image.offset),
    )
    for name, text, value in gauges:
        yield single(_CONTROLLER + name, GAUGE, text, value)
    yield single(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "Unclean leader elections by this controller",
        broker.side.controller.unclean_election_count,
    )


def _state(broker: Broker) -> int:
    own = broker.metadata.image.brokers.get(broker.config.node_id)
    if broker.side.broker_epoch < 0 or own is None:
        return _STARTING
    if own.in_controlled_shutdown:
        return _LEAVING
    return _RECOVERY if own.fenced else _RUNNING
