"""Feature levels: those that exist, those that this release can run, and those of a new cluster (KIP-584, KIP-1022).

A level of `metadata.version` is a number in the log and has a name, such as 4.1-IV1, for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.metadata.image import ELR_VERSION, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from barnabas.metadata.registrations import FeatureRange
from barnabas.metadata.versions import (
    LATEST_METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    V_3_9_IV0,
    V_4_0_IV0,
    V_4_0_IV1,
    V_4_0_IV2,
    V_4_1_IV0,
)

KRAFT_VERSION: Final = "kraft.version"
SHARE_VERSION: Final = "share.version"


#: The ranges that brokers and controllers of this release register.
SUPPORTED_FEATURES: Final = (
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(TRANSACTION_VERSION, 0, 2),
    FeatureRange(ELR_VERSION, 0, 1),
    FeatureRange(KRAFT_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
)

#: Kafka's features that Barnabas does not serve. They cannot be turned on; a level from a log that Kafka wrote stays
#: until an operator removes it, and does not keep brokers from registering.
UNSERVED_FEATURES: Final = frozenset({SHARE_VERSION})

#: (feature, level) -> the levels that other features need at least.
DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[tuple[str, int], ...]]] = {
    (ELR_VERSION, 1): ((METADATA_VERSION, V_4_0_IV1),),
    (KRAFT_VERSION, 1): ((METADATA_VERSION, V_3_9_IV0),),
}

#: (feature, level, the `metadata.version` from which on a new cluster has it), in the order of the bootstrap records.
_BEGINNINGS: Final = (
    (ELR_VERSION, 1, V_4_1_IV0),
    (GROUP_VERSION, 1, V_4_0_IV0),
    (TRANSACTION_VERSION, 2, V_4_0_IV2),
)


def default_features(metadata_version: int) -> tuple[tuple[str, int], ...]:
    """Returns the features that a cluster at this `metadata.version` is formatted with by default."""
    others = [(name, level) for name, level, since in _BEGINNINGS if metadata_version >= since]
    return ((METADATA_VERSION, metadata_version), *others)


#: The default features at the latest `metadata.version`.
DEFAULT_FEATURES: Final = default_features(LATEST_METADATA_VERSION)
