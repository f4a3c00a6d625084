"""DescribeUserScramCredentials (50), version 0: mechanisms and iterations of users (KIP-554).

The response is computed from this node's metadata.

A missing or empty list of users requests all of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode
from barnabas.common.gradual import sorted_gradually
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.sasl.mechanism import SCRAM_NAMES

_Row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo
#: The number of users that count as one unit of work.
_USERS_PER_UNIT: Final = 50


def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest, services: Services) -> Work:
    credentials = services.metadata.image.security.scram
    asked: dict[str, int] = Counter(user.name for user in request.users or ())
    if not asked:
        # A user with two mechanisms occurs twice.
        names = yield from sorted_gradually(name for _, name in credentials)
        asked = dict.fromkeys(names, 1)
    rows: list[_Row] = []
    for name, times in asked.items():
        infos = [
            _Info(mechanism=mechanism, iterations=credentials[mechanism, name].iterations)
            for mechanism in SCRAM_NAMES
            if (mechanism, name) in credentials
        ]
        rows.append(_row(name, times, infos))
        if not len(rows) % _USERS_PER_UNIT:
            yield 1
    return DescribeUserScramCredentialsResponse(error_message="", results=rows)


def _row(name: str, times: int, infos: list[_Info]) -> _Row:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _Row(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=text)
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _Row(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=text)
    return _Row(user=name, credential_infos=infos)
