"""The partition of an internal topic that stores a group or a transactional id: found by Java's hash of its name."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def java_string_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: over UTF-16 units, in 32 bits with sign. Cached, since every request of a
    group needs it."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Returns the partition for `key` in an internal topic of `partitions` partitions. Java's smallest integer has
    no absolute value; Kafka uses 0 instead."""
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
