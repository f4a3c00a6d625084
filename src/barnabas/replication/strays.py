"""Stray logs: found at startup although the metadata does not assign them to this broker.

A topic was deleted, or a replica moved elsewhere, while this broker or its directory was offline. As in Kafka, the log
is renamed to `-stray`, so that its records still exist if it is the metadata that is wrong. Kafka keeps it forever;
here it is removed after a day (`storage.stray_removal`). The log of a topic deleted at run time is removed immediately
(`ReplicaManager`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.errors import StorageFault
from barnabas.common.host import Host
from barnabas.common.types import ZERO_UUID
from barnabas.metadata.image import MetadataImage
from barnabas.storage.identity import is_misread
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

#: The maximum number of directories named in the log line.
_NAMED_MAX: Final = 3


def is_stray(image: MetadataImage, node_id: int, log: Log) -> bool:
    """Returns whether the metadata does not assign the log to this broker. A log without a topic id has no records, so
    it is matched by topic name (`storage.identity`).
    """
    name, index = log.topic_partition
    named = image.topics_by_name.get(name)
    if log.topic_id == ZERO_UUID or (named is not None and is_misread(log.topic_id, named.topic_id)):
        topic = named
    else:
        topic = image.topics_by_id.get(log.topic_id)
    return topic is None or index >= len(topic.partitions) or node_id not in topic.partitions[index].replicas


def set_strays_aside(host: Host, logs: LogManager, image: MetadataImage, node_id: int) -> Iterator[None]:
    """Renames stray logs, one per step. `image` must include all changes up to this broker's registration."""
    aside: list[str] = []
    for log in [log for log in logs if is_stray(image, node_id, log)]:
        if logs.roots.is_offline(log.directory):
            continue
        try:
            place = logs.set_aside(log.topic_partition)
        except StorageFault as fault:
            logs.storage_fault(fault)
        else:
            if place is not None:
                aside.append(place)
        yield
    if aside:
        named = ", ".join(aside[:_NAMED_MAX]) + (f" and {len(aside) - _NAMED_MAX} more" if aside[_NAMED_MAX:] else "")
        host.faults.inform(
            f"{len(aside)} logs belong to no replica of this broker (their topics were deleted or the replicas moved "
            f"while it was down): renamed to {named}, and removed in a day"
        )
