"""The tests of other projects, unchanged, on our ZooKeeper server: how each of them is built and started.

    go       github.com/go-zookeeper/zk v1.0.4: `zkServer.sh` of $ZOOKEEPER_BIN_PATH starts ours
    kazoo    `kazoo.tests` of its wheel: the first `java` on $PATH starts ours
    kafka    Kafka 3.9.1's published test classes: our `kafka.zk.EmbeddedZookeeper` is first on the classpath
    apache   ZooKeeper 3.8.4's published test classes: our `ClientBase` is first on the classpath

Each function returns the result of each test by its name. What must pass is in tests/data/zookeeper_suites.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import kazoo.tests as kazoo_tests
from tests.clients.foreign_suites import Result, Results, cached, go_results, go_sources, junit_cases, run_or_raise

import kafka39_jars
import kafka_jars
import zookeeper_jars

HERE: Final = Path(__file__).resolve().parent
LAUNCHER: Final = HERE / "zookeeper_launcher.py"
GO_MODULE: Final = "github.com/go-zookeeper/zk@v1.0.4"
#: A version whose date go-zookeeper's parser of `srvr` can read, which it cannot with the one of 3.8.4.
GO_VERSION: Final = "3.8.4, built on 02/12/2024 22:16 GMT"
KAZOO_TESTS: Final = Path(kazoo_tests.__file__).parent
#: The digest of "super:test": the password of the super user in the tests of kazoo and of ZooKeeper.
SUPER_FLAG: Final = "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU="

_ZK_SERVER: Final = """\
#!/bin/sh
shift
exec "{python}" "{launcher}" --version "{version}" "$@"
"""
#: kazoo's configuration has a TLS port and SASL, which our server refuses to promise.
_JAVA: Final = """\
#!/bin/sh
for config; do :; done
grep -v -E '^(secureClientPort|ssl[.]|authProvider[.])' "$config" > "$config.served"
exec "{python}" "{launcher}" {flag} "$config.served"
"""


# -- go-zookeeper


def go(folder: Path, *, run: str = "", skipped: Collection[str] = (), timeout_s: float = 400) -> Results:
    """Runs the tests of go-zookeeper whose names match, without the skipped ones."""
    binary, module = _go_tests()
    _script(folder / "bin" / "zkServer.sh", _ZK_SERVER, version=GO_VERSION)
    command = [str(binary), "-test.v", f"-test.timeout={timeout_s:.0f}s"]
    if run:
        command += ["-test.run", run]
    if skipped:
        command += ["-test.skip", "^(" + "|".join(sorted(skipped)) + ")$"]
    environment = {**os.environ, "ZOOKEEPER_BIN_PATH": str(folder / "bin")}
    done = subprocess.run(command, cwd=module, env=environment, capture_output=True, text=True, check=False)
    (folder / "go.log").write_text(done.stdout + done.stderr)
    return go_results(done, folder / "go.log")


def _go_tests() -> tuple[Path, Path]:
    """Returns the program with the tests, and the module's folder, where they expect to run."""

    def build(target: Path) -> None:
        go_sources(GO_MODULE, target / "zk")
        run_or_raise(["go", "test", "-c", "-o", str(target / "zk.test"), "."], target / "zk")

    folder = cached("go-zookeeper", GO_MODULE.encode(), build)
    return folder / "zk.test", folder / "zk"


# -- kazoo


def kazoo(folder: Path, modules: Sequence[str], *, deselected: Collection[str] = ()) -> Results:
    """Runs modules of kazoo's tests, without the deselected tests (module.Class.test)."""
    _script(folder / "bin" / "java", _JAVA, flag=SUPER_FLAG)
    (folder / "pytest.ini").write_text("[pytest]\n")
    report = folder / "kazoo.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    command += ["-c", str(folder / "pytest.ini"), f"--rootdir={KAZOO_TESTS}", "--timeout=120", f"--junitxml={report}"]
    for name in deselected:
        module, group, test = name.split(".")
        command += ["--deselect", f"{module}.py::{group}::{test}"]
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(HERE / "kazoo"),
        "ZOOKEEPER_CLASSPATH": "ours",
        "ZOOKEEPER_CLUSTER_SIZE": "1",
        "ZOOKEEPER_PORT_OFFSET": str(kafka_jars.free_ports(1)[0]),
        "ZOOKEEPER_VERSION": zookeeper_jars.VERSION,
    }
    command += [str(KAZOO_TESTS / f"{module}.py") for module in modules]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    (folder / "kazoo.log").write_text(done.stdout + done.stderr)
    if not report.exists():
        return {"the process": Result("failed", done.stdout[-2000:] + done.stderr[-2000:])}
    return dict(junit_cases(report))


# -- JUnit


def kafka(folder: Path, classes: Sequence[str], options: Sequence[str] = ()) -> Results:
    """Runs test classes of Kafka 3.9.1. `options` exclude (-Class.method) or choose (+Class.method) tests."""
    classpath = kafka39_jars.test_classpath()
    return _junit(folder, classpath, ("barnabas", "kafka"), [*options, *classes], heap="1g")


def apache(
    folder: Path, classes: Sequence[str], options: Sequence[str] = (), *, properties: Sequence[str] = ()
) -> Results:
    """Runs test classes of ZooKeeper 3.8.4. `options` are those of `kafka`, `properties` are flags of the JVM."""
    classpath = zookeeper_jars.test_classpath()
    arguments = [*options, *classes]
    return _junit(folder, classpath, ("barnabas", "org"), arguments, heap="512m", properties=[SUPER_FLAG, *properties])


def _junit(
    folder: Path,
    classpath: str,
    sources: Sequence[str],
    arguments: Sequence[str],
    *,
    heap: str,
    properties: Sequence[str] = (),
) -> Results:
    results = folder / "results.tsv"
    results.unlink(missing_ok=True)
    log = folder / "zookeeper.log"
    server = f"{sys.executable} -m barnabas.cli.entry zookeeper"
    command = ["java", *kafka_jars.LIGHT_JVM, f"-Xmx{heap}", f"-Dbarnabas.zookeeper={server}"]
    command += [f"-Dbarnabas.zookeeper.log={log}", f"-Dbarnabas.results={results}", f"-Djava.io.tmpdir={folder}"]
    command += [f"-Dtest.data.dir={folder}", f"-Dbuild.test.dir={folder}", *properties]
    command += ["-cp", f"{_classes(classpath, sources)}:{classpath}", "barnabas.RunTests", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    (folder / "junit.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0 or not results.exists():
        return {"the process": Result("failed", f"code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")}
    found = {}
    for line in results.read_text().splitlines():
        outcome, name, detail = line.split("\t")
        found[name] = Result(outcome, detail)
    return found


def _classes(classpath: str, packages: Sequence[str]) -> Path:
    """Returns the folder with our classes that stand in for those of the jars."""
    root = HERE / "java" / "zookeeper"
    sources = sorted(path for package in packages for path in (root / package).rglob("*.java"))
    content = classpath.encode() + b"".join(path.read_bytes() for path in sources)

    def build(target: Path) -> None:
        run_or_raise(["javac", "-nowarn", "-cp", classpath, "-d", str(target), *map(str, sources)], target)

    return cached(f"zookeeper-{packages[-1]}", content, build)


# -- common


def _script(path: Path, text: str, **values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(python=sys.executable, launcher=LAUNCHER, **values))
    path.chmod(0o755)
