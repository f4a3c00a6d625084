"""`format("barnabas")`: the data source that Spark finds, with its readers and writers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from barnabas.common.errors import ConfigError
from barnabas.spark import schema, sink_options, source_options, value_options
from barnabas.spark.batch_reader import BatchReader, FilteringBatchReader
from barnabas.spark.stream_reader import StreamReader


class BarnabasSource(DataSource):
    """The data source. It checks options as soon as Spark has decided between batch and stream."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def _parsed(self, schema: Any, *, is_stream: bool) -> source_options.SourceOptions:
        value = next((field.dataType for field in schema.fields if field.name == "value"), None)
        return source_options.parse(dict(self.options), is_stream=is_stream, value_type=value)

    def schema(self) -> Any:
        options = dict(self.options)
        return value_options.with_values(schema.spark_schema(source_options.columns_of(options)), options)

    def reader(self, schema: Any) -> DataSourceReader:
        options = self._parsed(schema, is_stream=False)
        return FilteringBatchReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(self._parsed(schema, is_stream=True))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        writer: DataSourceWriter = _sink().BatchWriter(
            sink_options.parse(dict(self.options), schema, overwrite=overwrite)
        )
        return writer

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        writer: DataSourceStreamWriter = _sink().StreamWriter(
            sink_options.parse(dict(self.options), schema, overwrite=overwrite)
        )
        return writer


def _sink() -> Any:
    """Returns the sink's module, loaded only when something is written: only the sink needs librdkafka."""
    try:
        return import_module("barnabas.spark.sink")
    except ImportError as error:
        raise ConfigError(f"the sink needs confluent-kafka: pip install 'barnabas[spark,tools]' ({error})") from error
