"""UpdateFeatures in ZooKeeper mode.

A broker of Kafka 3.9.1 in this mode supports no features at all (`KafkaServer.brokerFeatures` is empty), and ends if
`/feature` finalizes one. So every update has an error, the first one that `KafkaController.validateFeatureUpdate`
finds, and `/feature` never changes.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.feature_requests import UpgradeType, failed, upgrade_type_of
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_Row = UpdateFeaturesResponse.UpdatableFeatureResult
_Update = UpdateFeaturesRequest.FeatureUpdateKey


def feature_answers(request: UpdateFeaturesRequest, api_version: int, *, is_active: bool) -> UpdateFeaturesResponse:
    """Returns an error for each feature; one for all if this broker is not the controller. Of a feature that is named
    twice the first update counts, as in Kafka.
    """
    if not is_active:
        return failed(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    updates: dict[str, _Update] = {}
    for update in request.feature_updates:
        updates.setdefault(update.feature, update)
    rows = [
        _Row(feature=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_problem(update, api_version))
        for name, update in updates.items()
    ]
    return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=rows)


def _problem(update: _Update, api_version: int) -> str:
    kind = upgrade_type_of(update, api_version)
    if not update.feature:
        return "Feature name can not be empty."
    if kind not in list(UpgradeType):
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if kind != UpgradeType.UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE downgradeType "
        "in the request."
    )
