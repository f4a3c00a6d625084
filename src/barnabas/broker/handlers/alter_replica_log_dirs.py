"""AlterReplicaLogDirs (34), versions 1-2: moves replicas on this broker to another of its log directories (KIP-113).

The response is immediate; the move continues in the background, and DescribeLogDirs shows it as a future log. A replica
that does not exist here yet is created in the requested directory later; its response is an error nevertheless, as in
Kafka.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.steps import Work
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

ERROR_ROWS: Final = (
    ErrorRows(
        "results",
        "dirs.topics",
        key="topic_name",
        inner=ErrorRows("partitions", "partitions", key="partition_index"),
    ),
)


Row = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


#: The number of rows read per step.
_ROWS_PER_STEP = 200


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest, services: Services) -> Work:
    requested: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                requested[TopicPartition(topic.name, index)] = directory.path
                if len(requested) % _ROWS_PER_STEP == 0:
                    yield 1
    response = AlterReplicaLogDirsResponse()
    rows: dict[str, list[Row]] = {}
    for topic_partition, path in requested.items():
        code = services.replicas.moves.alter(topic_partition, path)
        name, index = topic_partition
        if name not in rows:
            rows[name] = []
            response.results.append(
                AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows[name])
            )
        rows[name].append(Row(partition_index=index, error_code=code))
        yield 1
    return response
