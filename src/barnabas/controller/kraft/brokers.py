"""Registration, fencing, unfencing and controlled shutdown of brokers.

    (none) --register--> FENCED --heartbeat, caught up--> UNFENCED --wants to stop--> CONTROLLED SHUTDOWN --> FENCED
                            ^------session expired / wants fence-------'

Registrations are durable (records); sessions are not: each active controller begins with a new
`sessions.BrokerSessions`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import uuid_to_text
from barnabas.controller.kraft.partitions import BrokerEvent, find, leader_and_isr_records, leads_any
from barnabas.controller.kraft.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.kraft.view import ControllerView
from barnabas.metadata.features import UNSERVED_FEATURES
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.refusing import read_refusing, refusing_tags
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import FIRST_UNRESERVED_DIRECTORY, NO_LEADER, PartitionImage
from barnabas.metadata.versions import V_3_7_IV2, V_4_0_IV1, broker_change_version, register_broker_version
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.records_metadata import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

_FENCE: Final = 1
_UNFENCE: Final = -1


def register(
    view: ControllerView, request: BrokerRegistrationRequest, *, session_alive: bool
) -> Result[BrokerRegistrationResponse]:
    """Registers a new incarnation, or updates the registration of the current one. RequestFailed if it must not join.

    `session_alive` means that an older incarnation must be assumed to run still.
    """
    if request.cluster_id != view.cluster_id:
        text = f"Expected cluster ID {view.cluster_id}, but got cluster ID {request.cluster_id}"
        raise RequestFailed(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    existing = view.image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and session_alive and not same:
        text = "Another broker is registered with that broker id."
        raise RequestFailed(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
    if request.is_migrating_zk_broker:
        text = "Controller does not support registering ZK brokers."
        raise RequestFailed(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    _check_directories(view, request)
    record = _registration_record(view, request)
    records: list[Versioned] = []
    event = ControllerEvent.REGISTRATION_AMENDED
    if existing is None or not same:
        record.broker_epoch = view.next_offset
        clean = existing is None or request.previous_broker_epoch == existing.epoch
        event = ControllerEvent.NEW_INCARNATION if clean else ControllerEvent.UNCLEAN_INCARNATION
        records += incarnation_records(view, request.broker_id, clean=clean)
    else:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    records.append((record, register_broker_version(view.image.metadata_version)))
    response = BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=record.broker_epoch)
    return Result(records, response, Cause(event, f"broker {request.broker_id}"))


def _check_directories(view: ControllerView, request: BrokerRegistrationRequest) -> None:
    if view.image.metadata_version < V_3_7_IV2:
        return
    directories = request.log_dirs
    problem = None
    if not directories:
        problem = "No directories specified in request"
    elif any(directory < FIRST_UNRESERVED_DIRECTORY for directory in directories):
        problem = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        problem = "Duplicate directory ID in request"
    else:
        for broker_id, broker in sorted(view.image.brokers.items()):
            shared = [directory for directory in directories if directory in broker.directories]
            if broker_id != request.broker_id and shared:
                problem = f"Broker {broker_id} is already registered with directory {uuid_to_text(shared[0])}"
                break
    if problem is not None:
        raise RequestFailed(ErrorCode.INVALID_REGISTRATION, problem)


def _registration_record(view: ControllerView, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    """Builds the record. RequestFailed(UNSUPPORTED_VERSION) if the broker lacks a finalized feature level."""
    offered = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    # A broker that does not report metadata.version supports only the first one.
    offered.setdefault(METADATA_VERSION, (1, 1))
    for name, level in sorted(view.image.features.items()):
        low, high = offered.get(name, (0, 0))
        if not low <= level <= high and name not in UNSERVED_FEATURES:
            raise RequestFailed(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {low} and {high}, inclusive.",
            )
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in offered.items()
        ],
        rack=request.rack,
    )
    if view.image.metadata_version >= V_3_7_IV2:
        record.log_dirs = list(request.log_dirs)
    return record


def registration(view: ControllerView, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker if this is its current epoch; raises RequestFailed(STALE_BROKER_EPOCH) otherwise."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        text = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, text)
    return broker


def heartbeat(
    view: ControllerView, request: BrokerHeartbeatRequest, *, lowest_offset: int, shutdown_offset: int
) -> Result[BrokerHeartbeatResponse]:
    """Decides about fencing, controlled shutdown and log directories from what the broker reports. `lowest_offset` is
    the metadata offset that every active broker has reached; `shutdown_offset` is the offset at which this broker's
    controlled shutdown was decided, -1 if it was not."""
    broker = registration(view, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    records: list[Versioned] = []
    fenced, stop, event, detail = broker.fenced, False, ControllerEvent.BROKER_HEARTBEAT, ""
    if broker.fenced:
        if request.want_shut_down:
            stop = True
        elif not request.want_fence and caught_up:
            fenced, event = False, ControllerEvent.UNFENCED
            records = unfence_records(view, broker)
    elif request.want_fence:
        fenced, stop, event = True, request.want_shut_down, ControllerEvent.FENCED_ON_REQUEST
        records = fence_records(view, broker)
    elif request.want_shut_down or broker.in_controlled_shutdown:
        event = ControllerEvent.CONTROLLED_SHUTDOWN
        if leads_any(view, broker.broker_id):
            records = controlled_shutdown_records(view, broker)
        elif not broker.in_controlled_shutdown or shutdown_offset <= lowest_offset:
            # Every active broker knows the new leaders, so no more requests arrive for this broker's partitions.
            fenced, stop = True, True
            records = fence_records(view, broker)
    records += offline_directory_records(view, broker, request.offline_log_dirs)
    reported = read_refusing(request.unknown_tags)
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=stop,
        unknown_tags=() if reported is None else refusing_tags(()),
    )
    if not records:
        records = refusing_records(view, broker, reported or ())
        if records:
            event = ControllerEvent.REFUSES_WRITES if reported else ControllerEvent.ACCEPTS_WRITES
            detail = "log directory " + ", ".join(uuid_to_text(directory) for directory in reported or ())
    return Result(records, response, Cause(event, f"broker {request.broker_id}", detail))


def fence_records(view: ControllerView, broker: BrokerImage) -> list[Versioned]:
    """Removes the broker from every ISR and leadership, then fences it."""
    records = leader_and_isr_records(
        view,
        BrokerEvent(removed=broker.broker_id),
        find(view, lambda partition: broker.broker_id in partition.isr),
    )
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
    return [*records, (change, 0)]


def unfence_records(view: ControllerView, broker: BrokerImage) -> list[Versioned]:
    """Unfences the broker, then elects it for every leaderless partition that it can lead."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    records = leader_and_isr_records(
        view,
        BrokerEvent(added=broker.broker_id),
        find(view, lambda partition: partition.leader == NO_LEADER),
    )
    return [(change, 0), *records]


