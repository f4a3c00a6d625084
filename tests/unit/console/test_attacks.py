"""Attacks on the console: frames, paths out of the folder, guessed passwords, large and slow requests, formulas,
filters that never end, and names that are no names.
"""

from __future__ import annotations

import asyncio
import csv
import http.client
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.console_server import Answer, RunningConsole, target_of

from barnabas.console.csv_text import cell, csv_text, file_name
from barnabas.console.messages.filters import NAMES, Filter, FilterError
from barnabas.console.messages.worker import job_of, search_chunk
from barnabas.console.messages.workers import BROWSER_MAX, WORKERS_MAX, Worker, Workers
from barnabas.console.pages import HOW_TO_BUILD, Pages
from barnabas.console.problems import Problem
from barnabas.console.security.gate import BODY_MAX, CONTENT_SECURITY_POLICY
from barnabas.console.security.login_limits import LoginLimits
from barnabas.console.security.passwords import hashed, is_right
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersError, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.testing.phantom import PhantomCluster


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("static")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<!doctype html><title>console</title>")
    (folder / "assets" / "console-0123456789AB.js").write_text("export {}")
    (folder.parent / "secret.txt").write_text("secret")
    return Pages(folder)


@pytest.fixture(scope="module")
def console(page: Pages) -> Iterator[RunningConsole]:
    with PhantomCluster(topics=3) as phantom, RunningConsole([target_of(phantom)], pages=page) as running:
        running.filled()
        running.session()
        yield running


def test_every_answer_forbids_frames_foreign_scripts_and_guessed_types(console: RunningConsole) -> None:
    answers = [
        console.request("GET", "/"),
        console.request("GET", "/assets/console-0123456789AB.js"),
        console.request("GET", "/nothing.js"),
        console.ask("overview"),
        console.ask("nothing"),
        console.ask("topics", format="csv"),
        console.request("GET", "/api/overview", headers={"Host": "evil.example"}),
        console.request("POST", "/api/login", body=b"{", headers={"Origin": "http://evil.example"}),
        console.request("DELETE", "/api/overview"),
    ]
    for answer in answers:
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_the_policy_has_no_way_around() -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert part in CONTENT_SECURITY_POLICY
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//secret.txt",
        "/assets/..\\..\\secret.txt",
        "/%00/secret.txt",
    ],
)
def test_no_path_leaves_the_folder_of_the_page(console: RunningConsole, path: str) -> None:
    answer = console.request("GET", path)
    assert b"secret" not in answer.body
    assert answer.status in (200, 404)


def test_files_with_a_hash_are_kept_and_the_page_is_not(console: RunningConsole) -> None:
    assert "immutable" in console.request("GET", "/assets/console-0123456789AB.js").headers["cache-control"]
    assert console.request("GET", "/topic?name=a").headers["cache-control"] == "no-store"
    assert console.ask("overview").headers["cache-control"] == "no-store"


def test_a_page_that_is_not_built_says_how_to(tmp_path: Path) -> None:
    pages = Pages(tmp_path / "none")
    assert not pages.is_built
    with PhantomCluster(topics=1) as phantom, RunningConsole([target_of(phantom)], pages=pages) as running:
        answer = running.request("GET", "/")
        assert (answer.status, answer.body.decode().strip()) == (503, HOW_TO_BUILD)


def test_a_large_body_is_refused_before_it_is_read(console: RunningConsole) -> None:
    declared = console.request("POST", "/api/login", body={}, headers={"Content-Length": str(BODY_MAX + 1)})
    assert declared.code == "too-large"


