"""The tests of Kafka clients, unchanged, on our broker over TLS and with a log-in: how each is built and started.

    franz-go       the tests of pkg/kgo in the module github.com/twmb/franz-go; a client's certificate is its log-in
    kafka-python   test/integration of its sdist: the scripts in $KAFKA_ROOT/bin start ours
    librdkafka     tests/test-runner, built from the sources in the npm package @confluentinc/kafka-javascript

Each function returns the result of each test by its name. What must pass is in tests/data/client_suites.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.foreign_suites import Result, Results, cached, go_results, go_sources, junit_cases, run_or_raise
from tests.support.suite_server import ADMIN, PASSWORD, SuiteServer

import kafka_jars

HERE: Final = Path(__file__).resolve().parent
FRANZ_GO: Final = "github.com/twmb/franz-go@v1.22.2"
KAFKA_PYTHON: Final = "kafka-python==3.0.12"
#: The npm package that contains librdkafka 2.15.1 with its tests.
LIBRDKAFKA: Final = "@confluentinc/kafka-javascript@1.10.1"
LIBRDKAFKA_OPTIONS: Final = ("--disable-gssapi", "--enable-curl")
#: The options that link the second test-runner, and the function that it has in place of librdkafka's.
_LINKING: Final = ("-rdynamic", "-L../src", "-L../src-cpp", "-Wl,--wrap=test_needs_auth")
_LIBRARIES: Final = ("-lrdkafka++", "-lrdkafka", "-lm", "-ldl", "-lpthread")
_NEEDS_NO_LOG_IN: Final = "int __wrap_test_needs_auth(void) { return 0; }\n"
#: The version of Kafka as which the suites should treat us.
VERSION: Final = "4.1.0"


# -- franz-go


def franz_go(
    folder: Path, server: SuiteServer, *, skipped: Collection[str] = (), run: str = "", timeout_s: float = 900
) -> Results:
    """Runs the tests of franz-go whose names match, without the skipped ones."""
    binary, package = _franz_go_tests()
    client = server.client_file
    command = [str(binary), "-test.v", f"-test.timeout={timeout_s:.0f}s"]
    if run:
        command += ["-test.run", run]
    if skipped:
        command += ["-test.skip", "^(" + "|".join(sorted(skipped)) + ")$"]
    environment = {
        **os.environ,
        "KGO_SEEDS": f"127.0.0.1:{server.tls_port}",
        "KGO_TEST_TLS": f"ca:{server.stores.trusted},cert:{client},key:{client}",
        "KGO_TEST_SCRAM_SEEDS": f"127.0.0.1:{server.sasl_port}",
        "KGO_TEST_SCRAM": f"{ADMIN}:{PASSWORD}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "20000",
        "KGO_TEST_STABLE_FETCH": "true",
        "KGO_LOG_LEVEL": "none",
    }
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)
    log = folder / "franz-go.log"
    log.write_text(done.stdout + done.stderr)
    return go_results(done, log)


def _franz_go_tests() -> tuple[Path, Path]:
    """Returns the program with the tests, and the package's folder, where they expect to run."""

    def build(target: Path) -> None:
        go_sources(FRANZ_GO, target / "franz-go")
        package = target / "franz-go" / "pkg" / "kgo"
        run_or_raise(["go", "test", "-c", "-o", str(target / "kgo.test"), "."], package)

    folder = cached("franz-go", FRANZ_GO.encode(), build)
    return folder / "kgo.test", folder / "franz-go" / "pkg" / "kgo"


# -- kafka-python


def kafka_python(folder: Path, modules: Sequence[str], *, deselected: Collection[str] = ()) -> Results:
    """Runs modules of kafka-python's integration tests, without the deselected tests (module.Class.test). Each of them
    starts its brokers.
    """
    sources = _kafka_python_sources()
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "kafka-python.xml"
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    command += ["-c", str(folder / "pytest.ini"), f"--rootdir={sources}", "--timeout=180", f"--junitxml={report}"]
    for name in deselected:
        module, _, test = name.partition(".")
        command += ["--deselect", f"test/integration/{module}.py::{test.replace('.', '::')}"]
    environment = {
        **os.environ,
        "KAFKA_VERSION": VERSION,
        "KAFKA_ROOT": str(_scripts(folder / "kafka")),
        "PROJECT_ROOT": str(HERE / "kafka_python"),
        "PYTHONPATH": os.pathsep.join([str(sources), os.environ.get("PYTHONPATH", "")]),
        "BARNABAS_PYTHON": sys.executable,
        "KAFKA_CLASSPATH": kafka_jars.classpath(),
    }
    command += [f"test/integration/{module}.py" for module in modules]
    done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    (folder / "kafka-python.log").write_text(done.stdout + done.stderr)
    if not report.exists():
        return {"the process": Result("failed", done.stdout[-2000:] + done.stderr[-2000:])}
    return {name.removeprefix("test.integration."): result for name, result in junit_cases(report)}


