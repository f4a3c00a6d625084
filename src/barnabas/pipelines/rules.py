"""The rules of `barnabas.orders.event` as native Spark columns: what a batch of records is before any table is touched.

    fault       null: a good order; broken: it breaks a rule of the event; time_ahead, too_late: see below
    copy        1 for the first of all good events of the batch with this order_id, then 2, 3, ...
    day         of the event time, UTC; null where the event is broken

Spark only tells good from broken, once for every record and without Python. *Why* a record is broken is asked of
`barnabas.orders.event.problem` for these few alone, so that reasons have one source. Where the two disagree Spark is
the stricter one (an amount with a tenth of a cent), and the record goes into quarantine as `unreadable`.

An event of more than a day after its record's own timestamp is `time_ahead`: one wrong clock must not move the
watermark for all. An event before the watermark is `too_late`. The watermark stands still during a batch, so that the
same batch gives the same rows whenever it is repeated.

The value is read as an array of one, `[` value `]`: with that Spark refuses what follows the object, which it would
otherwise pass over in silence.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, LongType, StringType, StructField, StructType

from barnabas.orders.event import LINE_FIELDS, ORDER_FIELDS, Field
from barnabas.pipelines.commits import Progress

BROKEN, TIME_AHEAD, TOO_LATE, UNREADABLE = "broken", "time_ahead", "too_late", "unreadable"
_DAY_US = 86_400_000_000
#: Wider than a table's money, so that what is no whole number of cents is seen and not rounded.
_AMOUNT = DecimalType(20, 6)
_MONEY = "decimal(14,2)"
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowNumericLeadingZeros": "false",
}
_MONEY_FIELDS = tuple(field.name for field in LINE_FIELDS if field.type == "double")


def event_schema() -> StructType:
    """Spark's schema of an order."""
    return StructType([StructField(field.name, _type(field)) for field in ORDER_FIELDS])


def _type(field: Field) -> DataType:
    if field.type == "long":
        return LongType()
    if field.type == "double":
        return _AMOUNT
    if field.type == "lines":
        return ArrayType(StructType([StructField(line.name, _type(line)) for line in LINE_FIELDS]))
    return StringType()


def judged(
    records: DataFrame, progress: Mapping[int, Progress], watermark_ms: int | None, shuffle_partitions: int
) -> DataFrame:
    """Records of one topic (the columns of Spark's Kafka source), judged, without those already applied.

    All rows of a day are in one partition of the result, and a good row's `value` is null: it is not needed any more.
    """
    text = F.col("value").cast("string")
    # Where the bytes are not UTF-8 they would be mended here; Python would refuse them.
    readable = F.when(F.expr("is_valid_utf8(cast(value as string))"), F.concat(F.lit("["), text, F.lit("]")))
    parsed = records.where(_not_applied(progress)).select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("timestamp_us"),
        F.from_json(readable, ArrayType(event_schema()), _JSON_OPTIONS).alias("events"),
    )
    event = F.get("events", F.lit(0))
    timed = parsed.select(
        "*",
        F.when(F.size("events") == 1, event).alias("event"),
    ).withColumn("event_us", _event_us())
    fault = (
        F.when(~F.coalesce(_is_good(), F.lit(False)), F.lit(BROKEN))
        .when(F.col("event_us") > F.col("timestamp_us") + _DAY_US, F.lit(TIME_AHEAD))
        .when(F.col("event_us") < F.lit(-(2**62) if watermark_ms is None else watermark_ms * 1000), F.lit(TOO_LATE))
    )
    faulted = timed.select("*", fault.alias("fault")).select(
        *("key", "topic", "partition", "offset", "timestamp_us", "fault", "event_us"),
        F.when(F.col("fault").isNotNull(), F.col("value")).alias("value"),
        *(F.col(f"event.{name}").alias(name) for name in ("order_id", "customer_id", "store_id")),
        F.col("event.total").cast(_MONEY).alias("total"),
        F.col("event.lines").alias("lines"),
        F.when(
            F.coalesce(F.col("fault") != BROKEN, F.lit(True)),
            F.date_from_unix_date(F.floor(F.col("event_us") / _DAY_US).cast("int")).cast("string"),
        ).alias("day"),
    )
    return _placed(_with_copies(faulted), shuffle_partitions)


def _not_applied(progress: Mapping[int, Progress]) -> Column:
    """By the next offset of each partition: what is before it is in the tables."""
    if not progress:
        return F.lit(True)
    following = [progress[n].next_offset if n in progress else 0 for n in range(max(progress) + 1)]
    return F.col("offset") >= F.coalesce(F.get(F.array(*map(F.lit, following)), F.col("partition")), F.lit(0))


def _event_us() -> Column:
    time = F.col("event.event_time")
    return F.when(time.rlike(_TIME), F.unix_micros(F.try_to_timestamp(time, F.lit("yyyy-MM-dd'T'HH:mm:ssX"))))


def _is_good() -> Column:
    """Null or false for every event that breaks a rule."""
    present = F.lit(True)
    for field in ORDER_FIELDS:
        present = present & F.col(f"event.{field.name}").isNotNull()
    lines = F.col("event.lines")
    total = F.aggregate(lines, F.lit(0).cast("decimal(28,6)"), _add)
    return (
        present
        & F.col("event_us").isNotNull()
        & (F.size(lines) > 0)
        & F.forall(lines, _is_good_line)
        & (F.col("event.total") == total)
        & (F.col("event.total") < F.lit(10**12))
    )


def _add(total: Column, line: Column) -> Column:
    return (total + line["amount"]).cast("decimal(28,6)")


def _is_good_line(line: Column) -> Column:
    good = line.isNotNull()
    for field in LINE_FIELDS:
        value = line[field.name]
        good = good & value.isNotNull() & (value >= 0 if field.name != "product_id" else F.lit(True))
        if field.name in _MONEY_FIELDS:
            good = good & (value == value.cast(_MONEY))
    return F.coalesce(good, F.lit(False))


def _with_copies(faulted: DataFrame) -> DataFrame:
    """Events with a fault take no part: a good one must not be the copy of one in quarantine."""
    order = F.when(F.col("fault").isNull(), F.col("order_id"))
    window = Window.partitionBy(order, F.when(order.isNull(), F.col("offset"))).orderBy("partition", "offset")
    return faulted.withColumn("copy", F.row_number().over(window))


def _placed(rows: DataFrame, shuffle_partitions: int) -> DataFrame:
    """A day is never in two partitions, as its aggregates are written by one task; broken rows go anywhere."""
    place = F.coalesce("day", F.col("partition").cast("string"))
    return rows.repartition(shuffle_partitions, place)
