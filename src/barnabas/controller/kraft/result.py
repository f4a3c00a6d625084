"""What a controller decision is: records to commit, the answer for then, and why.

A decision is pure: it looks at the image and returns a `Result`. Only the replay of its records changes anything, so a
decision that never commits leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from barnabas.protocol.message import Message, UnknownTags

T = TypeVar("T")

#: A metadata record and the version it is written in.
Versioned = tuple[Message, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the metadata changed: the event, who asked (a principal, a broker, the controller itself), what was seen."""

    event: str
    actor: str
    detail: str = ""
    #: (topic id, partition) -> what its leader sent along with its wish for an ISR, undecoded.
    seen: Mapping[tuple[bytes, int], UnknownTags] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    records: list[Versioned]
    response: T
    cause: Cause
