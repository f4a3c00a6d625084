"""The rules of `barnabas.orders.event` as native Spark columns: they classify records before any table changes.

    fault       null: a good order; broken: it breaks a rule of the event; time_ahead: see below
    day         of the event time, UTC; null if the event is broken

Spark only separates good from broken, once for every record and without Python. *Why* a record is broken comes from
`barnabas.orders.event.problem`, which runs for these few only, so that reasons have one source. Where the two disagree,
Spark is the stricter one (an amount with a tenth of a cent), and the record goes to quarantine as `unreadable`.

An event time more than a day after its record's own timestamp is `time_ahead`: one wrong clock must not move the
watermark for all.

The value is read as an array of one, `[` value `]`: then Spark refuses data after the object, which it would otherwise
ignore.

The code that Spark generates from all this is the same for every batch, so that it is compiled once. With an offset or
the watermark as a constant in it, it would be compiled again for each batch.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from barnabas.orders.event import LINE_FIELDS, ORDER_FIELDS, Field

BROKEN, TIME_AHEAD, TOO_LATE, UNREADABLE = "broken", "time_ahead", "too_late", "unreadable"
#: A time before every event time.
ALWAYS_US = -(2**63)
_DAY_US = 86_400_000_000
#: Read as a double, which refuses text; accepted only as a whole number of cents. The published data has amounts that
#: were added up in binary (1.776357e-15 for nothing).
_AMOUNT = DoubleType()
_CENTS_TOLERANCE = 1e-6
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
    """Returns Spark's schema of an order."""
    return StructType([StructField(field.name, _type(field)) for field in ORDER_FIELDS])


def _type(field: Field) -> DataType:
    if field.type == "long":
        return LongType()
    if field.type == "double":
        return _AMOUNT
    if field.type == "lines":
        return ArrayType(StructType([StructField(line.name, _type(line)) for line in LINE_FIELDS]))
    return StringType()


def classified(records: DataFrame, shuffle_partitions: int, watermark_ms: int | None) -> DataFrame:
    """Classifies records (the columns of Spark's Kafka source). All rows of a day are in one partition of the result.

    `value` remains only where quarantine may need it: in faulty rows, and in those before the watermark.
    """
    readable = F.when(
        F.expr("is_valid_utf8(cast(value as string))"),
        F.concat(F.lit("["), F.col("value").cast("string"), F.lit("]")),
    )
    parsed = records.select(
        *("key", "value", "topic", "partition", "offset"),
        F.unix_micros("timestamp").alias("timestamp_us"),
        F.from_json(readable, ArrayType(event_schema()), _JSON_OPTIONS).alias("events"),
    )
    only = F.when(F.size("events") == 1, F.get("events", F.lit(0)))
    timed = parsed.select("*", only.alias("event")).withColumn("event_us", _event_us())
    fault = F.when(~F.coalesce(_is_good(), F.lit(False)), F.lit(BROKEN)).when(
        F.col("event_us") > F.col("timestamp_us") + _DAY_US, F.lit(TIME_AHEAD)
    )
    days = F.floor(F.col("event_us") / _DAY_US).cast("int")
    rows = timed.select("*", fault.alias("fault")).select(
        *("key", "topic", "partition", "offset", "timestamp_us", "fault", "event_us"),
        F.when(F.col("fault").isNotNull() | (F.col("event_us") < _floor_us(watermark_ms)), F.col("value")).alias(
            "value"
        ),
        *(F.col(f"event.{name}").alias(name) for name in ("order_id", "customer_id", "store_id")),
        F.col("event.total").try_cast(_MONEY).alias("total"),
        F.col("event.lines").alias("lines"),
        F.when(F.col("fault").isNull(), F.date_from_unix_date(days).cast("string")).alias("day"),
    )
    # A day is never in two partitions, since one task writes its aggregates; broken rows can be in any partition.
    return rows.repartition(shuffle_partitions, F.coalesce("day", F.col("partition").cast("string")))


def _floor_us(watermark_ms: int | None) -> Column:
    """Returns the watermark as an element of an array, which Spark passes by reference; as a number it would be a
    constant in the generated code.
    """
    floor_us = ALWAYS_US if watermark_ms is None else watermark_ms * 1000
    return F.get(F.lit([floor_us]), F.col("partition") - F.col("partition"))


def _event_us() -> Column:
    time = F.col("event.event_time")
    return F.when(time.rlike(_TIME), F.unix_micros(F.try_to_timestamp(time, F.lit("yyyy-MM-dd'T'HH:mm:ssX"))))


def _is_good() -> Column:
    """Returns a condition that is null or false for every event that breaks a rule."""
    present = F.lit(True)
    for field in ORDER_FIELDS:
        present = present & F.col(f"event.{field.name}").isNotNull()
    lines = F.col("event.lines")
    total = F.aggregate(lines, F.lit(0).cast("decimal(28,2)"), _add)
    return (
        present
        & F.col("event_us").isNotNull()
        & (F.size(lines) > 0)
        & F.forall(lines, _is_good_line)
        & _is_in_cents(F.col("event.total"))
        & (F.col("event.total").try_cast(_MONEY) == total)
    )


def _add(total: Column, line: Column) -> Column:
    return (total + line["amount"].try_cast(_MONEY)).cast("decimal(28,2)")


def _is_in_cents(amount: Column) -> Column:
    return F.abs(amount - amount.try_cast(_MONEY).cast("double")) < _CENTS_TOLERANCE


def _is_good_line(line: Column) -> Column:
    good = line.isNotNull()
    for field in LINE_FIELDS:
        value = line[field.name]
        good = good & value.isNotNull() & (value >= 0 if field.name != "product_id" else F.lit(True))
        if field.name in _MONEY_FIELDS:
            good = good & _is_in_cents(value)
    return F.coalesce(good, F.lit(False))
