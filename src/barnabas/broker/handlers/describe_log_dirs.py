"""DescribeLogDirs (35), versions 1-4: what lies in each log directory, and its space (KIP-113, KIP-827).

A log on its way to another directory is there twice, the copy marked as future. The lag is what a replica lacks: the
copy of the log that it becomes, any other of its own high watermark; -1 for a copy whose log is not there.
"""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.storage.log import Log

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Row = DescribeLogDirsResponse.DescribeLogDirsPartition

_NO_LAG_KNOWN = -1


def handle(context: RequestContext, request: DescribeLogDirsRequest, services: Services) -> DescribeLogDirsResponse:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    logs = services.replicas.logs
    response = DescribeLogDirsResponse()
    for directory in logs.directories:
        if directory in logs.offline_directories:
            response.results.append(Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory))
            continue
        response.results.append(_describe(services, directory, wanted))
    return response


def _describe(services: Services, directory: str, wanted: set[TopicPartition] | None) -> Result:
    result = Result(log_dir=directory)
    try:
        usage = services.host.disk.usage(directory)
    except OSError:
        return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
    result.total_bytes, result.usable_bytes = usage
    topics: dict[str, list[Log]] = {}
    for log in services.replicas.logs.logs_in(directory):
        if wanted is None or log.topic_partition in wanted:
            topics.setdefault(log.topic_partition.topic, []).append(log)
    for topic, logs in sorted(topics.items()):
        rows = [_row(services, log) for log in sorted(logs, key=lambda log: log.topic_partition.partition)]
        result.topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic, partitions=rows))
    return result


def _row(services: Services, log: Log) -> Row:
    logs = services.replicas.logs
    is_future = logs.is_future(log)
    return Row(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=_lag(services, log, is_future),
        is_future_key=is_future,
    )


def _lag(services: Services, log: Log, is_future: bool) -> int:
    if is_future:
        current = services.replicas.logs.get(log.topic_partition)
        return _NO_LAG_KNOWN if current is None else current.log_end_offset - log.log_end_offset
    partition = services.replicas.find(*log.topic_partition)
    return 0 if partition is None else max(partition.high_watermark - log.log_end_offset, 0)
