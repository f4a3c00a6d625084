"""Proposals of the active controller: its image with all decisions so far, and the path of a decision into the log.

    decision(view) -> Result(records, response, cause) -> propose -> replay on the own image
                                                             '-> committed -> reply(response)

Invariants
- Only replayed records change `image`. It is ahead of the committed image by the proposed, uncommitted records, and is
  discarded when leadership is lost, so a decision that is not committed leaves no trace.
- A reply is sent after its records are committed and published, or with NOT_CONTROLLER.
- The portions of a decision are proposed in order, each in its own turn of the event loop. Other decisions are made in
  between, so each portion is decided on the image of its moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host
from barnabas.controller.kraft.metadata_transactions import all_or_nothing
from barnabas.controller.listener import ControllerListener
from barnabas.controller.requests import elections
from barnabas.controller.requests.result import Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.raft.metadata_batches import BatchBody
from barnabas.raft.node import RaftNode

T = TypeVar("T")
Reply = Callable[[T], None]
Refused = Callable[[ErrorCode], None]


class Prepared(NamedTuple):
    """A decision that was prepared in portions before it is proposed: the log records, encoded, and the change of the
    image that they make.
    """

    records: Sequence[Versioned]
    encoded: Sequence[BatchBody]
    delta: MetadataDelta


class Proposals:
    """Makes the decisions of one node's controller on its image, and proposes their records until they are
    committed.
    """

    def __init__(self, host: Host, config: BrokerConfig, raft: RaftNode, strategy: NamedStrategy | None) -> None:
        self.timers = host.timers
        self._host = host
        self._config = config
        self._raft = raft
        self._strategy = strategy
        self._image: MetadataImage | None = None
        self._listeners: list[ControllerListener] = []
        #: Unclean elections decided since this process began.
        self.unclean_election_count = 0

    @property
    def is_active(self) -> bool:
        return self._image is not None

    @property
    def image(self) -> MetadataImage:
        """The metadata with all decisions so far, committed or not. Available only while active."""
        assert self._image is not None, "the controller is not active"
        return self._image

    def listen(self, listener: ControllerListener) -> None:
        """Registers a listener. It must be called before the controller starts."""
        self._listeners.append(listener)

    def begin(self, image: MetadataImage) -> None:
        """Starts from the committed image."""
        self._image = image

    def end(self) -> None:
        """Discards the image. The quorum answers the waiting requests with an error."""
        self._image = None

    def on_active(self) -> None:
        """Notifies the listeners that the controller has become active."""
        for listener in self._listeners:
            listener.on_active()

    def view(self) -> ControllerView:
        return ControllerView(self.image, self._config, self._host.random, self._strategy)

    def propose(
        self,
        result: Result[T],
        reply: Reply[T] | None = None,
        refused: Refused | None = None,
        *,
        proposed: Callable[[], None] | None = None,
        prepared: Prepared | None = None,
    ) -> bool:
        """Proposes the records of a decision and replays them; replies once they are committed. Portions of a large
        decision follow one turn of the event loop after the other; `proposed` is called with the last one. `prepared`
        has the records for the log, if they were encoded before.

        If the quorum refuses them (no space for its log), the decision is undone, `refused` replies, and this returns
        False. `refused` also replies when leadership is lost before the commit: the client then has to ask again,
        since the decision may or may not survive.
        """
        assert (reply is None) == (refused is None), "a caller that waits for a decision handles its refusal too"
        if result.rest is not None:
            if not self._propose(result, None, refused, None):
                return False
            rest, epoch = result.rest, self._raft.epoch
            self.timers.call_soon(lambda: self._propose_rest(rest, epoch, reply, refused, proposed))
            return True
        accepted = self._propose(result, reply, refused, prepared)
        if accepted and proposed is not None:
            proposed()
        return accepted

    def _propose_rest(
        self,
        rest: Callable[[ControllerView], Result[T]],
        epoch: int,
        reply: Reply[T] | None,
        refused: Refused | None,
        proposed: Callable[[], None] | None,
    ) -> None:
        """Proposes the rest of a decision that began in this epoch of the quorum."""
        try:
            if self._image is None or self._raft.epoch != epoch:
                raise RequestFailed(ErrorCode.NOT_CONTROLLER)
            result = rest(self.view())
        except RequestFailed as error:
            if refused is not None:
                refused(error.code)
            return
        self.propose(result, reply, refused, proposed=proposed)

    def _propose(
        self,
        result: Result[T],
        reply: Reply[T] | None,
        refused: Refused | None,
        prepared: Prepared | None,
    ) -> bool:
        response = result.response
        done = None if reply is None else (lambda _offset: reply(response))
        failed = None if reply is None or refused is None else (lambda: refused(ErrorCode.NOT_CONTROLLER))
        if not result.records:
            if done is not None:
                self._raft.when_committed(self._raft.log_end_offset, done, failed)
            return True
        if prepared is None:
            name, encoded = result.cause.event.value, None
            records = all_or_nothing(result.records, self.image.metadata_version, name)
            delta = None
        else:
            records, encoded, delta = prepared
            assert delta.image is self.image, "a decision that was prepared begins again after another one"
        before, after = self.image, self._replayed(records, delta)
        losses = elections.unclean_leaders(before, result.records)
        # Listeners are called first, because records can be committed and published before `propose` returns.
        for listener in self._listeners:
            listener.on_decision(self._raft.log_end_offset, result.cause.with_losses(losses))
        self._image = after
        try:
            self._raft.propose(records, wall_ms=self._host.clock.wall_ms(), done=done, failed=failed, encoded=encoded)
        except RequestFailed as failure:
            self._image = before
            if refused is not None:
                refused(failure.code)
            return False
        self.unclean_election_count += len(losses)
        return True

    def _replayed(self, records: Sequence[Versioned], delta: MetadataDelta | None) -> MetadataImage:
        """Returns the image with these records; `delta` has them already if they were replayed before."""
        if delta is None:
            delta = MetadataDelta(self.image)
            for record, _ in records:
                delta.replay(record)
        return delta.apply(self._raft.log_end_offset + len(records) - 1, self._raft.epoch, self._host.clock.wall_ms())
