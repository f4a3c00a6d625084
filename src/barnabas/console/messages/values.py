"""Keys, values and headers of records as text. The bytes are whatever a producer wrote: nothing in them is trusted."""

from __future__ import annotations

from typing import Any, Final

import orjson

from barnabas.console.messages.sight import Form

DECODERS: Final = ("auto", "text", "json", "hex")
_PLAIN: Final = Form()
_CONTROLS: Final = frozenset(map(chr, range(32))) - frozenset("\t\n\r")
_JSON_STARTS: Final = (b"{", b"[", b'"')


def shown(data: bytes | None, decoder: str, text_max: int, form: Form = _PLAIN) -> dict[str, Any] | None:
    """Returns bytes as the page gets them; None for null. If a decoder fails, the next simpler one is used."""
    if data is None:
        return None
    kind, text = _decoded(data, decoder, text_max)
    found = {
        "kind": form.kind if form.kind is not None and kind == "json" else kind,
        "text": text[:text_max],
        "size": len(data),
        "is_cut": len(text) > text_max,
    }
    if form is _PLAIN:
        return found
    schema = None if form.schema_id is None else {"id": form.schema_id, "name": form.name}
    return found | {"schema": schema, "is_masked": form.is_masked, "problem": form.problem}


def value_of(data: bytes | None) -> Any:
    """Returns bytes as a filter sees them: JSON as its value, else text, in which bytes that
    are not UTF-8 are replaced."""
    if data is None:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode("utf-8", "replace")


def _decoded(data: bytes, decoder: str, text_max: int) -> tuple[str, str]:
    # A character has at most 4 bytes, so this is enough to see that the text is longer.
    some = data[: 4 * text_max + 4]
    if decoder == "hex":
        return "hex", some.hex()
    try:
        text = some.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut_letter = len(some) < len(data) and error.start >= len(some) - 4
        if not is_cut_letter:
            return ("text", some.decode("utf-8", "replace")) if decoder == "text" else ("hex", some.hex())
        text = some[: error.start].decode("utf-8")
    if decoder != "text" and _is_json(data, is_wanted=decoder == "json"):
        return "json", text
    if decoder == "auto" and not _CONTROLS.isdisjoint(text):
        return "hex", some.hex()
    return "text", text


def _is_json(data: bytes, *, is_wanted: bool) -> bool:
    if not is_wanted and not data.lstrip()[:1].startswith(_JSON_STARTS):
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True
