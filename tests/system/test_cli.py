"""The command line as a person uses it, against the server under test."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from barnabas.cli import entry

_names = (f"cli-{number}" for number in itertools.count())


class HasBootstrap(Protocol):
    @property
    def bootstrap(self) -> str: ...


class Done(NamedTuple):
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(server: HasBootstrap, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command against the server, in this process; it must succeed unless `code` says otherwise."""

    def command(*arguments: str, stdin: str = "", code: int = 0) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            ended = entry.run([*arguments, "--bootstrap", server.bootstrap])
        done = Done(out.getvalue(), err.getvalue())
        assert ended == code, done
        return done

    return command


@pytest.fixture
def run_process(server: HasBootstrap) -> Run:
    """The same as a process of its own."""

    def command(*arguments: str, stdin: str = "", code: int = 0) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli", *arguments, "--bootstrap", server.bootstrap],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return Done(done.stdout, done.stderr)

    return command


@pytest.fixture
def topic(run: Run) -> str:
    name = next(_names)
    run("topics", "create", name, "--partitions", "3")
    return name


def records(run: Run, topic: str, *arguments: str) -> list[dict[str, Any]]:
    out = run("consume", topic, "--exit", "--json", *(arguments or ("--from-beginning",))).stdout
    return sorted((json.loads(line) for line in out.splitlines()), key=lambda item: (item["partition"], item["offset"]))


def test_topics_from_creation_to_deletion(run: Run) -> None:
    name = next(_names)
    assert run("topics", "create", name, "-p", "2", "-c", "retention.ms=60000").stdout == f"created topic {name}\n"
    assert "TOPIC_ALREADY_EXISTS" in run("topics", "create", name, code=1).stderr
    run("topics", "create", name, "--if-not-exists")
    [listed] = json.loads(run("topics", "list", name, "--json").stdout)
    assert (listed["topic"], listed["partitions"], listed["replication_factor"]) == (name, 2, 1)
    run(
        "topics",
        "alter",
        name,
        "--partitions",
        "4",
        "--config",
        "max.message.bytes=2000",
        "--delete-config",
        "retention.ms",
    )
    [described] = json.loads(run("topics", "describe", name, "--json").stdout)
    assert described["configs"] == {"max.message.bytes": "2000"}
    assert described["topic_id"] == listed["topic_id"]
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2, 3]
    assert all(row["isr"] == row["replicas"] == [row["leader"]] and row["osr"] == [] for row in described["partitions"])
    run("topics", "delete", name)
    assert json.loads(run("topics", "list", name, "--json").stdout) == []


def test_refused_changes_are_reported_in_one_line(run: Run, topic: str) -> None:
    for arguments, code in (
        (("topics", "alter", topic, "--partitions", "1"), "INVALID_PARTITIONS"),
        (("topics", "alter", topic, "--config", "no.such.config=1"), "INVALID_CONFIG"),
        (("topics", "create", "no/such/name"), "TOPIC_EXCEPTION"),
        (("topics", "describe", "cli-never-created"), "UNKNOWN_TOPIC_OR_PART"),
        (("consume", "cli-never-created", "--from-beginning", "--exit"), "UNKNOWN_TOPIC_OR_PART"),
    ):
        done = run(*arguments, code=1)
        assert code in done.stderr
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1


