"""Voters of a new cluster vote before they have fetched anything; voters with new directories wait for a leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.controller_world import make_config

from barnabas.common.errors import FatalFault
from barnabas.metadata.store import MetadataStore
from barnabas.protocol import codec
from barnabas.protocol.messages.vote import VoteRequest, VoteResponse
from barnabas.raft.formatting import Formatted, ensure_formatted
from barnabas.raft.log_checkpoint import LogCheckpoint, LogCheckpointFile, VotingRestriction, log_checkpoint_path
from barnabas.raft.messages import is_of_new_cluster, vote_request
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.node import RaftNode
from barnabas.raft.quorum_state import ElectionState, encode_state
from barnabas.raft.voters import VoterKey
from barnabas.simulation.crashing_disk import CrashingDisk, Fate
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.worlds.quorum_places import Place
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
THREE = {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093", "log.dirs": "/d"}


class ThirdStartsLate(World):
    """The third voter starts for the first time after the first leader was killed."""

    def __init__(self, seed: int, *, is_new_cluster: bool) -> None:
        self._is_new = is_new_cluster
        super().__init__(Plan(seed))
        self.heap.run_until(5_000, lambda: bool(self._leaders()))
        (self.first,) = self._leaders()

    def _first_start_ms(self, place: Place) -> float:
        return 1e9 if place.node_id == 3 else 0

    def _is_new_cluster(self, place: Place) -> bool:
        return self._is_new and place.starts == 1

    def kill_first(self, after_ms: float) -> None:
        self.heap.run_until(self.heap.now + after_ms)
        self.crash(self.first, Fate.KEPT)
        self.start(self.places[3])

    def leads_within(self, duration_ms: float) -> bool:
        self.heap.run_until(self.heap.now + duration_ms, lambda: bool(self._leaders()))
        return bool(self._leaders())


@pytest.mark.parametrize("after_ms", [0, 5, 100, 1_000])
def test_a_new_cluster_survives_the_death_of_its_first_leader_before_the_third_voter_has_started(
    after_ms: float,
) -> None:
    for seed in range(10):
        world = ThirdStartsLate(seed, is_new_cluster=True)
        world.propose_to(world.first)
        world.kill_first(after_ms)
        assert world.leads_within(5_000), f"seed {seed}"
        world.propose_to(world._leaders()[0])
        world.heap.run_until(world.heap.now + 1_000)
        world.checker.check_promises()


def test_without_that_format_the_third_voter_waits_for_a_leader() -> None:
    """The directory could replace one in which the voter had acknowledged records."""
    world = ThirdStartsLate(1, is_new_cluster=False)
    world.propose_to(world.first)
    world.kill_first(100)
    assert not world.leads_within(20_000)
    assert any("its metadata log is new" in line for line in world.timeline)
    world.start(world.first)
    assert world.leads_within(5_000)


# -- who votes for whom


class Voter:
    """A voter with an empty log, of three."""

    def __init__(self, *, is_new_cluster: bool, disk: CrashingDisk | None = None) -> None:
        self.disk = CrashingDisk() if disk is None else disk
        self.host = MemoryHost(1, disk=self.disk)
        config = make_config(THREE)
        self.formatted: Formatted = ensure_formatted(
            self.host, config, cluster_id=CLUSTER_ID, is_new_cluster=is_new_cluster
        )
        self.node = RaftNode(self.host, config, MetadataStore(), self.formatted)
        self.node.start()

    def votes_for(self, candidate: int, epoch: int, last: tuple[int, int], *, is_of_new_cluster: bool) -> bool:
        request = vote_request(
            CLUSTER_ID,
            VoterKey(candidate),
            VoterKey(1),
            epoch=epoch,
            last=last,
            pre_vote=False,
            is_of_new_cluster=is_of_new_cluster,
        )
        version = request.VERSIONS[1]
        received, _ = codec.decode(VoteRequest, version, bytes(codec.encode(request, version)))
        answers: list[Any] = []
        self.node.server.serve(received, version, "CONTROLLER", answers.append)
        (answer,) = answers
        assert isinstance(answer, VoteResponse)
        return bool(answer.topics[0].partitions[0].vote_granted)

    @property
    def checkpoint(self) -> LogCheckpoint | None:
        return LogCheckpointFile(self.disk, "/d").checkpoint


EMPTY, LONG = (0, 0), (1, 5)


@pytest.mark.parametrize(
    ("own", "last", "candidate", "is_granted"),
    [
        (True, LONG, False, True),
        (True, EMPTY, True, True),
        (True, EMPTY, False, False),  # the candidate replaces a lost directory
        (False, LONG, False, False),
        (False, EMPTY, False, True),
        (False, EMPTY, True, False),  # this voter replaces a lost directory
    ],
)
def test_voters_with_an_empty_log(own: bool, last: tuple[int, int], candidate: bool, is_granted: bool) -> None:
    voter = Voter(is_new_cluster=own)
    assert voter.votes_for(2, 7, last, is_of_new_cluster=candidate) is is_granted


def test_a_new_voter_is_held_until_the_leader_that_it_elected_is_known() -> None:
    """The candidate can be another voter whose directory was lost; only its victory shows that the quorum is new."""
    voter = Voter(is_new_cluster=False)
    assert voter.votes_for(2, 1, EMPTY, is_of_new_cluster=False)
    assert voter.node._core.is_restricted
    voter.node._run(lambda: voter.node._core.learn(1, 2, (), from_leader=True))
    assert not voter.node._core.is_restricted


def test_kafkas_requests_have_no_such_field() -> None:
    plain = vote_request(CLUSTER_ID, VoterKey(2), VoterKey(1), epoch=1, last=EMPTY, pre_vote=True)
    assert not is_of_new_cluster(plain)
    assert not plain.unknown_tags


# -- the checkpoint


def test_what_the_format_wrote_ends_with_the_first_flush_and_no_loss_of_power_brings_it_back() -> None:
    voter = Voter(is_new_cluster=True)
    found = voter.checkpoint
    assert found is not None
    assert found.restriction is VotingRestriction.NEW_CLUSTER
    assert voter.votes_for(2, 7, LONG, is_of_new_cluster=False)
    for fate in Fate:
        left = LogCheckpointFile(voter.disk.after_crash(fate), "/d").checkpoint
        assert left is not None
        assert left.quorum_epoch == 7, "the vote is known after a power failure"
    keeper = voter.node.log.keeper
    keeper.flushed(3, 7)
    for fate in Fate:
        left = LogCheckpointFile(voter.disk.after_crash(fate), "/d").checkpoint
        assert left == LogCheckpoint(0, 3, 7, 7, VotingRestriction.NONE), fate


def test_a_voter_of_a_new_cluster_that_lost_its_log_refuses_to_start_as_any_other() -> None:
    voter = Voter(is_new_cluster=True)
    voter.node.log.keeper.flushed(3, 7)
    disk = voter.disk.after_crash(Fate.KEPT)
    disk.remove_tree(metadata_log_directory("/d"))
    with pytest.raises(FatalFault, match="is missing or empty, but"):
        Voter(is_new_cluster=True, disk=disk)


def test_a_directory_that_replaces_a_lost_one_is_not_of_the_new_cluster() -> None:
    voter = Voter(is_new_cluster=True)
    voter.node.log.keeper.flushed(3, 7)
    voter = Voter(is_new_cluster=False)
    assert not voter.votes_for(2, 8, LONG, is_of_new_cluster=False)


def damage_a_line(disk: CrashingDisk) -> None:
    path = log_checkpoint_path("/d")
    disk.write(path, disk.read(path)[:-1] + b"x")


def run_by_kafka(disk: CrashingDisk) -> None:
    """Kafka's file has no checksum."""
    state = encode_state(ElectionState(7), kraft_version=0, voter_ids=[1, 2, 3])
    disk.make_dirs(metadata_log_directory("/d"))
    disk.write(f"{metadata_log_directory('/d')}/quorum-state", state)


