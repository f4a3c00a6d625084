"""Brokers and controllers as values, and the delta that builds new ones from registration records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from immutables import Map

from barnabas.common.endpoints import SECURITY_PROTOCOLS, Listener
from barnabas.metadata.topics import FIRST_UNRESERVED_DIRECTORY, LOST_DIRECTORY
from barnabas.metadata.unwritable import read_unwritable, unwritable_tags
from barnabas.protocol.messages.records_metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

#: The rows of endpoints or features of a message.
R = TypeVar("R")


class Endpoint(NamedTuple):
    """A listener as it is advertised. `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 and 3 with SASL."""

    name: str
    host: str
    port: int
    security_protocol: int


def endpoints_of(listeners: Sequence[Listener], advertised: Sequence[Listener]) -> tuple[Endpoint, ...]:
    """Returns the advertised endpoints of these listeners. A listener without a host is advertised as localhost."""
    by_name = {listener.name: listener for listener in advertised}
    shown = (by_name.get(listener.name, listener) for listener in listeners)
    return tuple(
        Endpoint(
            listener.name,
            listener.host or "localhost",
            listener.port,
            SECURITY_PROTOCOLS.index(listener.security_protocol),
        )
        for listener in shown
    )


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports."""

    name: str
    min_version: int
    max_version: int


class EndpointFields(Protocol):
    """An `Endpoint`, or a row of a message with the same fields."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...


def endpoint_rows(row: Callable[..., R], endpoints: Iterable[EndpointFields]) -> list[R]:
    """Returns the endpoints as rows of a message; `row` is the class of its rows."""
    return [row(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints]


def feature_rows(row: Callable[..., R], features: Iterable[FeatureRange]) -> list[R]:
    """Returns the supported features as rows of a message; `row` is the class of its rows."""
    return [
        row(name=f.name, min_supported_version=f.min_version, max_supported_version=f.max_version) for f in features
    ]


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registration of a broker: one incarnation of its process, with its epoch. Endpoints are sorted by name."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    directories: tuple[bytes, ...] = ()
    #: The directories that currently refuse writes (decision 0012).
    unwritable: tuple[bytes, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether the broker can lead and join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None

    def has_online_directory(self, directory_id: bytes) -> bool:
        """Returns whether a replica assigned to this directory can be served.

        Kafka reserves ids below 100 (KIP-858); of these only LOST is offline.
        """
        if directory_id == LOST_DIRECTORY:
            return False
        return directory_id < FIRST_UNRESERVED_DIRECTORY or not self.directories or directory_id in self.directories

    def takes_writes(self, directory_id: bytes) -> bool:
        """Returns whether a replica assigned to this directory can be appended to.

        A replica whose directory is not known yet can, as long as any directory takes writes.
        """
        if not self.unwritable:
            return True
        if directory_id < FIRST_UNRESERVED_DIRECTORY:
            return not set(self.directories) <= set(self.unwritable)
        return directory_id not in self.unwritable

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=endpoint_rows(RegisterBrokerRecord.BrokerEndpoint, self.endpoints),
            features=feature_rows(RegisterBrokerRecord.BrokerFeature, self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            unknown_tags=unwritable_tags(self.unwritable) if self.unwritable else (),
        )


def _features(
    features: Sequence[RegisterBrokerRecord.BrokerFeature] | Sequence[RegisterControllerRecord.ControllerFeature],
) -> tuple[FeatureRange, ...]:
    """Returns the features sorted by name: they are a set, and Kafka writes them in any order."""
    return tuple(sorted(FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in features))


def broker_from_record(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(sorted(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points)),
        features=_features(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        directories=tuple(record.log_dirs),
        unwritable=read_unwritable(record.unknown_tags) or (),
    )


@dataclass(frozen=True, slots=True)
class ControllerImage:
    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    zk_migration_ready: bool = False

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=endpoint_rows(RegisterControllerRecord.ControllerEndpoint, self.endpoints),
            features=feature_rows(RegisterControllerRecord.ControllerFeature, self.features),
        )


def controller_from_record(record: RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        features=_features(record.features),
        zk_migration_ready=record.zk_migration_ready,
    )


Brokers = Map[int, BrokerImage]
Controllers = Map[int, ControllerImage]


class ClusterDelta:
    """The changes of the registrations. A broker or controller that was removed is None in `changed_*`."""

    __slots__ = ("_brokers", "_controllers", "changed_brokers", "changed_controllers")

    def __init__(self, brokers: Brokers, controllers: Controllers) -> None:
        self._brokers = brokers
        self._controllers = controllers
        self.changed_brokers: dict[int, BrokerImage | None] = {}
        self.changed_controllers: dict[int, ControllerImage | None] = {}

    def broker(self, broker_id: int, epoch: int) -> BrokerImage:
        """Returns the current registration of the broker. Raises KeyError if it is not registered with this epoch."""
        if broker_id in self.changed_brokers:
            broker = self.changed_brokers[broker_id]
        else:
            broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise KeyError(f"broker {broker_id} is not registered with epoch {epoch}")
        return broker

    def replay_register(self, record: RegisterBrokerRecord) -> None:
        self.changed_brokers[record.broker_id] = broker_from_record(record)

    def replay_unregister(self, record: UnregisterBrokerRecord) -> None:
        self.broker(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = replace(self.broker(record.id, record.epoch), fenced=True)

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        self.changed_brokers[record.id] = replace(self.broker(record.id, record.epoch), fenced=False)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Applies a change of `fenced` and `in_controlled_shutdown`, each 1 (set), -1 (clear) or 0 (unchanged)."""
        broker = self.broker(record.broker_id, record.broker_epoch)
        assert record.fenced in (-1, 0, 1), record.fenced
        assert record.in_controlled_shutdown in (-1, 0, 1), record.in_controlled_shutdown
        unwritable = read_unwritable(record.unknown_tags)
        self.changed_brokers[record.broker_id] = replace(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=(
                record.in_controlled_shutdown > 0 if record.in_controlled_shutdown else broker.in_controlled_shutdown
            ),
            directories=tuple(record.log_dirs) if record.log_dirs else broker.directories,
            unwritable=broker.unwritable if unwritable is None else unwritable,
        )

    def replay_controller(self, record: RegisterControllerRecord) -> None:
        self.changed_controllers[record.controller_id] = controller_from_record(record)

    def replay_difference(self, brokers: Brokers, controllers: Controllers) -> None:
        """Records all differences between the base and these registrations, from a snapshot that replaces the base."""
        for broker_id in sorted({*self._brokers, *brokers}):
            broker = brokers.get(broker_id)
            if broker != self._brokers.get(broker_id):
                self.changed_brokers[broker_id] = broker
        for controller_id in sorted({*self._controllers, *controllers}):
            controller = controllers.get(controller_id)
            if controller != self._controllers.get(controller_id):
                self.changed_controllers[controller_id] = controller

    def apply(self) -> tuple[Brokers, Controllers]:
        brokers = self._brokers.mutate()
        for broker_id, broker in self.changed_brokers.items():
            if broker is None:
                brokers.pop(broker_id, None)
            else:
                brokers[broker_id] = broker
        controllers = self._controllers.mutate()
        for controller_id, controller in self.changed_controllers.items():
            if controller is None:
                controllers.pop(controller_id, None)
            else:
                controllers[controller_id] = controller
        return brokers.finish(), controllers.finish()
