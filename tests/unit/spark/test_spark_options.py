"""Options of the source and the sink: their meaning, and the errors for wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types

from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition
from barnabas.spark import bounds, schema, sink_options, source_options

BASE = {"kafka.bootstrap.servers": "a:1,[::1]:2", "subscribe": "t"}


def _parsed(*, is_stream: bool = True, **more: str) -> source_options.SourceOptions:
    named = {key.replace("__", "."): value for key, value in more.items()}
    return source_options.parse(BASE | named, is_stream=is_stream)


def test_defaults_are_those_of_sparks_own_source() -> None:
    stream, batch = _parsed(), _parsed(is_stream=False)
    assert stream.client.bootstrap == (("a", 1), ("::1", 2))
    assert stream.subscription.topics == ("t",)
    assert stream.starting == bounds.Bound("startingOffsets", bounds.LATEST)
    assert batch.starting == bounds.Bound("startingOffsets", bounds.EARLIEST)
    assert batch.ending == bounds.Bound("endingOffsets", bounds.LATEST)
    assert stream.fail_on_data_loss
    assert stream.columns == schema.COLUMNS
    assert not stream.fetch.read_committed
    assert stream.max_trigger_delay_ms == 15 * 60_000


def test_names_are_read_in_any_case() -> None:
    options = source_options.parse({key.lower(): value for key, value in BASE.items()}, is_stream=True)
    assert options == _parsed()
    lower = source_options.parse({**BASE, "maxoffsetspertrigger": "7", "INCLUDEHEADERS": "True"}, is_stream=True)
    assert (lower.max_offsets_per_trigger, lower.columns[-1]) == (7, "headers")


def test_bounds() -> None:
    by_offset = _parsed(startingOffsets='{"t": {"0": 23, "1": -2}}').starting
    assert by_offset.by_partition == {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2}
    at = _parsed(startingTimestamp="5", startingOffsets="earliest").starting
    assert (at.everywhere, at.is_timestamp, at.late_is_end) == (5, True, False)
    late = _parsed(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").starting
    assert late.late_is_end
    ending = _parsed(is_stream=False, endingOffsetsByTimestamp='{"t": {"0": 9}}').ending
    assert (ending.by_partition, ending.is_timestamp) == ({TopicPartition("t", 0): 9}, True)


def test_columns_keep_their_order() -> None:
    assert _parsed(columns="VALUE, offset").columns == ("value", "offset")
    assert _parsed(columns="value", includeHeaders="true").columns == ("value", "headers")


def test_keys_of_other_sources_do_no_harm() -> None:
    carried = {"kafkaConsumer.pollTimeoutMs": "1", "kafka.session.timeout.ms": "9", "kafka.max.poll.records": "4"}
    assert source_options.parse(BASE | carried, is_stream=True) == _parsed()


@pytest.mark.parametrize(
    "given, said",
    [
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "here"}, "kafka.bootstrap.servers='here': expected host:port"),
        ({"subscribe": " , "}, "option subscribe=' , ': expected at least one name"),
        ({"subscribePattern": "a"}, "exactly one of subscribe, subscribePattern and assign"),
        ({"startingOffsets": "newest"}, "startingOffsets='newest': expected earliest, latest, or JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "numbers from -2; t-0 has -3"),
        ({"startingOffsets": '{"t": [1]}'}, "a JSON object such as"),
        ({"endingOffsets": '{"t": {"0": 1}}'}, "option endingOffsets is not allowed for a stream"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many': expected a whole number from 1"),
        ({"maxOffsetsPerTrigger": "0"}, "a whole number from 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "at most maxOffsetsPerTrigger \\(8\\)"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon': expected a time such as"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': expected true or false"),
        ({"columns": "value,size"}, "size is not one of key, value"),
        ({"kafka.isolation.level": "none"}, "expected one of read_uncommitted, read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "not allowed: set the first offsets with startingOffsets"),
        ({"kafka.fetch.min.byte": "1"}, "not a consumer configuration; did you mean kafka.fetch.min.bytes"),
        ({"kafka.security.protocol": "SASL_SSL"}, r"kafka\.sasl\.mechanism: it must be set"),
        ({"kafka.sasl.mechanism": "PLAIN"}, r"kafka\.sasl\.jaas\.config: it must contain username and password"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere"},
            "/nowhere cannot be read as PEM",
        ),
        ({"kafka.ssl.truststore.type": "JKS"}, "only PEM is read here"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"assign": '{"t": ["0"]}', "subscribe": None}, 'such as {"topic": \\[0, 1\\]}'),
        ({"subscribePattern": "(", "subscribe": None}, "a regular expression for whole topic names"),
    ],
)
def test_wrong_options_name_key_value_and_what_is_allowed(given: dict[str, str | None], said: str) -> None:
    options = {key: value for key, value in (BASE | given).items() if value is not None}
    with pytest.raises(ConfigError, match=said):
        source_options.parse(options, is_stream=True)


def test_a_batch_from_the_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="startingOffsets='latest'"):
        _parsed(is_stream=False, startingOffsets="latest")


_TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "pairs": types.ArrayType(
        types.StructType([types.StructField("key", types.StringType()), types.StructField("v", types.BinaryType())])
    ),
}


def _sink(columns: str, *, overwrite: bool = False, **more: str) -> sink_options.SinkOptions:
    named = {key.replace("__", "."): value for key, value in more.items()}
    given = {"kafka.bootstrap.servers": "a:1"} | named
    named_types = [column.split() for column in columns.split(",")]
    schema = types.StructType([types.StructField(name, _TYPES[kind]) for name, kind in named_types])
    return sink_options.parse(given, schema, overwrite=overwrite)


def test_the_sink_takes_the_columns_of_a_record_and_leaves_others_out() -> None:
    found = _sink("value string, key binary, size bigint, headers pairs", topic="t", kafka__linger__ms="5")
    assert found.columns == ("value", "key", "size", "headers")
    assert dict(found.producer)["linger.ms"] == "5"
    assert dict(found.producer)["partitioner"] == "murmur2_random"


@pytest.mark.parametrize(
    "columns, given, said",
    [
        ("key string", {"topic": "t"}, "the rows have no column value; they have key"),
        ("value string", {}, "no target topic"),
        ("value int", {"topic": "t"}, "column value of type int cannot be written"),
        ("value string, partition bigint", {"topic": "t"}, "column partition of type bigint"),
        ("value string", {"topic": "t", "kafka__acks": "1"}, "kafka.acks is not allowed"),
        ("value string", {"topic": "t", "kafka__transactional__id": "x"}, "at-least-once"),
        ("value string", {"topc": "t"}, "option topc is not known"),
    ],
)
def test_what_the_sink_refuses(columns: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _sink(columns, **({} if "topc" not in given else {"topic": "t"}), **given)  # type: ignore[arg-type]


def test_the_sink_only_appends() -> None:
    with pytest.raises(ConfigError, match="mode overwrite is not allowed"):
        _sink("value string", topic="t", overwrite=True)


def test_the_sink_takes_the_security_of_javas_names() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    given: dict[str, Any] = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    found = dict(_sink("value string", topic="t", **given, **{"kafka.sasl.jaas.config": jaas}).producer)  # type: ignore[arg-type]
    told = {key: value for key, value in found.items() if key.startswith(("sasl", "security"))}
    assert told == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    other: dict[str, Any] = {"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "OAUTHBEARER"}
    handed = dict(_sink("value string", topic="t", **other, **{"kafka.sasl.oauthbearer.scope": "s"}).producer)  # type: ignore[arg-type]
    assert (handed["sasl.mechanism"], handed["sasl.oauthbearer.scope"]) == ("OAUTHBEARER", "s")
