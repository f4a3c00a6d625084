"""`valueSchema` compared with Spark's own `from_json`: the same rows from the same texts, mainly from difficult
ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types
from tests.clients.servers import Server

from barnabas.pipelines.rules import event_schema
from barnabas.spark.typed_values import TypedValues, ValueFormat

Produce = Callable[..., None]
NewTopic = Callable[..., str]

SCALARS = (
    "i int, l bigint, b boolean, d double, f float, s string, y tinyint, h smallint, _corrupt_record string",
    """{} [] [1] [null] null 1 true "x" {"i":1}{"i":2} {"i":1}] {"i":1,} {i:1} {'i':1,'s':'a"\\'b'} {"i":1.0} {"i":1e2}
    {"i":-0} {"i":01} {"i":+1} {"i":2147483647} {"i":2147483648} {"i":"5"} {"i":true} {"i":1,"l":"x","s":"k"} {"i":1
    {"l":9223372036854775807} {"l":9223372036854775808} {"b":"true"} {"b":1} {"b":null,"s":null} {"b":false} {"d":1}
    {"d":1e400} {"d":"1.5"} {"d":"NaN"} {"d":NaN} {"d":Infinity} {"d":-Infinity} {"d":"Infinity"} {"d":"-INF"}
    {"d":+INF} {"d":INF} {"d":.5} {"d":5.} {"d":-0.0} {"d":0.1,"f":0.1} {"f":1e39} {"f":16777217} {"d":1e-400}
    {"s":1} {"s":true} {"s":{"x":1,"y":[1,"a"]}} {"s":[1,"a"]} {"s":"\\ud800"} {"s":"\\ud83d\\ude00"} {"s":"\\u0000"}
    {"s":"a\\/b\\n"} {"s":"\\q"} {"s":"é"} {"i":1,"i":2} {"i":1,"i":null} {"i":1,"i":"x"} {"I":1} {"z":nope,"i":3}
    {"z":{"a":[1,{}]},"i":3} {"i":3,"z":nope} {"y":200,"h":40000} {"y":-129} {"y":127,"h":-32768} {"s":""} {"i":""}
    {"_corrupt_record":"mine","i":1} {"i":1,"l":} //{"i":1} {"i":1}} {"s":"a"b"} {"s":"}{"} {"z":[1,2,{"i":9}],"i":4}
    {"s":tru} {"i":-} {"i":1}x {}{} {"i":1,,"l":2} {"d":1.e5} {"l":1E2} {"h":-32769} {"f":"NaN"} {"f":-1.5}""",
)
NESTED = (
    "a struct<x:int,y:array<int>>, m map<string,int>, r array<struct<q:bigint,w:string>>, _corrupt_record string",
    """{"a":{"x":1,"y":[1,2]}} {"a":null} {"a":[]} {"a":"x"} {"a":{"x":"bad","y":[3]}} {"a":{"y":[1,"bad",3]}}
    {"a":{"y":[null,1]}} {"a":{"y":{}}} {"r":[{"q":1},null,{"w":"z","q":"bad"}],"m":{"k":1}} {"r":[{"q":1},5]}
    {"r":{"q":1}} {"m":{"a":1,"b":null}} {"m":[]} {"m":{"a":1,"a":2}} {"a":{},"r":[],"m":{}} {"r":[[{"q":1}]]}
    {"r":"s","m":{"k":1}} {"a":""} {"r":""} {"a":{"x":1,"z":{"x":2}}} {"r":[{"q":1,"z":[{"q":2}]}]} {"a":{"x":1}""",
)
TEXTS = [
    *("2017-01-01T11:53:26Z", "2017-01-01T11:53:26.123456Z", "2017-01-01T11:53:26.123456789Z", "2017-01-01 11:53:26"),
    *("2017-01-01T11:53:26", "2017-01-01", "2017", "2017-01", "2017-1-2", "2017-01-01T11:53", "2017-01-01T11"),
    *("2017-01-01T11:53:26+02:00", "2017-01-01T11:53:26+0200", "2017-01-01T11:53:26-02", "2017-01-01T11:53:26 UTC"),
    *("2017-01-01T11:53:26 Europe/Berlin", " 2017-01-01 ", "bad", "", "2017-02-30T00:00:00Z", "0001-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.5Z", "2017-01-01T24:00:00Z", "2017-01-01T11:53:26.Z"),
    *("2017-01-01T11:53:26,5Z", "2017-01-01T1:2:3Z", "2017-13-01", "2016-02-29", "2017-01-01T11:53:26.12"),
    *("2017-01-01T11:53:60Z", "2017-01-01T11:53:26z", "0000-01-01"),
]
DECIMALS = """{"c":1.005,"e":1} {"c":"1.005"} {"c":12345678901} {"c":99999999.994} {"c":99999999.995} {"e":1e-18}
    {"c":1e3} {"e":1e-19} {"c":"1,000.5"} {"c":""} {"c":"x"} {"c":true} {"c":-0.005} {"c":1E+2} {"c":"1e2"} {"c":1.5}
    {"c":".5"} {"c":"5."} {"c":1e999999999} {"c":null} {"c":"-1.5"} {"c":"+1.5"} {"c":0.000} {"e":12345.678901234567}"""
TIMES = (
    "t timestamp, k date, _corrupt_record string",
    [json.dumps({"t": text}) for text in TEXTS]
    + [json.dumps({"k": text}) for text in TEXTS if not text.startswith("0000")]
    + ['{"t":1500000000}', '{"t":1.5}', '{"t":-1}', '{"k":17000}', '{"t":true}', '{"t":null,"k":null}'],
)
REST = (
    "n timestamp_ntz, c decimal(10,2), e decimal(38,18), v binary, _corrupt_record string",
    [json.dumps({"n": text}) for text in TEXTS]
    + DECIMALS.split()
    + ['{"v":"aGVsbG8="}', '{"v":"%%"}', '{"v":"aGVsbG8"}', '{"v":5}', '{"v":""}', '{"n":1500000000}', '{"c":" 1"}'],
)
ODD: list[bytes | None] = [None, b"", b"  ", b' {"i":1}\n', b'{"s":"\xff\xc3"}', b'{"s":"a\tb"}', b'{"s":\n"a"}']


def _by_spark(spark: Any, ddl: str, values: list[bytes | None]) -> list[Any]:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = spark.createDataFrame(list(enumerate(values)), "i int, v binary").orderBy("i")
    parsed = frame.select(F.from_json(F.col("v").cast("string"), ddl).alias("r"))
    return _rows(parsed.toArrow().column("r").combine_chunks())


def _by_us(schema: types.StructType, values: list[bytes | None], **more: str) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    return _rows(TypedValues(ValueFormat(schema, **more)).typed(batch, 0).column(0))


def _rows(structs: Any) -> list[Any]:
    """Times as numbers: Python has not all that there are."""
    plain = []
    for field in structs.type:
        column = pc.struct_field(structs, field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        plain.append(column.cast(pa.int32()) if pa.types.is_date(field.type) else column)
    names = [field.name for field in structs.type]
    rows: list[Any] = pa.StructArray.from_arrays(plain, names, mask=structs.is_null()).to_pylist()
    return rows


def _shown(value: Any) -> Any:
    """Returns a comparable form: NaN equals itself, and 0 is not -0."""
    if isinstance(value, dict):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return repr(value) if isinstance(value, float) and (math.isnan(value) or value == 0) else value


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ddl, texts", [SCALARS, NESTED, TIMES, REST], ids=["scalars", "nested", "times", "rest"])
def test_rows_are_those_of_from_json(spark: Any, ddl: str, texts: str | list[str]) -> None:
    listed = texts.split() if isinstance(texts, str) else texts
    values = [each.encode() for each in listed] + ODD
    schema: Any = types.StructType.fromDDL(ddl)
    theirs = _by_spark(spark, ddl, values)
    # The values are read in one batch, which is halved until the difficult ones are alone, and each in a batch of its
    # own.
    for ours in (_by_us(schema, values), [_by_us(schema, [value])[0] for value in values]):
        differences = [
            f"{value!r}: {us} here, {spark_has} by from_json"
            for value, us, spark_has in zip(values, ours, theirs, strict=True)
            if _shown(us) != _shown(spark_has)
        ]
        assert not differences, "\n".join(differences)


def test_where_it_differs_as_documented(spark: Any) -> None:
    schema: Any = types.StructType.fromDDL("s string, t timestamp, m map<string,int>, i int")
    without_map = types.StructType([field for field in schema.fields if field.name != "m"])
    times = ['{"t":"2017-01-01T11:53Z"}', '{"t":"2017-01-01T11:53:26+19:00"}', '{"t":"11:53"}']
    texts = ['{"s":1.10}', '{"s":{"x": 1}}', *times, '{"m":{"a":"x","i":7},"i":1}']
    rows = _by_us(schema, [each.encode() for each in texts])
    assert [row["s"] for row in rows[:2]] == ["1.10", '{"x": 1}']
    assert [row["t"] for row in rows[2:5]] == [1483271580000000, 1483203206000000, None]
    assert (rows[5]["m"], rows[5]["i"]) == (None, 1)
    # A schema without a map takes the fast path, with the same result.
    assert [_by_us(without_map, [each.encode()])[0]["t"] for each in times] == [row["t"] for row in rows[2:5]]


def test_in_a_query(spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(1)
    good = json.dumps({"id": 7, "at": "2017-01-01T11:53:26Z", "lines": [{"q": 1.5}], "price": 1.25, "tags": {"a": 1}})
    produce(topic, [good, None, "broken", '{"id":"x","price":2}'], 0)
    ddl = "id bigint, at timestamp, lines array<struct<q double>>, price decimal(9,2), tags map<string, int>"
    base = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "columns": "offset,value"}

    def read(**options: str) -> list[Any]:
        frame = spark.read.format("barnabas").options(**base, **options).load().orderBy("offset")
        rows: list[Any] = frame.selectExpr("offset", "value", "value.*").collect()
        return rows

    with_corrupt = types.StructType.fromDDL(ddl + ", _corrupt_record string")
    for schema in (ddl + ", _corrupt_record string", with_corrupt.simpleString(), with_corrupt.json()):
        first, empty, broken, partial = read(valueSchema=schema)
        assert (first.id, first.lines[0].q, first.price, first.tags) == (7, 1.5, Decimal("1.25"), {"a": 1})
        assert empty.value is None
        assert broken.value is not None
        assert (broken.id, broken._corrupt_record) == (None, "broken")
        assert (partial.id, partial.price, partial._corrupt_record) == (None, Decimal(2), '{"id":"x","price":2}')
    assert [row.offset for row in read(valueSchema=ddl, valueMode="DROPMALFORMED")] == [0, 1]
    with pytest.raises(Exception, match=rf"{topic}-0: valueMode=FAILFAST, and a value does not fit .*: broken"):
        read(valueSchema=ddl, valueMode="FAILFAST")
    with pytest.raises(Exception, match="interval year to month is not read from JSON here"):
        read(valueSchema="i interval year to month")


def test_orders_of_many_kinds(spark: Any) -> None:
    """Whole batches of the pipeline's orders, the fast way, and with a few broken ones among them."""
    line = {"product_id": 1, "quantity": 2, "amount": 0.1, "retail_discount": 0.0, "coupon_discount": 0.0}
    orders: list[bytes | None] = [
        json.dumps(
            {"order_id": number, "store_id": number % 7, "lines": [line] * (number % 4), "total": number / 7}
        ).encode()
        for number in range(2_000)
    ]
    orders[77], orders[1_500] = b'{"order_id":1', None
    assert _by_us(event_schema(), orders) == _by_spark(spark, event_schema().simpleString(), orders)
