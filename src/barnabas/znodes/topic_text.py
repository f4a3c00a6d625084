"""The text of `/brokers/topics/T`, of which a change encodes only the partitions that it is about.

A topic of thousands of partitions is written again whenever a few of them get other replicas. The text and the position
of the other partitions are kept, so that only the changed ones are encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from barnabas.common.types import uuid_to_text
from barnabas.znodes.jvm_order import mutable_order, mutable_rank, mutable_size, spread

#: The versions of /brokers/topics/T: 2 added the replicas of a reassignment, 3 the topic id.
TOPIC_VERSION: Final = 3
#: The sizes of the caches: partition numbers, and different lists of replicas.
_NUMBERS_MAX: Final = 1 << 14
_LISTS_MAX: Final = 1 << 12


class TopicText:
    """The text of one topic, in version 3, to which partitions are added. The partition numbers need not be
    consecutive.
    """

    def __init__(self, topic_id: bytes | None) -> None:
        self._topic_id = topic_id
        self._replicas = _Members()
        self._adding = _Members()
        self._removing = _Members()

    def put(self, number: int, replicas: Sequence[int], adding: Sequence[int], removing: Sequence[int]) -> None:
        """Adds a partition, or replaces it."""
        self._replicas.put(number, replicas)
        for members, brokers in ((self._adding, adding), (self._removing, removing)):
            if brokers:
                members.put(number, brokers)
            else:
                members.drop(number)

    def encoded(self) -> bytes:
        """Returns the content of the znode, byte for byte as Kafka 3.9 writes it."""
        content = {
            "version": str(TOPIC_VERSION),
            "partitions": self._replicas.text(),
            "adding_replicas": self._adding.text(),
            "removing_replicas": self._removing.text(),
        }
        if self._topic_id is not None:
            content["topic_id"] = f'"{uuid_to_text(self._topic_id)}"'
        members = (f'"{key}":{content[key]}' for key in mutable_order(content, built_with=4))
        return f"{{{','.join(members)}}}".encode()


class _Members:
    """A JSON object of broker ids by partition, in the order of Scala's hash map."""

    __slots__ = ("_is_in_order", "_numbers", "_ranks", "_size", "_texts")

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        #: The partitions in their order, as far as `_is_in_order`.
        self._numbers: list[int] = []
        self._is_in_order = True
        #: The places in a hash map of this size; they change only when it grows or shrinks.
        self._ranks: dict[int, int] = {}
        self._size = mutable_size(0)

    def put(self, number: int, brokers: Sequence[int]) -> None:
        if number not in self._texts:
            self._is_in_order = False
        self._texts[number] = f'"{number}":{_list_text(tuple(brokers))}'

    def drop(self, number: int) -> None:
        if self._texts.pop(number, None) is not None:
            self._is_in_order = False

    def text(self) -> str:
        if not self._is_in_order:
            self._put_in_order()
        texts = self._texts
        return f"{{{','.join([texts[number] for number in self._numbers])}}}"

    def _put_in_order(self) -> None:
        size = mutable_size(len(self._texts))
        if size != self._size:
            self._size = size
            self._ranks = {}
        ranks = self._ranks
        # Numbers that are in order already are sorted in one pass.
        kept = [number for number in self._numbers if number in self._texts]
        added = self._texts.keys() - set(kept) if len(kept) < len(self._texts) else ()
        for number in self._texts if not ranks else added:
            ranks[number] = mutable_rank(_spread_of(number), size)
        self._numbers = sorted([*kept, *added], key=ranks.__getitem__)
        self._is_in_order = True


@lru_cache(maxsize=_LISTS_MAX)
def _list_text(brokers: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, brokers))}]"


@lru_cache(maxsize=_NUMBERS_MAX)
def _spread_of(number: int) -> int:
    return spread(str(number))
