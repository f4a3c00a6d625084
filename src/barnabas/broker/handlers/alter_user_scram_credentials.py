"""AlterUserScramCredentials (51), version 0: decided by the controller, answered when committed (KIP-554).

In ZooKeeper mode the broker that is the controller writes the credentials into the znodes of the users.
A change applies to log-ins that begin after it; open connections stay open, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

ERROR_ROWS: Final = (ErrorRows("results", "deletions", key="user"), ErrorRows("results", "upsertions", key="user"))


def handle(context: RequestContext, request: AlterUserScramCredentialsRequest, services: Services) -> None:
    services.side.alter_user_scram_credentials(context, request)