def test_a_large_body_in_chunks_is_refused(console: RunningConsole) -> None:
    parts = urlsplit(console.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    headers = {"Origin": console.url.rstrip("/"), "Content-Type": "application/json"}
    chunks = (b"x" * 65_536 for _ in range(BODY_MAX // 65_536 + 2))
    try:
        connection.request("POST", "/api/login", body=chunks, headers=headers, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # The console closed the connection while the rest was sent.
    finally:
        connection.close()
    assert console.ask("overview").status == 200


def test_a_large_header_is_refused(console: RunningConsole) -> None:
    answer = console.request("GET", "/api/overview", headers={"X-Large": "x" * 100_000})
    assert answer.code == "too-large"


def test_slow_requests_keep_nobody_waiting(console: RunningConsole) -> None:
    parts = urlsplit(console.url)
    slow = [socket.create_connection((parts.hostname, parts.port)) for _ in range(50)]
    try:
        for each in slow:
            each.sendall(b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n")
        begin_s = time.monotonic()
        assert console.ask("overview").status == 200
        assert time.monotonic() - begin_s < 5
    finally:
        for each in slow:
            each.close()


@pytest.mark.parametrize(
    ("route", "parameters"),
    [
        ("topics", {"sort": "__class__"}),
        ("topics", {"limit": "100000"}),
        ("topics", {"offset": "-1"}),
        ("topics", {"state": "ok,nothing"}),
        ("topics", {"q": "x" * 10_000}),
        ("broker", {"id": "1e9"}),
        ("partition", {"topic": "topic-00000", "partition": "9" * 30}),
        ("timeline", {"from": "yesterday"}),
        ("map", {"fill": "../size"}),
        ("messages", {"topic": "topic-00000", "from": "next", "value": "0:x"}),
        ("messages", {"topic": "topic-00000", "from": "next", "value": "0:\u00b2"}),
        ("messages", {"topic": "topic-00000", "from": "next", "value": "\u00b2:0"}),
        ("messages", {"topic": "topic-00000", "seconds": "1000"}),
        ("whatif", {"ask": "lose-broker", "broker": "one"}),
        ("whatif", {"ask": "lose-broker", "broker": "9" * 20}),
        ("whatif", {"ask": "lose-disk", "broker": "9" * 12, "path": "/data"}),
    ],
)
def test_a_parameter_that_is_none_is_refused(
    console: RunningConsole, route: str, parameters: dict[str, object]
) -> None:
    answer = console.ask(route, **parameters)
    assert (answer.status, answer.code) == (400, "bad-request"), answer.body


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5_000, "-1", "1e3"])
def test_a_position_that_is_none_begins_a_stream_anew(console: RunningConsole, number: str) -> None:
    boot = console.ask("overview").json["boot"]
    for after in (f"{boot}.{number}", f"{boot}.1.{number}"):
        with console.live("overview", after=after) as messages:
            assert [next(messages)[1] for _ in range(2)] == ["hello", "reload"]


@pytest.mark.parametrize("name", ["", "no", "<script>alert(1)</script>", "../../etc/passwd", "a\0b", "\u202eevil"])
def test_names_that_do_not_exist_are_only_said_back(console: RunningConsole, name: str) -> None:
    answer = console.ask("topic", name=name)
    assert answer.code in ("not-found", "bad-request")
    assert answer.headers["content-type"] == "application/json"
    assert console.ask("overview", cluster=name or "none").code == "unknown-cluster"


# -- log-in


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningConsole]:
    file = UsersFile(tmp_path / "users.json")
    file.put(User("anna", Role.OPERATOR, hashed("right-password")))
    options = ConsoleOptions(users=file.path)
    with PhantomCluster(topics=1) as phantom, RunningConsole([target_of(phantom)], options) as running:
        yield running


def log_in(console: RunningConsole, user: object, password: object) -> Answer:
    return console.request("POST", "/api/login", body={"user": user, "password": password})


def test_a_log_in_gives_a_new_session_that_no_script_and_no_other_site_sees(guarded: RunningConsole) -> None:
    assert guarded.session()["is_login_needed"] is True
    guarded.take_cookie("chosen-by-an-attacker")
    answer = log_in(guarded, "anna", "right-password")
    assert answer.json["role"] == "operator"
    cookie = answer.headers["set-cookie"]
    assert "chosen-by-an-attacker" not in cookie
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert guarded.ask("overview").status == 200
    guarded.token = answer.json["token"]
    assert guarded.post("logout").status == 200
    guarded.cookie = cookie.partition(";")[0]
    assert guarded.ask("overview").code == "login"


def test_log_out_everywhere_ends_all_sessions_of_a_user(guarded: RunningConsole) -> None:
    sessions = []
    for _ in range(3):
        guarded.cookie = ""
        answer = log_in(guarded, "anna", "right-password")
        sessions.append((guarded.cookie, answer.json["token"]))
    guarded.cookie, guarded.token = sessions[0]
    assert guarded.post("logout-everywhere").status == 200
    for guarded.cookie, _ in sessions:
        assert guarded.ask("overview").code == "login"


def test_guesses_are_slowed_down_and_do_not_say_who_exists(guarded: RunningConsole) -> None:
    texts = {log_in(guarded, user, "wrong-password").body for user in ("anna", "nobody")}
    assert len(texts) == 1
    codes = [log_in(guarded, "anna", "wrong-password").code for _ in range(6)]
    assert codes == ["login"] * 4 + ["rate"] * 2
    answer = log_in(guarded, "anna", "right-password")
    assert answer.code == "rate"
    assert answer.json["error"]["retry_s"] > 0


def test_whoever_logs_in_uses_up_no_guesses(guarded: RunningConsole) -> None:
    """Twenty people behind one address begin to work within five minutes."""
    answers = [log_in(guarded, "anna", "right-password").status for _ in range(25)]
    assert set(answers) == {200}
    assert log_in(guarded, "anna", "wrong-password").code == "login"


@pytest.mark.parametrize("user", [None, 5, ["anna"], {"a": 1}])
def test_a_log_in_with_other_types_is_refused(guarded: RunningConsole, user: object) -> None:
    assert log_in(guarded, user, "x").code == "bad-request"
    assert log_in(guarded, "anna", user).code == "bad-request"
    assert log_in(guarded, "anna", "x" * 2_000).code == "bad-request"
    assert guarded.request("POST", "/api/login", body=b"[1]").code == "bad-request"


def test_limits_count_users_addresses_and_all() -> None:
    now_s = 0.0
    limits = LoginLimits(lambda: now_s)
    for number in range(20):
        assert limits.wait_s(f"user-{number}", "one") == 0
        limits.failed(f"user-{number}", "one")
    assert limits.wait_s("another", "one") > 0
    assert limits.wait_s("another", "two") == 0
    limits.succeeded("user-0", "one")
    assert limits.wait_s("another", "one") == 0, "one of the twenty was right"
    limits.failed("user-0", "one")
    assert limits.wait_s("another", "one") > 0
    now_s = 301.0
    assert limits.wait_s("another", "one") == 0


def test_the_file_of_users_has_no_password_and_is_the_owners(tmp_path: Path) -> None:
    file = UsersFile(tmp_path / "sub" / "users.json")
    file.put(User("anna", Role.ADMIN, hashed("a-password")))
    assert b"a-password" not in file.path.read_bytes()
    assert file.path.stat().st_mode & 0o077 == 0
    stored = UsersFile(file.path).read()["anna"].password
    assert is_right("a-password", stored)
    assert not is_right("a-passwore", stored)
    file.path.write_text("{")
    with pytest.raises(UsersError, match="damaged"):
        UsersFile(file.path).read()


# -- what leaves the console


def test_no_cell_is_a_formula() -> None:
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1+1", "\uff0d1"):
        assert cell(text).startswith("'")
    assert cell(-5) == "-5"
    assert csv_text(["a"], [{"a": '=cmd|"/c calc"!A1'}]) == 'a\r\n"\'=cmd|""/c calc""!A1"\r\n'


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_no_cell_is_a_formula_where_another_letter_separates_cells(delimiter: str) -> None:
    """A spreadsheet of another country, or a user, takes another letter for the end of a cell."""
    texts = ["a;=1+1", 'a";=1', "a; =1", "a\t+1", 'b"\n=1', "a\r\n@x", 'x;"=1"', "a;\uff1d1", 'c"\r-1;']
    for text in texts:
        file = csv_text(["a=b", "c"], [{"a=b": 5, "c": text}, {"a=b": text, "c": -5}])
        for row in csv.reader(io.StringIO(file, newline=""), delimiter=delimiter):
            found = [part for part in row if part.strip('" ').startswith(("=", "+", "@", "\uff1d"))]
            assert not found, (text, found)


def test_ordinary_text_is_not_changed_by_that() -> None:
    for text in ("a = b", "a-b; c", "2026-11-27T00:00:00", '{"a":-1,"b":"x=y"}', "a\nb", "x;y", ""):
        assert cell(text) == text


def test_the_head_of_a_file_is_no_formula_either() -> None:
    assert csv_text(["=1+1"], []) == "'=1+1\r\n"


def test_names_of_files_are_harmless() -> None:
    assert file_name("../../etc", "a b\r\nX: y.csv") == "_.._etc-a_b__X__y.csv"
    assert file_name("...") == "file"


# -- filters


@pytest.mark.parametrize(
    ("expression", "where"),
    [("value.", (1, 7)), ("1 +* 2", (1, 4)), ("key ==\n  ==", (2, 3)), ("", (1, 1))],
)
def test_a_filter_that_does_not_parse_says_where(expression: str, where: tuple[int, int]) -> None:
    with pytest.raises(FilterError) as failed:
        Filter(expression)
    assert failed.value.where == where


def test_a_filter_has_only_its_names() -> None:
    for expression in ("open", "__import__", "record.value", "os.system"):
        with pytest.raises(FilterError, match="there is no name"):
            Filter(expression)
    with pytest.raises(FilterError, match="at most"):
        Filter("1 == 1 || " * 1_000 + "true")
    assert "value" in NAMES


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("value.amount > 5", True),
        ('key == "k" && headers["h"] == "1"', True),
        ("offset == 7 && partition == 3 && timestamp == 9", True),
        ("value.missing == 1", False),
        ("value > 5", False),
        ("1", False),
        ("value.amount", False),
        ('value.text.matches("^a")', True),
    ],
)
def test_a_filter_matches_or_does_not(expression: str, expected: bool) -> None:
    record = Record(7, 9, b"k", b'{"amount": 6, "text": "abc"}', [("h", b"1")])
    assert Filter(expression).matches(record, 3) is expected


