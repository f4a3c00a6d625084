"""The levels of `metadata.version`, and the versions of metadata records that a cluster at each level can write.

A record in a version newer than the finalized `metadata.version` allows would stop older nodes of the cluster.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class MetadataVersion(NamedTuple):
    """One level of `metadata.version`."""

    level: int
    name: str
    #: Whether the level introduced a record type or version that older levels cannot read.
    changes_metadata: bool


def _release(release: str, first_level: int, changes: str) -> tuple[MetadataVersion, ...]:
    """Returns the levels of one release, one for each letter of `changes`: "y" if the level changed the metadata."""
    return tuple(
        MetadataVersion(first_level + index, f"{release}-IV{index}", letter == "y")
        for index, letter in enumerate(changes)
    )


#: All levels that a cluster can be at, oldest first.
METADATA_VERSIONS: Final = (
    MetadataVersion(7, "3.3-IV3", True),
    *_release("3.4", 8, "y"),
    *_release("3.5", 9, "nny"),
    *_release("3.6", 12, "nyy"),
    *_release("3.7", 15, "ynynn"),
    *_release("3.8", 20, "n"),
    *_release("3.9", 21, "n"),
    *_release("4.0", 22, "nynn"),
    *_release("4.1", 26, "nn"),
)

#: The levels of `metadata.version`, under Kafka's names, at which the versions below change.
V_3_3_IV3: Final = 7
V_3_5_IV2: Final = 11
V_3_6_IV1: Final = 13
V_3_6_IV2: Final = 14
V_3_7_IV0: Final = 15
V_3_7_IV2: Final = 17
V_3_9_IV0: Final = 21
V_4_0_IV0: Final = 22
V_4_0_IV1: Final = 23
V_4_0_IV2: Final = 24
V_4_1_IV0: Final = 26
V_4_1_IV1: Final = 27

MINIMUM_METADATA_VERSION: Final = V_3_3_IV3
LATEST_METADATA_VERSION: Final = V_4_1_IV1


def metadata_changes_between(older: int, newer: int) -> bool:
    """Returns whether a log written at `newer` can contain records that `older` cannot read."""
    return any(version.changes_metadata for version in METADATA_VERSIONS if older < version.level <= newer)


def metadata_version_name(level: int) -> str:
    """Returns the level's name, or its number if this release does not know it."""
    return next((version.name for version in METADATA_VERSIONS if version.level == level), str(level))


def metadata_version_named(name: str) -> MetadataVersion | None:
    """Returns the version with this full name (4.0-IV1) or the last one of this release (4.0), or None."""
    found = [v for v in METADATA_VERSIONS if name in (v.name, v.name.partition("-")[0])]
    return found[-1] if found else None


def register_broker_version(metadata_version: int) -> int:
    return 3 if metadata_version >= V_3_7_IV2 else 1


def partition_version(metadata_version: int) -> int:
    if metadata_version >= V_4_0_IV1:
        return 2
    return 1 if metadata_version >= V_3_7_IV2 else 0


def broker_change_version(metadata_version: int, *, with_directories: bool, with_shutdown: bool) -> int:
    """Returns the lowest record version that has the fields in use, as Kafka chooses it."""
    if with_directories and metadata_version >= V_3_7_IV2:
        return 2
    return 1 if with_shutdown else 0
