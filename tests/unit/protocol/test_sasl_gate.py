"""Every sequence of up to three frames in each state of the gate, against a second, plainer description of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import product
from typing import Final

import pytest
from tests.support.log_in import authenticate, frame_of, handshake, plain, versions

from barnabas.common.errors import DecodeError
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.sasl.mechanism import LogInUndecided, Mechanism, Outcome, Step
from barnabas.protocol.sasl.plain_server import PlainServer
from barnabas.protocol.sasl_gate import TABLE, Act, FrameKind, Gate, GateState

USERS: Final = {"alice": "a", "bob": "b"}
FRAMES: Final = {
    "versions": versions(),
    "unknown versions": struct.pack(">hhihb", 18, 99, 1, -1, 0),
    "handshake": handshake("PLAIN"),
    "bare handshake": handshake("PLAIN", 0),
    "other": handshake("OTHER"),
    "absent": handshake("GSSAPI"),
    "alice": authenticate(plain("alice", "a")),
    "wrong": authenticate(plain("alice", "x")),
    "bob": authenticate(plain("bob", "b")),
    "bare alice": plain("alice", "a"),
    "metadata": frame_of(MetadataRequest(topics=[]), 12),
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nothing": b"",
}
#: State -> the frames that lead to it.
WAYS: Final = {
    GateState.NEW: (),
    GateState.VERSIONS_KNOWN: ("versions",),
    GateState.EXCHANGE: ("handshake",),
    GateState.BARE_EXCHANGE: ("bare handshake",),
    GateState.OPEN: ("handshake", "alice"),
    GateState.OTHER_MECHANISM: ("handshake", "alice", "other"),
    GateState.FAILED: ("handshake", "wrong"),
}


class Policy:
    """Two mechanisms; sessions last a minute, or have no end."""

    mechanisms = ("PLAIN", "OTHER")

    def __init__(self, session_ms: int = 60_000) -> None:
        self._session_ms = session_ms

    def begin(self, mechanism: str) -> Mechanism:
        return PlainServer(USERS)

    def session_ms_max(self, mechanism: str) -> int:
        return self._session_ms


def _run(names: Sequence[str], gate: Gate, step_ms: int = 2_000) -> list[Act | str]:
    """Passes the frames to the gate until it closes. A malformed request closes as well."""
    acts: list[Act | str] = []
    for number, name in enumerate(names):
        try:
            decision = gate.take(memoryview(FRAMES[name]), number * step_ms, 0)
        except DecodeError:
            acts.append(Act.CLOSE)
            break
        acts.append(decision.act)
        if decision.act in (Act.CLOSE, Act.REFUSE):
            break
    return acts


def _expected(names: Sequence[str]) -> list[Act | str]:
    """A description of the gate by what a client may do, without its states."""
    acts: list[Act | str] = []
    versions_known = is_bare = changed = False
    chosen: str | None = None
    user: str | None = None
    mechanism = ""
    for name in names:
        act = Act.CLOSE
        if chosen:
            given = {"bare alice": "alice"}.get(name) if is_bare else name
            if given in ("alice", "wrong", "bob") or is_bare:
                good = not changed and given in ("alice", "bob") and user in (None, given)
                user, chosen, act = given if good else None, None, Act.REPLY if good else Act.REFUSE
        elif name in ("handshake", "bare handshake", "other"):
            offered = "OTHER" if name == "other" else "PLAIN"
            changed, mechanism = user is not None and offered != mechanism, offered
            chosen, is_bare, act = name, name == "bare handshake", Act.REPLY
        elif name == "absent":
            act = Act.REFUSE
        elif user is not None:
            act = Act.CLOSE if name in ("garbage", "nothing", "bare alice") else Act.SERVE
        elif name in ("versions", "unknown versions") and not versions_known:
            versions_known, act = name == "versions", Act.SERVE
        acts.append(act)
        if act in (Act.CLOSE, Act.REFUSE):
            break
    return acts


@pytest.mark.parametrize("state", GateState)
def test_all_sequences_of_three_frames(state: GateState) -> None:
    """Guard S12."""
    way = WAYS[state]
    for length in (1, 2, 3):
        for frames in product(FRAMES, repeat=length):
            names = (*way, *frames)
            assert _run(names, Gate(Policy())) == _expected(names), names


@pytest.mark.parametrize("state", GateState)
def test_the_ways_lead_to_the_states(state: GateState) -> None:
    gate = Gate(Policy())
    _run(WAYS[state], gate)
    assert gate.state is state
    assert set(TABLE[state]) == set(FrameKind)


def test_a_session_without_an_end_needs_no_gate_and_is_never_renewed() -> None:
    gate = Gate(Policy(0))
    assert gate.is_needed
    assert _run(("versions", "handshake", "alice"), gate) == [Act.SERVE, Act.REPLY, Act.REPLY]
    assert not gate.is_needed
    assert gate.outcome == Outcome("alice")
    assert gate.take(memoryview(FRAMES["handshake"]), 10**9, 0).act is Act.SERVE, (
        "its handler answers ILLEGAL_SASL_STATE"
    )


def test_another_user_cannot_renew_a_session() -> None:
    gate = Gate(Policy())
    _run(("handshake", "alice", "handshake"), gate)
    decision = gate.take(memoryview(FRAMES["bob"]), 6_000, 0)
    assert decision.act is Act.REFUSE
    assert isinstance(decision.response, SaslAuthenticateResponse)
    assert decision.response.error_code == 58
    assert decision.response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


def test_another_mechanism_cannot_renew_a_session() -> None:
    """Guard S13."""
    gate = Gate(Policy())
    _run(("handshake", "alice", "other"), gate)
    decision = gate.take(memoryview(FRAMES["alice"]), 6_000, 0)
    assert isinstance(decision.response, SaslAuthenticateResponse)
    assert decision.response.error_message == (
        "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    )


def test_the_refusal_of_a_mechanism_lists_those_that_are_offered() -> None:
    decision = Gate(Policy()).take(memoryview(FRAMES["absent"]), 0, 0)
    assert isinstance(decision.response, SaslHandshakeResponse)
    assert (decision.response.error_code, decision.response.mechanisms) == (33, ["PLAIN", "OTHER"])


def test_a_session_ends_and_is_renewed_at_most_once_a_second() -> None:
    gate = Gate(Policy(4_000))
    assert _run(("handshake", "alice"), gate, 0) == [Act.REPLY, Act.REPLY]
    assert gate.ends_ms == 4_000
    metadata, again = memoryview(FRAMES["metadata"]), memoryview(FRAMES["handshake"])
    assert gate.take(metadata, 4_000, 0).act is Act.SERVE
    assert gate.take(again, 3_000, 0).act is Act.REPLY
    renewed = gate.take(memoryview(FRAMES["alice"]), 3_000, 0)
    assert isinstance(renewed.response, SaslAuthenticateResponse)
    assert renewed.response.session_lifetime_ms == 4_000
    gate.end_renewal()
    assert gate.take(again, 3_999, 0).act is Act.SERVE, "too soon"
    assert gate.take(metadata, 7_000, 0).act is Act.SERVE
    ended = gate.take(metadata, 7_001, 0)
    assert (ended.act, gate.state) == (Act.CLOSE, GateState.FAILED)


class _Expiring:
    def __init__(self, expires_ms: int) -> None:
        self._expires_ms = expires_ms

    def evaluate(self, message: bytes) -> Step:
        return Step(b"", Outcome("alice", self._expires_ms))


@pytest.mark.parametrize(
    ("session_ms", "expires_ms", "lifetime_ms"),
    [(0, 5_000, 4_000), (3_000, 5_000, 3_000), (9_000, 5_000, 4_000), (0, 500, 0), (1 << 62, 1 << 80, 1 << 62)],
)
def test_the_lifetime_is_that_of_the_credentials_or_of_the_listener(
    session_ms: int, expires_ms: int, lifetime_ms: int
) -> None:
    policy = Policy(session_ms)
    policy.begin = lambda mechanism: _Expiring(expires_ms)  # type: ignore[method-assign]
    gate = Gate(policy)
    gate.take(memoryview(FRAMES["handshake"]), 100, 1_000)
    decision = gate.take(memoryview(FRAMES["alice"]), 100, 1_000)
    assert isinstance(decision.response, SaslAuthenticateResponse)
    assert decision.response.session_lifetime_ms == lifetime_ms
    assert gate.ends_ms == 100 + lifetime_ms


@pytest.mark.parametrize("jump_ms", [-(10**12), -3_600_000, 3_600_000, 10**12])
def test_a_wall_clock_that_jumps_neither_ends_nor_extends_a_session(jump_ms: int) -> None:
    policy = Policy(0)
    policy.begin = lambda mechanism: _Expiring(1_000_000_005_000)  # type: ignore[method-assign]
    gate = Gate(policy)
    wall_ms = 1_000_000_001_000
    gate.take(memoryview(FRAMES["handshake"]), 100, wall_ms)
    gate.take(memoryview(FRAMES["alice"]), 100, wall_ms)
    assert gate.take(memoryview(FRAMES["metadata"]), 4_100, wall_ms + jump_ms).act is Act.SERVE
    assert gate.take(memoryview(FRAMES["metadata"]), 4_101, wall_ms + jump_ms).act is Act.CLOSE


@pytest.mark.parametrize("frame", sorted(FRAMES))
def test_nothing_is_served_behind_a_log_in_that_could_not_be_decided(frame: str) -> None:
    class Undecided:
        asked = 0

        def evaluate(self, message: bytes) -> Step:
            self.asked += 1
            if self.asked > 1:
                return Step(b"", Outcome("alice"))
            raise LogInUndecided("not now")

    class UndecidedPolicy(Policy):
        def begin(self, mechanism: str) -> Mechanism:
            return Undecided()

    gate = Gate(UndecidedPolicy())
    gate.take(memoryview(handshake("PLAIN")), 0, 0)
    decision = gate.take(memoryview(authenticate(plain("alice", "a"))), 0, 0)
    assert (decision.act, decision.response, decision.cause) == (Act.CLOSE, None, "not now")
    assert gate.take(memoryview(FRAMES[frame]), 0, 0).act is Act.CLOSE
    assert gate.outcome is None
