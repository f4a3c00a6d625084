"""The validation of a batch in a thread, for batches that would block the event loop for too long.

validate_for_append -> ValidationDeferred      event loop: the batch is too much work
DeferredValidation.load                        thread: uses only this batch and its rules
Log.append_as_leader(..., validated=...)       event loop: uses the result, if the rules are still the same
"""

from __future__ import annotations

from barnabas.common.errors import RecordsRejected, without_frames
from barnabas.common.host import Buffer
from barnabas.records.append_rules import AppendRules, ValidBatch
from barnabas.records.validate import validate_for_append


class DeferredValidation:
    """A batch, copied to separate memory, and the result of its validation."""

    __slots__ = ("_rejected", "_valid", "_wall_ms", "batch", "rules")

    def __init__(self, rules: AppendRules, batch: Buffer, wall_ms: int) -> None:
        self.rules = rules
        self.batch = memoryview(bytearray(batch))
        self._wall_ms = wall_ms
        self._valid: ValidBatch | None = None
        self._rejected: RecordsRejected | None = None

    def load(self) -> None:
        """Validates the batch; runs in a thread."""
        try:
            self._valid = validate_for_append(self.batch, self.rules, wall_ms=self._wall_ms)
        except RecordsRejected as rejected:
            self._rejected = without_frames(rejected)

    def result(self) -> ValidBatch:
        """Returns the valid batch. Raises RecordsRejected."""
        if self._rejected is not None:
            # The frame of this call would form a cycle with an exception that this object keeps.
            rejected, self._rejected = self._rejected, None
            try:
                raise rejected
            finally:
                del rejected
        assert self._valid is not None, "the validation has not run yet, or its refusal was raised already"
        return self._valid
