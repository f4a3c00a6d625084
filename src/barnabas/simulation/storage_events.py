"""Rare events of logs: segments, indexes, producers, transactions, cold reads, compaction, starts after a crash, full
disks.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC
from barnabas.simulation.rare_events import Call, Need, RareEvent

_LOG: Final = "storage.log:Log."
_PRODUCERS: Final = "storage.producers:ProducerStateManager."
_RECOVERY: Final = "storage.recovery.recovery:_Recovery."
_QUORUM: Final = frozenset({Need.QUORUM})
_TRANSACTIONS: Final = frozenset({Need.TRANSACTIONS})


def _is_of_metadata(call: Call) -> bool:
    return bool(call.subject.topic_partition.topic == METADATA_TOPIC)


def _segments(call: Call) -> int:
    return len(call.subject.segments)


def _has_rolled(call: Call) -> bool:
    return len(call.subject.segments) > call.before and not _is_of_metadata(call)


def _is_active_index_full(call: Call) -> bool:
    return bool(call.subject.segments.active.is_index_full and call.subject.segments.active.size_bytes)


def _place_of_cut(call: Call) -> tuple[int, int, int]:
    log = call.subject
    return log.log_end_offset, log.recovery_point, len(log.segments)


def _is_cut(call: Call) -> bool:
    return bool(call.subject.log_end_offset < call.before[0]) and not _is_of_metadata(call)


def _is_cut_below_synced(call: Call) -> bool:
    return _is_cut(call) and bool(call.subject.log_end_offset < call.before[1])


def _loses_segments_at_cut(call: Call) -> bool:
    return _is_cut(call) and len(call.subject.segments) < call.before[2]


def _deletes_by_retention(call: Call) -> bool:
    return call.result > 0 and bool(call.named.get("by_retention", True)) and not _is_of_metadata(call)


def _deletes_by_start(call: Call) -> bool:
    return call.result > 0 and not call.named.get("by_retention", True) and not _is_of_metadata(call)


def _deletes_everything(call: Call) -> bool:
    return call.result > 0 and len(call.subject.segments) == 1 and call.result >= call.before


def _entries(call: Call) -> int | None:
    data = call.subject._data
    return None if data is None else len(data)


def _has_lost_entries(call: Call) -> bool:
    return call.before is not None and len(call.subject._data or b"") < call.before


def _is_rebuilt(call: Call) -> bool:
    return bool(call.before) and not call.argument(0, "position", 0)


SEGMENTS: Final = (
    RareEvent("a segment rolls", f"{_LOG}roll", _has_rolled, _segments),
    RareEvent(
        "a segment rolls because its index is full",
        f"{_LOG}roll",
        lambda call: bool(call.before) and not _is_of_metadata(call),
        _is_active_index_full,
    ),
    RareEvent(
        "the metadata log rolls a segment",
        f"{_LOG}roll",
        lambda call: len(call.subject.segments) > call.before and _is_of_metadata(call),
        _segments,
        needs=_QUORUM,
    ),
    RareEvent("a log is cut", f"{_LOG}truncate_to", _is_cut, _place_of_cut),
    RareEvent("a log is cut below its recovery point", f"{_LOG}truncate_to", _is_cut_below_synced, _place_of_cut),
    RareEvent("a log loses whole segments at a cut", f"{_LOG}truncate_to", _loses_segments_at_cut, _place_of_cut),
    # No row for a cut inside a batch: what replicas have of one leader epoch is in the same batches, so logs are cut
    # between batches. Tests of one log have it.
    RareEvent(
        "a log is emptied and begins at a new offset",
        f"{_LOG}truncate_fully_and_start_at",
        lambda call: not _is_of_metadata(call),
    ),
    RareEvent("retention deletes segments", f"{_LOG}delete_old_segments", _deletes_by_retention),
    RareEvent("a higher log start deletes segments", f"{_LOG}delete_old_segments", _deletes_by_start),
    RareEvent("all segments of a log are deleted", f"{_LOG}delete_old_segments", _deletes_everything, _segments),
    RareEvent("the log start offset moves", f"{_LOG}_move_log_start", lambda call: not _is_of_metadata(call)),
    RareEvent("an index is truncated", "storage.index:_Index._keep", _has_lost_entries, _entries),
    RareEvent(
        "the indexes of a segment are rebuilt",
        "storage.segment:Segment.begin_rebuild",
        _is_rebuilt,
        lambda call: call.subject.size_bytes,
    ),
    RareEvent("a topic's log is deleted", "storage.log_manager:LogManager.delete"),
    RareEvent(
        "a log of an earlier topic of the same name is found",
        "storage.log_manager:LogManager.get_or_create",
        lambda call: call.before is not None and call.before != call.argument(1, "topic_id"),
        lambda call: getattr(call.subject.get(call.arguments[0]), "topic_id", None),
    ),
    RareEvent("a log is set aside as a stray", "storage.log_manager:LogManager.set_aside"),
)


def _count_of_epochs(call: Call) -> int:
    return len(call.subject._entries)


def _has_fewer_epochs(call: Call) -> bool:
    return bool(len(call.subject._entries) < call.before)


def _open_transactions(call: Call) -> int:
    return len(call.subject._open) if call.result else 0


PRODUCERS: Final = (
    RareEvent(
        "leader epochs are truncated",
        "storage.epochs:LeaderEpochCache.truncate_from_end",
        _has_fewer_epochs,
        _count_of_epochs,
    ),
    RareEvent(
        "leader epochs before the log start are forgotten",
        "storage.epochs:LeaderEpochCache.truncate_from_start",
        _has_fewer_epochs,
        _count_of_epochs,
    ),
    RareEvent("a repeated batch is recognised", f"{_PRODUCERS}_check_unusual", lambda call: call.result is not None),
    RareEvent("a batch is out of order", f"{_PRODUCERS}_check_sequence", is_error=True),
    RareEvent("a batch has an earlier producer epoch", f"{_PRODUCERS}_stale_epoch", needs=_TRANSACTIONS),
    RareEvent(
        "a marker of a former coordinator is refused by the log",
        f"{_PRODUCERS}check_marker",
        lambda call: call.result.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        is_error=True,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a marker ends no open transaction",
        f"{_PRODUCERS}apply_marker",
        lambda call: call.result is None,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a transaction ends while another one is open in its partition",
        f"{_PRODUCERS}apply_marker",
        lambda call: call.result is not None and len(call.subject._open) > 0,
        needs=_TRANSACTIONS,
    ),
    RareEvent("a producer expires", f"{_PRODUCERS}expire", lambda call: call.result > 0),
    RareEvent("a producer snapshot is loaded", f"{_PRODUCERS}reload", lambda call: bool(call.result)),
    RareEvent(
        "a producer snapshot with an open transaction is loaded",
        f"{_PRODUCERS}reload",
        lambda call: _open_transactions(call) > 0,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a producer snapshot with two open transactions is loaded",
        f"{_PRODUCERS}reload",
        lambda call: _open_transactions(call) > 1,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "transactions that ended above the HW are restored at a start",
        f"{_PRODUCERS}restore_ended",
        lambda call: len(call.subject._ended) > 0,
        needs=_TRANSACTIONS,
    ),
    RareEvent("the producers of a log are reset", f"{_PRODUCERS}reset"),
    RareEvent(
        "an aborted transaction enters the index",
        "storage.transaction_index:TransactionIndex.append",
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "the index of aborted transactions is truncated",
        "storage.transaction_index:TransactionIndex.truncate_to",
        lambda call: len(call.subject._entries or ()) < call.before,
        lambda call: len(call.subject._entries or ()),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a reader gets aborted transactions",
        "storage.log_reads:LogReader._aborted",
        lambda call: bool(call.result),
        needs=_TRANSACTIONS,
    ),
)

READS: Final = (
    RareEvent("cold records are read from the disk", "storage.log_reads:LogReader.take"),
    RareEvent(
        "a cold read is overtaken by a change of its log",
        "storage.log_reads:LogReader.take",
        lambda call: call.result is None,
    ),
    RareEvent(
        "an offset is looked up by time",
        "storage.log_reads:LogReader.search_time",
        lambda call: call.arguments[0] is not None,
    ),
    RareEvent(
        "the latest record is looked up",
        "storage.log_reads:LogReader.search_time",
        lambda call: call.arguments[0] is None,
    ),
)


def _is_pass_over(call: Call) -> bool:
    running = call.subject._pass
    return running is not None and running.log is call.arguments[0]


def _is_cleaned_beyond_end(call: Call) -> bool:
    log = call.arguments[0]
    clean = call.subject.state.get(log.directory.rpartition("/")[0], log.topic_partition)
    return clean is not None and bool(clean > log.log_end_offset)


_CLEANER: Final = "storage.compaction.cleaner:LogCleaner."
COMPACTION: Final = (
    RareEvent("a log is compacted", f"{_CLEANER}_begin"),
    RareEvent("a pass of compaction is aborted", f"{_CLEANER}abort", lambda call: bool(call.before), _is_pass_over),
    RareEvent(
        "a log is cut below what is compacted",
        f"{_CLEANER}on_truncated",
        lambda call: bool(call.before),
        _is_cleaned_beyond_end,
    ),
    RareEvent(
        "compaction stops before an open transaction",
        "storage.compaction.choice:cleanable",
        lambda call: call.subject.producers.first_undecided_offset is not None and len(call.subject.segments) > 1,
    ),
    RareEvent(
        "compaction passes over an aborted transaction",
        "storage.compaction.offset_map:CleanedTransactions.on_data",
        lambda call: bool(call.result),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "compaction passes over a marker whose transaction is gone",
        "storage.compaction.offset_map:CleanedTransactions.on_marker",
        lambda call: bool(call.result),
    ),
    RareEvent(
        "compaction removes a batch",
        "storage.compaction.rewriting:filter_batch",
        lambda call: call.result is None,
    ),
    RareEvent(
        "compaction removes records of a batch",
        "storage.compaction.rewriting:filter_batch",
        lambda call: call.result is not None and len(call.result.data) < call.arguments[1].size_bytes,
    ),
    RareEvent(
        "a tombstone or marker is removed after its delete horizon",
        "storage.compaction.rewriting:filter_batch",
        lambda call: call.result is None and bool(call.arguments[1].has_delete_horizon),
    ),
    RareEvent(
        "a tombstone or marker gets a delete horizon",
        "storage.compaction.record_filter:_rebuild",
        lambda call: call.arguments[2] is not None and not call.subject.has_delete_horizon,
    ),
    RareEvent("compaction keeps an empty batch for its producer", "storage.compaction.record_filter:empty_batch"),
    RareEvent(
        "compaction joins segments",
        "storage.compaction.cleaner:swap_in",
        lambda call: len(call.arguments[1]) > 1,
    ),
)

DISKS: Final = (
    RareEvent("a log is scanned at a start", f"{_RECOVERY}_rescan"),
    RareEvent(
        "an unsynced tail is cut off at a start",
        f"{_RECOVERY}_note_cut",
        lambda call: len(call.subject._notes) > call.before,
        lambda call: len(call.subject._notes),
    ),
    RareEvent("segments behind a torn one are removed at a start", f"{_RECOVERY}_drop_segments"),
    RareEvent(
        "the high watermark was beyond what a start finds",
        f"{_RECOVERY}losses",
        lambda call: (call.subject._opening.high_watermark or 0) > call.arguments[2],
    ),
    RareEvent("an append finds no space", "storage.health:WriteHealth.refused"),
    RareEvent("a log directory takes no writes any more", "storage.health:WriteHealth._become_unwritable"),
    RareEvent("a log directory takes writes again", "storage.health:WriteHealth._become_writable"),
    RareEvent("a failed log directory ends the process", "storage.directories:LogDirectories.fail", is_error=True),
    RareEvent("a log is synced in the background", "storage.upkeep:LogUpkeep.sync_in_background"),
    RareEvent("a replica has no open log", "replication.unopened:UnopenedReplicas.add"),
)

STORAGE_EVENTS: Final = (*SEGMENTS, *PRODUCERS, *READS, *COMPACTION, *DISKS)
