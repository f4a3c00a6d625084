"""A batch that is validated beside the loop, because opening it takes longer than others can wait.

validate_for_append -> ValidationDeferred      on the loop: too much work for it
DeferredValidation.load                        in a thread; touches this batch and the rules it was made for
Log.append_as_leader(..., validated=...)       on the loop: takes what was found out, if the rules are the same
"""

from __future__ import annotations

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Buffer
from barnabas.records.append_rules import AppendRules, ValidBatch
from barnabas.records.validate import validate_for_append


class DeferredValidation:
    """One batch, in memory of its own, and what becomes of it."""

    __slots__ = ("_rejected", "_valid", "_wall_ms", "batch", "rules")

    def __init__(self, rules: AppendRules, batch: Buffer, wall_ms: int) -> None:
        self.rules = rules
        self.batch = memoryview(bytearray(batch))
        self._wall_ms = wall_ms
        self._valid: ValidBatch | None = None
        self._rejected: RecordsRejected | None = None

    def load(self) -> None:
        """Open it, however long that takes; in a thread."""
        try:
            self._valid = validate_for_append(self.batch, self.rules, wall_ms=self._wall_ms)
        except RecordsRejected as rejected:
            self._rejected = rejected

    def taken(self) -> ValidBatch:
        """What may be appended. RecordsRejected."""
        if self._rejected is not None:
            raise self._rejected
        assert self._valid is not None, "taken before it was loaded"
        return self._valid
