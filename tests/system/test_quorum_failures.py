"""Separate controllers that are killed, paused, partitioned and deprived of their disks: the quorum continues while a
majority of it lives, decides nothing without one, and is whole again afterwards.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from tests.support.namespaces import Namespaces, why_not
from tests.support.process_nodes import WAIT_S, Node, Nodes, call, create_topic, creation, describe_quorum, until

from barnabas.common.errors import ErrorCode
from barnabas.common.types import uuid_from_text
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

CONTROLLERS, BROKER = (1, 2, 3), 4
ROLES = {**dict.fromkeys(CONTROLLERS, "controller"), BROKER: "broker"}
#: The time of an election, with a margin for a busy machine; bench/ measures it on a quiet one.
FAILOVER_S = 20.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("quorum"), ROLES)
    try:
        nodes.start()
        # A voter without a log does not vote before it has caught up once.
        until("all have everything", lambda: caught_up(nodes))
        yield nodes
    finally:
        nodes.close()


def topics(node: Node) -> set[str]:
    answer = call(node.address, MetadataRequest(topics=None), 12, MetadataResponse)
    return {str(topic.name) for topic in answer.topics}


def directory_id(node: Node) -> str:
    found = re.search(r"directory.id=(\S+)", (node.data / "meta.properties").read_text())
    assert found is not None
    return found[1]


def caught_up(nodes: Nodes) -> bool:
    """Returns whether all voters have caught up. A replica whose directory is lost is listed next to its successor for
    a while.
    """
    told = nodes.quorum()
    ends: dict[int, int] = {}
    for state in (*told.current_voters, *told.observers):
        ends[state.replica_id] = max(ends.get(state.replica_id, -1), state.log_end_offset)
    return set(ends) == set(ROLES) and set(ends.values()) == {told.high_watermark}


def test_another_controller_decides_after_kill_9(nodes: Nodes) -> None:
    leader = nodes.leader()
    epoch = nodes.quorum().leader_epoch
    nodes[leader].kill()
    begin = time.monotonic()
    assert create_topic(nodes[BROKER].address, "after-kill") == ErrorCode.NONE
    assert time.monotonic() - begin < FAILOVER_S
    assert nodes.leader() != leader
    assert nodes.quorum().leader_epoch > epoch
    nodes[leader].launch(nodes.cluster_id)
    nodes[leader].wait()
    until("the killed one is a voter that has everything", lambda: caught_up(nodes))


def test_a_paused_controller_comes_back_deposed(nodes: Nodes) -> None:
    """Requests that the paused controller got before it noticed its successor are not decided."""
    leader = nodes.leader()
    paused = nodes[leader]
    epoch = nodes.quorum().leader_epoch
    paused.signal(signal.SIGSTOP)
    try:
        request = creation("asked-while-asleep")
        header = RequestHeader(request_api_key=19, request_api_version=7, client_id="late")
        frame = codec.encode(header, request_header_version(19, 7))
        codec.encode_into(request, 7, frame)
        with socket.create_connection(paused.controller_address, timeout=WAIT_S) as late:
            late.sendall(len(frame).to_bytes(4, "big") + frame)
            others = [node_id for node_id in CONTROLLERS if node_id != leader]
            assert nodes.leader(others) != leader
            assert create_topic(nodes[BROKER].address, "while-asleep") == ErrorCode.NONE
            paused.signal(signal.SIGCONT)
            with late.makefile("rb") as stream:
                data = stream.read(int.from_bytes(stream.read(4), "big"))
        answer, _ = codec.decode(CreateTopicsResponse, 7, data, 5)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    finally:
        paused.signal(signal.SIGCONT)
    until("it follows", lambda: caught_up(nodes))
    assert describe_quorum(paused.controller_address).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert nodes.quorum().leader_epoch > epoch
    assert "while-asleep" in topics(nodes[BROKER])
    assert "asked-while-asleep" not in topics(nodes[BROKER])


def test_all_are_killed_and_started_again(nodes: Nodes) -> None:
    before = topics(nodes[BROKER])
    epoch = nodes.quorum().leader_epoch
    nodes.close()
    nodes.start()
    assert nodes.quorum().leader_epoch > epoch
    until("the broker knows its topics", lambda: topics(nodes[BROKER]) >= before)
    assert create_topic(nodes[BROKER].address, "after-restart") == ErrorCode.NONE
    until("all have everything", lambda: caught_up(nodes))


@pytest.mark.full
def test_nothing_is_decided_without_a_majority(nodes: Nodes) -> None:
    leader = nodes.leader()
    assert create_topic(nodes[BROKER].address, "known-before") == ErrorCode.NONE
    others = [node_id for node_id in CONTROLLERS if node_id != leader]
    for node_id in others:
        nodes[node_id].kill()

    def resigned() -> bool:
        return describe_quorum(nodes[leader].controller_address).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    until("the one that is left leads no more", resigned)
    assert "no majority of the voters has fetched" in nodes[leader].log
    answer = call(nodes[leader].controller_address, creation("not-decided"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    with pytest.raises(OSError):
        call(nodes[BROKER].address, creation("not-answered"), 7, CreateTopicsResponse, timeout_s=2)
    assert "known-before" in topics(nodes[BROKER]), "what is known can still be read"
    until("it says so", lambda: "no leader of the metadata quorum is known for" in nodes[BROKER].log)
    nodes.start(others[:1])
    nodes.leader([leader, others[0]])
    assert create_topic(nodes[BROKER].address, "decided-again") == ErrorCode.NONE
    assert "not-decided" not in topics(nodes[BROKER])
    nodes.start(others[1:])
    until("all have everything", lambda: caught_up(nodes))


def test_a_static_voter_that_lost_its_directory(nodes: Nodes) -> None:
    """The voter does not start empty by itself: the operator formats it for the cluster, and then it gets
    everything.
    """
    lost = nodes[next(node_id for node_id in CONTROLLERS if node_id != nodes.leader())]
    assert lost.stop() == 0
    shutil.rmtree(lost.data)
    lost.launch()
    assert lost.process is not None
    assert lost.process.wait(120) == 1
    (line,) = [each for each in lost.log.splitlines() if "are empty" in each]
    assert "give all nodes the same cluster id" in line
    lost.launch(nodes.cluster_id)
    lost.wait()
    until("it has everything", lambda: caught_up(nodes))
    assert create_topic(nodes[BROKER].address, "with-a-new-disk") == ErrorCode.NONE


# Dynamic quorums.


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Node 1 begins alone; the others join."""
    nodes = Nodes(tmp_path_factory.mktemp("dynamic"), ROLES, dynamic=True)
    try:
        nodes[1].format(nodes.cluster_id, "--standalone")
        for node_id in (2, 3):
            nodes[node_id].format(nodes.cluster_id, "--no-initial-controllers")
        nodes[BROKER].format(nodes.cluster_id)
        yield nodes.start()
    finally:
        nodes.close()


