"""The orders in which the JVM's hash maps iterate over text keys, for the JSON that Kafka writes into znodes.

Kafka 3.9.1 builds a znode's JSON from four kinds of maps and writes each in the map's own order:

- `mutable_order`: Scala's `mutable.HashMap` (partitions of a topic, the registration of a broker);
- `properties_order`: Java's `Properties`, a `ConcurrentHashMap` since Java 9 (the overrides of a configuration);
- `immutable_order`: Scala's `immutable.Map` (listeners, features): order of insertion up to 4 keys, a trie above;
- `hash_map_order`: Java's `HashMap` (the supported features of a broker).

All go by `String.hashCode`. A reader must not depend on an order; only byte-equal output needs it. The keys given are
distinct, in the order of their insertion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_MASK: Final = 0xFFFFFFFF
#: The bit that makes a number of 32 bits negative.
_SIGN: Final = 0x80000000
_SMALLEST_TABLE: Final = 16
#: The length of a bucket at which a ConcurrentHashMap enlarges its table, and the table size from which it no longer
#: does so.
_LONG_BUCKET: Final = 8
_LARGE_TABLE: Final = 64
#: The largest `immutable.Map` of Scala that keeps the order of insertion.
_SMALL_MAP: Final = 4
#: Bits of the hash that one level of Scala's trie consumes.
_TRIE_BITS: Final = 5

_Hashed = tuple[int, str]


def java_hash(text: str) -> int:
    """Returns `String.hashCode` as an unsigned 32-bit number; each UTF-16 unit counts as one character."""
    value = 0
    units: Sequence[int] = (
        text.encode() if text.isascii() else memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    )
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def spread(text: str) -> int:
    """Returns the hash as Java's hash tables mix it: the upper half is combined with the lower one, so that all bits
    influence the bucket.
    """
    value = java_hash(text)
    return value ^ value >> 16


def mutable_order(keys: Iterable[str], *, built_with: int = 0) -> list[str]:
    """Returns the keys by bucket, then by hash, as Scala's `mutable.HashMap` keeps them. `built_with` is the number of
    its initial entries.
    """
    hashes = [(spread(key), key) for key in keys]
    size = mutable_size(len(hashes), built_with=built_with)
    return [key for _, key in sorted(hashes, key=lambda item: mutable_rank(item[0], size))]


def mutable_size(count: int, *, built_with: int = 0) -> int:
    """Returns the size of the table of a `mutable.HashMap` with so many keys.

    It doubles before an entry that fills three quarters of it. The number of initial entries, if there are any,
    determines its first size.
    """
    size = _table_size((built_with + 1) * 4 // 3) if built_with else _SMALLEST_TABLE
    while count >= size * 3 // 4:
        size *= 2
    return size


def mutable_rank(spread_hash: int, size: int) -> int:
    """Returns a number by which the keys of a `mutable.HashMap` can be sorted into its order, from the `spread` of the
    key.
    """
    return (spread_hash & size - 1) << 32 | (spread_hash ^ _SIGN)


def _table_size(capacity: int) -> int:
    """Returns the power of two, at least 8, that Scala chooses for a capacity."""
    return 1 << max(capacity - 1, 4).bit_length()


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Returns the keys by bucket, then by insertion, as Java's `HashMap` keeps them.

    Its table doubles after an entry that exceeds three quarters of it.
    """
    hashes = [(spread(key), key) for key in keys]
    size = _SMALLEST_TABLE
    while len(hashes) > size * 3 // 4:
        size *= 2
    return [key for _, key in sorted(hashes, key=lambda item: item[0] & size - 1)]


def properties_order(keys: Iterable[str]) -> list[str]:
    """Returns the keys as a `ConcurrentHashMap` of initial capacity 8 keeps them, after each was inserted.

    The table doubles when an entry fills three quarters of it, and its buckets are split in a way that reverses
    parts of them. Buckets of more than 8 entries in a table of 64 or more, which Java turns into trees, are kept
    as lists here: no real set of configuration keys has them.
    """
    table: list[list[_Hashed]] = [[] for _ in range(_SMALLEST_TABLE)]
    for count, key in enumerate(keys, 1):
        hashed = (spread(key), key)
        bucket = table[hashed[0] & len(table) - 1]
        bucket.append(hashed)
        if len(bucket) > _LONG_BUCKET and len(table) < _LARGE_TABLE:
            wanted = 4 * len(table)
            while wanted > len(table) * 3 // 4:
                table = _doubled(table)
        while count >= len(table) * 3 // 4:
            table = _doubled(table)
    return [key for bucket in table for _, key in bucket]


def _doubled(table: list[list[_Hashed]]) -> list[list[_Hashed]]:
    """Returns a table of twice the size. The last entries of a bucket that stay together keep their order, and the
    entries before them are put in front one by one, which reverses them.
    """
    size = len(table)
    new: list[list[_Hashed]] = [[] for _ in range(2 * size)]
    for index, bucket in enumerate(table):
        if not bucket:
            continue
        last_run = len(bucket) - 1
        while last_run and bucket[last_run - 1][0] & size == bucket[-1][0] & size:
            last_run -= 1
        new[index + (bucket[-1][0] & size)] = bucket[last_run:]
        for entry in bucket[:last_run]:
            new[index + (entry[0] & size)].insert(0, entry)
    return new


def immutable_order(keys: Iterable[str]) -> list[str]:
    """Returns the keys as Scala's `immutable.Map` iterates over them."""
    listed = list(keys)
    if len(listed) <= _SMALL_MAP:
        return listed
    return _trie_order([(_improved(key), key) for key in listed], 0)


def _improved(text: str) -> int:
    """Returns the hash as Scala's trie mixes it (`scala.collection.Hashing.improve`)."""
    value = java_hash(text)
    value = (value + (~(value << 9) & _MASK)) & _MASK
    value ^= value >> 14
    value = (value + (value << 4)) & _MASK
    return value ^ value >> 10


def _trie_order(entries: list[_Hashed], shift: int) -> list[str]:
    """Returns the keys of a node and of the nodes below it: first those that are alone in their slot, by slot, then
    the slots with several keys, each a node of its own.
    """
    if shift >= 32:
        return [key for _, key in entries]
    slots: dict[int, list[_Hashed]] = {}
    for entry in entries:
        slots.setdefault(entry[0] >> shift & (1 << _TRIE_BITS) - 1, []).append(entry)
    ordered = [slots[slot] for slot in sorted(slots)]
    keys = [slot[0][1] for slot in ordered if len(slot) == 1]
    for slot in ordered:
        if len(slot) > 1:
            keys += _trie_order(slot, shift + _TRIE_BITS)
    return keys
