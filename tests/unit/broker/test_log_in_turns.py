"""Many clients that log in at the same time: few of their requests are served in one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.log_in import log_in, plain, secured_broker
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.requests.log_in_turns import LogInTurns
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

_CLIENTS = 100
_PER_TURN = 16


def _arrived(wired: WiredBroker) -> list[WiredClient]:
    """Returns clients that have sent their first request in the same turn."""
    clients = [wired.connect() for _ in range(_CLIENTS)]
    for client in clients:
        client.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    return clients


def test_a_turn_serves_a_few_clients_that_log_in() -> None:
    """A turn with the requests of 1,000 clients took 0.09 s of CPU."""
    wired = secured_broker()
    clients = _arrived(wired)
    served = [bool(client.link.sent) for client in clients]
    assert served == [True] * _PER_TURN + [False] * (_CLIENTS - _PER_TURN)


def test_all_clients_are_served_in_the_end_and_in_order() -> None:
    wired = secured_broker()
    order: list[WiredClient] = []
    clients = _arrived(wired)
    for client in clients:
        _record(client, order)
    wired.host.time.run_for(0)
    assert order == clients[_PER_TURN:]
    for client in clients:
        assert len(client.received()) == 1
        assert log_in(client).error_code == 0


def _record(client: WiredClient, order: list[WiredClient]) -> None:
    write = client.link.write

    def recorded(chunks: list[bytes]) -> None:
        order.append(client)
        write(chunks)

    client.link.write = recorded  # type: ignore[method-assign, assignment]


def test_a_client_that_has_logged_in_does_not_wait() -> None:
    wired = secured_broker()
    client = wired.connect()
    log_in(client)
    _arrived(wired)
    client.send(MetadataRequest(topics=[]), 12)
    ((_, answer),) = client.received()
    assert isinstance(answer, MetadataResponse)


def test_nothing_is_read_from_a_client_that_sends_ahead() -> None:
    wired = secured_broker()
    last = _arrived(wired)[-1]
    assert last.link.reading
    last.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    last.send(SaslAuthenticateRequest(auth_bytes=plain()), 2)
    assert not last.link.reading
    wired.host.time.run_for(0)
    assert len(last.received()) == 3
    assert last.link.reading
    assert last.core.principal == "User:alice"


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    wired = secured_broker()
    clients = _arrived(wired)
    clients[-1].core.closed()
    wired.host.time.run_for(0)
    assert not clients[-1].link.sent
    assert all(client.link.sent for client in clients[:-1])
    assert log_in(wired.connect()).error_code == 0


class _Client:
    """A connection that sends the next request as soon as one is served."""

    def __init__(self, turns: LogInTurns, requests: int) -> None:
        self._turns = turns
        self.left = requests

    def send(self) -> None:
        if self.left and self._turns.admit(self):
            self.resume()

    def resume(self) -> None:
        self.left -= 1
        self.send()


def test_no_turn_serves_more_and_none_less_while_clients_wait() -> None:
    soon: list[Callable[[], None]] = []
    turns = LogInTurns(soon.append)
    clients = [_Client(turns, 3) for _ in range(50)]
    for client in clients:
        client.send()
    served, left = [], 150
    while True:
        now_left = sum(client.left for client in clients)
        served.append(left - now_left)
        left = now_left
        if not soon:
            break
        assert len(soon) == 1
        soon.pop()()
    assert served == [16] * 9 + [6, 0], "the last turn only finds that nobody waits"
