"""Configuration text: the content of a properties file reads back as it was written, and so do displayed values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.config_keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    ConfigType,
    Value,
    parse_text,
    show,
)
from barnabas.common.errors import ConfigError
from barnabas.common.properties import parse_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=30)
KEYS: list[ConfigKey] = [*BROKER_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values()]


def escaped(text: str) -> str:
    """Returns text in the form of java.util.Properties.store, but with every special character as \\uXXXX, which tests
    the parser more.
    """
    return "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else f"\\u{ord(c):04x}" for c in text)


@given(st.dictionaries(TEXT.filter(bool), TEXT), st.sampled_from(["=", ":", " = ", "\t:  ", " "]))
def test_stored_properties_load_the_same(properties: dict[str, str], separator: str) -> None:
    lines = [f"{escaped(key)}{separator}{escaped(value)}" for key, value in properties.items()]
    assert parse_properties("\n".join(lines)) == properties


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in parsed.items())


@given(st.floats(allow_nan=False))
def test_doubles_read_back(value: float) -> None:
    text = show(value)
    assert text is not None
    back = parse_text("key", ConfigType.DOUBLE, text)
    assert back == value
    assert isinstance(back, float)
    assert math.copysign(1, back) == math.copysign(1, value)


@given(st.sampled_from(KEYS), st.one_of(TEXT, st.integers().map(str), st.floats().map(str)))
def test_a_key_reads_any_text_or_names_itself_in_refusing(key: ConfigKey, text: str) -> None:
    refusal = ""
    value: Value = None
    try:
        value = key.parse(text)
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert key.name in refusal
        return
    shown = show(value)
    assert shown is not None
    assert key.parse(shown) == value or value != value


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_defaults_are_within_their_limits(key: ConfigKey) -> None:
    if key.default is not None:
        assert show(key.parse(key.default)) == show(key.default_value())
