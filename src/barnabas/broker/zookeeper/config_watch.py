"""The configurations in ZooKeeper, as changes of the image: of topics, brokers, users, clients and IP addresses.

    a new session          all configurations are read, below a watch of /config/changes: what was written without a
                           notification is found too (G42)
    a notification         names one configuration, which is read again; the sequence numbers say which are new
    a topic new to the     its configuration is read: CreateTopics writes it without a notification
    image

A znode without a valid configuration leaves the image as it was, and is reported. Notifications end after 15 minutes;
each broker deletes those that it finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from barnabas.broker.zookeeper.store_steps import Steps, StoreSteps, read
from barnabas.common.host import Host
from barnabas.common.reports import LimitedReports
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.znodes import paths
from barnabas.znodes.client_entities import (
    CLIENT_TYPES,
    ClientEntity,
    client_changes,
    client_entities,
    client_entity,
    client_records,
)
from barnabas.znodes.config_znodes import decode_config, decode_config_change
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ChildrenReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import DeleteRequest

_CHANGE_MS_MAX: Final = 15 * 60_000
_RESOURCES: Final = {paths.TOPIC_CONFIGS: TOPIC_RESOURCE, paths.BROKER_CONFIGS: BROKER_RESOURCE}
_KINDS: Final = {resource: kind for kind, resource in _RESOURCES.items()}


def entity_path(resource_type: int, name: str) -> str:
    """Returns the path of a topic's or broker's configuration below /config."""
    return f"{_KINDS[resource_type]}/{name or paths.DEFAULT_ENTITY}"


class ConfigWatch:
    """The configurations that this broker follows."""

    def __init__(self, host: Host, store: ZnodeStore, metadata: MetadataStore) -> None:
        self._host = host
        self._store = store
        self._metadata = metadata
        self._reports = LimitedReports(host.faults, host.clock)
        #: The number of the last notification that was processed.
        self._last = -1
        self._wanted: dict[str, None] = {}
        self._has_changes = False
        self._running: StoreSteps | None = None

    # -- the session

    def load(self) -> Steps[None]:
        """Sets a watch on the notifications, then reads all configurations."""
        self._cancel()
        self._wanted.clear()
        self._has_changes = False
        names = yield from self._change_names()
        self._last = max((number for number, _ in names), default=-1)
        for kind, resource_type in _RESOURCES.items():
            names_of_kind = yield from self._children(f"{paths.CONFIG}/{kind}")
            entities = dict.fromkeys(f"{kind}/{name}" for name in names_of_kind)
            image = self._metadata.image
            gone = (name for found, name in sorted(image.configs) if found == resource_type)
            entities.update(dict.fromkeys(entity_path(resource_type, name) for name in gone))
            for entity in entities:
                yield from self.refresh(entity)
        yield from self._load_clients()
        self._run_if_wanted()

    def _load_clients(self) -> Steps[None]:
        """Reads the configurations of users, clients and addresses. Those of other entities are removed from the
        image.
        """
        entities: list[str] = []
        for kind in CLIENT_TYPES:
            for name in (yield from self._children(f"{paths.CONFIG}/{kind}")):
                entities.append(f"{kind}/{name}")
                if kind == paths.USER_CONFIGS:
                    below = f"{kind}/{name}/{paths.CLIENT_CONFIGS}"
                    clients = yield from self._children(f"{paths.CONFIG}/{below}")
                    entities += (f"{below}/{client}" for client in clients)
        found: set[ClientEntity] = set()
        for entity in entities:
            client = yield from self.refresh_client(entity)
            if client is not None:
                found.add(client)
        for gone in sorted(client_entities(self._metadata.image.security) - found, key=repr):
            self._publish_client(gone, [])

    def _children(self, path: str) -> Steps[list[str]]:
        reply: ChildrenReply = yield partial(self._store.children, path)
        return sorted(reply.names or ())

    def changed(self, path: str) -> None:
        """Handles a watch that fired."""
        if path == paths.CONFIG_CHANGES:
            self._has_changes = True
            self._run()

    def resume(self) -> None:
        if self._running is not None:
            self._running.resume()

    def close(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    # -- changes

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Reads the configurations of topics that are new to the image."""
        if delta.roles is None:
            return
        new = [topic.name for topic in delta.changed_topics.values() if topic.base is None]
        if new:
            self._wanted.update(dict.fromkeys(f"{paths.TOPIC_CONFIGS}/{name}" for name in new))
            self._run()

    def refresh(self, entity: str) -> Steps[Mapping[str, str] | None]:
        """Reads the configuration of a topic or broker and puts it into the image. Returns the configuration, or None
        if it is invalid.
        """
        kind, _, name = entity.partition("/")
        path = f"{paths.CONFIG}/{entity}"
        reply = yield from read(self._store, path)
        try:
            overrides = decode_config(path, None if reply.znode is None else reply.znode.data)
        except ZnodeError as error:
            self._reports.report(path, str(error))
            return None
        self._mended(path)
        self._publish(_RESOURCES[kind], "" if name == paths.DEFAULT_ENTITY else name, overrides)
        return overrides

    def refresh_client(self, entity: str) -> Steps[ClientEntity | None]:
        """Reads the configuration of a user, a client or an address. Returns the entity that the path names, or None if
        it names none.
        """
        path = f"{paths.CONFIG}/{entity}"
        client: ClientEntity | None = None
        try:
            client = client_entity(entity)
            reply = yield from read(self._store, path)
            records = list(client_records(entity, None if reply.znode is None else reply.znode.data))
        except ZnodeError as error:
            self._reports.report(path, str(error))
            return client
        self._mended(path)
        self._publish_client(client, records)
        return client

    def _mended(self, path: str) -> None:
        self._reports.over(path, f"znode {path} can be read again")

    def _publish_client(self, client: ClientEntity, records: Sequence[Message]) -> None:
        image = self._metadata.image
        changes = client_changes(image.security, client, records)
        if changes:
            delta = MetadataDelta(image)
            delta.roles = frozenset()
            for record in changes:
                delta.replay(record)
            self._metadata.publish(delta, delta.apply(image.offset + 1, image.epoch, self._host.clock.wall_ms()))

    def _publish(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        image = self._metadata.image
        before = image.config_of(resource_type, name)
        delta = MetadataDelta(image)
        delta.roles = frozenset()
        for key in sorted({*before, *overrides}):
            if before.get(key) != overrides.get(key):
                value = overrides.get(key)
                delta.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value))
        if delta.changed_configs:
            self._metadata.publish(delta, delta.apply(image.offset + 1, image.epoch, self._host.clock.wall_ms()))

    def _run(self) -> None:
        if self._running is None and self._store.session_id:
            self._running = StoreSteps(self._take_in(), self._on_taken_in)
            self._running.start()

    def _on_taken_in(self, result: None) -> None:
        self._running = None
        self._run_if_wanted()

    def _run_if_wanted(self) -> None:
        if self._has_changes or self._wanted:
            self._run()

    def _take_in(self) -> Steps[None]:
        while self._has_changes or self._wanted:
            if self._has_changes:
                self._has_changes = False
                yield from self._read_changes()
            while self._wanted:
                entity = next(iter(self._wanted))
                del self._wanted[entity]
                if entity.partition("/")[0] in CLIENT_TYPES:
                    yield from self.refresh_client(entity)
                else:
                    yield from self.refresh(entity)

    def _read_changes(self) -> Steps[None]:
        names = yield from self._change_names()
        for number, path in names:
            reply = yield from read(self._store, path)
            if reply.znode is None or reply.stat is None:
                continue
            if number > self._last:
                try:
                    self._wanted[decode_config_change(path, reply.znode.data)] = None
                except ZnodeError as error:
                    self._reports.report(path, str(error))
            if reply.stat.ctime + _CHANGE_MS_MAX < self._host.clock.wall_ms():
                part = Part(OpCode.DELETE, DeleteRequest(path, ANY_VERSION))
                yield partial(self._store.multi, [part])
        self._last = max((number for number, _ in names), default=self._last)

    def _change_names(self) -> Steps[list[tuple[int, str]]]:
        """Sets a new watch on the notifications, and returns them with their sequence numbers, in order."""
        reply: ChildrenReply = yield lambda answered: self._store.children(paths.CONFIG_CHANGES, answered, watch=True)
        found = [f"{paths.CONFIG_CHANGES}/{name}" for name in reply.names or ()]
        return sorted((number, path) for path in found if (number := paths.sequence_number(path)) is not None)
