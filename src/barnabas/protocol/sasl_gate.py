"""The gate of a connection to a listener with SASL: an automaton over whole frames, without I/O or a clock.

`TABLE` says what each state does with each kind of frame. Before the log-in only ApiVersions and SaslHandshake pass,
then the messages of the mechanism. A session that ends can be renewed on the same connection (KIP-368), by the same
user with the same mechanism.

A gate whose session does not end is not needed after the log-in: then `is_needed` is False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.api import API_VERSIONS, BROKER_APIS
from barnabas.protocol.client_software import is_well_formed
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.sasl.mechanism import LogInRefused, LogInUndecided, Mechanism, Outcome

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
#: A client can renew its session at most this often.
RENEWAL_INTERVAL_MS: Final = 1_000
_LIFETIME_MS_MAX: Final = (1 << 63) - 1

M = TypeVar("M", bound=Message)


class GateState(Enum):
    """The states of a gate."""

    #: Nothing was received, or only ApiVersions requests of an unknown version.
    NEW = "new"
    #: The versions were answered.
    VERSIONS_KNOWN = "versions known"
    #: The mechanism was chosen, by SaslHandshake version 1: its messages come in SaslAuthenticate requests.
    EXCHANGE = "exchange"
    #: The mechanism was chosen, by SaslHandshake version 0: its messages are whole frames.
    BARE_EXCHANGE = "bare exchange"
    #: The client has logged in.
    OPEN = "open"
    #: The client wants to renew its session with another mechanism.
    OTHER_MECHANISM = "other mechanism"
    #: The log-in has failed: nothing more is served.
    FAILED = "failed"


class FrameKind(Enum):
    """The kinds of frames that the gate distinguishes."""

    API_VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    OTHER_REQUEST = "another request"
    NO_REQUEST = "no request of Kafka"


class Rule(Enum):
    """The rules for frames. The value of each is its text in the documentation."""

    ANSWER_VERSIONS = "answered; versions known, or still new if its version is unknown"
    CHOOSE = "exchange; failed (33) if the mechanism is not offered"
    EVALUATE = "open when the exchange is complete, else failed (58)"
    EVALUATE_FRAME = "the frame is a message of the mechanism: open when complete, else failed"
    RENEW_OR_SERVE = "exchange, if the session ends; otherwise 34"
    SERVE = "served; closed if the session has ended"
    REFUSE_MECHANISM = "failed (58)"
    CLOSE = "closed"


_CLOSE_ALL: Final[Mapping[FrameKind, Rule]] = dict.fromkeys(FrameKind, Rule.CLOSE)
TABLE: Final[Mapping[GateState, Mapping[FrameKind, Rule]]] = {
    GateState.NEW: {
        **_CLOSE_ALL,
        FrameKind.API_VERSIONS: Rule.ANSWER_VERSIONS,
        FrameKind.HANDSHAKE: Rule.CHOOSE,
    },
    GateState.VERSIONS_KNOWN: {**_CLOSE_ALL, FrameKind.HANDSHAKE: Rule.CHOOSE},
    GateState.EXCHANGE: {**_CLOSE_ALL, FrameKind.AUTHENTICATE: Rule.EVALUATE},
    GateState.BARE_EXCHANGE: dict.fromkeys(FrameKind, Rule.EVALUATE_FRAME),
    GateState.OPEN: {
        **dict.fromkeys(FrameKind, Rule.SERVE),
        FrameKind.HANDSHAKE: Rule.RENEW_OR_SERVE,
        FrameKind.NO_REQUEST: Rule.CLOSE,
    },
    GateState.OTHER_MECHANISM: {**_CLOSE_ALL, FrameKind.AUTHENTICATE: Rule.REFUSE_MECHANISM},
    GateState.FAILED: _CLOSE_ALL,
}


class Act(Enum):
    """The task of the connection after a frame."""

    #: Serve the request like any other.
    SERVE = "serve"
    #: Send the response.
    REPLY = "reply"
    #: Read nothing more, send the response, if there is one, after a delay, and close.
    REFUSE = "refuse"
    CLOSE = "close"


class RequestFields(NamedTuple):
    """The header of a request, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


class GateDecision(NamedTuple):
    """The gate's decision about one frame."""

    act: Act
    #: The header of the request; None for a frame without one.
    header: RequestFields | None = None
    #: The response, or the whole body of a response frame.
    response: Message | bytes | None = None
    #: The cause of a close, for the log.
    cause: str = ""


