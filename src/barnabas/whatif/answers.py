"""The answer to a question: figures first, then partitions, the worst first; and its exit code for scripts.

    0  nothing is lost
    3  it cannot be done: a drain has no broker for some replicas
    5  something goes under its min ISR
    6  something goes offline, or only an unclean election keeps it online

5 and 6 are those of `barnabas monitor --check`. What was offline or under its min ISR before the question does not
count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.whatif.outcomes import Effect, Outcome
from barnabas.whatif.rolling import RollingPlan
from barnabas.whatif.situation import Key

NOTHING_LOST: Final = 0
NOT_POSSIBLE: Final = 3
UNDER_MIN_ISR: Final = 5
OFFLINE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The effects of a question. `partitions` has the partitions that change or become worse, the worst first."""

    question: str
    total: int
    partitions: Sequence[Outcome] = ()
    #: How many partitions had each effect before already, and keep it.
    already: Mapping[Effect, int] = field(default_factory=dict)
    #: The assumptions of the answer, and the facts that are unknown.
    notes: Sequence[str] = ()
    #: The order of a rolling restart.
    plan: RollingPlan | None = None
    #: The proposed replicas of each partition that a drain moves.
    moves: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    moved_bytes: int | None = None
    #: Why a partition cannot be drained.
    stuck: Mapping[Key, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[Effect, int]:
        """Returns how many partitions have each effect because of the question."""
        found = dict.fromkeys(Effect, 0)
        for outcome in self.partitions:
            for effect in outcome.effects:
                found[effect] += 1
        return found

    @property
    def exit_code(self) -> int:
        effects = {effect for outcome in self.partitions for effect in outcome.effects}
        if self.plan is not None:
            effects |= self.plan.effects
        if effects & {Effect.OFFLINE, Effect.UNCLEAN}:
            return OFFLINE
        if Effect.UNDER_MIN_ISR in effects:
            return UNDER_MIN_ISR
        if self.stuck or (self.plan is not None and self.plan.reasons):
            return NOT_POSSIBLE
        return NOTHING_LOST

    @property
    def unclean_needed(self) -> int:
        """Returns how many partitions go offline that an unclean election would bring back."""
        return sum(Effect.OFFLINE in each.effects and each.unclean_candidate >= 0 for each in self.partitions)

    def reassignment(self) -> dict[str, Any]:
        """Returns the moves as `kafka-reassign-partitions` reads them."""
        return {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": index, "replicas": list(ids), "log_dirs": ["any"] * len(ids)}
                for (topic, index), ids in sorted(self.moves.items())
            ],
        }

    def reassignment_text(self) -> str:
        """Returns the moves as the text of a file for `kafka-reassign-partitions`."""
        return json.dumps(self.reassignment(), separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        """Returns the whole answer. Fields are added in later versions, and keep their meaning."""
        found: dict[str, Any] = {
            "question": self.question,
            "exit_code": self.exit_code,
            "summary": {
                "partitions": self.total,
                "changed": len(self.partitions),
                **{_field(effect): count for effect, count in self.counts.items()},
                "unclean_needed": self.unclean_needed,
                "already": {_field(effect): count for effect, count in self.already.items()},
            },
            "notes": list(self.notes),
            "partitions": [outcome.to_json() for outcome in self.partitions],
        }
        if self.plan is not None:
            found["plan"] = self.plan.to_json()
        if self.moves or self.stuck:
            found["reassignment"] = self.reassignment()
            found["moved_bytes"] = self.moved_bytes
            found["stuck"] = [
                {"topic": topic, "partition": index, "reason": reason}
                for (topic, index), reason in sorted(self.stuck.items())
            ]
        return found


def _field(effect: Effect) -> str:
    return effect.name.lower()
