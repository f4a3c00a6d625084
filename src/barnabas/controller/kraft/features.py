"""UpdateFeatures: changes feature levels, all of a request or none of it (KIP-584, KIP-778, KIP-1022).

A level must be supported by this controller, every registered broker and every other controller. The order of the
checks, and with it the error of a request with several faults, is Kafka's. `metadata.version` can be lowered only over
levels that introduced no new kind of record. Enabling eligible leader replicas writes what they depend on into the log:
a cluster-wide min.insync.replicas, and the removal of those of single brokers (KIP-966).

`kraft.version` belongs to the quorum and is kept in its log, not in the image. A quorum formatted as dynamic has level
1 from the start; one with static voters begins at 0 and can be raised to 1 (KIP-853), after which it stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.feature_requests import UpgradeType, failed, upgrade_type_of
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import MIN_ISR, ControllerView
from barnabas.metadata.features import DEPENDENCIES, KRAFT_VERSION, SUPPORTED_FEATURES, UNSERVED_FEATURES
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION, METADATA_VERSION
from barnabas.metadata.registrations import FeatureRange
from barnabas.metadata.versions import V_3_7_IV0, metadata_changes_between
from barnabas.protocol.messages.records_metadata import ConfigRecord, FeatureLevelRecord
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_Update = UpdateFeaturesRequest.FeatureUpdateKey
_FAILED: Final = "The update failed for all features since the following feature had an error: "
_DISABLED: Final = (0, 0)
#: The features that can be turned off; Kafka 4.1 knows those of Streams as well.
_KNOWN: Final = frozenset({feature.name for feature in SUPPORTED_FEATURES} | UNSERVED_FEATURES | {"streams.version"})


def update_features(
    view: ControllerView,
    request: UpdateFeaturesRequest,
    api_version: int,
    kraft_version: int,
    actor: str,
    kraft_refusal: str | None = None,
) -> Result[UpdateFeaturesResponse]:
    """Decides on the request. `kraft_version` is the quorum's level; `kraft_refusal` is the reason why it cannot be
    raised yet.
    """
    updates = {update.feature: update for update in request.feature_updates}
    proposed = dict(view.image.features) | {name: update.max_version_level for name, update in updates.items()}
    current = dict(view.image.features) | {KRAFT_VERSION: kraft_version}
    records: list[Versioned] = []
    cause = Cause(
        ControllerEvent.UPDATE_FEATURES, actor, ", ".join(f"{n}={u.max_version_level}" for n, u in updates.items())
    )
    try:
        for name, update in updates.items():
            records += _update(view, update, upgrade_type_of(update, api_version), current.get(name, 0), proposed)
            if kraft_refusal is not None and name == KRAFT_VERSION and update.max_version_level > kraft_version:
                reason = f"Invalid update version {update.max_version_level} for feature {name}. {kraft_refusal}"
                raise RequestFailed(ErrorCode.INVALID_UPDATE_VERSION, reason)
    except RequestFailed as error:
        return Result([], failed(error.code, f"{_FAILED}{error.message}"), cause)
    if ELR_VERSION in updates and updates[ELR_VERSION].max_version_level > 0:
        records += _elr_safety(view)
    response = UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=name, error_code=ErrorCode.NONE, error_message=ErrorCode.NONE.name
            )
            for name in updates
            if api_version <= 1
        ],
    )
    return Result([] if request.validate_only else records, response, cause)


def raises_kraft_version(request: UpdateFeaturesRequest, kraft_version: int) -> bool:
    """Returns whether a request without errors raises kraft.version, the feature of the quorum itself."""
    levels = [update.max_version_level for update in request.feature_updates if update.feature == KRAFT_VERSION]
    return not request.validate_only and any(level > kraft_version for level in levels)


def _update(
    view: ControllerView, update: _Update, upgrade_type: int, current: int, proposed: Mapping[str, int]
) -> list[Versioned]:
    """Returns the records of one update. Raises RequestFailed(INVALID_UPDATE_VERSION)."""
    name, level = update.feature, update.max_version_level
    is_upgrade = upgrade_type == UpgradeType.UPGRADE
    reason: str | None = None
    if upgrade_type not in list(UpgradeType):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _not_supported(view, name, level)
    if reason is None and level < current and is_upgrade:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if reason is None and level > current and not is_upgrade:
        reason = "Can't downgrade to a newer version."
    if reason is None:
        reason = _FURTHER.get(name, _other_feature)(update, upgrade_type, current, proposed)
    if reason is not None:
        if not reason.startswith("Invalid "):
            reason = f"Invalid update version {level} for feature {name}. {reason}"
        raise RequestFailed(ErrorCode.INVALID_UPDATE_VERSION, reason)
    if name == KRAFT_VERSION:
        return []
    return [(FeatureLevelRecord(name=name, feature_level=level), 0)]


def _metadata_version(update: _Update, upgrade_type: int, current: int, proposed: Mapping[str, int]) -> str | None:
    level = update.max_version_level
    if level >= current or not metadata_changes_between(level, current):
        return None
    if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        text = "Unsafe metadata downgrade is not supported in this version."
    else:
        text = "Refusing to perform the requested downgrade because it might delete metadata information."
    return f"Invalid metadata.version {level}. {text}"


def _kraft_version(update: _Update, upgrade_type: int, current: int, proposed: Mapping[str, int]) -> str | None:
    if update.max_version_level == current:
        return None
    if upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade the version of this feature."
    return _other_feature(update, upgrade_type, current, proposed)


def _other_feature(update: _Update, upgrade_type: int, current: int, proposed: Mapping[str, int]) -> str | None:
    level = update.max_version_level
    if update.feature not in _KNOWN:
        return f"Feature {update.feature} not found."
    for needed, needed_level in DEPENDENCIES.get((update.feature, level), ()):
        if proposed.get(needed, 0) < needed_level:
            return f"{update.feature} could not be set to {level} because it depends on {needed} level {needed_level}"
    return None


_FURTHER: Final[Mapping[str, Callable[[_Update, int, int, Mapping[str, int]], str | None]]] = {
    METADATA_VERSION: _metadata_version,
    KRAFT_VERSION: _kraft_version,
}


def _not_supported(view: ControllerView, name: str, level: int) -> str | None:
    """Returns an error that names the first node without this level, in Kafka's order: this controller, brokers, other
    controllers.
    """
    own_id = view.config.node_id
    ranges = {f.name: (f.min_version, f.max_version) for f in SUPPORTED_FEATURES}
    reason = _outside(level, f"Local controller {own_id}", ranges.get(name, _DISABLED))
    for broker_id, broker in sorted(view.image.brokers.items()):
        reason = reason or _outside(level, f"Broker {broker_id}", _range_of(broker.features, name))
    if view.image.metadata_version < V_3_7_IV0:
        return reason  # Before 3.7 controllers do not register.
    for controller_id, controller in sorted(view.image.controllers.items()):
        if controller_id != own_id:
            found = _range_of(controller.features, name)
            reason = reason or _outside(level, f"Controller {controller_id}", found)
    for voter in sorted(view.config.voters):
        if voter.node_id != own_id and voter.node_id not in view.image.controllers:
            reason = reason or f"controller {voter.node_id} has not registered, and may not support this feature"
    return reason


def _range_of(features: Iterable[FeatureRange], name: str) -> tuple[int, int]:
    return next(((f.min_version, f.max_version) for f in features if f.name == name), _DISABLED)


def _outside(level: int, who: str, supported: tuple[int, int]) -> str | None:
    low, high = supported
    if low <= level <= high:
        return None
    if high == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {low if low == high else f'{low}-{high}'}"


def _elr_safety(view: ControllerView) -> list[Versioned]:
    """Returns records that store the min ISR in the log: all controllers must use the same value for the ELR."""
    records: list[Versioned] = []
    if MIN_ISR not in view.image.config_of(BROKER_RESOURCE, ""):
        value = view.default_topic_value(MIN_ISR).text
        records.append((ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=value), 0))
    for resource_type, name in sorted(view.image.configs):
        if resource_type == BROKER_RESOURCE and name and MIN_ISR in view.image.config_of(BROKER_RESOURCE, name):
            record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_ISR, value=None)
            records.append((record, 0))
    return records
