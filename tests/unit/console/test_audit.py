"""The audit log: what it has of log-ins and actions, what it must not have, and what is left of it after a crash."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.audit import Audit
from barnabas.console.changing import _without_secrets
from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningConsole]:
    file = UsersFile(tmp_path / "users.json")
    file.put(User("anna", Role.OPERATOR, hashed("right-password")))
    options = ConsoleOptions(users=file.path, audit=tmp_path / "audit.jsonl")
    with PhantomCluster(topics=1) as phantom, RunningConsole([target_of(phantom)], options) as running:
        yield running


def test_the_audit_log_and_the_lab_answer_while_no_broker_does(tmp_path: Path) -> None:
    with PhantomCluster(topics=1) as phantom:
        for broker in (1, 2, 3):
            phantom.silence(broker)
        options = ConsoleOptions(timeout_s=0.3, history=tmp_path / "h.db")
        with RunningConsole([target_of(phantom)], options) as running:
            assert running.ask("overview").json["data"] is None
            assert running.get("audit") == {"entries": [], "problem": None}
            assert running.get("lab")["is_embedded"] is False
            assert running.get("history")["recording"] is True


def test_log_ins_are_in_the_audit_log_and_what_is_typed_into_the_wrong_field_is_not(
    guarded: RunningConsole, tmp_path: Path
) -> None:
    for user, password in (("right-password", "anna"), ("anna", "wrong-password"), ("anna", "right-password")):
        answer = guarded.request("POST", "/api/login", body={"user": user, "password": password})
    guarded.token = answer.json["token"]
    entries = guarded.get("audit")["entries"]
    assert [(each["user"], each["action"], each["result"]) for each in entries] == [
        ("anna", "login", "ok"),
        ("anna", "login", "refused"),
        ("", "login", "refused"),
    ]
    assert all((each["address"], each["cluster"]) == ("127.0.0.1", "") for each in entries)
    assert [each["role"] for each in entries] == ["operator", "operator", "nobody"]
    assert guarded.post("logout-everywhere").status == 200
    text = (tmp_path / "audit.jsonl").read_text()
    assert "logout-everywhere" in text
    assert "password" not in text.replace("the user or the password is wrong", "")


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "a", "filter": 'value.card == "4111"'},
        {"topic": "a", "q": "4111"},
        {"topic": "a", "key": {"text": "4111"}, "value": {"json": "4111"}},
        {"topic": "a", "key": "4111", "value": ["4111"]},
        {"topic": "a", "headers": [{"name": "x", "value": {"text": "4111"}}]},
        {"name": "a", "set": {"ssl.keystore.certificate.chain": "4111"}},
        {"name": "a", "set": {}, "configs": {"sasl.jaas.config": "4111"}},
        {"name": "a", "set": "sasl.jaas.config=4111"},
        {"user": "a", "password": "4111"},
    ],
    ids=str,
)
def test_no_content_and_no_secret_is_in_the_audit_log(body: dict[str, Any]) -> None:
    assert "4111" not in json.dumps(_without_secrets(body))


def test_what_was_done_is_in_the_audit_log() -> None:
    body = {"group": "g", "to": "offset", "value": 4111, "key": None, "set": {"retention.ms": "5"}, "filter": ""}
    assert _without_secrets(body) == body


def _cut_off(folder: Path) -> Path:
    """Returns an audit log of one entry, and a part of the second one."""
    path = folder / "audit.jsonl"
    Audit(path, lambda: 1).write({"action": "a"})
    with path.open("a") as file:
        file.write('{"id": 2, "act')
    return path


def test_an_audit_log_that_was_cut_off_is_continued(tmp_path: Path) -> None:
    audit = Audit(_cut_off(tmp_path), lambda: 2)
    assert audit.write({"action": "b"})["id"] == 2
    assert [entry["action"] for entry in audit.entries()] == ["b", "a"]


def test_the_first_entry_after_a_line_that_was_cut_off_is_read_again(tmp_path: Path) -> None:
    path = _cut_off(tmp_path)
    audit = Audit(path, lambda: 2)
    for action in ("b", "c"):
        audit.write({"action": action})
    assert [entry["action"] for entry in Audit(path, lambda: 3).entries()] == ["c", "b", "a"]


def test_entries_after_a_full_disk_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, lambda: 1)
    audit.write({"action": "a"})

    def fill(where: Path, _line: str) -> None:
        with where.open("a") as file:
            file.write('{"id": 2, "act')
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Audit, "_append", staticmethod(fill))
        audit.write({"action": "b"})
    assert audit.problem == "the audit log cannot be written: No space left on device"
    audit.write({"action": "c"})
    assert audit.problem is None
    assert [entry["action"] for entry in audit.entries()] == ["c", "b", "a"]
    assert [entry["action"] for entry in Audit(path, lambda: 2).entries()] == ["c", "a"]


def test_large_arguments_are_in_the_file_and_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, lambda: 1)
    plan = [{"topic": "a", "partition": number} for number in range(50_000)]
    audit.write({"action": "reassign", "arguments": {"partitions": plan}})
    assert json.loads(path.read_text())["arguments"]["partitions"] == plan
    for each in (audit, Audit(path, lambda: 2)):
        (entry,) = each.entries()
        assert entry["arguments"]["shortened"].startswith('{"partitions": [{"topic": "a", "partition": 0}')
        assert len(json.dumps(entry)) < 30_000
