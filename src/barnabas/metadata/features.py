"""Feature levels: which there are, which this release can run, and which a new cluster starts with (KIP-584, KIP-1022).

Levels of `metadata.version` are numbers in the log and names such as 4.1-IV1 to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.metadata.image import ELR_VERSION, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
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


class SupportedFeature(NamedTuple):
    name: str
    min_version: int
    max_version: int


#: As a broker and a controller of this release register them.
SUPPORTED_FEATURES: Final = (
    SupportedFeature(GROUP_VERSION, 0, 1),
    SupportedFeature(TRANSACTION_VERSION, 0, 2),
    SupportedFeature(ELR_VERSION, 0, 1),
    SupportedFeature(KRAFT_VERSION, 0, 1),
    SupportedFeature(METADATA_VERSION, MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
)

#: Kafka's features that nothing here serves. Nobody can turn them on; a level that a log of Kafka's brought along stays
#: until somebody takes it back, and keeps no broker out.
UNSERVED_FEATURES: Final = frozenset({SHARE_VERSION})

#: (feature, level) -> what else must be at least at which level.
DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[tuple[str, int], ...]]] = {
    (ELR_VERSION, 1): ((METADATA_VERSION, V_4_0_IV1),),
    (KRAFT_VERSION, 1): ((METADATA_VERSION, V_3_9_IV0),),
}

#: From which `metadata.version` on a new cluster has a level of a feature, in the order of its bootstrap records.
_BEGINNINGS: Final = (
    (ELR_VERSION, 1, V_4_1_IV0),
    (GROUP_VERSION, 1, V_4_0_IV0),
    (TRANSACTION_VERSION, 2, V_4_0_IV2),
)


def default_features(metadata_version: int) -> tuple[tuple[str, int], ...]:
    """What a cluster is formatted with at this `metadata.version` when nothing else is asked for."""
    others = [(name, level) for name, level, since in _BEGINNINGS if metadata_version >= since]
    return ((METADATA_VERSION, metadata_version), *others)


#: At the latest one.
DEFAULT_FEATURES: Final = default_features(LATEST_METADATA_VERSION)
