"""`valueSchema`: converts JSON values to a struct column, as `from_json` would.

pyarrow's parser reads all values of a batch together, joined by newlines. It is stricter than Spark, and if it accepts
a text, the result is that of Spark. A batch that it refuses is halved until the few texts that cause it are found;
`json_text` then reads these one by one.

The row of each text is certain: every text begins with `{` and ends with `}`, and in JSON `}` newline `{` can occur
only between two complete objects; with as many objects as texts, each text is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql import types as spark

from barnabas.common.errors import ConfigError
from barnabas.spark.errors import SourceFailed
from barnabas.spark.json_text import Malformed, RowReader

PERMISSIVE, FAILFAST, DROPMALFORMED = "permissive", "failfast", "dropmalformed"
MODES: Final = (PERMISSIVE, FAILFAST, DROPMALFORMED)
_ONE_BY_ONE: Final = 8
_JSON_SPACE: Final = " \t\r\n"
_OPEN, _CLOSE = ord("{"), ord("}")
#: The number of characters of a value that an error shows.
_SHOWN: Final = 200
_ARROW: Final[dict[type[spark.DataType], pa.DataType]] = {
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.BooleanType: pa.bool_(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}
#: Types that pyarrow's parser does not have, or reads differently from Spark.
_SLOW: Final = (spark.MapType, spark.BinaryType, spark.TimestampNTZType)


class ValueMalformed(SourceFailed):
    """The error for a value that is not a JSON object of the schema, with valueMode FAILFAST."""


@dataclass(frozen=True)
class ValueFormat:
    """The format of values. `schema`: of the struct; its field `corrupt_column`, if any, gets a malformed text."""

    schema: spark.StructType
    mode: str = PERMISSIVE
    corrupt_column: str = "_corrupt_record"


def check(schema: spark.StructType, corrupt_column: str) -> None:
    """Raises ConfigError for a type that cannot be read from JSON here."""
    try:
        RowReader(schema)
        arrow_type(schema)
    except ValueError as error:
        raise ConfigError(f"option valueSchema: {error}") from None
    for field in schema.fields:
        if field.name == corrupt_column and not isinstance(field.dataType, spark.StringType):
            raise ConfigError(f"option valueSchema: {corrupt_column} must have type string or be absent")


def arrow_type(kind: spark.DataType) -> pa.DataType:
    """Returns the Arrow type that Spark expects. Raises ValueError."""
    if isinstance(kind, spark.StructType):
        names = [field.name for field in kind.fields]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{kind.simpleString()}: a struct has fields, each name once")
        if not all(field.nullable for field in kind.fields):
            raise ValueError("NOT NULL cannot be guaranteed, because a value can lack any field")
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
    if isinstance(kind, spark.ArrayType):
        if not kind.containsNull:
            raise ValueError("an array without nulls cannot be guaranteed")
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, spark.MapType):
        if not kind.valueContainsNull:
            raise ValueError("a map without nulls cannot be guaranteed")
        return pa.map_(pa.string(), pa.field("value", arrow_type(kind.valueType)))
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _ARROW.get(type(kind))
    if found is None:
        raise ValueError(f"{kind.simpleString()} is not read from JSON here")
    return found


class TypedValues:
    """The converter for the record batches of one partition; `where` names it in errors."""

    def __init__(self, form: ValueFormat, where: str = "") -> None:
        self._form = form
        self._where = where
        self._type = arrow_type(form.schema)
        read = [field for field in form.schema.fields if field.name != form.corrupt_column]
        self._has_corrupt_column = len(read) < len(form.schema.fields)
        self._rows = RowReader(spark.StructType(read))
        self._fast: pj.ParseOptions | None = None
        if read and not any(_is_slow(field.dataType) for field in read):
            # PyArrow reads dates only as numbers, Spark only as texts.
            fast = pa.schema([pa.field(each.name, _with_dates_as_texts(arrow_type(each.dataType))) for each in read])
            self._fast = pj.ParseOptions(explicit_schema=fast, unexpected_field_behavior="ignore")

    def typed(self, batch: Any, at: int) -> Any:
        """Returns the record batch with the binary column `at` replaced; the mode decides about malformed values.

        Raises:
            ValueMalformed: a value is malformed, and the mode is FAILFAST.
        """
        values = batch.column(at)
        array, broken = self._read(values)
        columns = batch.columns
        columns[at] = array
        names = [field.with_type(self._type) if i == at else field for i, field in enumerate(batch.schema)]
        found = pa.RecordBatch.from_arrays(columns, schema=pa.schema(names))
        if not broken or self._form.mode == PERMISSIVE:
            return found
        if self._form.mode == FAILFAST:
            text = values[broken[0]].as_py().decode(errors="replace")
            raise ValueMalformed(
                f"{self._where}: valueMode=FAILFAST, and a value does not fit valueSchema: {text[:_SHOWN]}"
            )
        keep = np.ones(batch.num_rows, bool)
        keep[broken] = False
        return found.filter(pa.array(keep))

    def _read(self, values: Any) -> tuple[Any, list[int]]:
        """Parses JSON texts. Returns the struct array, and the rows that are malformed."""
        if not len(values):
            return pa.array([], self._type), []
        fast = self._fast_read(values)
        if fast is not None:
            return fast, []
        if self._fast is None or len(values) <= _ONE_BY_ONE:
            return self._one_by_one(values)
        half = len(values) // 2
        first, broken = self._read(values[:half])
        second, more = self._read(values[half:])
        return pa.concat_arrays([first, second]), broken + [half + each for each in more]

    def _fast_read(self, values: Any) -> Any | None:
        """Returns the array that pyarrow's parser gives; None if it refuses any text."""
        if self._fast is None:
            return None
        nulls = values.is_null() if values.null_count else None
        texts = values if nulls is None else values.drop_null()
        if not len(texts):
            return pa.nulls(len(values), self._type)
        try:
            texts = texts.cast(pa.string())
            if not _are_objects(texts):
                texts = pc.ascii_trim(texts, _JSON_SPACE)
                if not _are_objects(texts):
                    return None
            joined = _joined(texts)
            options = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
            table = pj.read_json(pa.BufferReader(joined), read_options=options, parse_options=self._fast)
            if table.num_rows != len(texts):
                return None
            names = set(table.column_names)
            fields = [
                table.column(each.name).combine_chunks().cast(each.type)
                if each.name in names
                else pa.nulls(len(texts), each.type)
                for each in self._type
            ]
        except pa.ArrowInvalid:
            return None
        array = pa.StructArray.from_arrays(fields, fields=list(self._type))
        if nulls is None:
            return array
        places = np.cumsum(~nulls.to_numpy(zero_copy_only=False)) - 1
        return array.take(pa.array(places, mask=nulls.to_numpy(zero_copy_only=False)))

    def _one_by_one(self, values: Any) -> tuple[Any, list[int]]:
        rows: list[dict[str, Any] | None] = []
        broken = []
        for index, value in enumerate(values.to_pylist()):
            if value is None:
                rows.append(None)
                continue
            text = value.decode(errors="replace")
            try:
                row, is_whole = self._rows.read(text)
            except Malformed:
                row, is_whole = {}, False
            if not is_whole:
                broken.append(index)
                if self._has_corrupt_column and row is not None:
                    row[self._form.corrupt_column] = text
            rows.append(row)
        return pa.array(rows, self._type), broken


def _is_slow(kind: spark.DataType) -> bool:
    if isinstance(kind, spark.StructType):
        return any(_is_slow(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return _is_slow(kind.elementType)
    return isinstance(kind, _SLOW)


def _are_objects(texts: Any) -> bool:
    """Returns whether each text begins with `{` and ends with `}`."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if (np.diff(offsets) < 2).any():
        return False
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    return bool((data[offsets[:-1]] == _OPEN).all() and (data[offsets[1:] - 1] == _CLOSE).all())


def _joined(texts: Any) -> Any:
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return pc.binary_join(lists, "\n")[0].as_buffer()


def _with_dates_as_texts(kind: Any) -> Any:
    if pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _with_dates_as_texts(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _with_dates_as_texts(kind.value_type)))
    return kind