def controlled_shutdown_records(view: ControllerView, broker: BrokerImage) -> list[Versioned]:
    records: list[Versioned] = []
    if not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        version = broker_change_version(view.image.metadata_version, with_directories=False, with_shutdown=True)
        records.append((change, version))
    return records + leader_and_isr_records(
        view,
        BrokerEvent(removed=broker.broker_id),
        find(view, lambda partition: broker.broker_id in partition.isr),
    )


def incarnation_records(view: ControllerView, broker_id: int, *, clean: bool) -> list[Versioned]:
    """Returns the changes that end a broker's previous incarnation, for a broker that was possibly never fenced. After
    a clean shutdown they are the same as for fencing. Otherwise unflushed records are possibly lost, so the broker
    leaves ISR and ELR and leads nothing until it has caught up again (guard G12)."""
    if clean or view.image.metadata_version < V_4_0_IV1:
        event = BrokerEvent(removed=broker_id)
        return leader_and_isr_records(view, event, find(view, lambda partition: broker_id in partition.isr))
    return leader_and_isr_records(
        view,
        BrokerEvent(unclean=broker_id),
        find(view, lambda partition: broker_id in partition.isr or broker_id in partition.elr),
    )


def offline_directory_records(view: ControllerView, broker: BrokerImage, offline: list[bytes]) -> list[Versioned]:
    newly_offline = [directory for directory in broker.directories if directory in offline]
    if not newly_offline or view.image.metadata_version < V_3_7_IV2:
        return []
    lost = set(newly_offline)

    def in_lost_directory(partition: PartitionImage) -> bool:
        return broker.broker_id in partition.replicas and partition.directory_of(broker.broker_id) in lost

    records = leader_and_isr_records(view, BrokerEvent(removed=broker.broker_id), find(view, in_lost_directory))
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        log_dirs=[directory for directory in broker.directories if directory not in lost],
    )
    return [*records, (change, 2)]


def refusing_records(view: ControllerView, broker: BrokerImage, reported: tuple[bytes, ...]) -> list[Versioned]:
    """Records which of the broker's directories take no writes, if that changed. Its replicas there leave the ISR, and
    leadership moves to replicas that can write; a partition without any other replica in sync stays as it is. A
    directory that takes writes again helps partitions whose other replicas cannot write."""
    refusing = tuple(directory for directory in broker.directories if directory in reported)
    if refusing == broker.refusing:
        return []
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, unknown_tags=refusing_tags(refusing)
    )
    after = view.with_broker(replace(broker, refusing=refusing))
    found = find(view, lambda partition: broker.broker_id in partition.isr)
    return [(change, 0), *leader_and_isr_records(after, BrokerEvent(), found)]


def unregister(view: ControllerView, broker_id: int, actor: str) -> Result[None]:
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    records = leader_and_isr_records(
        view,
        BrokerEvent(removed=broker_id),
        find(view, lambda partition: broker_id in partition.isr or broker_id in partition.elr),
    )
    records.append((UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
    return Result(records, None, Cause(ControllerEvent.UNREGISTER_BROKER, actor, f"broker {broker_id}"))
