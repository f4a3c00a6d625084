"""The order of a rolling restart in which no partition goes under its min ISR, or the reasons why there is none.

Brokers are restarted by id, the nodes of the metadata quorum that are not brokers after them, and the active controller
last, so that it changes once. A step is safe if no partition is offline or under its min ISR while the broker is down.
If a step is safe only when lagging replicas have caught up, or a broker that is absent is back, then the step waits for
that. A step that is not safe even then is a reason: the partition has one replica, or its min ISR leaves no room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from barnabas.decisions.partition import NO_LEADER
from barnabas.whatif.model import Model
from barnabas.whatif.outcomes import Effect, states_of
from barnabas.whatif.situation import NO_BROKER, Key, Situation

_HOPELESS: Final = "it has no leader, or too few replicas in sync, even when every broker is back"
_BAD: Final = frozenset({Effect.OFFLINE, Effect.UNDER_MIN_ISR})


class Wait(NamedTuple):
    """The conditions for the beginning of a step."""

    #: "in-sync": replicas are back in the ISR; "present": a broker is back in the cluster.
    kind: str
    broker: int
    #: The partitions that would be under min ISR, or offline, if the step did not wait.
    partitions: tuple[Key, ...]

    def __str__(self) -> str:
        count = len(self.partitions)
        named = f"{count} partition{'' if count == 1 else 's'}"
        if self.kind == "present":
            return f"broker {self.broker} is back, and in the ISR of {named}"
        return f"broker {self.broker} is in the ISR of {named} again"

    def to_json(self) -> dict[str, Any]:
        return {"for": self.kind, "broker": self.broker, "partitions": _keys_json(self.partitions)}


class Step(NamedTuple):
    node: int
    is_broker: bool
    is_controller: bool
    waits: tuple[Wait, ...]
    #: The partitions whose leader changes when the broker stops.
    leaders_moved: int
    #: The partitions that are at their min ISR while the broker is down.
    at_min_isr: int

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "is_broker": self.is_broker,
            "is_controller": self.is_controller,
            "waits": [wait.to_json() for wait in self.waits],
            "leaders_moved": self.leaders_moved,
            "at_min_isr": self.at_min_isr,
        }


class Reason(NamedTuple):
    """A partition that becomes unavailable or falls below min ISR while a broker restarts; broker -1: it already is."""

    broker: int
    key: Key
    effect: Effect
    text: str

    def to_json(self) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "topic": self.key[0],
            "partition": self.key[1],
            "effect": self.effect.label,
            "reason": self.text,
        }


class RollingPlan(NamedTuple):
    """Steps in their order; with reasons, the steps are not safe and are left out."""

    steps: tuple[Step, ...]
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]

    @property
    def effects(self) -> set[Effect]:
        return {reason.effect for reason in self.reasons}

    def to_json(self) -> dict[str, Any]:
        return {
            "is_safe": not self.reasons,
            "steps": [step.to_json() for step in self.steps],
            "reasons": [reason.to_json() for reason in self.reasons],
            "notes": list(self.notes),
        }


def rolling_restart(now: Model) -> RollingPlan:
    """Returns the plan that begins in this state."""
    situation = now.situation
    steps: list[Step] = []
    model = now.copy()
    model.unclean.clear()
    healed = _healed(model)
    reasons = [Reason(NO_BROKER, key, effect, _HOPELESS) for key, effect in sorted(_bad(healed).items())]
    hopeless = {reason.key for reason in reasons}
    for node in _order(situation):
        if node not in situation.brokers:
            steps.append(Step(node, False, node == situation.controller, (), 0, 0))
            continue
        step = _Attempt(model, node, hopeless)
        if step.reasons:
            reasons += step.reasons
            continue
        steps.append(
            Step(node, True, node == situation.controller, step.waits, *_disturbance(step.ready, step.down, node))
        )
        step.down.unfence(node)
        model = step.down
    if reasons:
        steps.clear()
    return RollingPlan(tuple(steps), tuple(reasons), tuple(_notes(situation)))


def _order(situation: Situation) -> list[int]:
    """Returns the nodes: brokers, then voters without a broker, the active controller last."""
    others = [voter for voter in situation.voters if voter not in situation.brokers]
    nodes = [*sorted(situation.brokers), *sorted(others)]
    return sorted(nodes, key=lambda node: node == situation.controller)


def _notes(situation: Situation) -> Iterable[str]:
    voters = len(situation.voters)
    if situation.has_quorum and voters:
        yield "a step ends when its node is back and, as a voter, follows the metadata log again"
        lost = sorted(situation.lost_voters)
        if lost and voters - len(lost) - 1 <= voters // 2:
            named = ", ".join(map(str, lost))
            yield f"the quorum has no majority while another voter restarts, unless {named} is back before"
        elif voters < 3:
            yield (
                f"the quorum has {voters} voter{'' if voters == 1 else 's'}: while one restarts, no leader can be "
                "elected and no ISR can change"
            )
    if situation.controller == NO_LEADER:
        yield "the active controller is not known; restart it last"


class _Attempt:
    """A step of the plan: the restart of a broker, with as little waiting as makes it safe."""

    def __init__(self, model: Model, node: int, hopeless: set[Key]) -> None:
        self.waits: tuple[Wait, ...] = ()
        self.reasons: list[Reason] = []
        self.ready = model
        self.down = _without(model, node)
        bad = _bad(self.down, hopeless)
        if not bad:
            return
        self.ready = model.copy()
        self.ready.catch_up()
        self.down = _without(self.ready, node)
        self.waits = _waits(model, self.ready, bad, node)
        still_bad = _bad(self.down, hopeless)
        if not still_bad:
            return
        back = _healed(self.ready)
        down = _without(back, node)
        worst = _bad(down, hopeless)
        needed = still_bad.keys() - worst.keys()
        if needed:
            self.waits += _waits(self.ready, back, needed, node)
            self.ready, self.down = back, down
        self.reasons = [Reason(node, key, effect, _reason(down, key, node)) for key, effect in sorted(worst.items())]


def _healed(model: Model) -> Model:
    """Returns the cluster with every broker that has replicas back, and every replica in sync."""
    situation, found = model.situation, model.copy()
    for each in (*situation.absent, *situation.silent):
        if not found.is_registered(each):
            found.unfence(each)
    found.catch_up()
    return found


def _without(model: Model, node: int) -> Model:
    found = model.copy()
    found.shut_down(node)
    return found


def _bad(model: Model, ignored: Collection[Key] = ()) -> dict[Key, Effect]:
    """Returns the partitions that are offline or under their min ISR, or have an unclean leader."""
    found = {}
    for key in model.partitions:
        if key in ignored:
            continue
        worst = states_of(model, key) & _BAD
        if worst:
            found[key] = min(worst)
        elif key in model.unclean:
            found[key] = Effect.UNCLEAN
    return found


def _waits(before: Model, after: Model, bad: Iterable[Key], node: int) -> tuple[Wait, ...]:
    """Returns for which other brokers to wait: those that join the ISR of a partition that would be bad without them,
    or lead it again.
    """
    found: dict[int, list[Key]] = {}
    for key in sorted(bad):
        joined = set(after.partitions[key].isr) - set(before.partitions[key].isr)
        if not before.partitions[key].has_leader and after.partitions[key].has_leader:
            joined.add(after.partitions[key].leader)
        for broker in joined - {node}:
            found.setdefault(broker, []).append(key)
    return tuple(
        Wait("in-sync" if before.is_registered(broker) else "present", broker, tuple(keys))
        for broker, keys in sorted(found.items())
    )


def _disturbance(ready: Model, down: Model, node: int) -> tuple[int, int]:
    """Returns how many leaders move when the broker stops, and how many partitions are at their min ISR then."""
    moved = sum(
        partition.leader == node and down.partitions[key].leader != node for key, partition in ready.partitions.items()
    )
    at_min = sum(
        node in partition.replicas and Effect.AT_MIN_ISR in states_of(down, key)
        for key, partition in ready.partitions.items()
    )
    return moved, at_min


def _reason(down: Model, key: Key, node: int) -> str:
    partition, min_isr = down.partitions[key], down.min_isr(key)
    count = len(partition.replicas)
    if count == 1:
        return f"its only replica is on broker {node}"
    if min_isr == count:
        return f"its min ISR is {min_isr} of {count} replicas"
    return f"{len(partition.isr)} of {count} replicas are left in the ISR, its min ISR is {min_isr}"


def _keys_json(keys: Sequence[Key]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in keys]
