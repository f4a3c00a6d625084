"""Brokers that leave or come back: fencing, unfencing, controlled shutdown, the end of an incarnation.

A broker's epoch distinguishes its incarnations: the offset of its registration in the metadata log, or the czxid of its
znode. How a broker registers, and how the controller learns that it is gone, is up to each kind of controller.

A broker has up to tens of thousands of partitions, so each of these changes is decided in portions: every portion is
valid by itself, and the broker's own state changes with the last one (when it leaves) or the first one (when it joins).
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.partitions import find, leader_and_isr_portion
from barnabas.controller.requests.result import Cause, ControllerEvent, Portion, Result, in_portions
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.broker_events import BrokerEvent
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.versions import V_4_0_IV1, broker_change_version
from barnabas.protocol.messages.records_metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

_FENCE: Final = 1
_UNFENCE: Final = -1


def registration(view: ControllerView, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker if this is its current epoch. Raises RequestFailed(STALE_BROKER_EPOCH) otherwise."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        text = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH, text)
    return broker


def is_current(view: ControllerView, broker: BrokerImage) -> bool:
    """Returns whether this incarnation of the broker is still registered, as it was when the first portion was
    decided.
    """
    current = view.image.brokers.get(broker.broker_id)
    return current is not None and current.epoch == broker.epoch


def fence(view: ControllerView, broker: BrokerImage) -> Portion:
    """Removes the broker from every ISR and leadership, then fences it."""
    if not is_current(view, broker):
        return Portion([])
    portion = _without(view, broker.broker_id)
    if portion.is_last:
        change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
        portion.records.append((change, 0))
    return portion


def unfence(view: ControllerView, broker: BrokerImage) -> Portion:
    """Unfences the broker, then elects it for every leaderless partition that it can lead. `broker` is its registration
    while it was fenced: if it is fenced again between two portions, it gets no more leaderships.
    """
    current = view.image.brokers.get(broker.broker_id)
    if not is_current(view, broker) or (current is not broker and current is not None and current.fenced):
        return Portion([])
    event = BrokerEvent(added=broker.broker_id)
    portion = leader_and_isr_portion(view, event, find(view, event.concerns))
    if current is broker:
        change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
        portion.records.insert(0, (change, 0))
    return portion


def shut_down(view: ControllerView, broker: BrokerImage) -> Portion:
    """Begins the controlled shutdown of the broker: it leaves every ISR and leadership that another broker can take."""
    if not is_current(view, broker):
        return Portion([])
    portion = _without(view, broker.broker_id)
    if not view.image.brokers[broker.broker_id].in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        version = broker_change_version(view.image.metadata_version, with_directories=False, with_shutdown=True)
        portion.records.insert(0, (change, version))
    return portion


def end_incarnation(view: ControllerView, broker_id: int, *, clean: bool) -> Portion:
    """Ends a broker's previous incarnation, which was possibly never fenced. After a clean shutdown the changes are the
    same as for fencing. Otherwise unflushed records are possibly lost, so the broker leaves ISR and ELR and leads
    nothing until it has caught up again (guard G12)."""
    if clean or view.image.metadata_version < V_4_0_IV1:
        return _without(view, broker_id)
    event = BrokerEvent(unclean=broker_id)
    return leader_and_isr_portion(view, event, find(view, event.concerns))


def unregister(view: ControllerView, broker_id: int, actor: str) -> Result[None]:
    """Removes the registration of a broker. Raises RequestFailed(BROKER_ID_NOT_REGISTERED)."""
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")

    def remove(view: ControllerView) -> Portion:
        portion = leader_and_isr_portion(
            view,
            BrokerEvent(removed=broker_id),
            find(view, lambda partition: broker_id in partition.isr or broker_id in partition.elr),
        )
        if portion.is_last:
            portion.records.append((UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
        return portion

    return in_portions(view, [remove], None, Cause(ControllerEvent.UNREGISTER_BROKER, actor, f"broker {broker_id}"))


def _without(view: ControllerView, broker_id: int) -> Portion:
    """Removes the broker from every ISR, and from the leadership of these partitions."""
    event = BrokerEvent(removed=broker_id)
    return leader_and_isr_portion(view, event, find(view, event.concerns))
