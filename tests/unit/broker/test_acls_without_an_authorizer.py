"""DescribeAcls, CreateAcls and DeleteAcls without an authorizer: Apache Kafka 4.1's answers to the recorded requests of
real clients, on listeners of both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.recorded_frames import Frame, recorded
from tests.support.wired import WiredBroker, WiredClient

from barnabas.common.errors import ErrorCode
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, Offer
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsResponse

DISABLED = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
LISTENERS = [(BROKER_APIS, "PLAINTEXT"), (CONTROLLER_APIS, "CONTROLLER")]


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    return WiredBroker()


def connect(wired: WiredBroker, offers: Mapping[int, Offer], listener: str) -> WiredClient:
    client = wired.connect()
    client.core = wired.broker.dispatcher(listener).connect(client.link, "/127.0.0.1", listener)
    return client


@pytest.mark.parametrize(("offers", "listener"), LISTENERS, ids=("broker", "controller"))
@pytest.mark.parametrize("frame", recorded(29, 30, 31), ids=lambda frame: f"{frame[0]}-{frame[1]}")
def test_recorded_requests(wired: WiredBroker, frame: Frame, offers: Mapping[int, Offer], listener: str) -> None:
    key, version, request, _ = frame
    answer: Any
    client = connect(wired, offers, listener)
    if key == 29:
        answer = client.call(request, version, DescribeAclsResponse)
        assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert answer.error_message == "No Authorizer is configured on the broker"
    elif key == 30:
        answer = client.call(request, version, CreateAclsResponse)
        assert [(row.error_code, row.error_message) for row in answer.results] == [DISABLED]
    else:
        answer = client.call(request, version, DeleteAclsResponse)
        assert [(row.error_code, row.error_message) for row in answer.filter_results] == [DISABLED]
        assert answer.filter_results[0].matching_acls == []


@pytest.mark.parametrize("count", [0, 1, 3, 30_000])
def test_each_acl_and_each_filter_has_its_row(wired: WiredBroker, count: int) -> None:
    creation = CreateAclsRequest.AclCreation(resource_name="orders", principal="User:a", host="*")
    client = wired.connect()
    created = client.call(CreateAclsRequest(creations=[creation] * count), 3, CreateAclsResponse, within_ms=60_000)
    assert [(row.error_code, row.error_message) for row in created.results] == [DISABLED] * count
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()] * count)
    deleted = client.call(request, 3, DeleteAclsResponse, within_ms=60_000)
    assert [(row.error_code, row.error_message) for row in deleted.filter_results] == [DISABLED] * count