class GatePolicy(Protocol):
    """The settings of a listener, and its users."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """Returns the mechanisms that the listener offers."""

    def begin(self, mechanism: str) -> Mechanism:
        """Begins an exchange."""

    def session_ms_max(self, mechanism: str) -> int:
        """Returns `connections.max.reauth.ms`; 0 or less sets no end."""


class Gate:
    """The gate of one connection. `take` decides about each frame, in the order of their arrival."""

    __slots__ = ("_exchange", "_mechanism", "_policy", "_renewal_ms", "before", "ends_ms", "outcome", "renews", "state")

    def __init__(self, policy: GatePolicy) -> None:
        self._policy = policy
        self.state = GateState.NEW
        self._exchange: Mechanism | None = None
        self._mechanism = ""
        #: The user, once logged in.
        self.outcome: Outcome | None = None
        #: The mechanism and user whose session is being renewed; None otherwise.
        self.before: tuple[str, Outcome] | None = None
        #: The end of the session, on the monotonic clock; None if it has none.
        self.ends_ms: int | None = None
        self._renewal_ms: int | None = None
        #: Whether the client understands the lifetime of a session (SaslAuthenticate version 1).
        self.renews = False

    @property
    def is_needed(self) -> bool:
        """Returns whether later frames must pass the gate."""
        return self.state is not GateState.OPEN or self.ends_ms is not None

    @property
    def is_open(self) -> bool:
        """Returns whether the client has logged in."""
        return self.state is GateState.OPEN

    @property
    def is_renewing(self) -> bool:
        return self.before is not None

    @property
    def began_ms(self) -> int:
        """Returns when the last renewal began, on the monotonic clock."""
        assert self._renewal_ms is not None, "a renewal has begun"
        return self._renewal_ms

    @property
    def mechanism(self) -> str:
        """Returns the mechanism of the last handshake."""
        return self._mechanism

    def take(self, frame: memoryview, now_ms: int, wall_ms: int) -> GateDecision:
        """Decides about a frame. Raises DecodeError and the errors of a malformed request.

        `now_ms` is the monotonic time, `wall_ms` that since the epoch.
        """
        if self.state is GateState.BARE_EXCHANGE:
            return self._evaluate(None, bytes(frame), now_ms, wall_ms)
        kind, header = self._read_header(frame)
        rule = TABLE[self.state][kind]
        if rule is Rule.SERVE:
            return self._serve(header, now_ms)
        if header is None or rule is Rule.CLOSE:
            return self._close(kind, header)
        if rule is Rule.ANSWER_VERSIONS:
            return self._answer_versions(header, frame)
        if rule is Rule.EVALUATE:
            self.renews = self.renews or header.api_version > 0
            return self._evaluate(header, _body(SaslAuthenticateRequest, header, frame).auth_bytes, now_ms, wall_ms)
        if rule is Rule.REFUSE_MECHANISM:
            return self._refuse_mechanism(header)
        if rule is Rule.RENEW_OR_SERVE and not self._begin_renewal(now_ms):
            return self._serve(header, now_ms)
        return self._choose(header, _body(SaslHandshakeRequest, header, frame).mechanism)

    def _read_header(self, frame: memoryview) -> tuple[FrameKind, RequestFields | None]:
        try:
            header = RequestFields(*decode_request_header(frame))
        except DecodeError:
            return FrameKind.NO_REQUEST, None
        return _KINDS.get(header.api_key, FrameKind.OTHER_REQUEST), header

    def _close(self, kind: FrameKind, header: RequestFields | None) -> GateDecision:
        state, self.state = self.state, GateState.FAILED
        if header is None:
            where = "its first frame" if state is GateState.NEW else "a frame"
            return GateDecision(
                Act.CLOSE, cause=f"{where} is not a Kafka request: does it use another security protocol?"
            )
        what = f"api key {header.api_key}" if kind is FrameKind.OTHER_REQUEST else kind.value
        when = "SASL authentication" if state is GateState.EXCHANGE else "the SASL handshake"
        return GateDecision(Act.CLOSE, header, cause=f"unexpected request ({what}) during {when}")

    def _answer_versions(self, header: RequestFields, frame: memoryview) -> GateDecision:
        own = BROKER_APIS[API_VERSIONS]
        if own.version_min <= header.api_version <= own.version_max:
            request = codec.decode(ApiVersionsRequest, header.api_version, frame, header.position)[0]
            if is_well_formed(request, header.api_version):
                self.state = GateState.VERSIONS_KNOWN
        return GateDecision(Act.SERVE, header)

    def _serve(self, header: RequestFields | None, now_ms: int) -> GateDecision:
        if self.ends_ms is not None and now_ms > self.ends_ms:
            self.state = GateState.FAILED
            return GateDecision(Act.CLOSE, header, cause="its session has ended, and it did not authenticate again")
        return GateDecision(Act.SERVE, header)

    # -- the exchange

    def _begin_renewal(self, now_ms: int) -> bool:
        """Begins a renewal. Returns False if the session has no end, or a renewal began less than a second ago."""
        assert self.outcome is not None, "the client has logged in"
        if self.ends_ms is None or (self._renewal_ms is not None and now_ms - self._renewal_ms < RENEWAL_INTERVAL_MS):
            return False
        self._renewal_ms = now_ms
        self.before = (self._mechanism, self.outcome)
        return True

    def _choose(self, header: RequestFields, mechanism: str) -> GateDecision:
        offered = list(self._policy.mechanisms)
        if mechanism not in offered:
            self.state = GateState.FAILED
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            return GateDecision(Act.REFUSE, header, refusal, f"Unsupported SASL mechanism {mechanism[:100]!r}")
        self._mechanism = mechanism
        if self.before is not None and self.before[0] != mechanism:
            self.state = GateState.OTHER_MECHANISM
        else:
            self._exchange = self._policy.begin(mechanism)
            self.state = GateState.EXCHANGE if header.api_version >= 1 else GateState.BARE_EXCHANGE
        return GateDecision(Act.REPLY, header, SaslHandshakeResponse(mechanisms=offered))

    def _evaluate(self, header: RequestFields | None, message: bytes, now_ms: int, wall_ms: int) -> GateDecision:
        assert self._exchange is not None, "the handshake comes first"
        try:
            reply, outcome = self._exchange.evaluate(message)
            if outcome is not None:
                self._check_same_user(outcome)
        except LogInRefused as error:
            return self._refuse(header, error.text, error.cause)
        except LogInUndecided as error:
            self.state, self._exchange = GateState.FAILED, None
            return GateDecision(Act.CLOSE, header, cause=str(error))
        lifetime_ms = 0
        if outcome is not None:
            lifetime_ms = self._open(outcome, now_ms, wall_ms)
        if header is None:
            # Kafka's PLAIN answers with an empty message.
            return GateDecision(Act.REPLY, None, reply)
        return GateDecision(
            Act.REPLY, header, SaslAuthenticateResponse(auth_bytes=reply, session_lifetime_ms=lifetime_ms)
        )

    def _check_same_user(self, outcome: Outcome) -> None:
        """Raises LogInRefused if a renewal is by another user."""
        if self.before is not None and self.before[1].name != outcome.name:
            before, after = f"User.{self.before[1].name}", f"User.{outcome.name}"
            raise LogInRefused(f"Cannot change principals during re-authentication from {before}: {after}")

    def _open(self, outcome: Outcome, now_ms: int, wall_ms: int) -> int:
        """Begins the session. Returns its lifetime in ms, 0 if it has no end."""
        self.state = GateState.OPEN
        self.outcome, self._exchange = outcome, None
        limits = [self._policy.session_ms_max(self._mechanism)]
        limits = [limit for limit in limits if limit > 0]
        if outcome.expires_ms is not None:
            limits.append(max(outcome.expires_ms - wall_ms, 0))
        self.ends_ms = None
        if not limits:
            return 0
        lifetime_ms = min(*limits, _LIFETIME_MS_MAX)
        self.ends_ms = now_ms + lifetime_ms
        return lifetime_ms

    def end_renewal(self) -> None:
        """Forgets the session before the renewal, once it is complete."""
        self.before = None

    def _refuse_mechanism(self, header: RequestFields) -> GateDecision:
        assert self.before is not None, "only a renewal can have another mechanism"
        return self._refuse(
            header,
            f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
            f"mechanism '{self.before[0]}'",
        )

    def _refuse(self, header: RequestFields | None, text: str | None, cause: str | None = None) -> GateDecision:
        self.state, self._exchange = GateState.FAILED, None
        if text is None:
            during = "re-authentication" if self.is_renewing else "authentication"
            text = (
                f"Authentication failed during {during} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
        if header is None:
            return GateDecision(Act.REFUSE, cause=cause or text)
        refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
        return GateDecision(Act.REFUSE, header, refusal, cause or text)


_KINDS: Final = {
    API_VERSIONS: FrameKind.API_VERSIONS,
    SASL_HANDSHAKE: FrameKind.HANDSHAKE,
    SASL_AUTHENTICATE: FrameKind.AUTHENTICATE,
}


def _body(request_class: type[M], header: RequestFields, frame: memoryview) -> M:
    low, high = request_class.VERSIONS
    if not low <= header.api_version <= high:
        raise DecodeError(f"version {header.api_version} of {request_class.NAME} is not served")
    return codec.decode(request_class, header.api_version, frame, header.position)[0]
