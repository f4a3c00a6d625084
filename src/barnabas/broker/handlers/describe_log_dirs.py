"""DescribeLogDirs (35), versions 1-4: the replicas in each log directory, and its space (KIP-113, KIP-827).

A log that moves to another directory is listed twice, its copy marked as future. The lag of a future log is relative to
its current log, -1 if that does not exist; the lag of any other log is relative to its own high watermark.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.storage.log import Log

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Row = DescribeLogDirsResponse.DescribeLogDirsPartition

_NO_LAG_KNOWN = -1


#: The number of partitions read per step.
_ROWS_PER_STEP = 50


def handle(context: RequestContext, request: DescribeLogDirsRequest, services: Services) -> Work:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        for place, each in enumerate(_partitions(request), 1):
            wanted.add(each)
            if place % _ROWS_PER_STEP == 0:
                yield 1
    logs = services.replicas.logs
    response = DescribeLogDirsResponse()
    for directory in logs.directories:
        if directory in logs.offline_directories:
            response.results.append(Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory))
            continue
        result = yield from _describe(services, directory, wanted)
        response.results.append(result)
    return response


def _partitions(request: DescribeLogDirsRequest) -> Iterator[TopicPartition]:
    for topic in request.topics or ():
        for index in topic.partitions:
            yield TopicPartition(topic.topic, index)


def _describe(services: Services, directory: str, wanted: set[TopicPartition] | None) -> Generator[int, None, Result]:
    result = Result(log_dir=directory)
    try:
        usage = services.host.disk.usage(directory)
    except OSError:
        return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
    result.total_bytes, result.usable_bytes = usage
    topics: dict[str, list[Log]] = {}
    for place, log in enumerate(list(services.replicas.logs.logs_in(directory))):
        if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield 1
        if wanted is None or log.topic_partition in wanted:
            topics.setdefault(log.topic_partition.topic, []).append(log)
    count = 0
    for topic, logs in sorted(topics.items()):
        rows: list[Row] = []
        result.topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic, partitions=rows))
        for log in sorted(logs, key=lambda log: log.topic_partition.partition):
            rows.append(_row(services, log))
            count += 1
            if count % _ROWS_PER_STEP == 0:
                yield 1
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
