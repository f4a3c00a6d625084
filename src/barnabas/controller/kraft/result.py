"""What a controller decision is: records to commit, the answer for then, and why.

A decision is pure: it looks at the image and returns a `Result`. Only the replay of its records changes anything, so a
decision that never commits leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.protocol.message import Message

T = TypeVar("T")

#: A metadata record and the version it is written in.
Versioned = tuple[Message, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the metadata changed: the event, who asked (a principal, a broker, the controller itself), what was seen."""

    event: str
    actor: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    records: list[Versioned]
    response: T
    cause: Cause