def _batch(value: bytes) -> bytes:
    return _batch_of(Record(0, 0, None, value))


def _batch_of(record: Record) -> bytes:
    return bytes(encode_batch([record], base_offset=0))


BOMB = ".map(a, [1, 2, 3, 4, 5, 6, 7, 8, 9]" * 14 + ")" * 14


def test_a_filter_that_never_ends_is_ended_and_the_next_search_works() -> None:
    async def main() -> None:
        workers = Workers()
        head = {"type": "chunk", "partition": 0, "from": 0, "to": 10, "count_max": 10}
        async with workers.worker() as worker:
            bomb = f"size([1, 2, 3, 4, 5, 6, 7, 8, 9]{BOMB}) > 0"
            assert (await worker.ask({"type": "begin", "filter": bomb}, timeout_s=20))["error"] is None
            with pytest.raises(Problem) as failed:
                await worker.ask(head, _batch(b"{}"), timeout_s=1)
            assert failed.value.code in ("timeout", "filter")
            assert not worker.is_usable
        async with workers.worker() as worker:
            assert (await worker.ask({"type": "begin", "filter": "true"}, timeout_s=20))["error"] is None
            found = await worker.ask(head, _batch(b"{}"), timeout_s=20)
            assert [record["offset"] for record in found["records"]] == [0]
        await workers.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_one_browser_leaves_a_search_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.messages.workers._WAIT_S", 0.1)

    async def main() -> None:
        workers = Workers()
        async with AsyncExitStack() as stack:
            for _ in range(BROWSER_MAX):
                await stack.enter_async_context(workers.worker("one"))
            with pytest.raises(Problem, match=f"{BROWSER_MAX} searches of this browser are running"):
                await stack.enter_async_context(workers.worker("one"))
            async with workers.worker("other"):
                with pytest.raises(Problem, match=f"{WORKERS_MAX} searches are running"):
                    await stack.enter_async_context(workers.worker("third"))
        async with workers.worker("one"):
            assert workers._browsers == {"one": 1}
        await workers.close()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("is_raw", [False, True], ids=["shown", "raw"])