def add(nodes: Nodes, node: Node) -> tuple[int, str | None]:
    host, port = node.controller_address
    request = AddRaftVoterRequest(
        cluster_id=nodes.cluster_id,
        timeout_ms=10_000,
        voter_id=node.node_id,
        voter_directory_id=uuid_from_text(directory_id(node)),
        listeners=[AddRaftVoterRequest.Listener(name="CONTROLLER", host=host, port=port)],
    )
    answer = call(nodes[nodes.leader()].controller_address, request, 0, AddRaftVoterResponse)
    return answer.error_code, answer.error_message


def remove(nodes: Nodes, node_id: int, directory: str) -> tuple[int, str | None]:
    request = RemoveRaftVoterRequest(
        cluster_id=nodes.cluster_id, voter_id=node_id, voter_directory_id=uuid_from_text(directory)
    )
    answer = call(nodes[nodes.leader()].controller_address, request, 0, RemoveRaftVoterResponse)
    return answer.error_code, answer.error_message


def until_added(nodes: Nodes, node: Node) -> None:
    """Adds the voter, and repeats the request: Kafka too answers REQUEST_TIMED_OUT to a node that lags, or while
    another change is not committed. Such a request can have been executed nevertheless.
    """
    assert node.node_id not in nodes.voters()
    tries = 0

    def added() -> bool:
        nonlocal tries
        tries += 1
        code, text = add(nodes, node)
        heard_before = tries > 1 and code == ErrorCode.DUPLICATE_VOTER
        assert code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) or heard_before, text
        return code == ErrorCode.NONE or heard_before

    until(f"node {node.node_id} votes", added)


