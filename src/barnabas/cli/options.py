"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.embedded.failures import Failure

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="BARNABAS_BOOTSTRAP", metavar="HOST:PORT,...", help="Addresses of brokers"
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

ClientProperty = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="A client property (librdkafka's names); repeatable"),
]

#: The largest values of fields of the protocol.
INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

Json = Annotated[bool, typer.Option("--json", help="Print JSON")]


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises Failure for one that is not UTF-8, OSError for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is not a text file: byte {error.start} is not UTF-8") from error


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """Parses ["a=1", "b=2"] to {"a": "1", "b": "2"}; a later value overrides an earlier one."""
    values: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise Failure(f"{option} {item}: expected KEY=VALUE")
        values[key.strip()] = value
    return values
