"""The server side of a SASL mechanism, as the gate of a connection uses it (`protocol.sasl_gate`)."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
#: Mechanism -> (Kafka's number of it, the name of its hash function).
SCRAM: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
#: Kafka's number of a mechanism -> the mechanism.
SCRAM_NAMES: Final = {number: name for name, (number, _) in SCRAM.items()}
#: The mechanisms that a broker can offer.
SERVED: Final = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI)


class LogInRefused(Exception):
    """The error for a log-in that fails. Its text is sent to the client, so it has no secrets and does not depend on
    whether the user exists. None stands for the general text of the gate. The cause is for the log; it has no secrets
    either, and nothing that the client chose."""

    def __init__(self, text: str | None = None, cause: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.cause = cause


class LogInUndecided(Exception):
    """The error for a log-in that cannot be decided now. The connection is closed without an answer, which clients take
    for a failure of the network: they try again. The text is for the log."""


class Outcome(NamedTuple):
    """A user who has logged in."""

    name: str
    #: The time at which the credentials expire, in milliseconds since the epoch; None if they do not.
    expires_ms: int | None = None
    #: Whether a delegation token stood for the user.
    by_token: bool = False

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


class Step(NamedTuple):
    """The response to one message of the client. `outcome` is set when the exchange has succeeded."""

    reply: bytes
    outcome: Outcome | None = None


class Mechanism(Protocol):
    """One exchange of messages, begun by the client."""

    def evaluate(self, message: bytes) -> Step:
        """Processes the client's next message. Raises LogInRefused and LogInUndecided."""
