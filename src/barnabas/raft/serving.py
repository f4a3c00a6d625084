"""The server for requests about the quorum, from other nodes and from tools. `listener` is the name of the listener on
which a request arrived.
"""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.raft.core import Core
from barnabas.raft.describing import describe_quorum
from barnabas.raft.elections import Elections
from barnabas.raft.fetch_answers import FetchAnswers
from barnabas.raft.ready import AnswerReply
from barnabas.raft.voter_changes import VoterChanges

#: KIP-595
_FETCH_VERSION_WITH_LEADERS = 12
#: KIP-853
_DESCRIBE_VERSION_WITH_DIRECTORIES = 2


class QuorumServer:
    """Serves each request in a separate event.

    The response is sent when `serve` returns, unless it is delayed.
    """

    def __init__(self, core: Core, elections: Elections, answers: FetchAnswers, changes: VoterChanges) -> None:
        self._core = core
        self._elections = elections
        self._answers = answers
        self._changes = changes

    def serve(self, request: Message, version: int, listener: str, reply: AnswerReply) -> None:
        """Serves one request. Calls `reply` exactly once, now or later, with fields of this version only."""

        def answer(response: Message) -> None:
            reply(fit(response, version))

        def refuse() -> None:
            self._core.draft.answer(reply, refusal(request, ErrorCode.KAFKA_STORAGE_ERROR))

        self._core.run(lambda: self._core.persisting(lambda: self._serve(request, listener, answer), refuse))

    def _serve(self, request: Message, listener: str, reply: AnswerReply) -> None:
        draft = self._core.draft
        if not self._core.is_open or self._core.is_stopped:
            draft.answer(reply, refusal(request, ErrorCode.BROKER_NOT_AVAILABLE))
        elif isinstance(request, FetchRequest):
            self._answers.fetch(request, listener, reply)
        elif isinstance(request, AddRaftVoterRequest):
            self._changes.add(request, reply)
        elif isinstance(request, RemoveRaftVoterRequest):
            self._changes.remove(request, reply)
        elif isinstance(request, VoteRequest | UpdateRaftVoterRequest):
            if_not_saved = refusal(request, ErrorCode.KAFKA_STORAGE_ERROR)
            draft.answer(reply, self._answer(request, listener), if_not_saved)
        else:
            draft.answer(reply, self._answer(request, listener))

    def _answer(self, request: Message, listener: str) -> Message:
        if isinstance(request, VoteRequest):
            return self._elections.on_vote(request, listener)
        if isinstance(request, UpdateRaftVoterRequest):
            return self._changes.update(request, listener)
        if isinstance(request, BeginQuorumEpochRequest):
            return self._elections.on_begin(request, listener)
        if isinstance(request, EndQuorumEpochRequest):
            return self._elections.on_end(request, listener)
        if isinstance(request, FetchSnapshotRequest):
            return self._answers.fetch_snapshot(request, listener)
        assert isinstance(request, DescribeQuorumRequest), f"{request.NAME} is not about the quorum"
        return describe_quorum(self._core, request)


def fit(response: Message, version: int) -> Message:
    """Removes response fields that the requested version does not have; clients of that version do not need them."""
    for field in response.FIELDS:
        if field.attribute == "node_endpoints" and not field.is_in(version):
            response.node_endpoints = []  # type: ignore[attr-defined]
    if isinstance(response, FetchResponse) and version < _FETCH_VERSION_WITH_LEADERS:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.diverging_epoch = partition.current_leader = partition.snapshot_id = None
    if isinstance(response, DescribeQuorumResponse) and version < _DESCRIBE_VERSION_WITH_DIRECTORIES:
        response.nodes = []
        for row in (partition for topic in response.topics for partition in topic.partitions):
            for state in (*row.current_voters, *row.observers):
                state.replica_directory_id = ZERO_UUID
    return response


def refusal(request: Message, code: ErrorCode) -> Message:
    """Returns a response with only an error code: this node is not started, is stopping, or cannot save its promise."""
    assert request.API_KEY is not None
    return response_class(request.API_KEY)(error_code=code)  # type: ignore[call-arg]
