"""Metadata images of trees of znodes, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol.message import Message
from barnabas.znodes.tree_records import broker_records, tree_records
from barnabas.znodes.znode_tree import Znode, ZnodeTree


def image_of_records(records: list[Message]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1, 0)


def image_of_tree(znodes: Mapping[str, Znode]) -> MetadataImage:
    """Returns the image that a tree without problems becomes. The ids that znodes lack are 1, 2, 3 and so on."""
    tree = ZnodeTree(znodes)
    numbers = itertools.count(1)
    read, brokers = tree_records(tree, lambda: next(numbers).to_bytes(16, "big")), broker_records(tree)
    assert not read.problems
    assert not brokers.problems
    return image_of_records(read.records + brokers.records)
