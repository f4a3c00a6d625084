"""The records that a new active controller writes first: those of a new cluster, and its own registration."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import MIN_ISR, ControllerView
from barnabas.metadata.features import DEFAULT_FEATURES, SUPPORTED_FEATURES
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION
from barnabas.metadata.registrations import ControllerImage, Endpoint, FeatureRange
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.messages.records_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

_BOOTSTRAP_NAME = "Bootstrap records"


def bootstrap_batches(
    view: ControllerView, formatted: Sequence[Versioned], *, in_transaction: bool
) -> list[tuple[list[Versioned], Cause]]:
    """Returns the first records of a new cluster, from those its directory was formatted with; nothing if the log
    already has them. They form a metadata transaction (KIP-868): if the controller dies before the end, none of them
    takes effect, and the next controller aborts the open transaction.
    """
    batches: list[tuple[list[Versioned], Cause]] = []
    if in_transaction:
        abort = AbortTransactionRecord(reason="the controller that began it is gone")
        batches.append(
            ([(abort, 0)], Cause(ControllerEvent.ACTIVATION, "controller", "abort of an open metadata transaction"))
        )
    if view.image.metadata_version:
        return batches
    content = list(formatted) or [
        (FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in DEFAULT_FEATURES
    ]
    if any(_turns_elr_on(record) for record, _ in content):
        # The ELR is only correct if all controllers use the same value, so it must be in the log (KIP-966).
        value = view.default_topic_value(MIN_ISR).text
        config = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=value)
        content.append((config, 0))
    records: list[Versioned] = [
        (BeginTransactionRecord(name=_BOOTSTRAP_NAME), 0),
        *content,
        (EndTransactionRecord(), 0),
    ]
    batches.append((records, Cause(ControllerEvent.ACTIVATION, "controller", "first start of the cluster")))
    return batches


def _turns_elr_on(record: object) -> bool:
    return isinstance(record, FeatureLevelRecord) and record.name == ELR_VERSION and record.feature_level > 0


def own_registration(
    controller_id: int, incarnation_id: bytes, endpoints: Sequence[Endpoint]
) -> tuple[list[Versioned], Cause]:
    image = ControllerImage(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        endpoints=tuple(endpoints),
        features=tuple(sorted(FeatureRange(f.name, f.min_version, f.max_version) for f in SUPPORTED_FEATURES)),
    )
    return [(image.to_record(), 0)], Cause(
        ControllerEvent.ACTIVATION, "controller", f"registration of controller {controller_id}"
    )


def register_controller(request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
    """Returns the registration of an inactive controller, from its request."""
    image = ControllerImage(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features=tuple(
            FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in request.features
        ),
        zk_migration_ready=request.zk_migration_ready,
    )
    cause = Cause(ControllerEvent.CONTROLLER_REGISTRATION, f"controller {request.controller_id}")
    return Result([(image.to_record(), 0)], ControllerRegistrationResponse(error_code=ErrorCode.NONE), cause)