def test_a_quorum_grows_from_one_to_three(dynamic: Nodes) -> None:
    until("they follow", lambda: (dynamic.voters(), dynamic.observers()) == ([1], [2, 3, BROKER]))
    for node_id in (2, 3):
        until_added(dynamic, dynamic[node_id])
    assert (dynamic.voters(), dynamic.observers()) == ([1, 2, 3], [BROKER])
    code, text = add(dynamic, dynamic[3])
    assert code == ErrorCode.DUPLICATE_VOTER
    assert "is already part of the set of voters" in str(text)
    dynamic[dynamic.leader()].kill()
    assert create_topic(dynamic[BROKER].address, "led-by-another") == ErrorCode.NONE
    dynamic.start([node.node_id for node in dynamic.controllers if not node.is_running])
    until("all have everything", lambda: caught_up(dynamic))


def test_a_leader_is_removed_and_added_again(dynamic: Nodes) -> None:
    leader = dynamic.leader()
    left = [node_id for node_id in CONTROLLERS if node_id != leader]
    assert remove(dynamic, leader, directory_id(dynamic[leader])) == (ErrorCode.NONE, "NONE")
    assert dynamic.leader(left) in left
    assert dynamic.voters() == left

    def only_the_leader_says_so() -> bool:
        codes = {each: describe_quorum(dynamic[each].controller_address).error_code for each in CONTROLLERS}
        return [each for each, code in codes.items() if code == ErrorCode.NONE] == [dynamic.leader()]

    until("only the leader says so", only_the_leader_says_so)
    until("it follows as an observer", lambda: dynamic.observers() == sorted([leader, BROKER]))
    assert create_topic(dynamic[BROKER].address, "without-the-first") == ErrorCode.NONE
    # The node stays an observer after a restart.
    dynamic[leader].kill()
    dynamic.start([leader])
    until("it has everything", lambda: caught_up(dynamic))
    assert dynamic.voters() == left
    until_added(dynamic, dynamic[leader])
    assert dynamic.voters() == list(CONTROLLERS)


def test_a_dynamic_voter_that_lost_its_directory_is_another_voter(dynamic: Nodes) -> None:
    lost = dynamic[next(node_id for node_id in CONTROLLERS if node_id != dynamic.leader())]
    before = directory_id(lost)
    lost.kill()
    shutil.rmtree(lost.data)
    lost.format(dynamic.cluster_id, "--no-initial-controllers")
    assert directory_id(lost) != before
    lost.launch()
    lost.wait()

    def seen_twice() -> bool:
        """Returns whether the old directory is listed as a voter that lags, and the new one as an observer."""
        return lost.node_id in dynamic.voters() and lost.node_id in dynamic.observers()

    until("the new one follows", seen_twice)
    code, text = add(dynamic, lost)
    assert code == ErrorCode.DUPLICATE_VOTER, text
    assert remove(dynamic, lost.node_id, before) == (ErrorCode.NONE, "NONE")
    until_added(dynamic, lost)
    assert dynamic.voters() == list(CONTROLLERS)
    assert directory_id(lost) != before
    until("all have everything", lambda: caught_up(dynamic))


# Networks.

