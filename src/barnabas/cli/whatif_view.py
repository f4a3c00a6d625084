"""An answer of `barnabas whatif` as text: the numbers first, then the plan, then the partitions, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from barnabas.cli import output
from barnabas.whatif import Answer
from barnabas.whatif.outcomes import Effect, Outcome
from barnabas.whatif.rolling import RollingPlan, Step

#: The meaning of each effect, in the order of the summary.
_TEXTS: Final = {
    Effect.OFFLINE: "offline: no leader",
    Effect.UNCLEAN: "unclean election: records are possibly lost",
    Effect.UNDER_MIN_ISR: "under min ISR: writes with acks=all are refused",
    Effect.SINGLE_COPY: "one copy left in sync",
    Effect.AT_MIN_ISR: "at min ISR: writes are refused after one more loss",
    Effect.NEW_LEADER: "new leader",
    Effect.UNDER_REPLICATED: "under-replicated, above min ISR",
}
_COLUMNS: Final = ("partition", "effects", "leader", "ISR", "ELR", "min ISR", "why")
_NAMED_MAX: Final = 5


def show_answer(answer: Answer, limit: int) -> None:
    """Prints the answer, with at most `limit` partitions and reasons."""
    for line in summary(answer):
        print(line)
    if answer.plan is not None:
        _show_plan(answer.plan, limit)
    if answer.stuck:
        for (topic, index), reason in sorted(answer.stuck.items())[:limit]:
            print(f"  {topic}-{index} stays: {reason}")
    shown = answer.partitions[:limit]
    if shown:
        print()
        output.show_table(_COLUMNS, [row(outcome) for outcome in shown])
    if left := len(answer.partitions) - len(shown):
        output.say(f"{output.counted(left, 'partition')} more; --limit shows them, --json all")
    if answer.moves:
        print()
        print(answer.reassignment_text())


def summary(answer: Answer) -> Iterator[str]:
    """Yields the lines of the summary."""
    yield f"what if: {answer.question}   {verdict(answer)}"
    for effect, count in answer.counts.items():
        if count:
            yield f"  {count:>7,}  {_TEXTS[effect]}"
    if answer.unclean_needed:
        yield f"  {answer.unclean_needed:>7,}  of them can return only by an unclean election"
    if answer.plan is None:
        yield f"  {len(answer.partitions):>7,}  of {output.counted(answer.total, 'partition')} change"
    if answer.moves:
        moved = "" if answer.moved_bytes is None else f", {output.size(answer.moved_bytes)} to copy"
        yield f"  {len(answer.moves):>7,}  partitions to reassign{moved}"
    if answer.stuck:
        yield f"  {len(answer.stuck):>7,}  partitions cannot be moved"
    for effect in (Effect.OFFLINE, Effect.UNDER_MIN_ISR):
        if answer.already.get(effect):
            yield f"  {answer.already[effect]:>7,}  {effect.label} already before, not counted"
    for note in answer.notes:
        yield f"  note: {note}"


def verdict(answer: Answer) -> str:
    """Returns the answer in a word."""
    counts = answer.counts
    if answer.plan is not None:
        return "there is a safe order" if not answer.plan.reasons else "there is no safe order"
    if counts[Effect.OFFLINE] or counts[Effect.UNCLEAN]:
        return "not safe"
    if counts[Effect.UNDER_MIN_ISR]:
        return "writes are refused"
    return "not possible" if answer.stuck else "nothing is lost"


def row(outcome: Outcome) -> Sequence[object]:
    before, after = outcome.before, outcome.after
    replicas_move = before.replicas != after.replicas
    return (
        f"{outcome.key[0]}-{outcome.key[1]}",
        ", ".join(effect.label for effect in outcome.effects) or "-",
        _change(_leader(before.leader), _leader(outcome.leader)),
        _change(_ids(before.isr), _ids(after.isr)),
        _ids(after.elr) if after.elr else "-",
        outcome.min_isr,
        f"{outcome.why}; replicas {_ids(before.replicas)} -> {_ids(after.replicas)}" if replicas_move else outcome.why,
    )


def _show_plan(plan: RollingPlan, limit: int) -> None:
    print()
    if not plan.reasons:
        output.show_table(("step", "restart", "leaders", "at min ISR", "before it, wait until"), _step_rows(plan.steps))
        return
    shown = plan.reasons[:limit]
    for broker, reasons in groupby(shown, key=lambda reason: reason.broker):
        print(f"broker {broker}:" if broker >= 0 else "in any case:")
        for reason in reasons:
            print(f"  {reason.key[0]}-{reason.key[1]} is {reason.effect.label}: {reason.text}")
    if left := len(plan.reasons) - len(shown):
        output.say(f"{output.counted(left, 'reason')} more; --limit shows them, --json all")


def _step_rows(steps: Sequence[Step]) -> Iterator[Sequence[object]]:
    for number, step in enumerate(steps, 1):
        name = f"broker {step.node}" if step.is_broker else f"controller {step.node}"
        waits = "; ".join(f"{wait} ({_named(wait.partitions)})" for wait in step.waits)
        yield (
            number,
            f"{name} (active controller)" if step.is_controller else name,
            f"{step.leaders_moved:,} move" if step.is_broker else "-",
            f"{step.at_min_isr:,}",
            waits or "-",
        )


def _named(keys: Sequence[tuple[str, int]]) -> str:
    names = [f"{topic}-{index}" for topic, index in keys[:_NAMED_MAX]]
    return ", ".join(names) + (", ..." if len(keys) > _NAMED_MAX else "")


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _leader(leader: int) -> str:
    return "none" if leader < 0 else str(leader)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "none"
