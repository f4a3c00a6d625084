"""AlterUserScramCredentials (51), version 0: decided by the controller, answered when committed (KIP-554).

A change acts on log-ins that begin after it; connections that are open stay open, as in Kafka.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest


def handle(context: RequestContext, request: AlterUserScramCredentialsRequest, services: Services) -> None:
    services.quorum.controller.alter_user_scram_credentials(request, context.reply, actor=context.principal)
