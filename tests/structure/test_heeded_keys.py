"""Keys of the configuration: one that the broker reads is not described as without effect.

That each key with an effect has a reader: `test_configuration_page.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.common.config_docs import note_on
from barnabas.common.config_table import BROKER, TOPIC

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "barnabas"
READ = re.compile(r'_of\(\s*"([a-z0-9.]+)"')
#: Settings of a topic that a client may make, for groups that are not served.
MADE_FOR_OTHERS = "share."


def test_keys_that_are_read_are_heeded() -> None:
    known = {row[0] for row in (*BROKER, *TOPIC)}
    read = {
        key
        for room in ("raft", "replication", "controller", "coordinators", "broker", "server", "storage", "records")
        for path in (PACKAGE / room).rglob("*.py")
        for key in READ.findall(path.read_text(encoding="utf-8"))
    }
    assert len(read) > 60
    assert {key for key in read & known if note_on(key) is not None and not key.startswith(MADE_FOR_OTHERS)} == set()
