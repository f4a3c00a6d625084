"""Changes of configurations in ZooKeeper mode: any broker decides and writes them.

    read the znode -> decide (`controller.requests.configs`) -> M[check /controller v0, set the znode] -> notification

The check proves only that there is a controller in ZooKeeper mode; the last write wins, as in Kafka. A znode that does
not exist is created. The response follows when this broker's own image has the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from barnabas.broker.zookeeper.config_watch import ConfigWatch, entity_path
from barnabas.broker.zookeeper.store_steps import RunningSteps, Steps, create, make_path, read
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
from barnabas.zookeeper.wire.codes import ANY_VERSION, CreateFlags, OpCode
from barnabas.zookeeper.wire.codes import ErrorCode as StoreError
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CheckVersionRequest, SetDataRequest

#: The watch that puts what was written into this broker's image.
W = TypeVar("W", bound=ZnodeWatch[Any])
#: /controller is created anew by each controller, and never changed.
_CONTROLLER_VERSION = 0


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


class ConfigWrites(ZnodeWrites[ConfigWatch]):
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
        if (yield from self._watch.refresh(entity)) is None:
            return (
                ErrorCode.INVALID_CONFIG,
                f"{paths.CONFIG}/{entity} is not a configuration; see the log of the broker.",
            )
        image = self._metadata.image
        view = self._view()
        decided = alter_configs(view, [change], actor, replace=replace)
        (result,) = decided.response
        if result[0] is not ErrorCode.NONE or validate_only:
            return result
        overrides = dict(image.config_of(resource_type, name))
        for record, _ in decided.records:
            assert isinstance(record, ConfigRecord), "there are no other records without eligible leader replicas"
            if record.value is None:
                overrides.pop(record.name, None)
            else:
                overrides[record.name] = record.value
        problem = yield from write_config(self._store, entity, overrides)
        if problem is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, problem
        yield from self._watch.refresh(entity)
        return result


def change_entity(
    store: ZnodeStore, watch: ConfigWatch, entity: str, changes: Mapping[str, str | None]
) -> Steps[str | None]:
    """Changes keys in the configuration of a user, a client or an address, and reads it into the image; None removes a
    key. Returns the error message; None if it is written.
    """
    path = f"{paths.CONFIG}/{entity}"
    reply = yield from read(store, path)
    try:
        overrides = decode_config(path, None if reply.znode is None else reply.znode.data)
    except ZnodeError:
        return f"{path} is not a configuration; see the log of the broker."
    for key, value in changes.items():
        if value is None:
            overrides.pop(key, None)
        else:
            overrides[key] = value
    problem = yield from write_config(store, entity, overrides)
    if problem is None:
        yield from watch.refresh_client(entity)
    return problem


def write_config(store: ZnodeStore, entity: str, overrides: Mapping[str, str]) -> Steps[str | None]:
    """Writes a configuration and its notification. Returns the error message; None if it is written."""
    error = yield from _write(store, f"{paths.CONFIG}/{entity}", encode_config(overrides))
    if error:
        return f"ZooKeeper refused the change of {entity}: {StoreError(error).name}"
    yield from create(store, paths.NEW_CONFIG_CHANGE, encode_config_change(entity), CreateFlags.PERSISTENT_SEQUENTIAL)
    return None


def _write(store: ZnodeStore, path: str, data: bytes) -> Steps[int]:
    """Writes a configuration, or creates its znode. Returns ZooKeeper's error code; 0 if there is none."""
    check = Part(OpCode.CHECK, CheckVersionRequest(paths.CONTROLLER, _CONTROLLER_VERSION))
    write = Part(OpCode.SET_DATA, SetDataRequest(path, data, ANY_VERSION))
    reply: MultiReply = yield lambda answered: store.multi([check, write], answered)
    refused = reply.refused_part
    if refused is None:
        return 0
    assert reply.errors is not None, "the connection was not lost"
    if reply.errors[refused] != StoreError.NO_NODE:
        return reply.errors[refused]
    error = yield from make_path(store, path, data)
    if error == StoreError.NODE_EXISTS:  # there is no controller
        reply = yield lambda answered: store.multi([write], answered)
        return 0 if reply.refused_part is None else StoreError.SYSTEM_ERROR
    return error
