"""Kafka's text form of a uuid."""

from __future__ import annotations

import pytest

from barnabas.common.types import uuid_from_text, uuid_to_text

VALUE = bytes.fromhex("fb fe 5c 00 11 22 33 44 55 66 77 88 99 aa bb cc")


def test_a_uuid_is_read_as_it_was_written() -> None:
    text = uuid_to_text(VALUE)
    assert text == "-_5cABEiM0RVZneImaq7zA"
    assert uuid_from_text(text) == uuid_from_text(text + "==") == VALUE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-_5cABEiM0RVZneImaq7z",  # 15 bytes
        "-_5cABEiM0RVZneImaq7zAA",
        "+/5cABEiM0RVZneImaq7zA",  # the other alphabet of base64
        "-_5c!ABEiM0RVZneImaq7zA",
        "-_5cABEiM0RVZneImaq7zA\n",
        "-_5cABEiM0RVZneImaq7zA=",
        "\u00e9_5cABEiM0RVZneImaq7z",
    ],
)
def test_other_text_is_no_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka uuid"):
        uuid_from_text(text)
