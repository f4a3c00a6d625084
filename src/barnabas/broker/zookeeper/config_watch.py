"""The configurations in ZooKeeper, as changes of the image: of topics, brokers, users, clients and IP addresses.

They are followed by the notifications in /config/changes (`znode_watch.py`). The configuration of a topic that is new
to the image is read, too: CreateTopics writes it without a notification.

A znode without a valid configuration leaves the image as it was, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.zookeeper.store_steps import Steps, Turns, read
from barnabas.broker.zookeeper.znode_watch import ZnodeWatch
from barnabas.common.host import Host
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

_RESOURCES: Final = {paths.TOPIC_CONFIGS: TOPIC_RESOURCE, paths.BROKER_CONFIGS: BROKER_RESOURCE}
_KINDS: Final = {resource: kind for kind, resource in _RESOURCES.items()}


def entity_path(resource_type: int, name: str) -> str:
    """Returns the path of a topic's or broker's configuration below /config."""
    return f"{_KINDS[resource_type]}/{name or paths.DEFAULT_ENTITY}"


class ConfigRead(NamedTuple):
    """A configuration, and the data version of its znode; None if there is no znode."""

    overrides: Mapping[str, str]
    version: int | None


class ConfigWatch(ZnodeWatch[str]):
    """The configurations that this broker follows, by their paths below /config."""

    def __init__(self, host: Host, store: ZnodeStore, metadata: MetadataStore) -> None:
        super().__init__(host, store, metadata, {paths.CONFIG_CHANGES: decode_config_change})
        #: The turns of the writers of this broker, by the path of an entity below /config.
        self.turns = Turns()

    def _load(self) -> Steps[None]:
        for kind, resource_type in _RESOURCES.items():
            names_of_kind = yield from self._children(f"{paths.CONFIG}/{kind}")
            entities = dict.fromkeys(f"{kind}/{name}" for name in names_of_kind)
            image = self._metadata.image
            gone = (name for found, name in sorted(image.configs) if found == resource_type)
            entities.update(dict.fromkeys(entity_path(resource_type, name) for name in gone))
            for entity in entities:
                yield from self.refresh(entity)
        yield from self._load_clients()

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

    def _read(self, name: str) -> Steps[object]:
        if name.partition("/")[0] in CLIENT_TYPES:
            yield from self.refresh_client(name)
        else:
            yield from self.refresh(name)
        return None

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Reads the configurations of topics that are new to the image."""
        if delta.roles is None:
            return
        new = [topic.name for topic in delta.changed_topics.values() if topic.base is None]
        if new:
            self._want(f"{paths.TOPIC_CONFIGS}/{name}" for name in new)

    def refresh(self, entity: str) -> Steps[ConfigRead | None]:
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
        self._publish_config(_RESOURCES[kind], "" if name == paths.DEFAULT_ENTITY else name, overrides)
        return ConfigRead(overrides, None if reply.znode is None else reply.znode.version)

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

    def _publish_client(self, client: ClientEntity, records: Sequence[Message]) -> None:
        changes = client_changes(self._metadata.image.security, client, records)
        if changes:
            self._publish(changes)

    def _publish_config(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        before = self._metadata.image.config_of(resource_type, name)
        changes = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=overrides.get(key))
            for key in sorted({*before, *overrides})
            if before.get(key) != overrides.get(key)
        ]
        if changes:
            self._publish(changes)
