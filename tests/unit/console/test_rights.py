"""Every route of the console, with every role, without a session, without its token, from another site, in a form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.console_server import Answer, RunningConsole, target_of

from barnabas.console.application import HANDLERS
from barnabas.console.security.passwords import Hashed
from barnabas.console.security.rights import PAST, ROLES, ROUTES, Role, Route
from barnabas.console.security.users import User, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster

#: Codes of a request that its route did not see.
STOPPED = {"login", "role", "csrf", "read-only", "host"}
POSTS = [route for route in ROUTES if route.method == "POST"]
CHANGES = [route for route in ROUTES if route.is_change]
#: A digest that no password has: the sessions of these tests begin without a log-in.
PASSWORD = Hashed("00" * 16, "00" * 32)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    users = tmp_path_factory.mktemp("users") / "users.json"
    file = UsersFile(users)
    for name, role in ROLES.items():
        file.put(User(name, role, PASSWORD))
    with (
        PhantomCluster(topics=3) as phantom,
        RunningConsole([target_of(phantom)], ConsoleOptions(users=users)) as running,
    ):
        yield running


def enter(console: RunningConsole, role: Role) -> None:
    """Begins a session of the user with this role; none for nobody."""
    console.cookie = console.token = ""
    if role is Role.NOBODY or console.console is None:
        return
    cookie, session = console.console.sessions.begin(role.name.lower(), role, PASSWORD.digest)
    console.take_cookie(cookie)
    console.token = session.token


def send(console: RunningConsole, route: Route, **headers: str) -> Answer:
    """Sends a request that changes nothing: it lacks what the action needs."""
    if route.name == "live":
        return console.request("GET", f"{route.path}?screen=overview&cluster=none", headers=headers)
    return console.request(route.method, route.path, body={}, headers=headers)


def label(value: object) -> str:
    return value.path if isinstance(value, Route) else str(value)


@pytest.mark.parametrize("role", list(Role), ids=label)
@pytest.mark.parametrize("route", ROUTES, ids=label)
def test_a_route_is_for_its_role_and_higher_ones(console: RunningConsole, route: Route, role: Role) -> None:
    enter(console, role)
    answer = send(console, route)
    is_allowed = role >= route.role and not (role is Role.NOBODY and route.name == "logout")
    if is_allowed:
        assert answer.status < 500 or answer.code == "unreachable", answer.body
        assert answer.code not in STOPPED, answer.body
    else:
        assert answer.code == ("login" if role is Role.NOBODY else "role"), answer.body


@pytest.mark.parametrize("route", [each for each in POSTS if each.name != "login"], ids=label)
def test_a_change_needs_the_token_of_its_session(console: RunningConsole, route: Route) -> None:
    for token in ("", "0" * 43):
        enter(console, Role.ADMIN)
        console.token = token
        assert send(console, route).code == "csrf"
    enter(console, Role.ADMIN)
    other = console.token
    enter(console, Role.ADMIN)
    console.token = other
    assert send(console, route).code == "csrf"


@pytest.mark.parametrize("route", ROUTES, ids=label)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_no_route_answers_another_site(console: RunningConsole, route: Route, headers: dict[str, str]) -> None:
    enter(console, Role.ADMIN)
    assert send(console, route, **headers).code == "csrf"


@pytest.mark.parametrize("route", POSTS, ids=label)
def test_no_change_by_another_method_or_as_a_form(console: RunningConsole, route: Route) -> None:
    enter(console, Role.ADMIN)
    assert console.request("GET", route.path).status in (404, 405)
    form = send(console, route, **{"Content-Type": "application/x-www-form-urlencoded"})
    assert form.code == "bad-request"
    assert "Content-Type" in form.json["error"]["text"]
    unmarked = send(console, route, Origin="", **{"Sec-Fetch-Site": ""})
    assert unmarked.code == "csrf"


@pytest.mark.parametrize("route", ROUTES, ids=label)
def test_no_route_answers_another_name(console: RunningConsole, route: Route) -> None:
    enter(console, Role.ADMIN)
    assert send(console, route, Host="evil.example").code == "host"


@pytest.mark.parametrize("route", CHANGES, ids=label)
def test_a_removed_user_or_a_changed_role_ends_the_session(
    console: RunningConsole, route: Route, tmp_path: Path
) -> None:
    assert console.console is not None
    enter(console, Role.ADMIN)
    before = console.console.users
    console.console.users = UsersFile(tmp_path / "users.json")
    try:
        console.console.users.put(User("admin", Role.VIEWER, PASSWORD))
        assert send(console, route).code == "login"
    finally:
        console.console.users = before


def test_every_handler_has_a_route_and_every_route_a_handler() -> None:
    assert set(HANDLERS) == {route.name for route in ROUTES}
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert {route.name for route in ROUTES if route.method == "GET"} >= PAST


def test_changes_are_posts_and_need_more_than_a_viewer() -> None:
    assert CHANGES
    for route in CHANGES:
        assert route.method == "POST"
        assert route.role >= Role.OPERATOR
    assert all(route.role is Role.ADMIN for route in ROUTES if route.path.startswith("/api/lab"))


def test_a_read_only_console_changes_nothing() -> None:
    with (
        PhantomCluster(topics=1) as phantom,
        RunningConsole([target_of(phantom)], ConsoleOptions(read_only=True)) as running,
    ):
        assert running.session()["read_only"] is True
        for route in CHANGES:
            assert running.request("POST", route.path, body={}).code == "read-only", route.path
