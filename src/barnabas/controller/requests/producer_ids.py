"""Blocks of producer ids, allocated to brokers so that no id is used twice."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.brokers import registration
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.controller.requests.view import ControllerView
from barnabas.protocol.messages.records_metadata import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_MAX_LONG: Final = (1 << 63) - 1


class ProducerIdBlock(NamedTuple):
    first_id: int
    length: int


def allocate(view: ControllerView, broker_id: int, broker_epoch: int) -> Result[ProducerIdBlock]:
    registration(view, broker_id, broker_epoch)
    first_id = max(view.image.next_producer_id, 0)
    if first_id > _MAX_LONG - BLOCK_SIZE:
        raise RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer ids")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first_id + BLOCK_SIZE)
    cause = Cause(
        ControllerEvent.ALLOCATE_PRODUCER_IDS, f"broker {broker_id}", f"{first_id} to {first_id + BLOCK_SIZE - 1}"
    )
    return Result([(record, 0)], ProducerIdBlock(first_id, BLOCK_SIZE), cause)