@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"x", [("h", b"y" * 60_000)] * 50),
        Record(0, 0, None, b"x", [("n" * 60_000, b"")] * 50),
        Record(0, 0, None, b"x", [("", None)] * 5_000),
        Record(0, 0, b"\x01" * 60_000, b"\x01" * 60_000),
    ],
    ids=["values", "names", "number", "controls"],
)
def test_one_answer_of_a_worker_is_small_whatever_is_in_the_records(record: Record, is_raw: bool) -> None:
    """Records that are some kilobytes compressed are gigabytes as text. The search continues where the answer ended."""
    records = [Record(offset, 0, record.key, record.value, record.headers) for offset in range(NUMBER)]
    data = bytes(encode_batch(records, base_offset=0))
    job = job_of({"body": "text", "key": "text", "is_raw": is_raw})
    found: list[dict[str, Any]] = []
    place = 0
    while place < len(records):
        head = {"partition": 0, "from": place, "to": len(records), "count_max": 10_000}
        part = search_chunk(job, head, data)
        size = len(json.dumps(part.records))
        largest = max(len(json.dumps(each)) for each in part.records)
        assert size <= 6 * 8_500_000 + largest, size
        assert part.text * 8 + 1_000 * len(part.records) >= size, "the search counts what it holds"
        assert part.next > place
        found, place = found + part.records, part.next
    assert [each["offset"] for each in found] == list(range(NUMBER))
    if not is_raw:
        assert max(len(json.dumps(each)) for each in found) < 1_000_000


