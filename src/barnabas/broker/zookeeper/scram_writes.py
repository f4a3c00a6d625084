"""Changes of SCRAM credentials in ZooKeeper mode: the broker that is the controller decides and writes them.

    read the znode of a user -> decide (`controller.requests.scram`) -> write it, with its notification

The quotas in the znode stay. The response follows when this broker's own image has the changes.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.zookeeper.config_writes import EntityWrites
from barnabas.broker.zookeeper.store_steps import Steps
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.controller.requests.scram import alter_in_portions
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.records_metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from barnabas.protocol.sasl.mechanism import SCRAM_NAMES
from barnabas.znodes import paths
from barnabas.znodes.entity_records import scram_text

_Request = AlterUserScramCredentialsRequest
_Response = AlterUserScramCredentialsResponse


class ScramWrites(EntityWrites):
    """The changes of credentials that this broker makes. Those of one request are made one user after the other."""

    def alter(self, request: _Request, actor: str, reply: Callable[[_Response], None]) -> None:
        """Decides about the change of each user, and writes it."""
        self._running.start(self._alter(request, actor), reply)

    def _alter(self, request: _Request, actor: str) -> Steps[_Response]:
        by_user: dict[str, _Request] = {}
        for deletion in request.deletions:
            by_user.setdefault(deletion.name, _Request()).deletions.append(deletion)
        for upsertion in request.upsertions:
            by_user.setdefault(upsertion.name, _Request()).upsertions.append(upsertion)
        response = _Response()
        for user, alterations in by_user.items():
            changed = yield from self._alter_user(user, alterations, actor)
            response.results += changed.results
        return response

    def _alter_user(self, user: str, request: _Request, actor: str) -> Steps[_Response]:
        entity = f"{paths.USER_CONFIGS}/{paths.sanitize(user)}"
        if user:
            yield from self._watch.refresh_client(entity)
        view = self._view()
        decided = whole(alter_in_portions(view, request, actor, in_zookeeper=True))
        texts: dict[str, str | None] = {}
        for record, _ in decided.records:
            if isinstance(record, UserScramCredentialRecord):
                texts[SCRAM_NAMES[record.mechanism]] = scram_text(record)
            else:
                assert isinstance(record, RemoveUserScramCredentialRecord), "the decision changes only credentials"
                texts[SCRAM_NAMES[record.mechanism]] = None
        if texts:
            problem = yield from self._change_entity(entity, texts)
            if problem is not None:
                (row,) = decided.response.results
                row.error_code, row.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, problem
        return decided.response
