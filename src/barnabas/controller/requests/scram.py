"""AlterUserScramCredentials: sets and removes SCRAM credentials of users (KIP-554), with Kafka's errors and texts.

Each user is decided separately: an error for one does not concern the others. A user can be altered once in a request;
in ZooKeeper mode once for each mechanism, as in Kafka 3.9.1.
The client sends the salted password; only the two keys that are derived from it are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.portions import Portions
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.versions import V_3_5_IV2
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.records_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.mechanism import SCRAM, SCRAM_NAMES
from barnabas.protocol.sasl.scram_server import ITERATIONS_MAX, ITERATIONS_MIN, keys_of

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult

#: The number of alterations decided in one portion.
_PORTION: Final = 100
#: The maximum number of users that the cause of a change names.
_NAMED_MAX: Final = 10


def alteration_count(request: AlterUserScramCredentialsRequest) -> int:
    return len(request.deletions) + len(request.upsertions)


def alter_in_portions(
    view: ControllerView, request: AlterUserScramCredentialsRequest, actor: str, *, in_zookeeper: bool = False
) -> Portions[Result[AlterUserScramCredentialsResponse]]:
    """Decides on an AlterUserScramCredentials request, some users at a time."""
    chosen: dict[str, dict[int, _Deletion | _Upsertion]] = {}
    errors: dict[str, RequestFailed] = {}
    alterations: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    for index, alteration in enumerate(alterations, 1):
        name = alteration.name
        if name not in errors:
            try:
                earlier = chosen.get(name, {})
                if alteration.mechanism in earlier if in_zookeeper else earlier:
                    text = "A user credential cannot be altered twice in the same request"
                    raise RequestFailed(ErrorCode.DUPLICATE_RESOURCE, text)
                if not in_zookeeper and view.image.metadata_version < V_3_5_IV2:
                    text = "The current metadata.version does not support SCRAM"
                    raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION, text)
                _check(view, alteration)
                chosen.setdefault(name, {})[alteration.mechanism] = alteration
            except RequestFailed as error:
                chosen.pop(name, None)
                errors[name] = error
        if not index % _PORTION:
            yield
    records: list[Versioned] = []
    rows: list[_Row] = []
    for name, by_mechanism in chosen.items():
        records += ((_record(alteration), 0) for alteration in by_mechanism.values())
        rows.append(_Row(user=name, error_message="" if in_zookeeper else None))
        if not len(rows) % _PORTION:
            yield
    rows += [_Row(user=name, error_code=error.code, error_message=error.message) for name, error in errors.items()]
    altered = [alteration for by_mechanism in chosen.values() for alteration in by_mechanism.values()]
    cause = Cause(ControllerEvent.ALTER_USER_SCRAM_CREDENTIALS, actor, _shown(altered))
    return Result(records, AlterUserScramCredentialsResponse(results=rows), cause)


def refused(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    """Returns the response with this error for every user."""
    users = dict.fromkeys(_names(request))
    rows = [_Row(user=user, error_code=code, error_message=None) for user in users]
    return AlterUserScramCredentialsResponse(results=rows)


def _names(request: AlterUserScramCredentialsRequest) -> Iterator[str]:
    yield from (deletion.name for deletion in request.deletions)
    yield from (upsertion.name for upsertion in request.upsertions)


def _check(view: ControllerView, alteration: _Deletion | _Upsertion) -> None:
    """Raises RequestFailed if the alteration is not possible."""
    if not alteration.name:
        raise RequestFailed(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if alteration.mechanism not in SCRAM_NAMES:
        raise RequestFailed(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, _Deletion):
        if (alteration.mechanism, alteration.name) not in view.image.security.scram:
            raise RequestFailed(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    elif alteration.iterations < ITERATIONS_MIN:
        raise RequestFailed(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif alteration.iterations > ITERATIONS_MAX:
        raise RequestFailed(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def _record(alteration: _Deletion | _Upsertion) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(alteration, _Deletion):
        return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)
    return credential_record(
        alteration.name, alteration.mechanism, alteration.salt, alteration.salted_password, alteration.iterations
    )


def credential_record(
    name: str, mechanism: int, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    stored_key, server_key = keys_of(SCRAM[SCRAM_NAMES[mechanism]][1], salted_password)
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations
    )


def _shown(alterations: list[_Deletion | _Upsertion]) -> str:
    """Returns the users and mechanisms, for the cause of the change."""
    named = [f"user {each.name} ({SCRAM_NAMES[each.mechanism]})" for each in alterations[:_NAMED_MAX]]
    more = len(alterations) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
