"""Contexts: which one a command uses, the content of the file, and the output of the commands."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from functools import partial
from pathlib import Path

import pytest
from tests.unit.cli.test_commands import unused_port, written_down

from barnabas.cli import entry
from barnabas.cli.contexts import choice, started
from barnabas.cli.contexts.choice import Reason, choose
from barnabas.cli.contexts.store import Context, ContextFile, Contexts, users_file
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContextFile:
    """The user's file, in a directory of this test, which is also the working directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    choice.begin()
    return ContextFile(tmp_path / "config" / "barnabas" / "contexts.json")


def context(address: str = "127.0.0.1:1", **settings: object) -> Context:
    return Context((address,), **settings)  # type: ignore[arg-type]


ALL = Contexts(
    {
        "option": context(),
        "environment": context(),
        "old": context(started_in="/here", started_ms=1, directory="/here/a"),
        "new": context(started_in="/here", started_ms=2, directory="/here/b"),
        "current": context(),
    },
    "current",
)


@pytest.mark.parametrize(
    ("option", "environment", "directory", "name", "reason"),
    [
        ("option", "environment", "/here", "option", Reason.OPTION),
        (None, "environment", "/here", "environment", Reason.ENVIRONMENT),
        (None, None, "/here", "new", Reason.DIRECTORY),
        (None, None, "/here/a", "old", Reason.DIRECTORY),
        (None, "", "/elsewhere", "current", Reason.CURRENT),
        (None, None, None, "current", Reason.CURRENT),
    ],
)
def test_the_first_that_is_given_decides(
    option: str | None, environment: str | None, directory: str | None, name: str, reason: Reason
) -> None:
    variables = {} if environment is None else {"BARNABAS_CONTEXT": environment}
    chosen = choose(ALL, option=option, environment=variables, directory=directory)
    assert chosen is not None
    assert (chosen.name, chosen.reason) == (name, reason)


def test_without_contexts_none_is_chosen() -> None:
    assert choose(Contexts(), option=None, environment={}, directory="/here") is None


def test_a_name_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(Failure, match="no context nope") as refused:
        choose(ALL, option="nope", environment={}, directory=None)
    assert "current, environment, new, old, option" in (refused.value.hint or "")
    with pytest.raises(Failure, match="no context nope"):
        choose(ALL, option=None, environment={"BARNABAS_CONTEXT": "nope"}, directory=None)


def test_the_file_keeps_every_field_and_is_its_owners_alone(file: ContextFile) -> None:
    full = Context(("h:1", "h:2"), {"sasl.password": "s"}, "/d", "/w", 7, production=True, colour="blue")
    file.change(lambda contexts: contexts.with_context("a", full).with_current("a"))
    assert file.read() == Contexts({"a": full}, "a")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.path.chmod(0o644)
    file.change(lambda contexts: contexts.with_context("b", context()))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_changes_at_the_same_time_are_all_kept(file: ContextFile) -> None:
    def add(number: int) -> None:
        for each in range(5):
            ContextFile(file.path).change(partial(Contexts.with_context, name=f"c-{number}-{each}", context=context()))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read().contexts) == 40


