"""Of all tests: two that run at once never look for free ports in the same place, no example of a property has a time
limit, and the ordinary run has the same examples every time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


def pytest_configure(config: pytest.Config) -> None:
    """Before the modules with properties are read. New examples are for `make test-full`."""
    ordinary = "not full" in config.getoption("-m")
    slow_is_no_fault = [HealthCheck.too_slow]
    settings.register_profile("barnabas", deadline=None, derandomize=ordinary, suppress_health_check=slow_is_no_fault)
    settings.load_profile("barnabas")