def test_lines_become_records_and_lines_again(run_process: Run, topic: str) -> None:
    """The commands are processes that read from pipes and write to them."""
    done = run_process(
        *("produce", topic, "--key-separator", ":", "--null", "NULL", "--header", "source=till"),
        *("--timestamp", "2017-01-01T11:53:26"),
        stdin="900:first\n901:NULL\nNULL:three: é\n",
    )
    assert "3 records" in done.stderr
    out = run_process("consume", topic, "--from-beginning", "--exit", "--show", "key,timestamp,headers").stdout
    assert sorted(out.splitlines()) == [
        "2017-01-01T11:53:26.000Z\t900\tsource=till\tfirst",
        "2017-01-01T11:53:26.000Z\t901\tsource=till\tnull",
        "2017-01-01T11:53:26.000Z\tnull\tsource=till\tthree: é",
    ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_json_lines_copy_a_topic_byte_for_byte(run: Run, topic: str, codec: str) -> None:
    lines = [
        {"value": None, "key": "tombstone", "partition": 2, "timestamp": 1_483_271_606_000},
        {"value": {"base64": "/wD/"}, "key": {"base64": "gA=="}, "partition": 0, "headers": [["h", None], ["h", "2"]]},
        {"value": "", "key": None, "partition": 2},
    ]
    run("produce", topic, "--json", "--compression", codec, stdin="".join(json.dumps(line) + "\n" for line in lines))
    copy = next(_names)
    run("topics", "create", copy, "-p", "3")
    run("produce", copy, "--json", stdin=run("consume", topic, "--from-beginning", "--exit", "--json").stdout)
    source, copied = records(run, topic), records(run, copy)
    assert [{**item, "topic": copy} for item in source] == copied
    assert [item["value"] for item in copied] == [{"base64": "/wD/"}, None, ""]
    assert copied[0]["headers"] == [["h", None], ["h", "2"]]
    assert copied[1]["timestamp"] == 1_483_271_606_000


def test_reading_begins_at_the_given_place(run: Run, topic: str) -> None:
    lines = ({"value": str(number), "partition": 1, "timestamp": 1_000_000 + number * 1000} for number in range(20))
    run("produce", topic, "--json", stdin="".join(json.dumps(line) + "\n" for line in lines))
    only = ("--partition", "1")
    assert [item["value"] for item in records(run, topic, "--offset", "17", *only)] == ["17", "18", "19"]
    assert [item["value"] for item in records(run, topic, "--offset", "-2", *only)] == ["18", "19"]
    assert [item["value"] for item in records(run, topic, "--since", "1015500")] == ["16", "17", "18", "19"]
    assert [item["offset"] for item in records(run, topic, "--from-beginning", "--max", "4", *only)] == [0, 1, 2, 3]
    assert records(run, topic, "--since", "1h") == []
    assert "has no partition 7" in run("consume", topic, "--partition", "7", code=1).stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_go_on_where_it_is(run: Run, run_process: Run, topic: str, protocol: str) -> None:
    group = ("--group", f"readers-of-{topic}", "-X", f"group.protocol={protocol}", "--exit")
    run("produce", topic, stdin="one\ntwo\nthree\nfour\n")
    begun = run_process("consume", topic, *group, "--from-beginning", "--max", "1")
    assert f"reading {topic}-0, {topic}-1, {topic}-2" in begun.stderr
    rest = run_process("consume", topic, *group, "--from-beginning").stdout.splitlines()
    assert sorted([*begun.stdout.splitlines(), *rest]) == ["four", "one", "three", "two"]
    run("produce", topic, stdin="five\n")
    assert run_process("consume", topic, *group).stdout == "five\n"
    assert run_process("consume", topic, *group, "--from-beginning").stdout == ""
    described = json.loads(run("groups", "describe", f"readers-of-{topic}", "--json").stdout)
    assert sum(row["lag"] for each in described for row in each["offsets"]) == 0
    assert "exclude --group" in run("consume", topic, *group, "--offset", "3", code=1).stderr


def test_a_wrong_line_is_named_and_those_before_it_are_kept(run: Run, topic: str) -> None:
    done = run("produce", topic, "--json", stdin='{"value": "kept"}\n{"value": \n{"value": "never"}\n', code=1)
    assert "line 2" in done.stderr
    assert [item["value"] for item in records(run, topic)] == ["kept"]


def test_what_cannot_be_delivered_is_an_error(run: Run, topic: str) -> None:
    done = run("produce", topic, "--partition", "99", stdin="nowhere\n", code=1)
    assert "not delivered" in done.stderr


def test_a_file_is_read_to_its_last_line(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(5000)) + "no newline at the end")
    run("produce", topic, "--file", str(file), "--compression", "lz4")
    values = [item["value"] for item in records(run, topic)]
    assert len(values) == 5001
    assert set(values) == {*(str(number) for number in range(5000)), "no newline at the end"}
