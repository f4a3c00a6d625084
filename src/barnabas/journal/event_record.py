"""An event as a record of the journal. Its key is the event's id, so that readers can drop a second copy."""

from __future__ import annotations

import json
from typing import Any, Final

from barnabas.records.batch import Record

#: The version of the events' schema. It is raised when a field changes its meaning, not when a field is added.
VERSION: Final = 1
#: The one encoder for all events: creating one takes longer than using it.
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def record_of(event: dict[str, Any]) -> Record:
    return Record(0, event["time_ms"], event["id"].encode(), _ENCODE(event).encode())
