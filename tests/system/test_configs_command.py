"""`barnabas configs` with two brokers: each answers only for its own configs and loggers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.app import run
from barnabas.testing import Cluster

Command = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        yield running


@pytest.fixture
def configs(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command; returns what it prints, or with `code=1` its error."""

    def command(*arguments: str, code: int = 0) -> str:
        ended = run(["configs", *arguments, "--bootstrap", cluster.bootstrap])
        said = capsys.readouterr()
        assert ended == code, said
        return said.err if code else said.out

    return command


def described(configs: Command, *arguments: str) -> dict[str, dict[str, Any]]:
    (found,) = json.loads(configs("describe", *arguments, "--json"))
    return {each["name"]: each for each in found["configs"]}


def settled(configs: Command, key: str, value: str | None, *arguments: str) -> dict[str, dict[str, Any]]:
    """Returns what is described once the key has this value: a broker learns a change a moment after it is decided."""
    deadline = time.monotonic() + 30
    while True:
        found = described(configs, *arguments)
        if found.get(key, {}).get("value") == value:
            return found
        assert time.monotonic() < deadline, found.get(key)
        time.sleep(0.05)


def test_a_topic_shows_what_is_set_and_what_that_hides(configs: Command, tmp_path: Path) -> None:
    done = configs("alter", "--topic", "t", "--add", "retention.ms=60000,cleanup.policy=[compact,delete]")
    assert done == "Completed updating config for topic t.\n"
    configs("alter", "--broker-defaults", "--add-config", "log.retention.ms=70000")
    settled(configs, "log.retention.ms", "70000", "--broker-defaults")
    found = settled(configs, "retention.ms", "60000", "--entity-type", "topics", "--entity-name", "t")
    assert set(found) == {"retention.ms", "cleanup.policy"}
    every = described(configs, "--topic", "t", "--all")
    assert every["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    sources = [(each["value"], each["source"]) for each in every["retention.ms"]["synonyms"]]
    assert sources[:2] == [("60000", "DYNAMIC_TOPIC_CONFIG"), ("70000", "DYNAMIC_DEFAULT_BROKER_CONFIG")]

    planned = configs("alter", "--topic", "t", "--delete", "retention.ms", "--dry-run")
    change = " ".join(planned.splitlines()[-1].split())
    assert change == "retention.ms 60000 dynamic topic 70000 dynamic default broker"
    assert described(configs, "--topic", "t")["retention.ms"]["value"] == "60000"
    configs("alter", "--topic", "t", "--delete-config", "retention.ms")
    settled(configs, "retention.ms", "70000", "--topic", "t", "--all")

    file = tmp_path / "topic.properties"
    file.write_text("segment.bytes=1048576\n")
    configs("alter", "--topic", "t", "--add-file", str(file))
    settled(configs, "segment.bytes", "1048576", "--topic", "t")


def test_brokers_have_configs_of_their_own_and_a_common_default(configs: Command) -> None:
    configs("alter", "--entity-type", "brokers", "--entity-default", "--add", "log.segment.bytes=20000000")
    configs("alter", "--entity-type", "brokers", "--entity-name", "2", "--add", "log.segment.bytes=30000000")
    for broker, value, source in (("1", "20000000", "DEFAULT_"), ("2", "30000000", "")):
        found = settled(configs, "log.segment.bytes", value, "--broker", broker, "--all")
        assert found["log.segment.bytes"]["source"] == f"DYNAMIC_{source}BROKER_CONFIG"
    text = configs("describe", "--entity-type", "brokers")
    titles = [line for line in text.splitlines() if line.startswith("Dynamic configs")]
    assert [title.removeprefix("Dynamic configs for ") for title in titles] == [
        "broker 1 are:",
        "broker 2 are:",
        "the default of all brokers are:",
    ]
    every = configs("describe", "--broker", "1", "--all", "--verbose")
    [line] = [line for line in every.splitlines() if line.startswith("log.dirs ")]
    assert "static broker" in line
    assert "read-only" in line


def test_loggers_belong_to_one_broker(configs: Command) -> None:
    assert described(configs, "--broker-logger", "2")["root"]["value"] == "INFO"
    configs("alter", "--broker-logger", "2", "--add", "root=DEBUG")
    assert described(configs, "--broker-logger", "2")["root"]["value"] == "DEBUG"
    assert described(configs, "--broker-logger", "1")["root"]["value"] == "INFO"
    configs("alter", "--broker-logger", "2", "--add", "root=INFO")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "t", "--add", "retenton.ms=1"], ["Unknown topic config name: retenton.ms", "retention.ms"]),
        (["--topic", "t", "--add", "retention.ms=x"], ["Invalid value x for configuration retention.ms", "LONG"]),
        (["--topic", "t", "--add", "cleanup.policy=x"], ["cleanup.policy", "one of: compact, delete"]),
        (["--topic", "t", "--delete", "segment.ms"], ["segment.ms: it is not set on topic t"]),
        (["--topic", "nope", "--add", "retention.ms=1"], ["there is no topic nope"]),
        (["--broker", "1", "--add", "no.such.key=1"], ["broker 1 has no key no.such.key"]),
        (["--broker-defaults", "--add", "no.such.key=1"], ["the default of all brokers has no key no.such.key"]),
        (["--broker", "1", "--add", "log.dirs=/x"], ["log.dirs is read-only"]),
        (["--broker", "1", "--add", "num.io.threads=0"], ["num.io.threads", "must be at least 1"]),
        (["--broker", "9", "--add", "num.io.threads=1"], ["there is no broker 9", "1, 2"]),
        (["--broker-logger", "1", "--add", "root=LOUD"], ["level of root to LOUD", "DEBUG, ERROR"]),
        (["--broker-logger", "1", "--add", "no.such=INFO"], ["Logger no.such does not exist"]),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_is_allowed(
    arguments: list[str], said: list[str], configs: Command
) -> None:
    error = configs("alter", *arguments, code=1)
    assert all(each in error for each in said), error


def test_a_key_of_a_plugin_is_accepted_on_request(configs: Command) -> None:
    configs("alter", "--broker", "1", "--add", "plugin.key=1", "--allow-unknown")
    deadline = time.monotonic() + 30
    while "plugin.key" not in (found := described(configs, "--broker", "1")):
        assert time.monotonic() < deadline
    assert (found["plugin.key"]["value"], found["plugin.key"]["sensitive"]) == (None, True)
    configs("alter", "--broker", "1", "--delete", "plugin.key")
    while "plugin.key" in described(configs, "--broker", "1"):
        assert time.monotonic() < deadline
