"""An empty log directory made ready as `kafka-storage format` does it, and a formatted one looked at.

    every log directory            meta.properties (version 1), bootstrap.checkpoint
    the metadata log's directory   __cluster_metadata-0/000..0-0000000000.checkpoint with the first voters,
                                   for a dynamic quorum of this node alone (`--standalone`)

`meta.properties` is written last: a directory without it counts as empty, so a crash half way is formatted over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.common.types import uuid_from_text, uuid_to_text
from barnabas.metadata.cluster import endpoints_of
from barnabas.metadata.features import DEFAULT_FEATURES
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.log import metadata_directory
from barnabas.raft.snapshots import BOOTSTRAP_NAME, SnapshotId, encode_snapshot
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet


class Formatted(NamedTuple):
    """What the directories of this node say."""

    cluster_id: str
    #: Of each of `log.dirs`, in their order.
    directory_ids: tuple[bytes, ...]
    #: Of the directory with the metadata log.
    metadata_directory_id: bytes
