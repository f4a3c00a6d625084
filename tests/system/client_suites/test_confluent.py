"""The tests of confluent-kafka-python 2.15.0 about authorized operations and SCRAM users, unchanged, on secure clusters
of our brokers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.checkout_suites import CONFLUENT, confluent, why_not
from tests.support.suite_results import check, expected, in_two_runs


@pytest.mark.full
@pytest.mark.skipif(why_not(CONFLUENT) is not None, reason=str(why_not(CONFLUENT)))
@pytest.mark.timeout(1800)
def test_the_suite_passes(tmp_path: Path) -> None:
    # Both tests sleep for a second in place of waiting.
    check(tmp_path, in_two_runs(tmp_path, confluent), expected("confluent", folder="client_suites"))
