"""The functional tests of sarama v1.61.1 over TLS with a log-in by SCRAM, on five brokers behind toxiproxy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.clients.sarama_suite import sarama
from tests.support.sarama_cluster import SaramaCluster
from tests.support.suite_results import check, expected, failed, with_second_run

#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "TestReadOnlyAndAllCommittedMessages": "skips itself: it fails from time to time, by its own comment"
}
#: Tests that run without TLS and a log-in, with the reason.
IN_THE_CLEAR: Final = {"TestFuncProducingNoResponse": "counts all responses, and knows of none to a log-in"}


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sasl_ssl", "plaintext"])
def test_the_suite_passes(kind: str, tmp_path: Path) -> None:
    cluster = SaramaCluster(tmp_path / "cluster", is_secure=kind == "sasl_ssl")
    try:
        cluster.start()
        if kind == "sasl_ssl":
            results = sarama(tmp_path, cluster.environment, skipped={*EXCLUDED, *IN_THE_CLEAR})
        else:
            results = sarama(tmp_path, cluster.environment, only=IN_THE_CLEAR)
        if failures := failed(results):
            # Some tests of the suite measure time; they get a second run, alone.
            names = {name.partition("/")[0] for name in failures}
            results = with_second_run(results, sarama(tmp_path, cluster.environment, only=names))
    finally:
        cluster.close()
    lines = [line.split() for line in expected("sarama", folder="client_suites")]
    check(tmp_path, results, [name for each, name in lines if each == kind])
