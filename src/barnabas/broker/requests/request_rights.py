"""Imports the table of authorization checks (`api_questions`) at the first request that needs it: a node without an
authorizer never does.
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.judging import Judge, Judgement, Question
from barnabas.common import late_imports
from barnabas.protocol.message import Message


def judged(request: RequestContext, handler: str, message: Message, services: Services) -> Judgement:
    """Authorizes a request of the API with this handler, as work in steps. There must be an authorizer."""
    authorizer = services.authorizer
    assert authorizer is not None, "rights are checked only with an authorizer"
    on_controller = request.listener in services.config.controller_listener_names
    judge = Judge(authorizer, request, request.api_version, services.metadata.image)
    table = late_imports.load("barnabas.broker.requests.api_questions")
    question: Question = table.question_of(handler, on_controller=on_controller)
    return question.judge(judge, message)
