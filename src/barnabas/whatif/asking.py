"""`ask`: the answer to one question about a cluster in one situation.

    answer = ask(situation, parse_question(["kill", "3"]))
    answer.exit_code, answer.counts, answer.partitions, answer.to_json()

Brokers that do not answer count as dead, before and after: the answer says so, and what they cause is not an effect of
the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import singledispatch

from barnabas.whatif.answers import Answer
from barnabas.whatif.drain import drain
from barnabas.whatif.model import Model, is_known_strategy
from barnabas.whatif.outcomes import Effect, Outcome, outcomes, states_of
from barnabas.whatif.questions import (
    BadQuestion,
    Drain,
    Kill,
    LoseDisks,
    LoseRacks,
    Question,
    Restart,
    RestartAll,
    SetMinIsr,
)
from barnabas.whatif.rolling import rolling_restart
from barnabas.whatif.situation import NO_BROKER, Situation

_Note = Callable[[str], None]


def ask(situation: Situation, question: Question) -> Answer:
    """Returns the answer. Raises BadQuestion if the question names a broker, topic or partition that does not exist."""
    notes: list[str] = list(situation.gaps)
    before = _as_it_is(situation, notes.append)
    return _answer(question, before, notes)


def _as_it_is(situation: Situation, note: _Note) -> Model:
    """Returns the cluster as it is when the brokers that do not answer have been fenced."""
    model = Model(situation)
    silent = situation.silent
    if silent:
        note(f"{_brokers(silent)} {'does' if len(silent) == 1 else 'do'} not answer, and {_counts(silent)} as dead")
        _end(model, silent, note)
    if not is_known_strategy(situation.strategy):
        note(f"the strategy {situation.strategy} is not known here: leaders are predicted by Kafka's rule")
    return model


def _end(model: Model, nodes: Iterable[int], note: _Note) -> None:
    """Ends these nodes at the same time. With a majority of the quorum, the controller decides about each in turn."""
    gone = list(nodes)
    voters, needed = model.situation.voters, len(model.situation.voters) // 2 + 1
    dead = {voter for voter in voters if voter in gone or not _is_up(model, voter)}
    if model.situation.has_quorum and voters and len(voters) - len(dead) < needed and model.has_controller:
        model.has_controller = False
        note(
            f"the metadata quorum keeps {len(voters) - len(dead)} of {len(voters)} voters and loses its majority: "
            "no leader is elected, no ISR changes, and no request of an administrator is served"
        )
    for node in gone:
        model.fence(node)


def _is_up(model: Model, voter: int) -> bool:
    """Returns whether a voter runs, as far as that is known."""
    if voter in model.situation.lost_voters:
        return False
    return voter not in model.situation.brokers or model.is_registered(voter)


@singledispatch
def _answer(question: Question, before: Model, notes: list[str]) -> Answer:
    raise BadQuestion(f"{question} is not a question")


@_answer.register
def _(question: Kill, before: Model, notes: list[str]) -> Answer:
    _check_nodes(before.situation, question.nodes)
    return _after(question, before, notes, lambda model: _kill(model, question.nodes, notes.append))


@_answer.register
def _(question: LoseRacks, before: Model, notes: list[str]) -> Answer:
    situation = before.situation
    racks = {broker.rack for broker in situation.brokers.values()} - {None}
    unknown = [rack for rack in question.racks if rack not in racks]
    if unknown:
        known = ", ".join(sorted(str(rack) for rack in racks)) or "none: no broker names its rack"
        raise BadQuestion(f"no broker is in rack {unknown[0]}; the racks are {known}")
    victims = sorted(broker.broker_id for broker in situation.brokers.values() if broker.rack in question.racks)
    notes.append(f"{', '.join(question.racks)}: {_brokers(victims)}")
    return _after(question, before, notes, lambda model: _kill(model, victims, notes.append))


def _kill(model: Model, victims: Iterable[int], note: _Note) -> None:
    situation = model.situation
    absent = [each for each in victims if each in situation.absent and each not in situation.voters]
    if absent:
        note(f"{_brokers(absent)} {'is' if len(absent) == 1 else 'are'} no longer in the cluster")
    _end(model, victims, note)
    if model.has_controller:
        _note_controller(situation, victims, note)


def _note_controller(situation: Situation, victims: Iterable[int], note: _Note) -> None:
    if situation.controller in victims and situation.controller != NO_BROKER:
        note(f"{situation.controller} is the active controller: the others elect a new one first")


@_answer.register
def _(question: LoseDisks, before: Model, notes: list[str]) -> Answer:
    situation = before.situation
    for broker, path in question.disks:
        if broker not in situation.brokers:
            raise BadQuestion(f"there is no broker {broker} in the cluster")
        known = situation.directories.get(broker)
        if known is None:
            raise BadQuestion(f"the log directories of broker {broker} are not known")
        if path not in known:
            raise BadQuestion(f"broker {broker} has no log directory {path}; it has {', '.join(sorted(known))}")

    def happen(model: Model) -> None:
        lost: dict[int, set[str]] = {}
        for broker, path in question.disks:
            lost.setdefault(broker, set()).add(path)
        ended = {broker: _why_it_stops(situation, broker, paths) for broker, paths in lost.items()}
        notes.extend(why for why in ended.values() if why is not None)
        _end(model, [broker for broker, why in ended.items() if why is not None], notes.append)
        for broker, paths in lost.items():
            if ended[broker] is None:
                for path in sorted(paths):
                    model.lose_directory(broker, situation.directories[broker][path])

    return _after(question, before, notes, happen)


def _why_it_stops(situation: Situation, broker: int, lost: set[str]) -> str | None:
    """Returns why a broker without these directories stops; None if it continues with the others."""
    if not situation.directories[broker].keys() - lost:
        return f"broker {broker} has no other log directory, and stops"
    if situation.has_quorum and situation.metadata_directories.get(broker) in lost:
        return f"broker {broker} keeps its metadata log in {situation.metadata_directories[broker]}, and stops"
    return None


@_answer.register
def _(question: Restart, before: Model, notes: list[str]) -> Answer:
    _check_brokers(before.situation, question.brokers)

    def happen(model: Model) -> None:
        voters = before.situation.voters
        up = [voter for voter in voters if _is_up(model, voter) and voter not in question.brokers]
        if before.situation.has_quorum and voters and len(up) <= len(voters) // 2:
            notes.append("the metadata quorum has no majority until they are back; leaders move before they stop")
        for broker in question.brokers:
            model.shut_down(broker)
        _note_controller(before.situation, question.brokers, notes.append)
        notes.append("the partitions are shown as they are while the brokers are down")

    return _after(question, before, notes, happen)


@_answer.register
def _(question: Drain, before: Model, notes: list[str]) -> Answer:
    situation = before.situation
    _check_nodes(situation, question.brokers)
    plan = drain(situation, question.brokers)

    def happen(model: Model) -> None:
        for key, target in plan.moves.items():
            model.reassign(key, target)

    found = _changes(before, happen)
    if plan.moves:
        notes.append("the partitions are shown as they are when all moves are complete")
    return Answer(
        question=str(question),
        total=len(before.partitions),
        partitions=found,
        already=_already(before),
        notes=notes,
        moves=plan.moves,
        moved_bytes=plan.moved_bytes,
        stuck=plan.stuck,
    )


@_answer.register
def _(question: SetMinIsr, before: Model, notes: list[str]) -> Answer:
    known = {topic for topic, _ in before.partitions}
    factors = Counter[str]()
    for (topic, _), partition in before.partitions.items():
        factors[topic] = max(factors[topic], len(partition.replicas))
    for topic, value in question.values.items():
        if topic not in known:
            raise BadQuestion(f"there is no topic {topic}")
        if value > factors[topic]:
            notes.append(f"{topic} has {factors[topic]} replicas: {factors[topic]} is in force instead of {value}")

    def happen(model: Model) -> None:
        for topic, value in question.values.items():
            model.change_min_isr(topic, value)

    return _after(question, before, notes, happen, is_min_isr_asked=True)


@_answer.register
def _(question: RestartAll, before: Model, notes: list[str]) -> Answer:
    plan = rolling_restart(before)
    return Answer(
        question=str(question),
        total=len(before.partitions),
        already=_already(before),
        notes=[*notes, *plan.notes],
        plan=plan,
    )


def _after(
    question: Question,
    before: Model,
    notes: list[str],
    happen: Callable[[Model], None],
    *,
    is_min_isr_asked: bool = False,
) -> Answer:
    found = _changes(before, happen, is_min_isr_asked=is_min_isr_asked)
    return Answer(
        question=str(question),
        total=len(before.partitions),
        partitions=found,
        already=_already(before),
        notes=notes,
    )


def _changes(before: Model, happen: Callable[[Model], None], *, is_min_isr_asked: bool = False) -> list[Outcome]:
    after = before.copy()
    happen(after)
    found = outcomes(before, after, is_min_isr_asked=is_min_isr_asked)
    return sorted(found, key=lambda outcome: outcome.rank)


def _already(before: Model) -> dict[Effect, int]:
    """Returns how many partitions have a problem already."""
    found = Counter(effect for key in before.partitions for effect in states_of(before, key))
    return {effect: found[effect] for effect in sorted(found)}


def _check_nodes(situation: Situation, nodes: Iterable[int]) -> None:
    for node in nodes:
        if not situation.is_known(node):
            raise BadQuestion(f"the cluster has no broker {node}; its brokers are {_ids(sorted(situation.brokers))}")


def _check_brokers(situation: Situation, brokers: Iterable[int]) -> None:
    for broker in brokers:
        if broker not in situation.brokers:
            raise BadQuestion(f"the cluster has no broker {broker}; its brokers are {_ids(sorted(situation.brokers))}")


def _brokers(ids: list[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {_ids(ids)}"


def _counts(ids: list[int]) -> str:
    return "counts" if len(ids) == 1 else "count"


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
