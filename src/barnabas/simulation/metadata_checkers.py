"""The check that all nodes have the same metadata at the same offset, however each of them got there.

A node follows the log record by record, in larger steps when it is behind, or from a snapshot. The first image seen at
an offset is kept, for a bounded number of offsets, and those of other nodes are compared with it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields

from barnabas.metadata.image import MetadataImage
from barnabas.simulation.history import Violation
from barnabas.simulation.simulated_cluster import Cluster

_KEPT_MAX = 400
_PARTS = tuple(field.name for field in fields(MetadataImage) if field.compare)


class SameImages:
    """Checks that images at the same offset are equal. It does not apply to ZooKeeper mode, where each broker counts
    its own offsets.
    """

    def __init__(self) -> None:
        #: Offset -> the node that reached it first, and its image.
        self._first: OrderedDict[int, tuple[str, MetadataImage]] = OrderedDict()
        self._seen: dict[str, MetadataImage] = {}
        #: The number of images that were compared with another node's.
        self.compared = 0

    def check(self, cluster: Cluster) -> None:
        for node in cluster.dirty:
            if node.broker is None:
                continue
            image = node.broker.metadata.image
            if self._seen.get(node.name) is not image:
                self._seen[node.name] = image
                self.on_image(node.name, image)

    def on_image(self, name: str, image: MetadataImage) -> None:
        """Compares an image with the first one at its offset."""
        if image.offset < 0:
            return
        first = self._first.get(image.offset)
        if first is None:
            self._first[image.offset] = name, image
            if len(self._first) > _KEPT_MAX:
                self._first.popitem(last=False)
            return
        other, expected = first
        self.compared += 1
        for part in _PARTS:
            found, there = getattr(image, part), getattr(expected, part)
            if found is not there and found != there:
                raise Violation(
                    f"two images of offset {image.offset}: {part} is {found} on {name} and {there} on {other}"
                )
