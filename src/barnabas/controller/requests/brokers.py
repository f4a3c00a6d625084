"""Brokers that leave or come back: fencing, unfencing, controlled shutdown, the end of an incarnation.

A broker's epoch distinguishes its incarnations: the offset of its registration in the metadata log, or the czxid of its
znode. How a broker registers, and how the controller learns that it is gone, is up to each kind of controller.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.partitions import BrokerEvent, find, leader_and_isr_records
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import NO_LEADER
from barnabas.metadata.versions import V_4_0_IV1, broker_change_version
from barnabas.protocol.messages.records_metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

_FENCE: Final = 1
_UNFENCE: Final = -1


def registration(view: ControllerView, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker if this is its current epoch; raises RequestFailed(STALE_BROKER_EPOCH) otherwise."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        text = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, text)
    return broker


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
