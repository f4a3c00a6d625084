"""The authorization of a request before its handler gets it, and the addition of refused rows to its response.

A check (`AuthorizationCheck.authorize`) takes a decoded request and returns an `AuthorizationResult`: the request for
the handler, without the refused rows; or the whole response, if nothing is left; and the function that completes or
filters the handler's response. Only the handlers of Produce, Fetch and Metadata check rights themselves. The table in
`api_checks` assigns a check to each API.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from barnabas.broker.authorizer import Authorizer, Requester
from barnabas.broker.requests.error_responses import ErrorRows, error_response, error_rows
from barnabas.broker.requests.refusal_shapes import shaped
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import CLUSTER_NAME, AclOperation, AclResource
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import response_class

Amend = Callable[[Any], Any]

#: The error code of a refusal by type of resource, and Kafka's message.
CODES: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
#: The number of rows checked per step.
ROWS_PER_STEP: Final = 100


class AuthorizationContext(NamedTuple):
    """The authorizer together with the request for which it decides."""

    authorizer: Authorizer
    requester: Requester
    version: int
    #: The metadata image, to find the names of topic ids.
    image: MetadataImage

    def allows(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, log_denied: bool = True
    ) -> bool:
        return self.authorizer.allows(self.requester, operation, resource, name, log_denied=log_denied)

    def refusal(self, request: Message, code: ErrorCode, text: str | None = None) -> Message:
        """Returns the response that has this error for everything in the request; an empty one, as in Kafka, if only
        rows have errors and the request has none.
        """
        found = error_response(request, self.version, code, TEXTS[code] if text is None else text)
        if found is None:
            assert request.API_KEY is not None, f"{request.NAME} is not a request"
            found = response_class(request.API_KEY)()
        return shaped(request, found, self.version)


class AuthorizationResult(NamedTuple):
    """The result of a check: `response` is set if the handler is not called."""

    request: Message
    response: Message | None = None
    amend: Amend | None = None


AuthorizationSteps = Generator[int, None, AuthorizationResult]


class AuthorizationCheck(Protocol):
    """The authorization check of an API. The documentation is generated from the table of checks, so each check
    describes itself.
    """

    @property
    def required(self) -> str:
        """Returns a text with the required operation and resource."""

    @property
    def refusal(self) -> str:
        """Returns a text that describes the response to a client without the right."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps: ...


@dataclass(frozen=True)
class Open:
    """No check: all clients may send the request."""

    why: str

    @property
    def required(self) -> str:
        return f"nothing: {self.why}"

    @property
    def refusal(self) -> str:
        return "none"

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        return AuthorizationResult(request)
        yield 1


@dataclass(frozen=True)
class ByHandler:
    """A check by the handler, which decodes the request itself, or must not do work for refused rows."""

    required: str
    refusal: str

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        return AuthorizationResult(request)
        yield 1


@dataclass(frozen=True)
class Described:
    """A check with its texts for the documentation."""

    required: str
    refusal: str


@dataclass(frozen=True)
class Whole:
    """A single check of the whole request. `name` is the field with the resource's name; empty for the cluster."""

    operation: AclOperation
    resource: AclResource = AclResource.CLUSTER
    name: str = ""

    @property
    def required(self) -> str:
        return f"{self.operation.name} on {_shown(self.resource)}"

    @property
    def refusal(self) -> str:
        return f"{CODES[self.resource].name} for the whole request"

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        name = getattr(request, self.name) if self.name else CLUSTER_NAME
        if context.allows(self.operation, self.resource, name):
            return AuthorizationResult(request)
        return AuthorizationResult(request, context.refusal(request, CODES[self.resource]))
        yield 1


