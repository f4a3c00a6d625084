"""Damaged and arbitrary frames in each state of a log-in: connections are answered or end, and nobody is logged in."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.log_in import authenticate, frame_of, handshake, log_in, plain, secured_broker, versions
from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol.messages.metadata import MetadataRequest

_FIRST: Final = b"n,,n=alice,r=nonce-of-the-client"
#: State -> the frames that lead to it; without a name of its own, the exchange of SCRAM after the first message.
WAYS: Final = {
    "new": (),
    "versions known": (versions(),),
    "exchange": (handshake(),),
    "exchange of SCRAM": (handshake("SCRAM-SHA-512"),),
    "middle of SCRAM": (handshake("SCRAM-SHA-512"), authenticate(_FIRST)),
    "bare exchange": (handshake(version=0),),
    "open": (handshake(), authenticate(plain())),
    "renewal": (handshake(), authenticate(plain()), handshake()),
    "other mechanism": (handshake(), authenticate(plain()), handshake("SCRAM-SHA-512")),
    "failed": (handshake(), authenticate(plain("alice", "x"))),
}
#: The states in which alice has logged in.
LOGGED_IN: Final = ("open", "renewal", "other mechanism")
#: Messages of PLAIN and SCRAM.
MESSAGES: Final = (plain("alice", "x"), _FIRST, b"c=biws,r=nonce-of-the-client,p=AAAA", _FIRST + b",tokenauth=true")
FRAMES: Final = (
    versions(),
    handshake(),
    handshake("SCRAM-SHA-256"),
    *map(authenticate, MESSAGES),
    frame_of(MetadataRequest(topics=[]), 12),
)


@st.composite
def damaged(draw: st.DrawFn, sound: tuple[bytes, ...]) -> bytes:
    """Draws one of these texts with bytes replaced, inserted, left out or cut off."""
    text = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(text) - 1, 0)))
        text[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text)


#: Frames, damaged in any place, or sound ones with a damaged message of a mechanism.
HOSTILE: Final = st.one_of(
    damaged(FRAMES), damaged(MESSAGES).map(authenticate), damaged(MESSAGES), st.binary(max_size=200)
)


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    return secured_broker(connections_max_reauth_ms="3600000")


def _lead(wired: WiredBroker, state: str) -> WiredClient:
    client = WiredClient(wired)
    for number, frame in enumerate(WAYS[state]):
        # A session is renewed at most once a second.
        wired.host.time.run_for(2_000 if number == 2 else 10)
        client.send_raw(len(frame).to_bytes(4, "big") + frame)
    wired.host.time.run_for(10)
    return client


@pytest.mark.parametrize("state", WAYS)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(frames=st.lists(HOSTILE, min_size=1, max_size=4), announced=st.booleans())
def test_damaged_frames_log_nobody_in(wired: WiredBroker, state: str, frames: list[bytes], announced: bool) -> None:
    """Guard S12."""
    client = _lead(wired, state)
    assert client.core.principal == ("User:alice" if state in LOGGED_IN else "User:ANONYMOUS")
    causes = len(wired.closes.causes)
    for frame in frames:
        client.send_raw((len(frame).to_bytes(4, "big") if announced else b"") + frame)
    wired.host.time.run_for(200)
    assert wired.closes.errors == []
    assert len(wired.closes.causes) - causes <= 1, "one line for each connection"
    assert client.core.principal in ("User:ANONYMOUS", *(["User:alice"] if state in LOGGED_IN else []))
    client.core.close()
    wired.closes.causes.clear()


def test_the_ways_lead_where_they_should(wired: WiredBroker) -> None:
    for state in WAYS:
        client = _lead(wired, state)
        gate = client.core.gate
        assert gate is not None
        expected = {"exchange of SCRAM": "exchange", "middle of SCRAM": "exchange", "renewal": "exchange"}
        assert gate.state.value == expected.get(state, state)
        client.core.close()


def test_others_log_in_afterwards(wired: WiredBroker) -> None:
    client = WiredClient(wired)
    assert log_in(client).error_code == 0
    assert client.core.principal == "User:alice"
