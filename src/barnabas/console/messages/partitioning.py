"""The partition of a key, as the default partitioner of Kafka's Java client chooses it: murmur2 of the key's bytes."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF
_WORD: Final = 4


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _INT32_MAX) % partitions


def murmur2(data: bytes) -> int:
    """Returns the 32 bit MurmurHash2, with the seed that Kafka uses."""
    found = _SEED ^ len(data)
    words = len(data) // _WORD
    for place in range(0, words * _WORD, _WORD):
        word = int.from_bytes(data[place : place + _WORD], "little") * _M & _UINT32
        word = (word ^ word >> _R) * _M & _UINT32
        found = (found * _M & _UINT32) ^ word
    rest = data[words * _WORD :]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _UINT32
    found = (found ^ found >> 13) * _M & _UINT32
    return found ^ found >> 15