def test_a_write_that_fails_leaves_the_old_file(file: ContextFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.change(lambda contexts: contexts.with_context("a", context()))

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.change(lambda contexts: contexts.with_context("b", context()))
    assert set(file.read().contexts) == {"a"}
    assert {each.name for each in file.path.parent.iterdir()} == {"contexts.json", "contexts.json.lock"}


def test_a_link_to_a_file_elsewhere_stays_a_link(file: ContextFile, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    file.path.parent.mkdir(parents=True)
    file.path.symlink_to(tmp_path / "dotfiles" / "contexts.json")
    file.change(lambda contexts: contexts.with_context("a", context()))
    assert file.path.is_symlink()
    assert set(file.read().contexts) == {"a"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Expecting value"),
        ("\xff", "utf-8"),
        ("[]", "not a JSON object"),
        ("{}", "version is None"),
        ('{"version": 2}', "version is 2"),
        ('{"version": 1}', 'no "contexts"'),
        ('{"version": 1, "contexts": {}, "current": "a"}', "'a' is not among"),
        ('{"version": 1, "contexts": {"a b": {"bootstrap": ["h:1"]}}}', "not a valid name"),
        ('{"version": 1, "contexts": {"a": []}}', "not a JSON object"),
        ('{"version": 1, "contexts": {"a": {"bootstrap": []}}}', "no list of addresses"),
        ('{"version": 1, "contexts": {"a": {"bootstrap": ["h:1"], "x": 1}}}', "unknown keys: x"),
        ('{"version": 1, "contexts": {"a": {"bootstrap": ["h:1"], "properties": {"a": 1}}}}', '"properties"'),
        ('{"version": 1, "contexts": {"a": {"bootstrap": ["h:1"], "production": "no"}}}', '"production"'),
        ('{"version": 1, "contexts": {"a": {"bootstrap": ["h:1"], "colour": "mauve"}}}', "'mauve'"),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(content: str, why: str, file: ContextFile, capsys: Output) -> None:
    file.path.parent.mkdir(parents=True)
    damaged = content.encode("latin-1")
    file.path.write_bytes(damaged)
    for command in (["topics", "list"], ["context", "list"], ["context", "set", "a", "--bootstrap", "h:1"]):
        assert entry.run(command) == 1
        said = capsys.readouterr().err
        assert f"{file.path} is damaged: " in said
        assert why in said
    assert file.path.read_bytes() == damaged


def test_given_addresses_need_no_context(file: ContextFile, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_text("damaged")
    address = f"127.0.0.1:{unused_port()}"
    assert entry.run(["topics", "list", "--bootstrap", address]) == 1
    assert f"cannot reach a broker at {address}" in capsys.readouterr().err
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", address)
    assert entry.run(["topics", "list"]) == 1
    assert f"cannot reach a broker at {address}" in capsys.readouterr().err


def test_a_relative_directory_for_configuration_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    found = users_file({"XDG_CONFIG_HOME": "relative"})
    assert found is not None
    assert found.path == Path.home() / ".config" / "barnabas" / "contexts.json"


@pytest.mark.parametrize("arguments", [["--context", "one", "topics", "list"], ["topics", "list", "--context", "one"]])
def test_the_option_stands_before_or_after_the_command(
    arguments: list[str], file: ContextFile, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """The option wins over both variables. The error names every address, the context and why it was used."""
    ports = (unused_port(), unused_port() + 1)
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    directory = "/somewhere/cluster"
    file.change(lambda contexts: contexts.with_context("one", Context(addresses, directory=directory)))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("BARNABAS_CONTEXT", "other")
    assert entry.run(arguments) == 1
    said = capsys.readouterr().err
    assert all(address in said for address in addresses)
    assert "context one (--context names it)" in said
    assert f"barnabas up --detach --dir {directory}" in said


def test_every_command_for_a_cluster_has_the_option(capsys: Output) -> None:
    for command in (
        ["monitor"],
        ["explain", "t"],
        ["topics", "describe", "t"],
        ["groups", "list"],
        ["elect", "--type", "preferred", "--all-topic-partitions"],
        ["consume", "t"],
        ["transactions", "list"],
        ["status"],
        ["down"],
        ["up"],
    ):
        assert entry.run([*command, "--context", "nope"]) == 1, command
        assert "there is no context nope" in capsys.readouterr().err


def test_settings_of_a_context_reach_the_client_and_given_ones_win(file: ContextFile, capsys: Output) -> None:
    """A listener that says nothing is one for TLS: without the setting, the command would ask it something."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        secured = Context((address,), {"security.protocol": "nonsense"})
        file.change(lambda contexts: contexts.with_context("one", secured))
        assert entry.run(["topics", "list", "--context", "one"]) == 1
        assert "nonsense" in capsys.readouterr().err
        assert entry.run(["topics", "list", "--context", "one", "-X", "security.protocol=plaintext"]) == 1
        assert "does not answer" in capsys.readouterr().err
        assert entry.run(["topics", "list", "--bootstrap", address]) == 1
        assert "does not answer" in capsys.readouterr().err


# -- a started cluster


def test_a_started_cluster_is_named_after_its_directory() -> None:
    contexts = Contexts()
    for directory in ("/home/shop/barnabas-data", "/home/three", "/other/three", "/my data", "/barnabas-data"):
        _, contexts = started.with_started(contexts, directory, ["h:1"], "/home/shop", 1)
    assert set(contexts.contexts) == {"shop", "three", "three-2", "my-data", "cluster"}
    assert contexts.current == "cluster"


def test_a_later_start_keeps_the_name_and_the_settings() -> None:
    settings = {"security.protocol": "SSL"}
    mine = Context(("h:1",), settings, "/d/three", "/d", 1, production=True, colour="blue")
    name, contexts = started.with_started(Contexts({"mine": mine}), "/d/three", ["h:5", "h:6"], "/e", 9)
    assert name == contexts.current == "mine"
    assert contexts["mine"] == Context(("h:5", "h:6"), settings, "/d/three", "/e", 9, production=True, colour="blue")


def test_a_file_that_cannot_be_written_does_not_end_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    (tmp_path / "nodirectory").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nodirectory"))
    started.record(tmp_path / "three", ["h:1"])
    assert "no context was written" in capsys.readouterr().err


# -- the commands


def test_contexts_from_creation_to_deletion(capsys: Output) -> None:
    assert entry.run(["context", "set", "a", "--bootstrap", "h:1, h:2", "-X", "sasl.password=secret"]) == 0
    assert entry.run(["context", "set", "a", "--production", "--color", "blue"]) == 0
    assert entry.run(["context", "use", "a"]) == 0
    capsys.readouterr()
    assert entry.run(["context", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["bootstrap"] == ["h:1", "h:2"]
    assert shown["properties"] == {"sasl.password": "(hidden)"}
    assert (shown["production"], shown["colour"], shown["in_use_because"]) == (True, "blue", "it is the current one")
    assert entry.run(["context", "show", "a"]) == 0
    text = capsys.readouterr().out
    assert "production: yes (blue): destructive commands print a warning" in text
    assert "secret" not in text
    assert entry.run(["context", "set", "a", "--remove-property", "sasl.password", "--no-production"]) == 0
    assert entry.run(["context", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (listed["properties"], listed["production"], listed["in_use"]) == ({}, False, True)
    assert entry.run(["context", "delete", "a"]) == 0
    assert "now there is none" in capsys.readouterr().err
    assert entry.run(["context", "show"]) == 1
    assert "no context is in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "a b", "--bootstrap", "h:1"], "cannot be the name"),
        (["set", "a"], "a new one needs addresses"),
        (["set", "a", "--bootstrap", "h"], "expected HOST:PORT"),
        (["set", "a", "--bootstrap", "h:1", "-X", "acks=1"], "security.protocol, sasl.* and ssl.* only"),
        (["set", "a", "--bootstrap", "h:1", "--colour", "mauve"], "expected one of red"),
        (["set", "a", "--bootstrap", "h:1", "--remove-property", "x"], "has no such property"),
        (["set", "a", "--dir", "nowhere"], "no cluster has been started"),
        (["use", "a"], "there is no context a"),
        (["show", "a"], "there is no context a"),
        (["delete", "a"], "there is no context a"),
    ],
)
def test_wrong_use_is_said_in_one_line(arguments: list[str], said: str, file: ContextFile, capsys: Output) -> None:
    assert entry.run(["context", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not file.read().contexts


def test_use_says_that_the_directory_wins(file: ContextFile, tmp_path: Path, capsys: Output) -> None:
    file.change(lambda contexts: contexts.with_context("here", context(started_in=str(tmp_path))))
    file.change(lambda contexts: contexts.with_context("other", context()))
    assert entry.run(["context", "use", "other"]) == 0
    assert "in this directory, commands use context here" in capsys.readouterr().err


def test_down_finds_the_directory_of_a_context_and_warns(file: ContextFile, tmp_path: Path, capsys: Output) -> None:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    written_down(directory, pid=1 << 30, start_ticks=1)
    assert entry.run(["context", "set", "prod", "--dir", str(directory), "--production"]) == 0
    assert file.read()["prod"].bootstrap == ("127.0.0.1:1",)
    capsys.readouterr()
    for arguments in (["down", "--context", "prod"], ["down", "--dir", str(directory)]):
        assert entry.run(arguments) == 0
        said = capsys.readouterr()
        assert said.out == "no broker was running\n"
        assert f"warning: context prod is marked as production; this command stops brokers in {directory}" in said.err


def test_down_names_the_directory_of_the_context_in_use(file: ContextFile, tmp_path: Path, capsys: Output) -> None:
    """No cluster is stopped that nobody named."""
    assert entry.run(["down"]) == 1
    assert "--dir" not in capsys.readouterr().err
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    written_down(directory, pid=1 << 30, start_ticks=1)
    assert entry.run(["context", "set", "three", "--dir", str(directory)]) == 0
    assert entry.run(["context", "use", "three"]) == 0
    capsys.readouterr()
    assert entry.run(["down"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no cluster has been started in barnabas-data" in said.err
    assert f"name it with --dir {directory}" in said.err.replace("\n", "")


def shown_directory(capsys: Output, *arguments: str) -> str:
    """Returns the directory of the cluster that `status` shows; nothing of it runs."""
    assert entry.run(["status", "--json", *arguments]) == 1
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    return str(node["directory"])


def test_status_shows_the_cluster_of_the_context_in_use(
    file: ContextFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert entry.run(["status"]) == 1
    assert "no cluster has been started in barnabas-data" in capsys.readouterr().err
    for name in ("one", "two", "barnabas-data"):
        (tmp_path / name).mkdir()
    for name in ("one", "two"):
        written_down(tmp_path / name, pid=1 << 30, start_ticks=1)
        assert entry.run(["context", "set", name, "--dir", str(tmp_path / name)]) == 0
    assert entry.run(["context", "use", "two"]) == 0
    capsys.readouterr()
    one, two = (str(EmbeddedCluster(tmp_path / name).nodes[0].directory) for name in ("one", "two"))
    assert shown_directory(capsys) == two
    assert shown_directory(capsys, "--context", "one") == one
    assert shown_directory(capsys, "--dir", str(tmp_path / "one")) == one
    monkeypatch.setenv("BARNABAS_CONTEXT", "one")
    assert shown_directory(capsys) == one
    monkeypatch.delenv("BARNABAS_CONTEXT")
    monkeypatch.chdir(tmp_path / "one")
    assert shown_directory(capsys) == one
    monkeypatch.chdir(tmp_path)
    here = str(written_down(tmp_path / "barnabas-data", pid=1 << 30, start_ticks=1).nodes[0].directory)
    assert shown_directory(capsys) == here
    monkeypatch.chdir(tmp_path / "config")
    assert shown_directory(capsys) == two
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    assert entry.run(["status"]) == 1
    assert "no cluster has been started in barnabas-data" in capsys.readouterr().err


def test_status_of_a_context_without_a_directory_asks_for_one(file: ContextFile, capsys: Output) -> None:
    file.change(lambda contexts: contexts.with_context("far", context()).with_current("far"))
    assert entry.run(["status"]) == 1
    assert "context far (it is the current one) has no directory" in capsys.readouterr().err


def test_only_a_context_of_production_warns(capsys: Output) -> None:
    for production in (False, True):
        choice._Command.chosen = choice.Choice("a", context(production=production), Reason.CURRENT)
        choice.warn_if_production("deletes t")
        assert ("warning: context a" in capsys.readouterr().err) == production
    choice.begin()
    choice.warn_if_production("deletes t")
    assert capsys.readouterr().err == ""
