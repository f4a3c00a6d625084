"""Changes of client quotas in ZooKeeper mode: any broker decides and writes them, as it does for configurations.

    read the znodes -> decide (`controller.requests.client_quotas`) -> write each znode, with its notification

A znode of a user holds SCRAM credentials too, which stay. The response follows when this broker's own image has the
changes.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.zookeeper.config_writes import EntityWrites
from barnabas.broker.zookeeper.store_steps import Steps
from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.client_quotas import alter_client_quotas, entity_of
from barnabas.metadata.security import QuotaEntity
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.records_metadata import ClientQuotaRecord
from barnabas.znodes import paths
from barnabas.znodes.image_znodes import quota_path, quota_text

_Request = AlterClientQuotasRequest
_Response = AlterClientQuotasResponse


class QuotaWrites(EntityWrites):
    """The changes of quotas that this broker makes. The changes of one request are made one after the other."""

    def alter(self, request: _Request, actor: str, reply: Callable[[_Response], None]) -> None:
        """Decides about the change of each entity, and writes it unless it is only validated."""
        self._running.start(self._alter(request, actor), reply)

    def _alter(self, request: _Request, actor: str) -> Steps[_Response]:
        for entry in request.entries:
            path = _entity_path(entity_of(entry))
            if path is not None:
                yield from self._watch.refresh_client(path)
        view = self._view()
        decided = alter_client_quotas(view, request, actor)
        if request.validate_only:
            return decided.response
        changes: dict[QuotaEntity, list[ClientQuotaRecord]] = {}
        for record, _ in decided.records:
            assert isinstance(record, ClientQuotaRecord), "the decision changes only quotas"
            entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
            changes.setdefault(entity, []).append(record)
        for row in decided.response.entries:
            entity = tuple((part.entity_type, part.entity_name) for part in row.entity)
            if entity in changes:
                problem = yield from self._write(entity, changes[entity])
                if problem is not None:
                    row.error_code, row.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, problem
        return decided.response

    def _write(self, entity: QuotaEntity, records: list[ClientQuotaRecord]) -> Steps[str | None]:
        """Changes the znode of an entity. Returns the error message; None if it is written."""
        name = _entity_path(entity)
        assert name is not None, "the decision allows no other entity"
        texts = {record.key: None if record.remove else quota_text(record.key, record.value) for record in records}
        return (yield from self._change_entity(name, texts))


def _entity_path(entity: QuotaEntity) -> str | None:
    """Returns the path of an entity below /config; None if it cannot have one."""
    if any(name == "" for _, name in entity):
        return None
    path = quota_path(entity)
    return None if path is None else path.removeprefix(f"{paths.CONFIG}/")
