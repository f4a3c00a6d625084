"""The tests of confluent-kafka-python 2.15.0 about authorized operations and SCRAM users, unchanged, on secure clusters
of our brokers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.checkout_suites import CONFLUENT, confluent, why_not
from tests.support.suite_results import check, expected, failed, with_second_run


@pytest.mark.full
@pytest.mark.skipif(why_not(CONFLUENT) is not None, reason=str(why_not(CONFLUENT)))
@pytest.mark.timeout(1800)
def test_the_suite_passes(tmp_path: Path) -> None:
    results = confluent(tmp_path / "first")
    if failures := failed(results):
        # Both tests sleep for a second in place of waiting; they get a second run.
        results = with_second_run(results, confluent(tmp_path / "second", failures))
    check(tmp_path, results, expected("confluent", folder="client_suites"))
