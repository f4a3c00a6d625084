"""Refusals of whole requests that Kafka's requests build in a shape of their own: rows, empty fields, no message.

`authorization.AuthorizationContext.refusal` completes its responses here. The key is the API's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

_Shape = Callable[[Any, Any, int], None]

#: The first version of JoinGroup in which the protocol's name can be null.
_NULL_PROTOCOL_SINCE: Final = 7


def shaped(request: Message, response: Message, version: int) -> Message:
    """Returns the refusal of a request in Kafka's shape."""
    change = _SHAPES.get(request.API_KEY or 0)
    if change is not None:
        change(request, response, version)
    return response


def _join_group(request: Any, response: Any, version: int) -> None:
    if version >= _NULL_PROTOCOL_SINCE:
        response.protocol_name = None


def _reassignments(request: Any, response: Any, version: int) -> None:
    made = AlterPartitionReassignmentsResponse
    response.responses = [
        made.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                made.ReassignablePartitionResponse(
                    partition_index=row.partition_index,
                    error_code=response.error_code,
                    error_message=response.error_message,
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _listed_reassignments(request: Any, response: Any, version: int) -> None:
    made = ListPartitionReassignmentsResponse
    response.topics = [
        made.OngoingTopicReassignment(
            name=topic.name,
            partitions=[made.OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]


def _quotas(request: Any, response: Any, version: int) -> None:
    response.entries = response.error_message = None


def _described_credentials(request: Any, response: Any, version: int) -> None:
    response.error_message = None
    response.results = [
        DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
            error_code=response.error_code, error_message=None
        )
    ]


def _altered_credentials(request: Any, response: Any, version: int) -> None:
    users = dict.fromkeys(row.name for row in (*request.deletions, *request.upsertions))
    code, text = (response.results[0].error_code, response.results[0].error_message) if response.results else (0, None)
    response.results = [
        AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
            user=user, error_code=code, error_message=text
        )
        for user in users
    ]


def _consumer_heartbeat(request: Any, response: Any, version: int) -> None:
    response.error_message = None


_SHAPES: Final[Mapping[int, _Shape]] = {
    11: _join_group,
    45: _reassignments,
    46: _listed_reassignments,
    48: _quotas,
    50: _described_credentials,
    51: _altered_credentials,
    68: _consumer_heartbeat,
}
