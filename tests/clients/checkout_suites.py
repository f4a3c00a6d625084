"""The tests of clients whose packages do not contain them, unchanged, on our broker: run by hand, from a checkout.

    python -m tests.clients.checkout_suites aiokafka DIRECTORY               tests/test_sasl.py and the test of TLS
    python -m tests.clients.checkout_suites confluent-kafka-python DIRECTORY authorized operations and SCRAM users
    python -m tests.clients.checkout_suites kafkajs DIRECTORY                all that need brokers (tag v2.2.4)

The modules in `stand_ins` are first on the path: their containers and clusters are brokers of ours. A checkout must be
of a version near the installed client's, since the installed client is what is tested. What confluent's tests import in
addition must be installed: certifi, httpx, authlib, cachetools, attrs, urllib3, requests, fastavro and avro.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients import kafkajs_suite
from tests.clients.foreign_suites import Results, junit_cases

HERE: Final = Path(__file__).resolve().parent


class Suite(NamedTuple):
    """The chosen tests of a project."""

    arguments: Sequence[str]
    #: The directory of the checkout in which the client's own package is, if it would hide the installed one.
    hiding: str
    #: Tests that are not run, with the reason.
    excluded: str


SUITES: Final = {
    "aiokafka": Suite(
        (
            *("tests/test_sasl.py", "tests/test_consumer.py", "-k", "TestKafkaSASL and not gssapi or ssl_consume"),
            *("--docker-image", "broker:2.13_4.1.0", "--no-pull"),
        ),
        "aiokafka",
        "GSSAPI: the Python package gssapi has no wheels",
    ),
    "confluent-kafka-python": Suite(
        (
            "tests/integration/admin/test_describe_operations.py",
            "tests/integration/admin/test_user_scram_credentials.py",
        ),
        "src",
        "share consumers",
    ),
}


def run(name: str, checkout: Path) -> Results:
    """Runs the tests of a project. The checkout must not contain the package of the client itself."""
    suite = SUITES[name]
    if (checkout / suite.hiding).exists():
        raise SystemExit(f"remove {checkout / suite.hiding}: it hides the installed client, which is what is tested")
    report = Path(tempfile.mkdtemp(prefix=f"{name}-")) / "report.xml"
    paths = [HERE / "stand_ins", checkout, HERE.parents[1] / "src", HERE.parents[1] / "tools"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    command += ["-p", "no:xdist", "-c", os.devnull, f"--rootdir={checkout}", "--timeout=300", f"--junitxml={report}"]
    subprocess.run([*command, *suite.arguments], cwd=checkout, env=environment, check=False)
    return dict(junit_cases(report)) if report.exists() else {}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in (*SUITES, "kafkajs"):
        print(__doc__, file=sys.stderr)
        return 2
    name, checkout = arguments[0], Path(arguments[1]).resolve()
    results = kafkajs_suite.run(checkout) if name == "kafkajs" else run(name, checkout)
    for test, result in sorted(results.items()):
        print(result.outcome, test, result.detail)
    return 0 if results and all(result.outcome != "failed" for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