in_namespaces = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    with Namespaces(*(f"node-{node_id}" for node_id in ROLES)) as network:
        yield network


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, network: Namespaces) -> Iterator[Nodes]:
    """Starts each node in a network namespace of its own."""
    nodes = Nodes(
        tmp_path_factory.mktemp("apart"),
        ROLES,
        hosts={node_id: network.address(f"node-{node_id}") for node_id in ROLES},
        prefixes={node_id: network.inside(f"node-{node_id}") for node_id in ROLES},
    )
    try:
        yield nodes.start()
    finally:
        nodes.close()


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the cuts of a test that failed, for the next one and for its own repetition."""
    yield
    if "network" in request.fixturenames:
        request.getfixturevalue("network").heal()


def named(*node_ids: int) -> list[str]:
    return [f"node-{node_id}" for node_id in node_ids]


@pytest.mark.full
@in_namespaces
def test_a_leader_that_is_cut_off_decides_nothing_more(apart: Nodes, network: Namespaces) -> None:
    """The leader gets no message about that; the test still reaches it, as a client on the wrong side would."""
    leader = apart.leader()
    epoch = apart.quorum().leader_epoch
    others = [node_id for node_id in CONTROLLERS if node_id != leader]
    network.part(named(leader), named(*others, BROKER))
    # The record is appended, not committed: the client gets no answer, or one with another leader.
    with socket.create_connection(apart[leader].controller_address, timeout=WAIT_S) as wrong_side:
        frame = codec.encode(RequestHeader(request_api_key=19, request_api_version=7, client_id="x"), 2)
        codec.encode_into(creation("wrong-side"), 7, frame)
        wrong_side.sendall(len(frame).to_bytes(4, "big") + frame)
        assert apart.leader(others) in others
        assert create_topic(apart[BROKER].address, "right-side") == ErrorCode.NONE
        with wrong_side.makefile("rb") as stream:
            answer, _ = codec.decode(CreateTopicsResponse, 7, stream.read(int.from_bytes(stream.read(4), "big")), 5)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    assert describe_quorum(apart[leader].controller_address).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    network.heal()
    until("all have everything", lambda: caught_up(apart))
    assert apart.quorum().leader_epoch > epoch
    assert apart.leader() != leader
    assert {"right-side"} <= topics(apart[BROKER])
    assert "wrong-side" not in topics(apart[BROKER])


@pytest.mark.full
@in_namespaces
def test_a_follower_that_receives_nothing_disturbs_no_other_node(apart: Nodes, network: Namespaces) -> None:
    """The cut is one-way: the follower's requests arrive, and no answers. Its vote requests change no epoch
    (pre-vote).
    """
    leader, epoch = apart.leader(), apart.quorum().leader_epoch
    deaf = next(node_id for node_id in CONTROLLERS if node_id != leader)
    for node_id in ROLES:
        if node_id != deaf:
            network.cut(f"node-{node_id}", f"node-{deaf}")
    time.sleep(8)  # four fetch timeouts
    assert create_topic(apart[BROKER].address, "while-one-is-deaf") == ErrorCode.NONE
    assert (apart.leader(), apart.quorum().leader_epoch) == (leader, epoch)
    network.heal()
    until("it has everything", lambda: caught_up(apart))
    assert (apart.leader(), apart.quorum().leader_epoch) == (leader, epoch)


@in_namespaces
def test_a_leader_that_receives_nothing_resigns(apart: Nodes, network: Namespaces) -> None:
    """The leader's packets arrive, but none reaches it, so it receives no fetch."""
    # A voter whose log is new does not vote: two of them without the leader would wait for it.
    until("all have everything", lambda: caught_up(apart))
    leader = apart.leader()
    others = [node_id for node_id in CONTROLLERS if node_id != leader]
    for node_id in (*others, BROKER):
        network.cut(f"node-{node_id}", f"node-{leader}")
    assert apart.leader(others) in others
    assert create_topic(apart[BROKER].address, "heard-by-others") == ErrorCode.NONE
    network.heal()
    until("all have everything", lambda: caught_up(apart))
    assert "heard-by-others" in topics(apart[BROKER])
