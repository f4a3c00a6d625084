"""Short slices: long work is cut after a few rows instead of hundreds.

The product cuts work on many partitions, offsets, records or transactions into slices, with a turn of the loop between
them. No simulated cluster has enough of them, so no run would ever be between two slices, and faults and requests would
never come there. Each seed draws some of these sizes, for the time of its run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Final, NamedTuple

from barnabas.simulation.ambient import replaced

#: The share of seeds that keep all sizes.
_DEFAULT_SHARE: Final = 0.5
#: The share of the sizes that another seed draws.
_DRAWN_SHARE: Final = 0.3
_FEW: Final = (1, 2, 3)


class SliceSize(NamedTuple):
    """A size of slices: the constant, the modules that have it, and the values that are drawn."""

    name: str
    modules: tuple[str, ...]
    values: tuple[int, ...] = _FEW


SLICE_SIZES: Final = (
    SliceSize(
        "PARTITIONS_IN_PORTION",
        (
            "common.portions",
            "controller.kraft.large_decisions",
            "controller.requests.partitions",
            "controller.requests.topics",
            "controller.zookeeper.assignment_texts",
            "controller.zookeeper.deletions",
            "controller.zookeeper.topic_requests",
            "controller.zookeeper.topic_watch",
            "raft.metadata_batches",
            "replication.isr_changes",
            "znodes.admin_znodes",
            "znodes.topic_znodes",
        ),
    ),
    SliceSize(
        "PARTITIONS_AT_ONCE",
        (
            "controller.zookeeper.assignment_texts",
            "controller.zookeeper.core",
            "controller.zookeeper.deletions",
            "controller.zookeeper.full_state_requests",
            "controller.zookeeper.request_parts",
            "controller.zookeeper.slices",
            "controller.zookeeper.topic_watch",
        ),
    ),
    SliceSize("_SCANNED_AT_ONCE", ("controller.zookeeper.active_controller",)),
    SliceSize("_READS_AT_ONCE", ("broker.zookeeper.membership",)),
    SliceSize("_STEPS_AT_ONCE", ("replication.image_slices",)),
    SliceSize("_STEPS_AT_ONCE", ("storage.slices",)),
    SliceSize("_EXPIRED_AT_ONCE", ("replication.purgatory",)),
    SliceSize("_FIRED_PER_TURN", ("coordinators.deadlines",)),
    SliceSize("LOAD_SLICE_RECORDS", ("coordinators.loading",)),
    SliceSize("LOAD_SLICE_BYTES", ("coordinators.loading",), (200, 1_000)),
    SliceSize("_SLICE", ("coordinators.transactions.shard",)),
    SliceSize("_SLICE", ("coordinators.groups.shard",)),
    SliceSize("_STEP", ("coordinators.groups.consumer.consumer_loading",)),
    SliceSize("_PART", ("coordinators.groups.departure",)),
    SliceSize(
        "ROWS",
        (
            "coordinators.groups.administration",
            "coordinators.groups.commit_draft",
            "coordinators.groups.offset_removal",
            "coordinators.groups.offset_requests",
            "coordinators.groups.shard",
            "coordinators.steps",
        ),
    ),
    SliceSize("ROWS_MAX", ("protocol.produce_frame", "broker.handlers.produce")),
    SliceSize("_ROWS_PER_PART", ("broker.producing.long_produce",)),
    SliceSize("_READ_AT_ONCE", ("broker.handlers.fetch",)),
    SliceSize("_ROWS_PER_STEP", ("broker.handlers.fetch",)),
    SliceSize("_ROWS_PER_STEP", ("broker.fetching.fetch_responses",)),
    SliceSize(
        "COPIED_BYTES_MAX",
        (
            "broker.requests.in_flight",
            "broker.fetching.fetch_responses",
            "broker.handlers.envelope",
            "broker.requests.forwarding",
        ),
        (0, 100, 1_000),
    ),
    SliceSize("_ROWS_PER_STEP", ("broker.handlers.metadata",)),
    SliceSize("_TOPICS_PER_STEP", ("broker.topics.topic_views",)),
    SliceSize("_ROWS_PER_STEP", ("broker.handlers.describe_log_dirs",)),
    SliceSize("_ROWS_PER_STEP", ("broker.handlers.add_partitions_to_txn",)),
    SliceSize("_ROWS_PER_STEP", ("broker.handlers.write_txn_markers",)),
    SliceSize("_SLICE_COST", ("storage.compaction.rewriting",), (1, 1_000)),
    SliceSize("_FILES_AT_ONCE", ("storage.background_files",)),
    SliceSize("_AT_ONCE", ("storage.closing",)),
    SliceSize("_SLICE_BYTES", ("storage.read_window",), (100, 5_000)),
)


def draw_slices(random: Random) -> dict[SliceSize, int]:
    """Returns the sizes that are not the product's own."""
    if random.random() < _DEFAULT_SHARE:
        return {}
    return {each: random.choice(each.values) for each in SLICE_SIZES if random.random() < _DRAWN_SHARE}


@contextmanager
def short_slices(drawn: Mapping[SliceSize, int]) -> Iterator[None]:
    """Uses these sizes while the context is open. Raises LookupError if a module lacks its constant."""
    with ExitStack() as stack:
        # All modules come first: one that is imported later would keep a drawn value.
        for size in SLICE_SIZES:
            for name in size.modules:
                if size.name not in vars(importlib.import_module(f"barnabas.{name}")):
                    raise LookupError(f"{name} has no {size.name}")
        for size, value in drawn.items():
            for name in size.modules:
                stack.enter_context(replaced(importlib.import_module(f"barnabas.{name}"), size.name, value))
        yield
