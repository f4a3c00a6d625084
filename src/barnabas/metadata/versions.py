"""Which version of a metadata record a cluster at some `metadata.version` may write.

A record in a newer version than the finalized `metadata.version` would make older nodes of the cluster stop.
"""

from __future__ import annotations

from typing import Final

#: Feature levels of `metadata.version` at which something below changes, by Kafka's names for them.
V_3_3_IV3: Final = 7
V_3_7_IV2: Final = 17
V_4_0_IV1: Final = 23
V_4_1_IV1: Final = 27

MINIMUM_METADATA_VERSION: Final = V_3_3_IV3
LATEST_METADATA_VERSION: Final = V_4_1_IV1


def register_broker_version(metadata_version: int) -> int:
    return 3 if metadata_version >= V_3_7_IV2 else 1


def partition_version(metadata_version: int) -> int:
    if metadata_version >= V_4_0_IV1:
        return 2
    return 1 if metadata_version >= V_3_7_IV2 else 0


def broker_change_version(metadata_version: int, *, with_directories: bool, with_shutdown: bool) -> int:
    """The least version that carries the fields in use, as Kafka picks it."""
    if with_directories and metadata_version >= V_3_7_IV2:
        return 2
    return 1 if with_shutdown else 0
