"""The integration tests of kafka-python 3.0.12 about TLS, log-ins and ACLs, unchanged. They start our broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.clients import client_suites
from tests.support.suite_results import check, expected, failed, with_second_run

MODULES: Final = ("test_admin_integration", "test_sasl_integration", "test_ssl_integration")


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", MODULES)
def test_the_module_passes(module: str, tmp_path: Path) -> None:
    results = client_suites.kafka_python(tmp_path / "first", [module])
    if failed(results):
        # Some of the tests measure time; their module gets a second run.
        results = with_second_run(results, client_suites.kafka_python(tmp_path / "second", [module]))
    listed = expected("kafka_python", folder="client_suites")
    check(tmp_path, results, [test for test in listed if test.startswith(f"{module}.")])
