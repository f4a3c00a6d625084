"""Changes of configurations in ZooKeeper mode: any broker decides and writes them.

    read the znode -> decide (`controller.requests.configs`) -> M[check /controller v0, set the znode] -> notification

The check proves only that there is a controller in ZooKeeper mode. A znode that does not exist is created. The response
follows when this broker's own image has the change.

A znode holds all keys of its entity, so a write that does not know the one before it would take that one's keys back,
although it was acknowledged. Kafka serves the requests of one connection one after the other; here changes of an entity
take turns, because they wait for ZooKeeper together when it does not answer. Each is written under the version that was
read: one that another broker, or a tool, has overtaken is decided again. (In Kafka the last write wins.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from barnabas.broker.zookeeper.config_watch import ConfigRead, ConfigWatch, entity_path
from barnabas.broker.zookeeper.store_steps import RunningSteps, Steps, create, make_path, pause, read
from barnabas.broker.zookeeper.znode_watch import ZnodeWatch
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.controller.requests.configs import AlterResult, ResourceChange, alter_configs
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.znodes import paths
from barnabas.znodes.config_znodes import decode_config, encode_config, encode_config_change
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import MultiReply, ZnodeStore
from barnabas.zookeeper.wire.codes import CreateFlags, OpCode
from barnabas.zookeeper.wire.codes import ErrorCode as StoreError
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CheckVersionRequest, SetDataRequest

#: The watch that puts what was written into this broker's image.
W = TypeVar("W", bound=ZnodeWatch[Any])
#: /controller is created anew by each controller, and never changed.
_CONTROLLER_VERSION: Final = 0
#: The number of attempts to write a znode, and the pause between two of them: those of Kafka for ACLs.
ATTEMPTS_MAX: Final = 11
_PAUSE_MS: Final = 100
_JITTER_MS: Final = 50
#: The errors of a write that another change has overtaken.
OVERTAKEN: Final = frozenset({StoreError.BAD_VERSION, StoreError.NODE_EXISTS, StoreError.NO_NODE})


class ZnodeWrites(Generic[W]):
    """The common part of all writers: the changes of one request are made one after the other."""

    def __init__(self, host: Host, config: BrokerConfig, store: ZnodeStore, metadata: MetadataStore, watch: W) -> None:
        self._host = host
        self._config = config
        self._store = store
        self._metadata = metadata
        self._watch = watch
        self._running = RunningSteps()

    def resume(self) -> None:
        """Continues after the connection to ZooKeeper is back."""
        self._running.resume()

    def _view(self) -> ControllerView:
        return ControllerView(self._metadata.image, self._config, self._host.random)

    def _pause(self) -> Steps[None]:
        """Waits before the next attempt to write what another change has overtaken."""
        yield from pause(self._host.timers, _PAUSE_MS + self._host.random.below(_JITTER_MS))


class EntityWrites(ZnodeWrites[ConfigWatch]):
    """The common part of the writers of /config."""

    def _write_entity(self, entity: str, overrides: Mapping[str, str], version: int | None) -> Steps[int]:
        """Writes a configuration that was read in this version, and its notification. Returns ZooKeeper's error code;
        0 if there is none.
        """
        error = yield from _write(self._store, f"{paths.CONFIG}/{entity}", encode_config(overrides), version)
        if not error:
            data = encode_config_change(entity)
            yield from create(self._store, paths.NEW_CONFIG_CHANGE, data, CreateFlags.PERSISTENT_SEQUENTIAL)
        return error

    def _change_entity(self, entity: str, changes: Mapping[str, str | None]) -> Steps[str | None]:
        """Changes keys in the configuration of a user, a client or an address, and reads it into the image; None
        removes a key. Returns the error message; None if it is written.
        """
        yield from self._watch.turns.wait(entity)
        try:
            problem = yield from self._change_keys(entity, changes)
        finally:
            self._watch.turns.end(entity)
        if problem is None:
            yield from self._watch.refresh_client(entity)
        return problem

    def _change_keys(self, entity: str, changes: Mapping[str, str | None]) -> Steps[str | None]:
        path = f"{paths.CONFIG}/{entity}"
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                yield from self._pause()
            reply = yield from read(self._store, path)
            try:
                overrides = decode_config(path, None if reply.znode is None else reply.znode.data)
            except ZnodeError:
                return f"{path} is not a configuration; see the log of the broker."
            for key, value in changes.items():
                if value is None:
                    overrides.pop(key, None)
                else:
                    overrides[key] = value
            version = None if reply.znode is None else reply.znode.version
            error = yield from self._write_entity(entity, overrides, version)
            if error not in OVERTAKEN:
                return _problem(entity, error)
        return _given_up(entity)


class ConfigWrites(EntityWrites):
    """The configuration changes that this broker makes. The changes of one request are made one after the other."""

    def change(
        self,
        changes: Sequence[ResourceChange],
        actor: str,
        reply: Callable[[Sequence[AlterResult]], None],
        *,
        replace: bool,
        validate_only: bool,
    ) -> None:
        """Decides about the change of each resource, and writes it unless it is only validated."""
        self._running.start(self._change_all(changes, actor, replace, validate_only), reply)

    def _change_all(
        self, changes: Sequence[ResourceChange], actor: str, replace: bool, validate_only: bool
    ) -> Steps[list[AlterResult]]:
        results: list[AlterResult] = []
        for change in changes:
            result = yield from self._change(change, actor, replace, validate_only)
            results.append(result)
        return results

    def _change(self, change: ResourceChange, actor: str, replace: bool, validate_only: bool) -> Steps[AlterResult]:
        resource_type, name, _ = change
        if resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            return ErrorCode.INVALID_REQUEST, "In ZooKeeper mode only topics and brokers have configurations."
        entity = entity_path(resource_type, name)
        yield from self._watch.turns.wait(entity)
        try:
            for attempt in range(ATTEMPTS_MAX):
                if attempt:
                    yield from self._pause()
                before = yield from self._watch.refresh(entity)
                if before is None:
                    message = f"{paths.CONFIG}/{entity} is not a configuration; see the log of the broker."
                    return ErrorCode.INVALID_CONFIG, message
                result, overrides = self._decide(change, actor, replace, before)
                if result[0] is not ErrorCode.NONE or validate_only:
                    return result
                error = yield from self._write_entity(entity, overrides, before.version)
                if not error:
                    yield from self._watch.refresh(entity)
                    return result
                if error not in OVERTAKEN:
                    return ErrorCode.UNKNOWN_SERVER_ERROR, _problem(entity, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR, _given_up(entity)
        finally:
            self._watch.turns.end(entity)

    def _decide(
        self, change: ResourceChange, actor: str, replace: bool, before: ConfigRead
    ) -> tuple[AlterResult, dict[str, str]]:
        """Returns the result of a change, and the configuration after it. The image has the one before it."""
        decided = alter_configs(self._view(), [change], actor, replace=replace)
        (result,) = decided.response
        overrides = dict(before.overrides)
        for record, _ in decided.records:
            assert isinstance(record, ConfigRecord), "there are no other records without eligible leader replicas"
            if record.value is None:
                overrides.pop(record.name, None)
            else:
                overrides[record.name] = record.value
        return result, overrides


def _problem(entity: str, error: int) -> str | None:
    return f"ZooKeeper refused the change of {entity}: {StoreError(error).name}" if error else None


def _given_up(entity: str) -> str:
    return f"Failed to change {entity} after trying a maximum of {ATTEMPTS_MAX - 1} times"


def _write(store: ZnodeStore, path: str, data: bytes, version: int | None) -> Steps[int]:
    """Writes a configuration under its version, or creates its znode. Returns ZooKeeper's error code; 0 if there is
    none.
    """
    if version is None:
        return (yield from make_path(store, path, data))
    check = Part(OpCode.CHECK, CheckVersionRequest(paths.CONTROLLER, _CONTROLLER_VERSION))
    write = Part(OpCode.SET_DATA, SetDataRequest(path, data, version))
    reply: MultiReply = yield lambda answered: store.multi([check, write], answered)
    if reply.refused_part == 0 and reply.error_of(0) == StoreError.NO_NODE:  # there is no controller
        reply = yield lambda answered: store.multi([write], answered)
    return 0 if reply.refused_part is None else reply.error_of(reply.refused_part)
