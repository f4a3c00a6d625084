"""A record as a search sees it: decoded by its schemas, and without its masked parts. Filters, texts and files use only
this form.

sight = Sight(Hidden.of(["value.card"]), Schemas())
seen = sight.of(record)          seen.record has JSON in place of Avro, and *** in place of the card
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from barnabas.console.messages.masks import HIDDEN, Hidden, Path, is_whole, masked, masks_header
from barnabas.console.messages.schemas import SchemaError, Schemas, has_schema, id_of, plain
from barnabas.records.record import Record

_HIDDEN: Final = HIDDEN.encode()


@dataclass(frozen=True, slots=True)
class Form:
    """The origin of the bytes of a key or value. `kind` is None for bytes as they were written."""

    kind: str | None = None
    name: str = ""
    schema_id: int | None = None
    is_masked: bool = False
    problem: str | None = None


_PLAIN: Final = Form()
_MASKED: Final = Form(is_masked=True)


@dataclass(slots=True)
class Seen:
    record: Record
    key: Form = _PLAIN
    value: Form = _PLAIN


class Sight:
    """The view of a search of the records of one topic. `schemas` is None without a schema registry."""

    def __init__(self, hidden: Hidden, schemas: Schemas | None) -> None:
        self._hidden = hidden
        self._schemas = schemas

    @property
    def is_plain(self) -> bool:
        """Whether records are seen as they were written."""
        return not self._hidden and self._schemas is None

    def unknown(self, record: Record) -> set[int]:
        """Returns the schemas of a record that are not known yet."""
        if self._schemas is None:
            return set()
        fields = (each for each in (record.key, record.value) if each is not None and has_schema(each))
        return {id_of(each) for each in fields if not self._schemas.knows(id_of(each))}

    def of(self, record: Record) -> Seen:
        if self.is_plain:
            return Seen(record)
        hidden = self._hidden
        key, key_form = self._field(record.key, hidden.key)
        value, value_form = self._field(record.value, hidden.value)
        headers = [
            (name, _HIDDEN if masks_header(hidden, name) and content is not None else content)
            for name, content in record.headers
        ]
        return Seen(Record(record.offset, record.timestamp, key, value, headers), key_form, value_form)

    def _field(self, data: bytes | None, paths: Sequence[Path]) -> tuple[bytes | None, Form]:
        """Returns a key or value as it is seen. If its fields to hide cannot be found, it is hidden as a whole."""
        if data is None:
            return None, _PLAIN
        if is_whole(paths):
            return _HIDDEN, _MASKED
        if self._schemas is not None and has_schema(data):
            try:
                found = self._schemas.decoded(data)
                value = orjson.loads(orjson.dumps(found.value, default=plain, option=orjson.OPT_NON_STR_KEYS))
            except (SchemaError, TypeError, ValueError, RecursionError) as error:
                if paths:
                    # The text of an error can have a part of the value.
                    return _HIDDEN, Form(is_masked=True, problem=f"schema {id_of(data)}: it cannot be read")
                return data, Form(schema_id=id_of(data), problem=str(error)[:300])
            form = Form(found.kind, found.name[:200], id_of(data), bool(paths))
            return orjson.dumps(masked(value, paths)), form
        return (data, _PLAIN) if not paths else self._masked(data, paths)

    @staticmethod
    def _masked(data: bytes, paths: Sequence[Path]) -> tuple[bytes, Form]:
        try:
            value: Any = orjson.loads(data)
        except orjson.JSONDecodeError:
            return _HIDDEN, _MASKED
        # A text or a number has no fields, and can be anything: the encoding of a record by another program, say.
        if not isinstance(value, (dict, list)):
            return _HIDDEN, _MASKED
        return orjson.dumps(masked(value, paths)), _MASKED
