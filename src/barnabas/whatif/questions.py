"""The questions: what is asked, as values, and their parser.

kill 1 2            these brokers, or controllers, die at the same time
rack b              every broker in a rack dies
disk 2:/d           a broker loses a log directory
restart 2           a broker shuts down cleanly, and returns
drain 2             all replicas of a broker move to others
min-isr TOPIC=3     min.insync.replicas of a topic is changed
restart-all         every broker is restarted, one after another
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


class BadQuestion(Exception):
    """A question that cannot be parsed, or does not fit the cluster. The message names the fault."""


@dataclass(frozen=True, slots=True)
class Kill:
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        return f"kill {' '.join(map(str, self.nodes))}"


@dataclass(frozen=True, slots=True)
class LoseRacks:
    racks: tuple[str, ...]

    def __str__(self) -> str:
        return f"rack {' '.join(self.racks)}"


@dataclass(frozen=True, slots=True)
class LoseDisks:
    #: Brokers with the path of a log directory.
    disks: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        return f"disk {' '.join(f'{broker}:{path}' for broker, path in self.disks)}"


@dataclass(frozen=True, slots=True)
class Restart:
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"restart {' '.join(map(str, self.brokers))}"


@dataclass(frozen=True, slots=True)
class Drain:
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"drain {' '.join(map(str, self.brokers))}"


@dataclass(frozen=True, slots=True)
class SetMinIsr:
    values: Mapping[str, int]

    def __str__(self) -> str:
        return f"min-isr {' '.join(f'{topic}={value}' for topic, value in self.values.items())}"


@dataclass(frozen=True, slots=True)
class RestartAll:
    def __str__(self) -> str:
        return "restart-all"


Question = Kill | LoseRacks | LoseDisks | Restart | Drain | SetMinIsr | RestartAll

KINDS: Final = ("kill", "rack", "disk", "restart", "drain", "min-isr", "restart-all")


def parse_question(words: Sequence[str]) -> Question:
    """Returns the question that these words ask. Raises BadQuestion."""
    kind, objects = (words[0], tuple(words[1:])) if words else ("", ())
    if kind not in KINDS:
        raise BadQuestion(f"{kind or 'nothing'} is not a question; the questions are {', '.join(KINDS)}")
    if kind == "restart-all":
        if objects:
            raise BadQuestion("restart-all takes no brokers; restart takes some")
        return RestartAll()
    if not objects:
        raise BadQuestion(f"{kind} needs {_OBJECTS[kind]}")
    if kind == "rack":
        return LoseRacks(tuple(dict.fromkeys(objects)))
    if kind == "disk":
        return LoseDisks(tuple(dict.fromkeys(map(_disk, objects))))
    if kind == "min-isr":
        return SetMinIsr(dict(map(_min_isr, objects)))
    nodes = tuple(dict.fromkeys(map(_node, objects)))
    if kind == "kill":
        return Kill(nodes)
    return Restart(nodes) if kind == "restart" else Drain(nodes)


_OBJECTS: Final = {
    "kill": "the ids of brokers",
    "rack": "the names of racks",
    "disk": "log directories, as BROKER:PATH",
    "restart": "the ids of brokers",
    "drain": "the ids of brokers",
    "min-isr": "topics with values, as TOPIC=N",
}


def _node(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise BadQuestion(f"{word} is not a broker id")
    return int(word)


def _disk(word: str) -> tuple[int, str]:
    broker, colon, path = word.partition(":")
    if not colon or not path:
        raise BadQuestion(f"{word} is not a log directory; write BROKER:PATH")
    return _node(broker), path


def _min_isr(word: str) -> tuple[str, int]:
    topic, equals, value = word.rpartition("=")
    if not equals or not topic or not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise BadQuestion(f"{word} is not a min ISR; write TOPIC=N, where N is at least 1")
    return topic, int(value)
