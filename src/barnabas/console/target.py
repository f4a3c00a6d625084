"""A cluster that the console shows: its addresses, its client settings, and what the page says about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.monitor.broker_connection import Address, Security

_PLAIN: Final = Security()


@dataclass(frozen=True, slots=True)
class Target:
    """`directory` is that of an embedded cluster on this machine."""

    name: str
    bootstrap: tuple[Address, ...]
    security: Security = _PLAIN
    colour: str | None = None
    production: bool = False
    directory: Path | None = None
    #: The listeners of the controllers, whose metadata log is read, and the client settings for them.
    controllers: tuple[Address, ...] = ()
    controllers_security: Security | None = None
    #: The file of an incident, which is shown instead of a cluster.
    incident: Path | None = None
    #: The URL of a schema registry, whose schemas are those of the records.
    schema_registry: str | None = None
