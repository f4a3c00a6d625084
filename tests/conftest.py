"""Settings of all tests: two test processes never search for free ports in the same range, no example of a property has
a time limit, the ordinary run has the same examples every time, and long tests begin first.

A test with real processes that fails in the ordinary run is repeated once, because such tests share their machine with
everything else. The summary names it (RERUN) with the reason; the full run does not repeat it.

Workers get whole files (`--dist loadfile`). A long file that begins last would keep one worker busy while the others
are idle.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tools"))

from tests.clients import programs  # noqa: E402
from tests.support import sampling, turn_watch  # noqa: E402

import kafka_jars  # noqa: E402
from barnabas.embedded import cluster as embedded  # noqa: E402
from barnabas.embedded import ports  # noqa: E402

#: A separate folder, so that no test reads or writes the contexts of the user.
_CONFIGURATION = tempfile.mkdtemp(prefix="barnabas-config-")
atexit.register(shutil.rmtree, _CONFIGURATION, ignore_errors=True)
os.environ["XDG_CONFIG_HOME"] = _CONFIGURATION
for _name in ("BARNABAS_BOOTSTRAP", "BARNABAS_CONTEXT"):
    os.environ.pop(_name, None)

_PORTS = range(10_000, 20_000)
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
ports.FREE_PORTS = kafka_jars.FREE_PORTS = _PORTS[_worker * len(_PORTS) // _workers :][: len(_PORTS) // _workers]

#: Tests that share one Spark session, which is a JVM that takes ten seconds to start.
SPARK = "tests/system/spark/"
SYSTEM = "tests/system/"
BROWSER = "tests/browser/"
#: The longest of the files with real processes, longest first; each takes half a minute and more on two cores.
LONGEST = (
    SPARK,
    "tests/system/test_demo.py",
    BROWSER,
    "tests/system/test_survival.py",
    "tests/system/test_quorum_failures.py",
    "tests/system/test_client_matrix.py",
    "tests/system/test_monitor.py",
    "tests/system/test_cluster.py",
    "tests/system/test_failing_disks.py",
    "tests/system/test_orders.py",
    "tests/system/test_moved_replicas.py",
    "tests/system/test_moves_and_elections.py",
    "tests/system/test_restart.py",
    "tests/system/test_explain.py",
    "tests/system/test_groups_under_faults.py",
    "tests/system/test_exactly_once.py",
    "tests/system/test_java",
    "tests/system/test_transactions.py",
    "tests/system/test_refused_starts.py",
    SYSTEM,
)
#: A cluster starts in a second or two, but longer on a slow and busy machine.
embedded.START_TIMEOUT_S = 120.0


def pytest_configure(config: pytest.Config) -> None:
    """Configures Hypothesis before the modules with properties are imported. New examples are for `make test-full`."""
    ordinary = "not full" in config.getoption("-m")
    slow_is_no_fault = [HealthCheck.too_slow]
    settings.register_profile("barnabas", deadline=None, derandomize=ordinary, suppress_health_check=slow_is_no_fault)
    settings.load_profile("barnabas")


def pytest_collection_finish() -> None:
    """Excludes the objects of all tests from garbage collections, and makes these rarer. Each full collection visited
    them all, which took a fifth of the CPU time of unit tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 20)


_in_memory = turn_watch.InMemory()
_in_memory.install()
_in_processes: turn_watch.InProcesses | None = None


def _send_at_once(config: pytest.Config) -> None:
    """Lets pytest-rerunfailures send without delay. A worker writes twice to its connection for each test before it
    reads, so that it waited 40 ms for the acknowledgement of the first one.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None and hasattr(config, "workerinput"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Makes brokers that tests start write their long turns where this worker reads them."""
    global _in_processes
    _send_at_once(session.config)
    _in_processes = turn_watch.InProcesses(Path(tempfile.mkdtemp(prefix="barnabas-turns-")) / "long-turns")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test in which a turn of a broker takes more than 50 ms of CPU."""
    assert _in_processes is not None
    _in_memory.long.clear()
    yield
    turn_watch.judge(item, _in_memory.long + _in_processes.take())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.mark(items)

    def rank(item: pytest.Item) -> int:
        found = (index for index, prefix in enumerate(LONGEST) if item.nodeid.startswith(prefix))
        return next(found, len(LONGEST))

    items.sort(key=rank)
    if "not full" in config.getoption("-m"):
        for item in items:
            if item.nodeid.startswith((SYSTEM, BROWSER)):
                item.add_marker(pytest.mark.flaky(reruns=1))
            else:
                # Other processes evict the caches of the shared cores, so that 40 ms of CPU become 60, also twice in a
                # row. A turn that is really long is long again.
                item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=turn_watch.VERDICT))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Forgets the context and the client settings of a command that ran in this process. Ends the JVM after the system
    tests: tools that failed leave clients in it that search for their brokers forever.
    """
    choice = sys.modules.get("barnabas.cli.contexts.choice")
    if choice is not None:
        choice.begin()
    if nextitem is None or nextitem.path != item.path:
        _forget_cached(item)
    if item.nodeid.startswith(SYSTEM) and not (nextitem and nextitem.nodeid.startswith(SYSTEM)):
        programs.end_java()


def _forget_cached(item: pytest.Item) -> None:
    """Empties the caches of the functions of a test file: syntax trees of the whole product would be visited by each
    garbage collection of later tests.
    """
    if isinstance(item, pytest.Function):
        for value in vars(item.module).values():
            if hasattr(value, "cache_clear") and value.__module__ == item.module.__name__:
                value.cache_clear()


#: The lines of a failure's message that the summary shows of a test that was repeated.
_REASON_LINES = 12


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Shows why tests were repeated; pytest-rerunfailures names them only."""
    repeated = terminalreporter.stats.get("rerun", ())
    if repeated:
        terminalreporter.section("why tests were repeated")
    for report in repeated:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
        lines = message.splitlines()
        shown = lines if len(lines) <= _REASON_LINES else [lines[0], "...", *lines[2 - _REASON_LINES :]]
        terminalreporter.write_line(f"{report.nodeid} ({report.when})")
        for line in shown:
            terminalreporter.write_line(f"    {line[:300]}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedules as `--dist loadfile`, but gives all files of SPARK to one worker."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)

    return Scheduling(config, log)
