"""The tests of kazoo, unchanged, on our server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.clients import zookeeper_suites
from tests.support.suite_results import check, expected, failed, with_second_run

#: Modules that are not run, with the reason.
EXCLUDED_MODULES: Final = {
    "test_build": "looks at the build of kazoo's own project",
    "test_eventlet_handler": "needs eventlet; the server plays no part",
    "test_gevent_handler": "needs gevent; the server plays no part",
    "test_sasl": "SASL is not served",
}
#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "test_client.TestClient.test_update_host_list": "stops one of three servers: this server is one alone",
    "test_client.TestReconfig.test_add_remove_observer": "reconfig is refused, as a single Apache server refuses it",
    "test_client.TestReconfig.test_bad_input": "reconfig is refused",
    "test_client.TestReconfig.test_no_super_auth": "reconfig is refused",
    "test_client.TestSSLClient.test_create": "TLS is not served",
    "test_connection.TestReadOnlyMode.test_read_only": "stops two of three servers: this server is one alone",
    "test_utils.TestCreateTCPConnection.test_timeout_arg_eventlet": "needs eventlet",
}
SAMPLE: Final = ("test_counter", "test_queue", "test_hosts")


def modules() -> list[str]:
    names = sorted(path.stem for path in zookeeper_suites.KAZOO_TESTS.glob("test_*.py"))
    return [name for name in names if name not in EXCLUDED_MODULES]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_suite_passes(tmp_path: Path) -> None:
    results = zookeeper_suites.kazoo(tmp_path, modules(), deselected=EXCLUDED)
    if failures := failed(results):
        # Some tests of the suite measure time; their modules get a second run, alone.
        again = sorted({name.partition(".")[0] for name in failures} & set(modules()))
        results = with_second_run(results, zookeeper_suites.kazoo(tmp_path, again, deselected=EXCLUDED))
    check(tmp_path, results, expected("kazoo"))


@pytest.mark.full
def test_a_sample_of_the_suite_passes(tmp_path: Path) -> None:
    results = zookeeper_suites.kazoo(tmp_path, SAMPLE)
    check(tmp_path, results, [name for name in expected("kazoo") if name.partition(".")[0] in SAMPLE])