def test_headers_that_are_not_shown_are_counted() -> None:
    (row,) = search_chunk(job_of({}), HEAD, _batch_of(Record(0, 0, None, b"x", [("a", b"1")] * 1_500))).records
    assert (len(row["headers"]), row["headers_left"]) == (1_000, 500)
    (row,) = search_chunk(job_of({"text_max": 10}), HEAD, _batch_of(Record(0, 0, None, b"x", HEADERS))).records
    assert row["headers_left"] == 0
    assert [(each["name"], each["value"]["text"], each["value"]["is_cut"]) for each in row["headers"]] == [
        ("a", "1234", False),
        ("b", "12345", False),
        ("c", "", True),
    ]


NUMBER = 6
HEAD = {"partition": 0, "from": 0, "to": 10, "count_max": 10}
HEADERS = [("a", b"1234"), ("b", b"12345"), ("c", b"12345")]


def test_records_that_are_no_text_and_no_batches_end_no_worker() -> None:
    async def main() -> None:
        worker = await Worker.start()
        head = {"type": "chunk", "partition": 0, "from": 0, "to": 10, "count_max": 10}
        await worker.ask({"type": "begin"}, timeout_s=20)
        for value, kind in ((b"\xff\xfe\x00", "hex"), (b'{"a": 1}', "json"), (b"{a", "text"), (b"a\x1b[31m", "hex")):
            found = await worker.ask(head, _batch(value), timeout_s=20)
            assert found["records"][0]["value"]["kind"] == kind
        torn = bytearray(_batch(b"x" * 100))
        torn[16] = 9
        assert (await worker.ask(head, bytes(torn), timeout_s=20))["problem"] is not None
        assert (await worker.ask(head, b"\0" * 50, timeout_s=20))["records"] == []
        await worker.end()

    asyncio.run(asyncio.wait_for(main(), 60))
