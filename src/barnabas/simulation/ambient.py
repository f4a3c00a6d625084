"""Replaces what client libraries use outside their event loop: the time module, the global random, the order of sets.

While a world runs, the clock functions of this process return the world's time, the global random is seeded, and values
that clients keep in sets have the same hash under every PYTHONHASHSEED. Everything is restored afterwards. Extensions
in C are not affected: aiokafka must be given the timestamps of its records.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from barnabas.simulation.world import EPOCH_WALL_US, SECOND_US, World

_CLIENT_LOGGERS = ("aiokafka", "asyncio")
#: Packages whose modules get sets with a deterministic order.
_CLIENT_PACKAGES = ("aiokafka",)


def _order(value: object) -> str:
    return value if isinstance(value, str) else ""


class OrderedSet(set[Any]):
    """A set that yields strings in sorted order and everything else in its own order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(set.__iter__(self), key=_order))


class SteadyFrozenSet(frozenset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(frozenset.__iter__(self), key=_order))


def _hash_by_text(value: Any) -> int:
    return crc32(repr(tuple(value)).encode())


def _hash_partition(value: Any) -> int:
    return crc32(value[0].encode()) ^ int(value[1])


@contextlib.contextmanager
def ambient(world: World) -> Iterator[None]:
    """Replaces the clock functions and the global random of this process by those of the simulated world."""

    def seconds() -> float:
        return world.now_us / SECOND_US

    def wall_seconds() -> float:
        return (EPOCH_WALL_US + world.now_us) / SECOND_US

    chance = world.stream("ambient/uuid")
    with contextlib.ExitStack() as stack:
        for name, value in (
            ("time", wall_seconds),
            ("time_ns", lambda: (EPOCH_WALL_US + world.now_us) * 1000),
            ("monotonic", seconds),
            ("monotonic_ns", lambda: world.now_us * 1000),
        ):
            stack.enter_context(replaced(time, name, value))
        stack.enter_context(
            replaced(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)),
        )
        stack.enter_context(_seeded(world.stream("ambient/random").getrandbits(64)))
        stack.enter_context(_stable_hashes())
        stack.enter_context(_silent_clients())
        stack.enter_context(_collection_by_hand())
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute while the context is open. An inherited attribute is inherited again afterwards."""
    own = vars(owner)
    is_own, before = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


@contextlib.contextmanager
def _stable_hashes() -> Iterator[None]:
    """Makes the hashes of aiokafka's partitions and brokers deterministic: it iterates over sets of them, and sends its
    requests in that order.
    """
    structs = sys.modules.get("aiokafka.structs")
    if structs is None:  # The world has no aiokafka clients.
        yield
        return
    with (
        replaced(structs.TopicPartition, "__hash__", _hash_partition),
        replaced(structs.BrokerMetadata, "__hash__", _hash_by_text),
        _ordered_sets(),
    ):
        yield


@contextlib.contextmanager
def _ordered_sets() -> Iterator[None]:
    """Replaces `set` in the clients' modules by one whose strings are in the same order under every PYTHONHASHSEED."""
    modules = [sys.modules[name] for name in sorted(sys.modules) if name.partition(".")[0] in _CLIENT_PACKAGES]
    for module in modules:
        vars(module).update(set=OrderedSet, frozenset=SteadyFrozenSet)
    try:
        yield
    finally:
        for module in modules:
            del vars(module)["set"], vars(module)["frozenset"]


@contextlib.contextmanager
def _silent_clients() -> Iterator[None]:
    """Silences the clients' loggers: under faults, clients rightly log a lot."""
    loggers = [logging.getLogger(name) for name in _CLIENT_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _collection_by_hand() -> Iterator[None]:
    """Disables the garbage collector: the moment of a collection depends on all earlier work of the process, and
    finalisers that close connections must not run at such a moment.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
