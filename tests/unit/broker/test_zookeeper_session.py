"""The session of a broker with ZooKeeper before the broker has parts: chroot, identity, lost answers, expiries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.zookeeper_broker import PROPERTIES, MemoryClient

from barnabas.broker.zookeeper.identity import Identity
from barnabas.broker.zookeeper.session import ZooKeeperSession
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.client.store import LOST
from barnabas.zookeeper.wire.codes import ErrorCode, EventType

_TIMEOUT_MS = 7_000


class Client(MemoryClient):
    """A client whose sessions open when the test says so, and whose chroots wait for an answer."""

    def __init__(self, session: ZooKeeperSession) -> None:
        super().__init__(listener=session, is_open=False)
        self.opens = 0
        self.chroots: list[Callable[[int], None]] = []

    def open(self) -> None:
        self.opens += 1

    def make_chroot(self, reply: Callable[[int], None]) -> None:
        self.chroots.append(reply)

    def answer_chroot(self, error: int = ErrorCode.OK) -> None:
        (reply,), self.chroots = self.chroots, []
        reply(error)


class Listener:
    """The broker's side: what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def session_opened(self, session_id: int) -> None:
        self.heard.append("opened")

    def disconnected(self) -> None:
        self.heard.append("disconnected")

    def reconnected(self) -> None:
        self.heard.append("reconnected")

    def session_expired(self) -> None:
        self.heard.append("expired")

    def auth_failed(self) -> None:
        self.heard.append("auth failed")

    def changed(self, path: str, event_type: EventType) -> None:
        self.heard.append(path)


class Start:
    """The start of a broker, up to its identity."""

    def __init__(self) -> None:
        self.host = MemoryHost(seed=1)
        properties = {
            **PROPERTIES,
            "zookeeper.connect": "one:2181,two:2182/kafka",
            "zookeeper.connection.timeout.ms": str(_TIMEOUT_MS),
        }
        self.session = ZooKeeperSession(self.host, BrokerConfig.from_properties(properties))
        self.client = Client(self.session)
        self.session.store = self.client  # type: ignore[assignment]
        self.found: list[Identity | ConfigError] = []
        self.session.identify(self.found.append)

    @property
    def identity(self) -> Identity:
        (found,) = self.found
        assert isinstance(found, Identity), found
        return found

    @property
    def refusal(self) -> str:
        (found,) = self.found
        assert isinstance(found, ConfigError), found
        return str(found)


@pytest.fixture
def start() -> Start:
    return Start()


def test_a_broker_finds_its_identity_below_its_chroot(start: Start) -> None:
    assert start.client.opens == 1
    start.client.open_session()
    assert not start.client.waiting, "nothing is asked below a chroot that possibly does not exist"
    start.client.answer_chroot()
    start.client.answer_all()
    assert start.identity.config.node_id == 1
    start.host.time.run_for(_TIMEOUT_MS)
    assert len(start.found) == 1, "the timeout is over with the identity"


@pytest.mark.parametrize("has_session", [False, True])
def test_a_zookeeper_that_does_not_answer_ends_the_start(start: Start, has_session: bool) -> None:
    if has_session:
        start.client.open_session()
        start.client.answer_chroot()
    start.host.time.run_for(_TIMEOUT_MS - 1)
    assert not start.found
    start.host.time.run_for(1)
    assert start.refusal == (
        "ZooKeeper at one:2181,two:2182/kafka did not answer within 7000 ms (zookeeper.connection.timeout.ms): "
        "check zookeeper.connect, and that the servers are running"
    )
    if not has_session:
        start.client.open_session()
        start.client.answer_chroot()
    start.client.answer_all()
    assert len(start.found) == 1
    assert not start.client.waiting


def test_a_chroot_that_may_not_be_made_ends_the_start(start: Start) -> None:
    start.client.open_session()
    start.client.answer_chroot(ErrorCode.NO_AUTH)
    assert start.refusal == "the chroot of one:2181,two:2182/kafka cannot be created: NO_AUTH"


def test_a_lost_answer_about_the_chroot_is_asked_for_again(start: Start) -> None:
    start.client.open_session()
    start.client.disconnect()
    start.client.answer_chroot(LOST)
    assert not start.found
    start.client.reconnect()
    start.client.answer_chroot()
    start.client.answer_all()
    assert start.identity


def test_lost_answers_about_the_identity_are_asked_for_again(start: Start) -> None:
    start.client.open_session()
    start.client.answer_chroot()
    while not start.found:
        start.client.disconnect(happened=1)
        assert not start.client.waiting
        start.client.reconnect()
        assert not start.client.chroots
        start.client.answer()
    assert start.identity


def test_an_expiry_begins_again_in_the_next_session(start: Start) -> None:
    start.client.open_session()
    start.client.answer_chroot()
    start.client.answer()
    start.client.expire()
    assert start.client.opens == 2
    start.client.open_session()
    start.client.answer_chroot()
    start.client.answer_all()
    assert start.identity


def test_an_expiry_before_the_chroot_begins_again(start: Start) -> None:
    start.client.open_session()
    start.client.expire()
    start.client.answer_chroot(LOST)
    assert not start.found
    start.client.open_session()
    start.client.answer_chroot()
    start.client.answer_all()
    assert start.identity


def test_what_happens_between_identity_and_listener_is_harmless(start: Start) -> None:
    """The logs are opened then; the side looks for the session itself."""
    start.client.open_session()
    start.client.answer_chroot()
    start.client.answer_all()
    start.client.disconnect()
    start.client.reconnect()
    start.client.answer_chroot()
    start.client.expire()
    assert start.client.opens == 2
    start.client.open_session()
    start.client.answer_chroot()
    assert len(start.found) == 1
    assert not start.client.waiting


def test_the_listener_gets_every_event(start: Start) -> None:
    start.client.open_session()
    start.client.answer_chroot()
    start.client.answer_all()
    listener = Listener()
    start.session.listen(listener)
    start.client.disconnect()
    start.client.reconnect()
    start.session.changed("/a", EventType.NODE_CREATED)
    start.session.auth_failed()
    start.client.expire()
    start.client.open_session()
    assert listener.heard == ["disconnected", "reconnected", "/a", "auth failed", "disconnected", "expired", "opened"]
    assert (start.client.opens, start.client.chroots) == (1, []), "the listener opens the next session"
