"""What a client is told when no controller has answered in time what only a controller can decide: REQUEST_TIMED_OUT,
for each thing that it asked for, as Kafka's brokers say it (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.index import response_class

_CODE: Final = ErrorCode.REQUEST_TIMED_OUT
_TEXT: Final = "The active controller could not be reached in time."


def timed_out(request: Message, version: int) -> Message:
    if isinstance(request, ElectLeadersRequest):
        return _elections(request, version)
    by_request = _OF_EACH.get(type(request))
    if by_request is not None:
        return by_request(request)
    assert request.API_KEY is not None
    answer: Any = response_class(request.API_KEY)()
    answer.error_code = _CODE
    if hasattr(answer, "error_message"):
        answer.error_message = _TEXT
    response: Message = answer
    return response


def _elections(request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    results, partition = ElectLeadersResponse.ReplicaElectionResult, ElectLeadersResponse.PartitionResult
    return ElectLeadersResponse(
        error_code=_CODE if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            results(
                topic=topic.topic,
                partition_result=[
                    partition(partition_id=index, error_code=_CODE, error_message=_TEXT) for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _topics(request: CreateTopicsRequest) -> CreateTopicsResponse:
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(
        topics=[result(name=topic.name, error_code=_CODE, error_message=_TEXT) for topic in request.topics]
    )


def _deletions(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    result = DeleteTopicsResponse.DeletableTopicResult
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, bytes(16)) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            result(name=name, topic_id=topic_id, error_code=_CODE, error_message=_TEXT) for name, topic_id in named
        ]
    )


def _partitions(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(
        results=[result(name=topic.name, error_code=_CODE, error_message=_TEXT) for topic in request.topics]
    )


_OF_EACH: Final[dict[type[Message], Callable[[Any], Message]]] = {
    CreateTopicsRequest: _topics,
    DeleteTopicsRequest: _deletions,
    CreatePartitionsRequest: _partitions,
}
