"""Imports the table of authorization checks (`api_checks`) at the first request that needs it: a node without an
authorizer never does.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.authorization import (
    AuthorizationCheck,
    AuthorizationContext,
    AuthorizationResult,
    AuthorizationSteps,
    ByHandler,
    Open,
)
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import UNEXPECTED, error_response
from barnabas.common import late_imports
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message

_CODE: Final = ErrorCode.UNKNOWN_SERVER_ERROR


def authorized(request: RequestContext, handler: str, message: Message, services: Services) -> AuthorizationSteps:
    """Authorizes a request of the API with this handler, as work in steps. There must be an authorizer."""
    authorizer = services.authorizer
    assert authorizer is not None, "rights are checked only with an authorizer"
    on_controller = request.listener in services.config.controller_listener_names
    context = AuthorizationContext(authorizer, request, request.api_version, services.metadata.image)
    table = late_imports.load("barnabas.broker.requests.api_checks")
    check: AuthorizationCheck = table.check_of(handler, on_controller=on_controller)
    if not authorizer.is_ready and not isinstance(check, Open) and not authorizer.is_super_user(request.principal):
        return _not_ready(context, check, message)
    return check.authorize(context, message)


def _not_ready(context: AuthorizationContext, check: AuthorizationCheck, message: Message) -> AuthorizationSteps:
    """Refuses a request before the rules are known, as a client of Kafka sees its AuthorizerNotReadyException. If there
    is no such response, and the handler authorizes requests itself, it refuses as if there were no rules.
    """
    if isinstance(check, ByHandler) and error_response(message, context.version, _CODE, UNEXPECTED) is None:
        return AuthorizationResult(message)
    return AuthorizationResult(message, context.refusal(message, _CODE, UNEXPECTED))
    yield 1
