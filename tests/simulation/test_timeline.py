"""The lines of a time line: repetitions, what is never folded, and partitions in words."""

from __future__ import annotations

from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.simulation.facts import DECIDED, PartitionDecided
from barnabas.simulation.timeline import fold, partition_text
from barnabas.simulation.world import SECOND_US, Note, ProcessState

FULL = "reports: no space left on device"


def told(*notes: tuple[float, str, str]) -> list[str]:
    lines = fold(Note(round(at_s * SECOND_US), node, text) for at_s, node, text in notes)
    return [f"{line.note.node} {line.text}" for line in lines]


def test_a_repeated_message_is_one_line() -> None:
    assert told(*((second, "broker1.1", FULL) for second in range(10, 55))) == [
        f"broker1.1 {FULL} (45 times until 0:00:54)"
    ]


def test_messages_that_alternate_are_a_line_each_in_the_order_of_the_first() -> None:
    alternating = [(second, node, FULL) for second in (1, 2, 3) for node in ("broker2.1", "broker1.1")]
    assert told(*alternating) == [
        f"broker2.1 {FULL} (3 times until 0:00:03)",
        f"broker1.1 {FULL} (3 times until 0:00:03)",
    ]


def test_numbers_can_differ_and_names_cannot() -> None:
    assert told((1, "b", "waits 20 ms for broker1"), (2, "b", "waits 1,030 ms for broker1")) == [
        "b waits 20 ms for broker1 (2 times until 0:00:02, with other numbers)"
    ]
    for one, other in (("broker1", "broker2"), ("orders-0", "orders-1"), ("broker 1", "broker 2")):
        assert len(told((1, "b", f"waits for {one}"), (2, "b", f"waits for {other}"))) == 2


def test_a_message_after_a_long_silence_is_shown_again() -> None:
    assert len(told((1, "broker1.1", FULL), (32, "broker1.1", FULL))) == 2


def test_steps_of_the_run_separate_the_messages_of_their_machine() -> None:
    notes = [
        Note(1, "broker1.1", FULL),
        Note(2, "broker2.1", FULL),
        Note(3, "broker1", "process ended", ProcessState.DEAD),
        Note(4, "broker1.1", FULL),
        Note(5, "broker2.1", FULL),
        Note(6, "operator", "moves orders-0 to [1, 2, 3]", "a move"),
        Note(7, "operator", "moves orders-0 to [3, 1, 2]", "a move"),
    ]
    assert [(line.note.time_us, line.times) for line in fold(notes)] == [(1, 1), (2, 2), (3, 1), (4, 1), (6, 1), (7, 1)]


def test_starts_that_fail_one_after_the_other_are_two_lines() -> None:
    notes = []
    for second in range(5):
        notes += [
            Note(second * SECOND_US, "broker1", f"start number {second}", ProcessState.RUNNING),
            Note(second * SECOND_US, "broker1", "process ended: did not start", ProcessState.DEAD),
        ]
    killed = [Note(20 * SECOND_US + n, "broker1", "process ended: killed", ProcessState.DEAD) for n in range(2)]
    assert [line.text for line in fold([*notes, *killed])] == [
        "start number 0 (5 times until 0:00:04, with other numbers)",
        "process ended: did not start (5 times until 0:00:04)",
        "process ended: killed",
        "process ended: killed",
    ]


def test_partitions_for_which_the_same_is_decided_share_a_line() -> None:
    def decided(at_us: int, name: str, leader: int) -> Note:
        return Note(at_us, DECIDED, f"{name}: leader {leader}", PartitionDecided(name, leader, 1, (1,), (1, 2)))

    notes = [decided(1, "a-0", 1), decided(1, "a-1", 2), decided(1, "b-0", 1), decided(2, "a-0", 1)]
    assert [line.text for line in fold(notes)] == ["a-0, b-0: leader 1", "a-1: leader 2", "a-0: leader 1"]


def test_a_partition_in_words() -> None:
    plain = PartitionImage((3, 2, 1), (2, 1), 2, 3, 9, directories=(b"\x01" * 16,) * 3)
    assert partition_text(plain) == "leader 2, ISR 2,1 of 3,2,1, epoch 3"
    strange = plain._replace(
        leader=-1, isr=(), elr=(3,), last_known_elr=(2,), leader_recovery_state=RECOVERING, adding_replicas=(1,)
    )
    assert partition_text(strange) == (
        "no leader, ISR nobody of 3,2,1, epoch 3, ELR 3, last known 2, adding 1, recovering from an unclean election"
    )
