"""A leader's rules for new batches: the topic's settings, the broker's limits, and their share of the event loop.

`LoopBudget` bounds the time that opening batches takes from everything else on the event loop: a few milliseconds in
each window of ten. A batch beyond that is refused with `ValidationDeferred`, to be validated in a thread. Costs are
estimates from the number of records, bytes and the codec, with measured prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records import walk
from barnabas.records.compression import CODEC_NAMES, Codec
from barnabas.records.header import BatchHeader

if TYPE_CHECKING:
    from barnabas.common.config import BrokerConfig

_MAX_LONG = (1 << 63) - 1

#: Nanoseconds to decompress, and to compress, one byte.
_UNPACK_NS: Final = {Codec.NONE: 0, Codec.GZIP: 4, Codec.SNAPPY: 1, Codec.LZ4: 1, Codec.ZSTD: 2}
_PACK_NS: Final = {Codec.NONE: 1, Codec.GZIP: 40, Codec.SNAPPY: 3, Codec.LZ4: 3, Codec.ZSTD: 8}
#: Nanoseconds to walk over one record.
_RECORD_NS: Final = 20 if walk.WALKER.NAME == "compiled" else 2_500
#: The time that opening batches can take in each window of the event loop, and the length of a window.
_BUDGET_NS: Final = 4_000_000
_WINDOW_MS: Final = 10


class ValidationDeferred(Exception):
    """The exception for a batch that is too much work for the event loop now. Nothing has changed; `rules` are the
    current rules.
    """

    def __init__(self, rules: AppendRules) -> None:
        super().__init__(f"a batch for {rules.topic_partition} must be validated in a thread")
        self.rules = rules


class LoopBudget:
    """The remaining time of the event loop for opening batches; shared by all logs of a broker."""

    __slots__ = ("_left_ns", "_since_ms")

    def __init__(self) -> None:
        self._left_ns = _BUDGET_NS
        self._since_ms = 0

    def left_ns(self, wall_ms: int) -> int:
        """Returns the remaining budget at this time, in nanoseconds."""
        if not 0 <= wall_ms - self._since_ms < _WINDOW_MS:
            self._since_ms = wall_ms
            self._left_ns = _BUDGET_NS
        return self._left_ns

    def take(self, cost_ns: int, wall_ms: int) -> bool:
        """Takes this cost from the budget. Returns False, and takes nothing, if the cost exceeds the remaining
        budget.
        """
        if cost_ns > self.left_ns(wall_ms):
            return False
        self._left_ns -= cost_ns
        return True

    def spend(self, cost_ns: int) -> None:
        """Subtracts a cost that has been incurred already."""
        self._left_ns -= cost_ns


class RecordLimits(NamedTuple):
    """A broker's limits for all batches, whatever their topic."""

    #: Whether the records of uncompressed, and of compressed, batches are walked over.
    verifies_plain: bool = True
    verifies_compressed: bool = True
    batch_records_max: int = 1_000_000
    #: The maximum number of bytes of a batch after decompression.
    decompressed_bytes_max: int = 104_857_600
    #: The maximum number of bytes of one record in it.
    record_bytes_max: int = 2_147_483_639

    @staticmethod
    def of(config: BrokerConfig) -> RecordLimits:
        verify = config.str_of("barnabas.verify.records").lower()
        return RecordLimits(
            verifies_plain=verify != "false",
            verifies_compressed=verify == "true",
            batch_records_max=config.int_of("barnabas.max.batch.records"),
            decompressed_bytes_max=config.int_of("barnabas.max.decompressed.batch.bytes"),
            record_bytes_max=config.int_of("max.decompressed.message.bytes"),
        )


#: The limits of a broker that does not configure them.
DEFAULT_LIMITS: Final = RecordLimits()


class AppendRules:
    """The rules for new batches of one log, created again when its settings change."""

    __slots__ = (
        "after_max_ms",
        "batch_bytes_max",
        "batch_records_max",
        "before_max_ms",
        "codec",
        "expansion",
        "is_compacted",
        "is_log_append_time",
        "level",
        "limits",
        "must_check_records",
        "segment_bytes",
        "topic_partition",
        "walk_suffices",
    )

    def __init__(
        self, config: LogConfig, topic_partition: TopicPartition, limits: RecordLimits = DEFAULT_LIMITS
    ) -> None:
        self.topic_partition = topic_partition
        self.limits = limits
        self.batch_bytes_max = config.max_message_bytes
        self.batch_records_max = limits.batch_records_max
        self.segment_bytes = config.segment_bytes
        self.is_compacted = config.is_compacted
        self.is_log_append_time = config.is_log_append_time
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        #: The codec of the topic; None keeps the producer's.
        self.codec = _target_codec(config.compression_type)
        self.level = _level_of(config, self.codec)
        #: Decompressed bytes per compressed byte in the last batch.
        self.expansion = 1.0
        #: Whether the records must be checked even if the operator trusts producers.
        self.must_check_records = self.is_compacted or (self.before_max_ms < _MAX_LONG and not self.is_log_append_time)
        #: Whether a walk is all that an uncompressed batch needs.
        self.walk_suffices = (
            limits.verifies_plain
            and not self.must_check_records
            and not self.is_log_append_time
            and self.codec in (None, Codec.NONE)
        )


def _target_codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else CODEC_NAMES[compression_type]


def _level_of(config: LogConfig, codec: Codec | None) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def walk_ns(records: int) -> int:
    """Returns the estimated nanoseconds for a walk over this many records."""
    return records * _RECORD_NS


def open_ns(source: Codec, target: Codec) -> int:
    """Returns the estimated nanoseconds to decompress one byte and, if `target` is another codec, to compress it
    again.
    """
    return _UNPACK_NS[source] + (_PACK_NS[target] if target is not source else 0)


class ValidBatch(NamedTuple):
    """A valid batch before its offsets are assigned. `header` is final except for offset and leader epoch."""

    header: BatchHeader
    batch: Buffer
    #: The broker's time of the append; -1 with CreateTime.
    log_append_time_ms: int
    #: The largest timestamp to be written into the header, or None.
    new_max_timestamp: int | None


def too_large(rules: AppendRules, size: int) -> RecordsRejected:
    return RecordsRejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {rules.topic_partition} is {size} bytes "
        f"which exceeds the maximum configured value of {rules.batch_bytes_max}.",
        is_framing=True,
    )


def beyond_segment(rules: AppendRules, size: int) -> RecordsRejected:
    return RecordsRejected(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"Message batch size is {size} bytes in append to partition {rules.topic_partition}, "
        f"which exceeds the maximum configured segment size of {rules.segment_bytes}.",
        is_framing=True,
    )
