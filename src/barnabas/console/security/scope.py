"""The scope of a user: patterns of the clusters, topics and groups that the user sees and changes.

    Patterns(topics=("shop-*",))           of a user, in the file of users; of a role, in the configuration file
    scope.sees_topic("shop-orders")        every part of the scope must allow a name

A pattern is a name in which * stands for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

EVERY: Final = ("*",)
#: The beginning of the names of internal topics.
INTERNAL: Final = "__"
PATTERN_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one user or role. A name is allowed if one of the patterns of its kind fits."""

    clusters: tuple[str, ...] = EVERY
    topics: tuple[str, ...] = EVERY
    groups: tuple[str, ...] = EVERY

    @property
    def is_everything(self) -> bool:
        return all("*" in each for each in (self.clusters, self.topics, self.groups))


UNLIMITED: Final = Patterns()


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a visitor. All `parts` must allow a name: that of the user and that of the role."""

    parts: tuple[Patterns, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Patterns | None]) -> Scope:
        return cls(tuple(each for each in parts if each is not None and not each.is_everything))

    @property
    def is_restricted(self) -> bool:
        """Whether there is a topic or a group that this scope hides."""
        return any("*" not in each.topics or "*" not in each.groups for each in self.parts)

    @property
    def sees_all_topics(self) -> bool:
        return all("*" in each.topics for each in self.parts)

    def sees_cluster(self, name: str) -> bool:
        return all(fits(each.clusters, name) for each in self.parts)

    def sees_topic(self, name: str) -> bool:
        return all(fits(each.topics, name) for each in self.parts)

    def sees_group(self, name: str) -> bool:
        return all(fits(each.groups, name) for each in self.parts)

    def sees_records(self, topic: str) -> bool:
        """Whether the records of a topic are shown: those of internal topics name all topics and groups."""
        return self.sees_topic(topic) and not (self.is_restricted and topic.startswith(INTERNAL))


EVERYTHING: Final = Scope()


def fits(patterns: Sequence[str], name: str) -> bool:
    """Whether one of the patterns fits a name."""
    return _compiled(tuple(patterns)).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(".*".join(map(re.escape, each.split("*"))) for each in patterns) or r"(?!)", re.DOTALL)
