"""The log directory of each replica, as its broker reports it (KIP-858, AssignReplicasToDirs).

A broker chooses the directories of its replicas and reports them, so that the controller knows which replicas are lost
when a directory fails. A replica in a directory that is offline loses its leadership and leaves the ISR immediately.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests import brokers
from barnabas.controller.requests.partitions import directory_record, leader_and_isr_records
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.broker_events import BrokerEvent
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.metadata.versions import V_3_7_IV2
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)


def assign_replicas(view: ControllerView, request: AssignReplicasToDirsRequest) -> Result[AssignReplicasToDirsResponse]:
    """Records the directories. Raises RequestFailed: STALE_BROKER_EPOCH, UNSUPPORTED_VERSION."""
    if view.image.metadata_version < V_3_7_IV2:
        raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = brokers.registration(view, request.broker_id, request.broker_epoch)
    response = AssignReplicasToDirsResponse()
    records: list[Versioned] = []
    lost: list[tuple[TopicImage, int, PartitionImage]] = []
    for directory in request.directories:
        is_offline = not broker.has_online_directory(directory.id)
        answered = AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        response.directories.append(answered)
        for wanted in directory.topics:
            rows = AssignReplicasToDirsResponse.TopicData(topic_id=wanted.topic_id)
            answered.topics.append(rows)
            topic = view.image.topics_by_id.get(wanted.topic_id)
            for row in wanted.partitions:
                index = row.partition_index
                code = _problem(topic, index, request.broker_id)
                rows.partitions.append(
                    AssignReplicasToDirsResponse.PartitionData(partition_index=index, error_code=code)
                )
                if topic is None or code is not ErrorCode.NONE:
                    continue
                located = (topic, index, topic.partitions[index])
                record = directory_record(view, located, request.broker_id, directory.id)
                if record is not None:
                    records.append(record)
                if is_offline:
                    lost.append(located)
    records += leader_and_isr_records(view, BrokerEvent(removed=request.broker_id), iter(lost))
    count = sum(len(topic.partitions) for directory in request.directories for topic in directory.topics)
    cause = Cause(ControllerEvent.ASSIGN_REPLICAS_TO_DIRS, f"broker {request.broker_id}", f"{count} replicas")
    return Result(records, response, cause)


def _problem(topic: TopicImage | None, index: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[index].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
