"""The session within the page: whom it is given to, and that nothing in it is read as a part of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import Answer, RunningConsole, target_of

from barnabas.console.pages import Pages
from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster

UI = Path(__file__).resolve().parents[3] / "src/barnabas/console/ui"
HOSTILE = "</script><script>alert(1)</script><!--"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("static")
    (folder / "index.html").write_text((UI / "index.html").read_text(encoding="utf-8"), encoding="utf-8")
    return Pages(folder)


@pytest.fixture(scope="module")
def console(pages: Pages) -> Iterator[RunningConsole]:
    with PhantomCluster(topics=3) as phantom, RunningConsole([target_of(phantom, HOSTILE)], pages=pages) as running:
        running.filled()
        yield running


@pytest.fixture
def stranger(console: RunningConsole) -> RunningConsole:
    """Provides the console to a browser without a cookie."""
    console.cookie = console.token = ""
    return console


def _opened(console: RunningConsole, site: str | None, path: str = "/topics?sort=name") -> Answer:
    return console.request("GET", path, headers={"Sec-Fetch-Site": site or ""})


def _session_in(answer: Answer) -> Any:
    found = re.findall(r'<script id="session" type="application/json">(.*?)</script>', answer.body.decode())
    assert len(found) == 1, answer.body
    return json.loads(found[0])


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_page_that_is_opened_here_has_a_session_that_can_change_something(
    stranger: RunningConsole, site: str
) -> None:
    answer = _opened(stranger, site)
    session = _session_in(answer)
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert answer.headers["cache-control"] == "no-store"
    stranger.token = session["token"]
    assert stranger.post("logout").status == 200


def test_a_page_with_a_cookie_keeps_its_session(stranger: RunningConsole) -> None:
    first = _session_in(_opened(stranger, "none"))
    answer = _opened(stranger, "cross-site")
    assert "set-cookie" not in answer.headers
    assert _session_in(answer) == stranger.session() == first


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
def test_a_link_of_another_site_neither_begins_nor_replaces_a_session(
    stranger: RunningConsole, site: str | None
) -> None:
    assert stranger.console is not None
    before = len(stranger.console.sessions)
    answer = _opened(stranger, site)
    assert _session_in(answer) is None
    assert "set-cookie" not in answer.headers
    assert len(stranger.console.sessions) == before


def test_no_name_is_read_as_a_part_of_the_page(stranger: RunningConsole) -> None:
    answer = _opened(stranger, "none")
    assert _session_in(answer)["cluster"] == HOSTILE
    assert b"alert(1)</script>" not in answer.body
    assert answer.body.count(b"<!--") == 0
    assert answer.body.count(b"</script>") == 2, "that of the bundle and that of the session"


def test_an_address_of_an_unknown_cluster_opens_the_page_without_a_session(stranger: RunningConsole) -> None:
    assert _session_in(_opened(stranger, "none", "/map?cluster=nowhere")) is None


def test_only_who_is_logged_in_gets_a_session_in_the_page(pages: Pages, tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "users.json")
    users.put(User("ann", Role.OPERATOR, hashed("correct horse")))
    with (
        PhantomCluster(topics=3) as phantom,
        RunningConsole([target_of(phantom)], ConsoleOptions(users=tmp_path / "users.json"), pages=pages) as guarded,
    ):
        guarded.session()
        assert _session_in(_opened(guarded, "none")) is None
        assert guarded.request("POST", "/api/login", body={"user": "ann", "password": "correct horse"}).status == 200
        assert _session_in(_opened(guarded, "none"))["user"] == "ann"
