"""The tests of kafkajs 2.2.4 that need brokers, unchanged, in the clear, over TLS and with log-ins by passwords; and,
on brokers for unsecured tokens, those that its own runs for tokens have.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.checkout_suites import KAFKAJS, why_not
from tests.clients.kafkajs_suite import KafkajsCluster, kafkajs, may_fail
from tests.support.suite_results import check, expected, failed, with_second_run


@pytest.mark.full
@pytest.mark.skipif(why_not(KAFKAJS) is not None, reason=str(why_not(KAFKAJS)))
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["passwords", "tokens"])
def test_the_suite_passes(kind: str, tmp_path: Path) -> None:
    lines = [line.split(" ", 1) for line in expected("kafkajs", folder="client_suites")]
    listed = {name for each, name in lines if each == kind}
    cluster = KafkajsCluster(tmp_path / "cluster", has_tokens=kind == "tokens")
    try:
        cluster.start()
        results = kafkajs(tmp_path / "first", cluster)
        if failures := {name for name in failed(results) if name in listed or not may_fail(name)}:
            # Some tests of the suite measure time; their files get a second run.
            files = sorted({name.partition(".js")[0] + ".js" for name in failures})
            results = with_second_run(results, kafkajs(tmp_path / "second", cluster, files))
    finally:
        cluster.close()
    # Some tests skip themselves: those of tokens without tokens, and those for other versions of Kafka.
    counted = {
        name: result
        for name, result in results.items()
        if name in listed or (result.outcome != "skipped" and not may_fail(name))
    }
    check(tmp_path, counted, listed)
