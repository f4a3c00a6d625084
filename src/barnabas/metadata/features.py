"""Feature levels: which there are, which this release can run, and which a new cluster starts with (KIP-584, KIP-1022).

Levels of `metadata.version` are numbers in the log and names such as 4.1-IV1 to people.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.metadata.image import ELR_VERSION, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from barnabas.metadata.versions import LATEST_METADATA_VERSION, MINIMUM_METADATA_VERSION

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
    SupportedFeature(SHARE_VERSION, 0, 1),
)

#: What a cluster is formatted with when nothing else is asked for, in the order of its bootstrap records.
DEFAULT_FEATURES: Final = (
    (METADATA_VERSION, LATEST_METADATA_VERSION),
    (ELR_VERSION, 1),
    (GROUP_VERSION, 1),
    (TRANSACTION_VERSION, 2),
)
