"""The address of the console: with what it refuses to start there, and what it does over TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.cli.console import _options
from barnabas.cli.contexts.store import ContextFile
from barnabas.console.config_file import ConfigFile
from barnabas.console.security.passwords import Hashed, hashed
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersFile
from barnabas.console.serving import Place, is_loopback
from barnabas.console.state import ConsoleOptions
from barnabas.embedded.authority import Authority, issue, make_authority
from barnabas.embedded.failures import Failure
from barnabas.testing.phantom import PhantomCluster

NETWORK = ("0.0.0.0", "::", "192.168.0.7", "console.example")
PEM = Path("console.pem")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = UsersFile(tmp_path / "users.json")
    file.put(User("anna", Role.ADMIN, Hashed("00" * 16, "00" * 32)))
    return file.path


def said(users: Path | None, *, insecure: bool = False, hosts: tuple[str, ...] = ()) -> ConfigFile:
    return ConfigFile(users=users, insecure=insecure, allowed_hosts=hosts)


@pytest.fixture(autouse=True)
def no_default_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of users that none is named for has none."""
    monkeypatch.setattr("barnabas.cli.console.users_file", lambda _environment: ContextFile(tmp_path / "contexts.json"))


@pytest.mark.parametrize("host", NETWORK)
def test_on_an_address_of_the_network_it_needs_users_and_tls(host: str, users: Path) -> None:
    with pytest.raises(Failure, match="the console has no users"):
        _options(said(None), Place(host, certificate=PEM, key=PEM))
    with pytest.raises(Failure, match="plain text"):
        _options(said(users), Place(host))
    found = _options(said(users), Place(host, certificate=PEM, key=PEM))
    assert (found.users, found.is_tls) == (users, True)


@pytest.mark.parametrize("host", NETWORK)
def test_insecure_is_said_and_users_are_still_asked_for(host: str, users: Path) -> None:
    assert _options(said(users, insecure=True), Place(host)).users == users
    assert _options(said(None, insecure=True), Place(host)).users is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_on_this_machine_it_needs_neither_and_asks_for_users_if_there_are_some(host: str, users: Path) -> None:
    assert is_loopback(host)
    assert _options(said(None), Place(host)).users is None
    assert _options(said(users), Place(host)).users == users


@pytest.mark.parametrize("insecure", [False, True])
def test_a_file_of_users_that_is_named_must_have_some(tmp_path: Path, insecure: bool) -> None:
    """A mistake in its name must not open the console to everybody."""
    with pytest.raises(Failure, match=r"none\.json has no users"):
        _options(said(tmp_path / "none.json", insecure=insecure), Place())
    file = UsersFile(tmp_path / "empty.json")
    file.put(User("anna", Role.ADMIN, Hashed("00" * 16, "00" * 32)))
    file.remove("anna")
    with pytest.raises(Failure, match=r"empty\.json has no users"):
        _options(said(file.path, insecure=insecure), Place())


def test_without_users_on_all_addresses_no_name_of_a_stranger_leads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Machine")
    monkeypatch.setattr("socket.getfqdn", lambda: "machine.example")
    hosts = _options(said(None, insecure=True), Place("0.0.0.0")).hosts
    assert hosts is not None
    assert set(hosts) == {"machine", "machine.example"}
    with (
        PhantomCluster(topics=1) as phantom,
        RunningConsole([target_of(phantom)], ConsoleOptions(hosts=hosts)) as running,
    ):
        answers = {
            host: running.request("GET", "/api/overview", headers={"Host": host}).status
            for host in (
                "10.1.2.3:8088",
                "[fe80::1]:8088",
                "machine:8088",
                "localhost",
                "evil.example:8088",
                "10.1.2.3.evil",
            )
        }
        assert [host for host, status in answers.items() if status != 200] == ["evil.example:8088", "10.1.2.3.evil"]


