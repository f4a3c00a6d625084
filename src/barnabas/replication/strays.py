"""Logs that a start finds although the metadata do not place them here.

A topic was deleted, or a replica moved elsewhere, while this broker or its directory was away. Such a log is renamed
`-stray`, as Kafka does: if it is the metadata that are wrong, its records are still there. Kafka keeps it for ever;
here it is removed after a day (`storage.strays`). A log whose topic was deleted while the broker served goes at once
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
from barnabas.storage.manager import LogManager

#: Directories that the line in the log names.
_NAMED_MAX: Final = 3


def is_stray(image: MetadataImage, node_id: int, log: Log) -> bool:
    """Whether this broker is no replica of what the log is of. One without a topic id may be any topic's of its name:
    it has no records (`storage.identity`)."""
    name, index = log.topic_partition
    named = image.topics_by_name.get(name)
    if log.topic_id == ZERO_UUID or (named is not None and is_misread(log.topic_id, named.topic_id)):
        topic = named
    else:
        topic = image.topics_by_id.get(log.topic_id)
    return topic is None or index >= len(topic.partitions) or node_id not in topic.partitions[index].replicas


def set_strays_aside(host: Host, logs: LogManager, image: MetadataImage, node_id: int) -> Iterator[None]:
    """A log in each step. `image` must know what was decided up to this broker's registration."""
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
