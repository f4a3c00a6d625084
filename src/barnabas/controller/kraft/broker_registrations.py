"""Registrations and heartbeats of brokers, by which a quorum's controller knows them (KIP-631).

    (none) --register--> FENCED --heartbeat, caught up--> UNFENCED --wants to stop--> CONTROLLED SHUTDOWN --> FENCED
                            ^------session expired / wants fence-------'

Registrations are durable (records); sessions are not: each active controller begins with a new
`broker_sessions.BrokerSessions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import uuid_to_text
from barnabas.controller.requests import brokers
from barnabas.controller.requests.partitions import find, leader_and_isr_portion, leads_any
from barnabas.controller.requests.result import Cause, ControllerEvent, Portion, Result, in_portions
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.broker_events import BrokerEvent
from barnabas.metadata.features import UNSERVED_FEATURES
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.registrations import BrokerImage, FeatureRange, endpoint_rows, feature_rows
from barnabas.metadata.topics import FIRST_UNRESERVED_DIRECTORY, PartitionImage
from barnabas.metadata.unwritable import read_unwritable, unwritable_tags
from barnabas.metadata.versions import V_3_7_IV2, register_broker_version
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.records_metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord


def register(
    view: ControllerView,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    next_offset: Callable[[], int],
    session_alive: bool,
) -> Result[BrokerRegistrationResponse]:
    """Registers a new incarnation, or updates the registration of the current one. Raises RequestFailed if it must not
    join.

    `next_offset` returns the offset of the next record: the epoch of a new incarnation is the offset of the first
    record of its last portion. `session_alive` means that an older incarnation must be assumed to be still running.
    """
    if request.cluster_id != cluster_id:
        text = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
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
    version = register_broker_version(view.image.metadata_version)
    response = BrokerRegistrationResponse(error_code=ErrorCode.NONE)
    actor = f"broker {request.broker_id}"
    if existing is not None and same:
        response.broker_epoch = record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        return Result([(record, version)], response, Cause(ControllerEvent.REGISTRATION_AMENDED, actor))
    clean = existing is None or request.previous_broker_epoch == existing.epoch

    def join(view: ControllerView) -> Portion:
        portion = brokers.end_incarnation(view, request.broker_id, clean=clean)
        if portion.is_last:
            response.broker_epoch = record.broker_epoch = next_offset()
            portion.records.append((record, version))
        return portion

    event = ControllerEvent.NEW_INCARNATION if clean else ControllerEvent.UNCLEAN_INCARNATION
    return in_portions(view, [join], response, Cause(event, actor))


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
    """Builds the record. Raises RequestFailed(UNSUPPORTED_VERSION) if the broker lacks a finalized feature level."""
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
        end_points=endpoint_rows(RegisterBrokerRecord.BrokerEndpoint, request.listeners),
        features=feature_rows(
            RegisterBrokerRecord.BrokerFeature, (FeatureRange(name, *levels) for name, levels in offered.items())
        ),
        rack=request.rack,
    )
    if view.image.metadata_version >= V_3_7_IV2:
        record.log_dirs = list(request.log_dirs)
    return record


def heartbeat(
    view: ControllerView, request: BrokerHeartbeatRequest, *, lowest_offset: int, shutdown_offset: int
) -> Result[BrokerHeartbeatResponse]:
    """Decides about fencing, controlled shutdown and log directories from what the broker reports. `lowest_offset` is
    the metadata offset that every active broker has reached; `shutdown_offset` is the offset at which this broker's
    controlled shutdown was decided, -1 if it was not."""
    broker = brokers.registration(view, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    steps: list[Callable[[ControllerView], Portion]] = []
    fenced, stop, event, detail = broker.fenced, False, ControllerEvent.BROKER_HEARTBEAT, ""
    reported = read_unwritable(request.unknown_tags)
    is_news = _unwritable(broker, reported or ()) != broker.unwritable
    if broker.fenced:
        if request.want_shut_down:
            stop = True
        elif not request.want_fence and caught_up and not (reported and is_news):
            # Unwritable directories are recorded first: otherwise the broker could lead and join ISRs until then.
            fenced, event = False, ControllerEvent.UNFENCED
            steps.append(lambda view: brokers.unfence(view, broker))
    elif request.want_fence:
        fenced, stop, event = True, request.want_shut_down, ControllerEvent.FENCED_ON_REQUEST
        steps.append(lambda view: brokers.fence(view, broker))
    elif request.want_shut_down or broker.in_controlled_shutdown:
        event = ControllerEvent.CONTROLLED_SHUTDOWN
        if leads_any(view, broker.broker_id):
            steps.append(lambda view: brokers.shut_down(view, broker))
        elif not broker.in_controlled_shutdown or shutdown_offset <= lowest_offset:
            # Every active broker knows the new leaders, so no more requests arrive for this broker's partitions.
            fenced, stop = True, True
            steps.append(lambda view: brokers.fence(view, broker))
    if request.offline_log_dirs:
        steps.append(lambda view: close_directories(view, broker, request.offline_log_dirs))
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=stop,
        unknown_tags=() if reported is None else unwritable_tags(()),
    )
    result = in_portions(view, steps, response, Cause(event, f"broker {request.broker_id}"))
    if result.records or not is_news:
        return result
    event = ControllerEvent.REFUSES_WRITES if reported else ControllerEvent.ACCEPTS_WRITES
    detail = "log directory " + ", ".join(uuid_to_text(directory) for directory in reported or ())
    cause = Cause(event, f"broker {request.broker_id}", detail)
    return in_portions(view, [lambda view: mark_unwritable(view, broker, reported or ())], response, cause)


def close_directories(view: ControllerView, broker: BrokerImage, offline: list[bytes]) -> Portion:
    """Removes the replicas in directories that went offline from ISRs and leaderships, then the directories."""
    newly_offline = [directory for directory in broker.directories if directory in offline]
    if not newly_offline or not brokers.is_current(view, broker) or view.image.metadata_version < V_3_7_IV2:
        return Portion([])
    lost = set(newly_offline)

    def in_lost_directory(partition: PartitionImage) -> bool:
        return broker.broker_id in partition.replicas and partition.directory_of(broker.broker_id) in lost

    event = BrokerEvent(removed=broker.broker_id)
    portion = leader_and_isr_portion(view, event, find(view, in_lost_directory))
    if portion.is_last:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            log_dirs=[directory for directory in broker.directories if directory not in lost],
        )
        portion.records.append((change, 2))
    return portion


def _unwritable(broker: BrokerImage, reported: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(directory for directory in broker.directories if directory in reported)


def mark_unwritable(view: ControllerView, broker: BrokerImage, reported: tuple[bytes, ...]) -> Portion:
    """Records which of the broker's directories take no writes. Its replicas there leave the ISR, and leadership moves
    to replicas that can write; a partition without any other replica in sync stays as it is. When a directory takes
    writes again, partitions whose other replicas cannot write get a leader there.
    """
    unwritable = _unwritable(broker, reported)
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, unknown_tags=unwritable_tags(unwritable)
    )
    if not brokers.is_current(view, broker):
        return Portion([])
    current = view.image.brokers[broker.broker_id]
    after = view.with_broker(replace(current, unwritable=unwritable))
    found = find(view, lambda partition: broker.broker_id in partition.isr)
    portion = leader_and_isr_portion(after, BrokerEvent(), found)
    if current.unwritable != unwritable:
        portion.records.insert(0, (change, 0))
    return portion