def test_two_consoles_of_one_machine_leave_each_other_their_sessions() -> None:
    with (
        PhantomCluster(topics=1) as phantom,
        RunningConsole([target_of(phantom)]) as one,
        RunningConsole([target_of(phantom)]) as other,
    ):
        tokens = [each.session()["token"] for each in (one, other)]
        one.cookie = other.cookie = f"{one.cookie}; {other.cookie}"
        assert [each.session()["token"] for each in (one, other)] == tokens


def test_a_certificate_needs_its_key(users: Path) -> None:
    for place in (Place(certificate=PEM), Place(key=PEM)):
        with pytest.raises(Failure, match="must be given together"):
            _options(said(users), place)


def test_the_default_is_this_machine() -> None:
    assert Place().host == "127.0.0.1"


def test_names_that_a_request_can_use(users: Path) -> None:
    def hosts(host: str, *allowed: str) -> set[str]:
        found = _options(said(users, hosts=allowed), Place(host, certificate=PEM, key=PEM)).hosts
        assert found is not None
        return set(found)

    assert hosts("console.example") == {"console.example"}
    assert hosts("10.0.0.1", "A.example") == {"a.example", "10.0.0.1"}
    assert hosts("0.0.0.0", "a.example") == {"a.example"}


# -- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = make_authority(tmp_path_factory.mktemp("authority"))
    issue(authority, "console", ["localhost"])
    return authority


@pytest.fixture
def secure(authority: Authority, tmp_path: Path) -> Iterator[RunningConsole]:
    file = UsersFile(tmp_path / "users.json")
    file.put(User("anna", Role.ADMIN, hashed("right-password")))
    both = authority.directory / "console.pem"
    place = Place(port=0, certificate=both, key=both)
    options = ConsoleOptions(users=file.path, is_tls=True)
    with PhantomCluster(topics=1) as phantom, RunningConsole([target_of(phantom)], options, place=place) as running:
        yield running


def ask(
    console: RunningConsole, authority: Authority, method: str, path: str, **headers: str
) -> http.client.HTTPResponse:
    port = urlsplit(console.url).port
    context = ssl.create_default_context(cafile=authority.certificate)
    connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    body = json.dumps({"user": "anna", "password": "right-password"}) if method == "POST" else None
    connection.request(method, path, body=body, headers={"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_over_tls_the_cookie_is_of_this_host_and_of_tls_alone(secure: RunningConsole, authority: Authority) -> None:
    assert secure.url.startswith("https://")
    own = f"https://localhost:{urlsplit(secure.url).port}"
    answer = ask(secure, authority, "POST", "/api/login", Origin=own)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"__Host-barnabas_console_{urlsplit(secure.url).port}=")
    parts = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert parts >= {"secure", "httponly", "samesite=strict", "path=/"}
    assert not any(each.startswith("domain") for each in parts)
    assert "max-age=" in answer.headers["strict-transport-security"]
    value = cookie.partition(";")[0]
    assert ask(secure, authority, "GET", "/api/overview", Cookie=value).status == 200
    plain = value.removeprefix("__Host-")
    assert ask(secure, authority, "GET", "/api/overview", Cookie=plain).status == 401, "another place can set this one"


def test_over_tls_a_page_without_it_is_another_site(secure: RunningConsole, authority: Authority) -> None:
    plain = f"http://localhost:{urlsplit(secure.url).port}"
    assert ask(secure, authority, "POST", "/api/login", Origin=plain).status == 403


def test_without_tls_nothing_is_answered_on_its_port(secure: RunningConsole) -> None:
    parts = urlsplit(secure.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.request("GET", "/")
        connection.getresponse()
    connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:.*TLSVersion.*deprecated:DeprecationWarning")
def test_old_versions_of_tls_are_refused(secure: RunningConsole, authority: Authority, version: ssl.TLSVersion) -> None:
    port = urlsplit(secure.url).port
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection.request("GET", "/")
    connection.close()
