"""The functional tests of sarama, on five brokers behind toxiproxy, as it expects them.

The sources are changed in one place: `NewFunctionalTestConfig`, from which all these tests have their configuration,
returns it by way of `secured` in tests/clients/sarama, which adds TLS and a log-in by SCRAM.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tests.clients.foreign_suites import Results, cached, go_results, go_sources, run_or_raise

SARAMA: Final = "github.com/IBM/sarama@v1.61.1"
SCRAM: Final = "github.com/xdg-go/scram@v1.4.0"
#: The version of Kafka as which the suite should treat us.
VERSION: Final = "4.1.0"
#: The port at which the suite asks for its proxies.
TOXIPROXY_PORT: Final = 8_474
#: The ports of the proxies, by which the suite expects the brokers 1 to 5.
PROXY_PORTS: Final = range(29_091, 29_096)
SECURITY: Final = Path(__file__).resolve().parent / "sarama" / "functional_security_test.go"


def sarama(
    folder: Path,
    environment: Mapping[str, str],
    *,
    skipped: Collection[str] = (),
    only: Collection[str] = (),
    timeout_s: float = 1_500,
) -> Results:
    """Runs the functional tests with these names, or all without the skipped ones. `environment` leads to the stand-in
    of docker, and has the log-in.
    """
    built = _sarama_tests()
    chosen = set(only or _functional_tests(built / "sarama")) - set(skipped)
    command = [str(built / "sarama.test"), "-test.v", f"-test.timeout={timeout_s:.0f}s"]
    command += ["-test.run", "^(" + "|".join(sorted(chosen)) + ")$"]
    variables = {**os.environ, "KAFKA_VERSION": VERSION, **environment}
    done = subprocess.run(
        command,
        cwd=built / "sarama",
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    log = folder / "sarama.log"
    log.write_text(done.stdout + done.stderr)
    return go_results(done, log)


def _functional_tests(sources: Path) -> list[str]:
    """Returns the names of the tests that need brokers."""
    texts = (path.read_text() for path in sources.glob("functional_*_test.go"))
    return [name for text in texts for name in re.findall(r"^func (Test\w+)\(t \*testing", text, re.MULTILINE)]


def _sarama_tests() -> Path:
    """Returns the folder with the program `sarama.test` and the sources, where it expects to run."""

    def build(target: Path) -> None:
        sources = target / "sarama"
        go_sources(SARAMA, sources)
        file = sources / "functional_test.go"
        begin, found, rest = file.read_text().partition("func NewFunctionalTestConfig() *Config {")
        assert "return config\n}" in rest, "sarama has changed NewFunctionalTestConfig"
        file.write_text(begin + found + rest.replace("return config\n}", "return secured(config)\n}", 1))
        shutil.copy(SECURITY, sources)
        run_or_raise(["go", "get", SCRAM], sources)
        run_or_raise(["go", "test", "-c", "-tags", "functional", "-o", str(target / "sarama.test"), "."], sources)

    return cached("sarama", SARAMA.encode() + SECURITY.read_bytes(), build)