@dataclass(frozen=True)
class Rows:
    """A check for each row of the request; refused rows have the error in the response. `shape` names the rows of
    request and response, `key` the field with the resource's name; it is empty if the row is the name."""

    operation: AclOperation
    resource: AclResource
    shape: ErrorRows
    key: str = ""
    #: The operation that, if allowed on the cluster, replaces the checks of the rows.
    unless: AclOperation | None = None
    #: Whether refused rows have no message.
    is_silent: bool = False
    #: Fields of refused rows, or of their inner rows, that differ from the defaults of the protocol.
    values: tuple[tuple[str, object], ...] = ()

    @property
    def required(self) -> str:
        other = f"{self.unless.name} on the cluster, or " if self.unless is not None else ""
        return f"{other}{self.operation.name} on each {_shown(self.resource).removeprefix('the ')}"

    @property
    def refusal(self) -> str:
        return f"{CODES[self.resource].name} for each one"

    def name_of(self, row: Any) -> str:
        name: str = getattr(row, self.key) if self.key else row
        return name

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        if self.unless is not None and context.allows(self.unless, AclResource.CLUSTER, log_denied=False):
            return AuthorizationResult(request)
        rows = getattr(request, self.shape.of) or ()
        allowed, refused = yield from split(context, self.operation, self.resource, rows, self.name_of)
        if not refused:
            return AuthorizationResult(request)
        return with_rows(request, self.shape, allowed, self.refused(context, request, refused))

    def refused(self, context: AuthorizationContext, request: Message, rows: list[Any]) -> list[Any]:
        """Returns the rows of the response for refused rows of the request."""
        code = CODES[self.resource]
        text = None if self.is_silent else TEXTS[code]
        found = error_rows(changed(request, self.shape.of, rows), context.version, code, text, self.shape)
        for attribute, value in self.values:
            for row in found:
                for inner in getattr(row, self.shape.inner.to) if self.shape.inner is not None else (row,):
                    setattr(inner, attribute, value)
        return found


class All:
    """Several checks, in order. The first refusal of the whole request is the response."""

    def __init__(self, *checks: AuthorizationCheck) -> None:
        self._checks = checks

    @property
    def required(self) -> str:
        return "; ".join(check.required for check in self._checks)

    @property
    def refusal(self) -> str:
        return "; ".join(check.refusal for check in self._checks)

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        outcome = AuthorizationResult(request)
        for check in self._checks:
            outcome = yield from check.authorize(context, outcome.request)
            if outcome.response is not None or outcome.amend is not None:
                return outcome
        return outcome


def split(
    context: AuthorizationContext,
    operation: AclOperation,
    resource: AclResource,
    rows: Sequence[Any],
    name_of: Callable[[Any], str],
) -> Generator[int, None, tuple[list[Any], list[Any]]]:
    """Returns the rows whose resource the client may use, and the other rows. Each name is checked once."""
    counts: dict[str, int] = {}
    for place, row in enumerate(rows):
        name = name_of(row)
        counts[name] = counts.get(name, 0) + 1
        if place % (4 * ROWS_PER_STEP) == 4 * ROWS_PER_STEP - 1:
            yield 1
    answers: dict[str, bool] = {}
    for name, count in counts.items():
        answers[name] = context.authorizer.allows(context.requester, operation, resource, name, references=count)
        if len(answers) % ROWS_PER_STEP == 0:
            yield 1
    allowed = [row for row in rows if answers[name_of(row)]]
    return allowed, [row for row in rows if not answers[name_of(row)]]


def with_rows(request: Message, shape: ErrorRows, allowed: Sequence[Any], more: list[Any]) -> AuthorizationResult:
    """Returns the outcome on a request of which the handler gets the `allowed` rows, and whose response gets `more`."""
    if not allowed:
        return AuthorizationResult(request, only_rows(request, shape, more))

    def amend(response: Any) -> Any:
        getattr(response, shape.to).extend(more)
        return response

    return AuthorizationResult(changed(request, shape.of, list(allowed)), None, amend)


def only_rows(request: Message, shape: ErrorRows, rows: list[Any]) -> Message:
    """Returns the response of these rows alone."""
    key = request.API_KEY
    assert key is not None, "a request has a key"
    response = response_class(key)()
    setattr(response, shape.to, rows)
    return response


def changed(request: Message, attribute: str, value: Any) -> Message:
    found = copy(request)
    setattr(found, attribute, value)
    return found


def _shown(resource: AclResource) -> str:
    return {
        AclResource.TOPIC: "the topic",
        AclResource.GROUP: "the group",
        AclResource.CLUSTER: "the cluster",
        AclResource.TRANSACTIONAL_ID: "the transactional id",
    }[resource]


def may_describe_topic(context: AuthorizationContext, topic: str) -> bool:
    """Returns whether the client may describe the topic. A denial only filters a response, and is not logged as one."""
    return context.allows(AclOperation.DESCRIBE, AclResource.TOPIC, topic, log_denied=False)
