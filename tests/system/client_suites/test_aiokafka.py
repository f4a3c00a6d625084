"""The tests of aiokafka 0.14.0 about log-ins, rules and TLS, unchanged. They start our broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.clients.checkout_suites import AIOKAFKA, aiokafka, why_not
from tests.support.suite_results import check, expected, in_two_runs

#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "test_sasl_plaintext_gssapi": "the Python package gssapi has no wheels",
    "test_admin_client_sasl_plaintext_gssapi": "the same",
    "test_sasl.TestKafkaSASL.test_sasl_unknown_topic_describe": "skips itself: for brokers before 1.0",
}


@pytest.mark.full
@pytest.mark.skipif(why_not(AIOKAFKA) is not None, reason=str(why_not(AIOKAFKA)))
@pytest.mark.timeout(1800)
def test_the_suite_passes(tmp_path: Path) -> None:
    # The tests begin to read before they write, and some wait only for seconds.
    results = in_two_runs(tmp_path, aiokafka)
    counted = {name: result for name, result in results.items() if name not in EXCLUDED}
    check(tmp_path, counted, expected("aiokafka", folder="client_suites"))
