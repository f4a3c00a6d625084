"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from barnabas.cli.failures import Failure

Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="BARNABAS_BOOTSTRAP", metavar="HOST:PORT,...", help="Brokers to ask."),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

ClientProperty = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="A client property (librdkafka's names); repeatable."),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def key_values(items: Iterable[str], option: str) -> dict[str, str]:
    """["a=1", "b=2"] -> {"a": "1", "b": "2"}; later ones win."""
    values: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise Failure(f"{option} {item}: expected KEY=VALUE")
        values[key.strip()] = value
    return values
