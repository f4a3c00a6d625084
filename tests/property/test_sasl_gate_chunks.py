"""The log-in of a connection does not depend on how its bytes are divided."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.log_in import authenticate, frame_of, handshake, plain, secured_broker, versions
from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol.messages.metadata import MetadataRequest

FRAMES = {
    "versions": versions(),
    "handshake": handshake(),
    "bare handshake": handshake(version=0),
    "absent": handshake("GSSAPI"),
    "alice": authenticate(plain()),
    "wrong": authenticate(plain("alice", "x")),
    "bare alice": plain(),
    "metadata": frame_of(MetadataRequest(topics=[]), 12),
    "garbage": b"\x16\x03\x01\x02\x00\x01",
}


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    return secured_broker()


def _outcome(wired: WiredBroker, chunks: list[bytes]) -> tuple[bytes, bool, str]:
    client = WiredClient(wired)
    for chunk in chunks:
        client.send_raw(chunk)
    wired.host.time.run_for(200)
    found = (bytes(client.link.take()), client.core.is_closed, client.core.principal)
    client.core.close()
    return found


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(FRAMES)), max_size=5),
    cuts=st.lists(st.integers(0, 600), max_size=8),
)
def test_any_division_of_the_bytes_has_the_same_outcome(wired: WiredBroker, names: list[str], cuts: list[int]) -> None:
    """S12: nothing is served behind a frame that is not decided, wherever the pieces end."""
    data = b"".join(len(FRAMES[name]).to_bytes(4, "big") + FRAMES[name] for name in names)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    pieces = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    whole = _outcome(wired, [data])
    assert _outcome(wired, pieces) == whole
    if "alice" not in names and "bare alice" not in names:
        assert whole[2] == "User:ANONYMOUS"
