"""The tests of franz-go v1.22.2, unchanged, over TLS with certificates of clients, and with SCRAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.clients import client_suites
from tests.support.suite_results import check, expected, failed, with_second_run
from tests.support.suite_server import SuiteServer

#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "TestIssue769": "gives the client a dialer of its own, which franz-go refuses in addition to a TLS configuration",
    "TestIssueProduceBrokerTooOldFailsRecords": "for brokers without Produce version 2, which Kafka 4 has too",
    "TestConsumeRegexShareSkipsInternal": "share groups",
    "TestShareGroup": "share groups",
    "TestShareGroupAckOnClose": "share groups",
    "TestShareGroupETL": "share groups",
    "TestShareGroupOffsetsAdmin": "share groups",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SuiteServer]:
    made = SuiteServer(tmp_path / "server").start()
    yield made
    made.stop()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_suite_passes(tmp_path: Path, server: SuiteServer) -> None:
    results = client_suites.franz_go(tmp_path, server, skipped=EXCLUDED)
    if failures := failed(results):
        # Some tests of the suite measure time; they get a second run, alone.
        names = "|".join(sorted({name.partition("/")[0] for name in failures}))
        results = with_second_run(results, client_suites.franz_go(tmp_path, server, run=f"^({names})$"))
    check(tmp_path, results, expected("franz_go", folder="client_suites"))
