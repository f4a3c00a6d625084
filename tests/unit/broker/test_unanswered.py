"""Every request that is forwarded to the controller has a response for the case without an answer, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.requests.unanswered import timed_out
from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.index import request_class

FORWARDED = [
    (key, version)
    for key, offer in BROKER_APIS.items()
    if offer.is_forwarded
    for version in range(offer.version_min, offer.version_max + 1)
]
REQUESTED = {
    CreateTopicsRequest: CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1)]),
    ElectLeadersRequest: ElectLeadersRequest(
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="a", partitions=[0])]
    ),
    CreatePartitionsRequest: CreatePartitionsRequest(topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a")]),
    CreateAclsRequest: CreateAclsRequest(creations=[CreateAclsRequest.AclCreation()]),
    DeleteAclsRequest: DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()]),
    AlterClientQuotasRequest: AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData()]),
    AlterUserScramCredentialsRequest: AlterUserScramCredentialsRequest(
        deletions=[AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="a")]
    ),
}


@pytest.mark.parametrize(("api_key", "version"), FORWARDED)
def test_the_client_gets_an_error_if_no_controller_answered(api_key: int, version: int) -> None:
    cls = request_class(api_key)
    request = REQUESTED.get(cls, cls())
    if cls is DeleteTopicsRequest:
        new = version >= 6
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="a")] if new else [], topic_names=[] if new else ["a"]
        )
    answer = timed_out(request, version)
    decoded: Any = codec.decode(type(answer), version, bytes(codec.encode(answer, version)))[0]
    told = [decoded]
    for name in ("topics", "responses", "results", "filter_results", "entries"):
        if cls in (*REQUESTED, DeleteTopicsRequest) and hasattr(decoded, name):
            told = getattr(decoded, name)
    if cls is ElectLeadersRequest:
        assert decoded.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else 0)
        told = decoded.replica_election_results[0].partition_result
    assert [each.error_code for each in told] == [ErrorCode.REQUEST_TIMED_OUT]
