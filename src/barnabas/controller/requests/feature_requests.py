"""UpdateFeatures, as both kinds of controllers read it."""

from __future__ import annotations

from enum import IntEnum

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


class UpgradeType(IntEnum):
    """The numbers of upgrade types in UpdateFeatures; Kafka treats all others as unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def upgrade_type_of(update: UpdateFeaturesRequest.FeatureUpdateKey, api_version: int) -> int:
    """Returns the upgrade type, which version 0 has as a flag."""
    if api_version == 0 and update.allow_downgrade:
        return UpgradeType.SAFE_DOWNGRADE
    return update.upgrade_type


def failed(code: ErrorCode, text: str | None = None) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=text)
