"""Scalars of JSON as Spark's `from_json` accepts them: one converter for each type of Spark.

A converter takes a token and returns the value that Arrow needs for the type (timestamps in µs, dates in days), or
raises Mismatch. Times without a zone are UTC here, where `from_json` takes the session's zone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from pyspark.sql import types as spark

#: Kinds of tokens.
STRING, NUMBER, WORD = "string", "number", "word"


class Token(NamedTuple):
    """A JSON token. `text` is its text: of a string without quotes and escapes, otherwise as written."""

    kind: str
    text: str


class Mismatch(Exception):
    """The error for a JSON value that does not have the type of the schema."""


Converter = Callable[[Token], Any]

_WHOLE: Final = re.compile(r"-?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DATE: Final = r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})"
_DATE_TEXT: Final = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.S)
_TIME_TEXT: Final = re.compile(_DATE + r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(\D.*)?)?)?)?")
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2}):?(\d{2})?(?::?(\d{2}))?")
_NOT_NUMBERS: Final = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
#: Tokens that represent NaN and infinity without quotes.
NOT_NUMBERS: Final = tuple(_NOT_NUMBERS)
_DAY_US: Final = 86_400_000_000
_LONG: Final = range(-(1 << 63), 1 << 63)
#: Jackson also accepts a byte without a sign.
_RANGES: Final[dict[type[spark.DataType], range]] = {
    spark.ByteType: range(-(1 << 7), 1 << 8),
    spark.ShortType: range(-(1 << 15), 1 << 15),
    spark.IntegerType: range(-(1 << 31), 1 << 31),
    spark.LongType: _LONG,
}
_DIGITS_MAX: Final = 1_000


def converter(kind: spark.DataType) -> Converter | None:
    """Returns the converter; None for a type that is not a scalar, or is not supported in JSON here."""
    if isinstance(kind, spark.DecimalType):
        return _decimals(kind.precision, kind.scale)
    if type(kind) in _RANGES:
        return _integers(_RANGES[type(kind)], wraps=isinstance(kind, spark.ByteType))
    if isinstance(kind, spark.StringType):
        return _string if type(kind) is spark.StringType else None
    return _OTHERS.get(type(kind))


def _integers(allowed: range, *, wraps: bool) -> Converter:
    def convert(token: Token) -> int:
        if token.kind != NUMBER or not _WHOLE.fullmatch(token.text) or len(token.text) > _DIGITS_MAX:
            raise Mismatch
        number = int(token.text)
        if number not in allowed:
            raise Mismatch
        return (number + 128) % 256 - 128 if wraps else number

    return convert


def _boolean(token: Token) -> bool:
    if token.kind != WORD or token.text not in ("true", "false"):
        raise Mismatch
    return token.text == "true"


def _floating(token: Token) -> float:
    if token.kind == NUMBER:
        return float(token.text)
    if token.text not in _NOT_NUMBERS:
        raise Mismatch
    return _NOT_NUMBERS[token.text]


def _string(token: Token) -> str:
    return token.text


def _decimals(precision: int, scale: int) -> Converter:
    unit, limit = Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)

    def convert(token: Token) -> Decimal:
        text = token.text.replace(",", "") if token.kind == STRING else token.text
        if token.kind == WORD or not _DECIMAL.fullmatch(text):
            raise Mismatch
        try:
            with localcontext() as context:
                context.prec = _DIGITS_MAX
                found = Decimal(text).quantize(unit, ROUND_HALF_UP)
        except InvalidOperation:
            raise Mismatch from None
        if abs(found) >= limit:
            raise Mismatch
        return found

    return convert


def _binary(token: Token) -> bytes:
    if token.kind != STRING:
        raise Mismatch
    try:
        return base64.b64decode(token.text, validate=True)
    except ValueError:
        raise Mismatch from None


def _date(token: Token) -> int:
    match = _DATE_TEXT.fullmatch(token.text.strip()) if token.kind == STRING else None
    if match is None:
        raise Mismatch
    return _days(*match.groups())


def _days(year: str, month: str | None, day: str | None) -> int:
    """Returns the days since 1970-01-01 in the proleptic Gregorian calendar. Years are shifted by multiples of 400 into
    the range of `datetime`: the calendar repeats every 146,097 days.
    """
    number = int(year)
    cycles = (number - 2000) // 400
    try:
        moved = datetime(number - cycles * 400, int(month or 1), int(day or 1))
    except ValueError:
        raise Mismatch from None
    return (moved - datetime(1970, 1, 1)).days + cycles * 146_097


def _timestamp(token: Token) -> int:
    if token.kind == NUMBER and _WHOLE.fullmatch(token.text) and len(token.text) <= _DIGITS_MAX:
        return _bounded(int(token.text) * 1_000_000)
    local_us, zone = _local(token)
    return _bounded(local_us - (0 if zone is None else _offset_us(zone, local_us)))


def _timestamp_ntz(token: Token) -> int:
    local_us, zone = _local(token)
    if zone is not None:
        raise Mismatch
    return _bounded(local_us)


def _local(token: Token) -> tuple[int, str | None]:
    """Parses a timestamp without applying its zone: returns the local time in µs, and the zone if there is one."""
    match = _TIME_TEXT.fullmatch(token.text.strip()) if token.kind == STRING else None
    if match is None:
        raise Mismatch
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    parts = [int(each or 0) for each in (hour, minute, second)]
    if parts[0] > 23 or parts[1] > 59 or parts[2] > 59:
        raise Mismatch
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2]
    fraction_us = int((fraction or "")[:6].ljust(6, "0"))
    return _days(year, month, day) * _DAY_US + seconds * 1_000_000 + fraction_us, zone


def _offset_us(zone: str, local_us: int) -> int:
    name = zone.strip()
    if name in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _OFFSET.fullmatch(name)
    if match is not None:
        sign, hours, minutes, seconds = match.groups()
        total_s = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if total_s >= 24 * 3600 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
            raise Mismatch
        return (-total_s if sign == "-" else total_s) * 1_000_000
    try:
        there = ZoneInfo(name)
        offset = (datetime(1970, 1, 1) + timedelta(microseconds=local_us)).replace(tzinfo=there).utcoffset()
    except (LookupError, ValueError, OSError, OverflowError):
        raise Mismatch from None
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _bounded(micros: int) -> int:
    if micros not in _LONG:
        raise Mismatch
    return micros


_OTHERS: Final[dict[type[spark.DataType], Converter]] = {
    spark.BooleanType: _boolean,
    spark.DoubleType: _floating,
    spark.FloatType: _floating,
    spark.BinaryType: _binary,
    spark.DateType: _date,
    spark.TimestampType: _timestamp,
    spark.TimestampNTZType: _timestamp_ntz,
}
