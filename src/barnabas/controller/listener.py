"""Callbacks that report what a controller does: one kind for each store.

The quorum publishes committed records itself, so its listener gets the cause of a decision before that, with the offset
of its first record. A controller in ZooKeeper mode knows only its own changes, and reports them when they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.controller.requests.result import Cause
from barnabas.metadata.image import MetadataDelta, MetadataImage


class ControllerListener(NamedTuple):
    """Callbacks of a controller in a quorum."""

    #: The controller has become active.
    on_active: Callable[[], None]
    #: A callback before a decision is proposed: gets (first offset, cause). If the quorum refuses it, another decision
    #: at the same offset follows, or the end of leadership.
    on_decision: Callable[[int, Cause], None]


class CommitListener(NamedTuple):
    """Callbacks of a controller in ZooKeeper mode."""

    #: The controller has become active, with this image.
    on_active: Callable[[MetadataImage], None]
    #: A callback for a change that is in ZooKeeper: gets the image after it, and its cause, None if another program
    #: made the change.
    on_commit: Callable[[MetadataDelta, MetadataImage, Cause | None], None]
