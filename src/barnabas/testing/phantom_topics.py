"""The changes of topics that clients request from a phantom cluster, and the topics' configurations.

Topics in `PhantomState.refusing` are refused with the error code that the test has put there.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.testing.phantom_state import PhantomState

#: The operation of IncrementalAlterConfigs that removes a config.
_DELETE: Final = 1
_TOPIC: Final = 2
_DEFAULTS: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "604800000"}


class PhantomTopics:
    """Answers requests about topics by the state that all brokers of the cluster share."""

    def __init__(self, state: PhantomState) -> None:
        self._state = state

    def configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        result = DescribeConfigsResponse.DescribeConfigsResult
        config = DescribeConfigsResponse.DescribeConfigsResourceResult
        results = []
        for each in request.resources:
            values = {"min.insync.replicas": str(self._state.min_isr)}
            if each.resource_type == _TOPIC:
                values |= _DEFAULTS
            values |= self._state.altered.get((each.resource_type, each.resource_name), {})
            keys = values.keys() if each.configuration_keys is None else each.configuration_keys
            results.append(
                result(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[config(name=key, value=values[key]) for key in keys if key in values],
                )
            )
        return DescribeConfigsResponse(results=results)

    def alter_configs(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        rows = []
        for resource in request.resources:
            code = self._state.refusing.get(resource.resource_name, ErrorCode.NONE)
            rows.append(
                row(error_code=code, resource_type=resource.resource_type, resource_name=resource.resource_name)
            )
            if code or request.validate_only:
                continue
            known = self._state.altered.setdefault((resource.resource_type, resource.resource_name), {})
            for each in resource.configs:
                if each.config_operation == _DELETE:
                    known.pop(each.name, None)
                else:
                    known[each.name] = each.value or ""
        self._state.volume_version += 1
        return IncrementalAlterConfigsResponse(responses=rows)

    def delete(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        row = DeleteTopicsResponse.DeletableTopicResult
        rows = []
        for name in request.topic_names:
            code = self._refusal(name)
            if not code:
                self._state.delete_topic(name)
            rows.append(row(name=name, error_code=code))
        return DeleteTopicsResponse(responses=rows)

    def add_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        row = CreatePartitionsResponse.CreatePartitionsTopicResult
        rows = []
        for topic in request.topics:
            code = self._refusal(topic.name)
            if not code and topic.count <= len(self._state.topics[topic.name].partitions):
                code = ErrorCode.INVALID_PARTITIONS
            if not code and not request.validate_only:
                self._state.add_partitions(topic.name, topic.count)
            rows.append(row(name=topic.name, error_code=code))
        return CreatePartitionsResponse(results=rows)

    def delete_records(self, broker: int, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Deletes records of partitions that a broker leads; -1 deletes all."""
        shown, row = DeleteRecordsResponse.DeleteRecordsTopicResult, DeleteRecordsResponse.DeleteRecordsPartitionResult
        topics = []
        for topic in request.topics:
            rows = []
            for each in topic.partitions:
                code = self._refusal(topic.name)
                partition = None if code else self._state.topics[topic.name].partitions[each.partition_index]
                if partition is not None and partition.leader != broker:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif partition is not None:
                    partition.start_offset = partition.end_offset if each.offset < 0 else each.offset
                rows.append(row(partition_index=each.partition_index, error_code=code))
            topics.append(shown(name=topic.name, partitions=rows))
        self._state.volume_version += 1
        return DeleteRecordsResponse(topics=topics)

    def _refusal(self, name: str) -> int:
        known = ErrorCode.NONE if name in self._state.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._state.refusing.get(name, known)
