"""Of all tests: two that run at once never look for free ports in the same place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

import kafka_jars  # noqa: E402
from barnabas.cli import embedded  # noqa: E402

_PORTS = range(10_000, 20_000)
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
embedded.FREE_PORTS = kafka_jars.FREE_PORTS = _PORTS[_worker * len(_PORTS) // _workers :][: len(_PORTS) // _workers]
#: A cluster starts in a second or two; on a machine that is slow and busy it may take long.
embedded.START_TIMEOUT_S = 120.0
