"""The course of an offset of a partition: which replicas appended it, in which epoch, and where it was truncated.

`LogEnds` watches the ends of all replicas' logs: positions only, not contents. `course_of` combines them with the
decisions of the controllers and with what clients know, and returns what happened to the records of a broken promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.metadata.image import MetadataImage
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.facts import PartitionDecided, TopicDeleted
from barnabas.simulation.history import Place, Problem, Spot, spot_text
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State
from barnabas.simulation.world import Note, ProcessState, World

#: The maximum number of lines of one course; a longer one shows its first and last lines.
_NOTES_MAX: Final = 60


class StepKind(Enum):
    APPENDED = "appended"
    CUT = "cut"
    #: The log was opened again, and ends elsewhere.
    OPENED = "opened"
    #: The log begins later: records were deleted.
    DELETED = "deleted"


class LogStep(NamedTuple):
    """A change of one replica's log: appended from `start` to `end`, or cut back from `start` to `end`."""

    time_us: int
    node: str
    kind: StepKind
    start: int
    end: int
    #: The epoch of the log's last record, or of the leader that is followed.
    epoch: int
    role: Role


class LogEnds:
    """Records log ends. It is called like a checker of replicas, and raises nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.steps: dict[Place, list[LogStep]] = {}
        #: The end of a log when it was seen last.
        self._ends: dict[tuple[str, Place, bytes], int] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        end = now.log_end_offset
        if before is not None and before.log is now.log:
            if end != before.log_end_offset:
                kind = StepKind.APPENDED if end > before.log_end_offset else StepKind.CUT
                self._add(node, partition, kind, before.log_end_offset, now)
            if now.log_start_offset > before.log_start_offset:
                self._add(node, partition, StepKind.DELETED, before.log_start_offset, now)
            return
        known = self._ends.get(_key(node, partition), 0)
        if end != known:
            # A log that is longer than it was known to be had records appended in the event that opened it.
            self._add(node, partition, StepKind.OPENED if end < known else StepKind.APPENDED, known, now)

    def _add(self, node: Node, partition: Partition, kind: StepKind, start: int, now: State) -> None:
        latest = now.log.epochs.latest_epoch if kind is StepKind.APPENDED else None
        epoch = now.leader_epoch if latest is None else latest
        end = now.log_start_offset if kind is StepKind.DELETED else now.log_end_offset
        tp = partition.topic_partition
        steps = self.steps.setdefault((tp.topic, tp.partition), [])
        steps.append(LogStep(self._world.now_us, node.name, kind, start, end, epoch, now.role))
        self._ends[_key(node, partition)] = now.log_end_offset

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: an image has no logs."""


def _key(node: Node, partition: Partition) -> tuple[str, Place, bytes]:
    tp = partition.topic_partition
    return node.name, (tp.topic, tp.partition), partition.topic_id


def course_of(problem: Problem, log_ends: LogEnds, notes: Sequence[Note]) -> list[Note]:
    """Returns the course of the records and offsets of a problem, in the order of time."""
    found = set(problem.notes)
    for spot in problem.spots:
        found |= set(_course_at(spot, log_ends.steps.get(spot[0], ()), notes))
    course = sorted(found, key=lambda note: (note.time_us, note.node, note.text))
    for spot in problem.spots:
        if not any(_has(step, spot[1]) for step in log_ends.steps.get(spot[0], ())):
            course.append(
                Note(course[-1].time_us if course else 0, "checker", f"no replica has ever shown {spot_text(spot)}")
            )
    if len(course) > _NOTES_MAX:
        half = _NOTES_MAX // 2
        left_out = Note(course[half].time_us, "...", f"{len(course) - 2 * half} more")
        course = [*course[:half], left_out, *course[-half:]]
    return course


def _has(step: LogStep, offset: int) -> bool:
    return step.kind is StepKind.APPENDED and step.start <= offset < step.end


def _course_at(spot: Spot, steps: Sequence[LogStep], notes: Sequence[Note]) -> Iterator[Note]:
    """Yields what happened to one offset on the nodes: appends, losses, ends of processes that had it, elections."""
    (topic, index), offset = spot
    own = [step for step in steps if _has(step, offset) or _loses(step, offset)]
    holders: dict[str, int] = {}
    shown: list[int] = []
    for step in own:
        if _has(step, offset):
            holders[step.node] = step.time_us
        elif step.node in holders:
            yield from _ends_between(step.node, holders.pop(step.node), step.time_us, notes)
        else:
            continue
        shown.append(step.time_us)
        yield Note(step.time_us, step.node, _text(step, f"{topic}-{index}", offset))
    if shown:
        yield from _decisions(f"{topic}-{index}", topic, (shown[0], shown[-1]), notes)


def _loses(step: LogStep, offset: int) -> bool:
    if step.kind is StepKind.DELETED:
        return offset < step.end
    return step.kind is not StepKind.APPENDED and step.end <= offset < step.start


def _text(step: LogStep, partition: str, offset: int) -> str:
    if step.kind is StepKind.APPENDED:
        others = "" if step.end == step.start + 1 else f" ({step.start} to {step.end - 1})"
        return f"appends {partition}@{offset}{others} as {step.role.value}, epoch {step.epoch}"
    if step.kind is StepKind.DELETED:
        return f"deletes {partition} up to {step.end}: {offset} is lost here"
    if step.kind is StepKind.CUT:
        as_what = f"{step.role.value} in epoch {step.epoch}"
        return f"cuts {partition} from {step.start} to {step.end}: {offset} is lost here, {as_what}"
    return f"opens {partition}, which ends at {step.end} instead of {step.start}: {offset} is lost here"


def _ends_between(node: str, begin_us: int, end_us: int, notes: Sequence[Note]) -> Iterator[Note]:
    for note in notes:
        is_end = note.fact is ProcessState.DEAD or note.text.startswith("power failure")
        if is_end and note.node == node and begin_us <= note.time_us <= end_us:
            yield note


def _decisions(partition: str, topic: str, period_us: tuple[int, int], notes: Sequence[Note]) -> Iterator[Note]:
    """Yields the decisions about a partition: the last one before the period, and those within it."""
    begin_us, end_us = period_us
    before: Note | None = None
    for note in notes:
        fact = note.fact
        is_decision = isinstance(fact, PartitionDecided) and fact.partition == partition
        is_deletion = isinstance(fact, TopicDeleted) and fact.topic == topic
        if not (is_decision or is_deletion):
            continue
        if note.time_us <= begin_us:
            before = note
        elif note.time_us <= end_us:
            yield note
    if before is not None:
        yield before
