"""The syntax of java.util.Properties."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.common.properties import parse_properties


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n  ! comment\n\n \t\na=#no comment", {"a": "#no comment"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=\\t\\n\\u00e9\\q", {"a": "\t\n\xe9q"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("a=b=c : d", {"a": "b=c : d"}),
        ("a=trailing blanks stay  ", {"a": "trailing blanks stay  "}),
        ("a\nb=\nc =", {"a": "", "b": "", "c": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
        ("a=1\\", {"a": "1"}),
        ("#a\\\nb=1", {"b": "1"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_unicode_escape_is_refused() -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties("a=\\u12g4")
