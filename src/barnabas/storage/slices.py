"""Work on all logs in slices, so that 50,000 logs do not hold the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from barnabas.common.host import Host, Timer

#: The longest time of a slice, the steps in one, and the pause between two.
_SLICE_MS: Final = 3
_STEPS_AT_ONCE: Final = 100
_PAUSE_MS: Final = 1
_FINISHED: Final = object()


def run_slices(
    host: Host,
    steps: Iterator[None],
    then: Callable[[], None] | None = None,
    waits: Callable[[Timer], None] | None = None,
) -> None:
    """Runs a slice of the steps; after other events of the loop it continues with the next one. `waits` is called
    with the timer of the next slice, and `then` is called after the last one."""
    until_ms = host.clock.now_ms() + _SLICE_MS
    for _ in islice(steps, _STEPS_AT_ONCE):
        if host.clock.now_ms() >= until_ms:
            break
    else:
        if next(steps, _FINISHED) is _FINISHED:
            if then is not None:
                then()
            return
    timer = host.timers.call_later(_PAUSE_MS, lambda: run_slices(host, steps, then, waits))
    if waits is not None:
        waits(timer)
