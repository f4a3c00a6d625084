"""The situation of `barnabas whatif` at a moment of a history."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from barnabas.cli.history import opened
from barnabas.cli.history_views import both
from barnabas.monitor.broker_connection import Address, Security
from barnabas.whatif import Situation
from barnabas.whatif.from_table import situation_of
from barnabas.whatif.past import facts_of_today


def situation_at(when: str | None, file: Path | None, bootstrap: tuple[Address, ...], security: Security) -> Situation:
    """Returns the situation of the cluster at a moment of a history. Raises Failure."""
    moment, path = both(when, file)
    with opened(path) as history:
        table = history.at(moment)
        found = situation_of(table, asyncio.run(facts_of_today(table, bootstrap, security)))
        if table.gap is not None:
            text = f"nothing was recorded at this time ({table.gap}); this is the last state before it"
            return replace(found, gaps=(text, *found.gaps))
        return found