def _kafka_python_sources() -> Path:
    stand_in = HERE / "kafka_python" / "service.py"

    def build(target: Path) -> None:
        project = KAFKA_PYTHON.partition("=")[0]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", project, KAFKA_PYTHON]
        run_or_raise(pip, target)
        (archive,) = target.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")
        (unpacked,) = (path for path in target.iterdir() if path.is_dir())
        # The sdist lacks two modules of the package `test`.
        shutil.copy(stand_in, unpacked / "test" / "service.py")
        (unpacked / "test" / "__init__.py").touch()
        unpacked.rename(target / "sources")

    return cached("kafka-python", KAFKA_PYTHON.encode() + stand_in.read_bytes(), build) / "sources"


# -- librdkafka


def librdkafka(
    folder: Path,
    settings: Mapping[str, str],
    tests: Sequence[str] = (),
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    command_config: Path | None = None,
    timeout_s: float = 1200,
) -> Results:
    """Runs tests of librdkafka by their four digits, or all, with these settings of the clients. `options` are those
    of the test-runner. The results lack what it skips.

    Tests that call kafka-acls.sh skip themselves if clients log in, because they pass it no log-in. With
    `command_config`, a properties file for Kafka's tools, the script logs in, and the tests are not told that it must.
    """
    built = _librdkafka_tests()
    runner = built / "tests" / "test-runner" if command_config is None else _runner_with_commands(built)
    folder.mkdir(parents=True, exist_ok=True)
    conf, report, log = folder / "test.conf", folder / "report.json", folder / "librdkafka.log"
    lines = {"test.timeout.multiplier": "3", **settings}
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    report.unlink(missing_ok=True)
    variables = {
        **os.environ,
        "RDKAFKA_TEST_CONF": str(conf),
        "TEST_REPORT": str(report),
        "TEST_KAFKA_VERSION": VERSION,
        "LD_LIBRARY_PATH": f"{built / 'src'}:{built / 'src-cpp'}",
        "KAFKA_PATH": str(_scripts(folder / "kafka")),
        "KAFKA_CLASSPATH": kafka_jars.classpath(),
        "BROKERS": settings["bootstrap.servers"],
        **({"TESTS": ",".join(tests)} if tests else {}),
        **({"KAFKA_COMMAND_CONFIG": str(command_config)} if command_config else {}),
        **(environment or {}),
    }
    # Known faults of the client, and the emulation of sockets, are left out.
    command = [str(runner), "-p1", "-K", "-E", *options]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=built / "tests", env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        try:
            process.wait(timeout_s)
        finally:
            process.kill()
    if not report.exists():
        return {
            "the process": Result("failed", f"code {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
        }
    found = {}
    for name, test in json.loads(report.read_text())["tests"].items():
        if name != "<MAIN>" and test["state"] != "SKIPPED" and (not tests or name[:4] in tests):
            outcome = "passed" if test["state"] == "PASSED" else "failed"
            found[name] = Result(outcome, f"{test['state']}, see {log}")
    return found


def _scripts(folder: Path) -> Path:
    """Returns the folder of an installation of Kafka whose scripts start our broker and Kafka's tools."""
    shutil.copytree(HERE / "kafka_python" / "bin", folder / "bin", dirs_exist_ok=True)
    for script in (folder / "bin").iterdir():
        script.chmod(0o755)
    return folder


def _librdkafka_tests() -> Path:
    """Returns the folder of librdkafka with its test-runner."""
    if shutil.which("gcc") is None or shutil.which("npm") is None:
        raise RuntimeError("gcc or npm not found: run tools/install_system_deps.sh")

    def build(target: Path) -> None:
        run_or_raise(["npm", "pack", LIBRDKAFKA, "--silent"], target)
        (archive,) = target.glob("*.tgz")
        with tarfile.open(archive) as opened:
            opened.extractall(target, filter="data")
        (target / "package" / "deps" / "librdkafka").rename(target / "librdkafka")
        sources = target / "librdkafka"
        for path in (sources / "configure", sources / "lds-gen.py", *(sources / "mklove").iterdir()):
            path.chmod(0o755)
        run_or_raise(["./configure", *LIBRDKAFKA_OPTIONS], sources)
        run_or_raise(["make", "libs"], sources)
        run_or_raise(["make", "-C", "tests", "test-runner"], sources)

    return cached("librdkafka", _librdkafka_key(), build) / "librdkafka"


def _runner_with_commands(built: Path) -> Path:
    """Returns a second test-runner, of the same objects, whose tests run kafka-acls.sh although clients log in."""

    def build(target: Path) -> None:
        source = target / "needs_no_log_in.c"
        source.write_text(_NEEDS_NO_LOG_IN)
        objects = sorted(path.name for path in (built / "tests").glob("*.o"))
        made = ["-x", "c", str(source), "-x", "none", *_LIBRARIES, "-o", str(target / "test-runner")]
        run_or_raise(["g++", *_LINKING, *objects, *made], built / "tests")

    key = b"\0".join([_librdkafka_key(), _NEEDS_NO_LOG_IN.encode(), " ".join([*_LINKING, *_LIBRARIES]).encode()])
    return cached("librdkafka-runner", key, build) / "test-runner"


def _librdkafka_key() -> bytes:
    return " ".join([LIBRDKAFKA, *LIBRDKAFKA_OPTIONS]).encode()