@pytest.mark.parametrize(
    "spoil", [damage_a_line, run_by_kafka, lambda disk: disk.make_dirs("/d/orders-0")], ids=["line", "kafka", "topic"]
)
def test_what_is_not_certain_is_as_in_any_new_directory(spoil: Callable[[CrashingDisk], None]) -> None:
    disk = CrashingDisk()
    ensure_formatted(MemoryHost(1, disk=disk), make_config(THREE), cluster_id=CLUSTER_ID, is_new_cluster=True)
    spoil(disk)
    voter = Voter(is_new_cluster=True, disk=disk)
    assert not voter.votes_for(2, 8, LONG, is_of_new_cluster=True)


def test_a_format_that_was_interrupted_is_repeated_as_it_is_asked_for_then() -> None:
    host = MemoryHost(1)
    ensure_formatted(host, make_config(THREE), cluster_id=CLUSTER_ID, is_new_cluster=True)
    host.disk.remove("/d/meta.properties")
    ensure_formatted(host, make_config(THREE), cluster_id=CLUSTER_ID)
    assert not host.disk.exists(log_checkpoint_path("/d"))


def test_brokers_do_not_vote_and_have_no_such_checkpoint() -> None:
    host = MemoryHost(1)
    properties = {
        **THREE,
        "node.id": "4",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://localhost:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
    }
    ensure_formatted(host, make_config(properties), cluster_id=CLUSTER_ID, is_new_cluster=True)
    assert not host.disk.exists(log_checkpoint_path("/d"))
