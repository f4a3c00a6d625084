"""Pure nodes of a quorum in a seeded world: no broker, no sockets, the product's own `RaftNode` on disks in memory.

    World(Plan.of(seed)).run()     a time of faults; then everything heals and the quorum must work again

Every choice comes from the seed. A `Violation` or any other error that a node raises ends the run; `timeline` contains
what happened before.
"""

from __future__ import annotations

from typing import Any

from barnabas.common.errors import RequestFailed
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.raft.voters import VoterKey
from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.worlds.quorum_checker import Violation, name_of
from barnabas.simulation.worlds.quorum_places import CLUSTER_ID, ROOM, Place, Places

_TROUBLE_MS = 6_000
_HEALING_MS_MAX = 12_000
_NEWER = ("damages", "full_disks")


class World(Places):
    """A quorum under faults: messages are lost, disks fail and voters change as the plan says."""

    _wiped = False

    def run(self) -> World:
        with second_decisions().judging():
            self._run()
        return self

    def _run(self) -> None:
        self.heap.later(100, self._propose)
        self.heap.later(300, self._trouble)
        self.heap.run_until(_TROUBLE_MS)
        self._heal()

    def _up(self) -> list[Place]:
        return [place for place in self.places.values() if place.node is not None]

    def _leaders(self) -> list[Place]:
        return [p for p in self._up() if p.node is not None and p.node.is_leader and not p.is_paused]

    def _propose(self) -> None:
        """Proposes to every node that regards itself as the leader."""
        for place in self._leaders():
            self.propose_to(place)
        if not self.is_healed:
            self.heap.later(10 + self.chance.random() * 120, self._propose)

    def propose_to(self, place: Place) -> None:
        node, host = place.node, place.host
        assert node is not None
        assert host is not None
        self.proposals += 1
        value = f"v{self.proposals}"
        record = ConfigRecord(resource_type=4, resource_name="", name=name_of(value), value=value)

        def done(base_offset: int) -> None:
            if not host.is_over:
                self.checker.promised[base_offset] = value

        try:
            node.propose([(record, 0)], wall_ms=host.wall_ms(), done=done)
        except RequestFailed as refused:
            if place.disk.free_bytes >= ROOM:
                raise
            self.note(f"node {place.node_id} refuses {value}: {refused}")

    def _trouble(self) -> None:
        if self.is_healed:
            return
        kinds = [
            name
            for name in ("losses", "cuts", "crashes", "power", "pauses", "wipes", "changes", "upgrades", *_NEWER)
            if self._has(name)
        ]
        if kinds:
            getattr(self, f"_begin_{self.chance.choice(kinds)}")()
        self.heap.later(100 + self.chance.random() * 700, self._trouble)

    def _has(self, kind: str) -> bool:
        return bool(getattr(self.plan, kind))

    def _some_place(self) -> Place | None:
        """Chooses the node for a fault: leaders more often than others."""
        places = self._up()
        leaders = self._leaders()
        if leaders and self.chance.random() < 0.5:
            return self.chance.choice(leaders)
        return self.chance.choice(places) if places else None

    def _begin_cuts(self) -> None:
        faults = self.network.faults
        if faults.cut and self.chance.random() < 0.6:
            faults.cut.clear()
            self.note("network: whole")
            return
        ids = list(self.places)
        side = {n for n in ids if self.chance.random() < 0.5}
        one_way = self.chance.random() < 0.3
        faults.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side) and not (one_way and a in side)}
        self.note(f"network: {sorted(side)} apart{', one way' if one_way else ''}")

    def _begin_full_disks(self) -> None:
        """Fills the disk of one node for a while: the others continue."""
        place = self._some_place()
        if place is None or any(each.disk.free_bytes < ROOM for each in self.places.values()):
            return
        self.note(f"node {place.node_id} has a full disk")
        place.was_full = True
        place.disk.free_bytes = self.chance.randrange(400)
        self.heap.later(100 + self.chance.random() * 3_000, place.make_room)

    def _begin_crashes(self) -> None:
        place = self._some_place()
        if place is not None:
            self.crash(place, Fate.KEPT)
            self._start_later(place)

    def _begin_power(self) -> None:
        for place in [self._some_place()] if self.chance.random() < 0.7 else self._up():
            if place is not None:
                self.crash(place, self.chance.choice(list(Fate)))
                self._start_later(place)

    def _start_later(self, place: Place) -> None:
        def start() -> None:
            if place.node is None:
                self.start(place)

        self.heap.later(20 + self.chance.random() * 1200, start)

    def _begin_pauses(self) -> None:
        place = self._some_place()
        if place is None or place.is_paused:
            return
        self.note(f"node {place.node_id} pauses")
        place.is_paused = True
        start = place.starts
        self.heap.later(50 + self.chance.random() * 1500, lambda: self._resume(place, start))

    def _resume(self, place: Place, start: int) -> None:
        if place.starts != start or not place.is_paused:
            return
        self.note(f"node {place.node_id} continues")
        place.is_paused = False
        for action in place.take_kept():
            self.heap.later(0, action)

    def _begin_wipes(self) -> None:
        """Removes the disk of at most one voter in a world, and only where two others have all that it had."""
        if self.plan.voters < 3 or any(not p.key.directory_id.strip(b"\0") for p in self._up() if p.is_controller):
            return
        if any(place.key.directory_id[:5] == b"wiped" for place in self.places.values()) or self._wiped:
            return
        place = self.places[self.chance.choice(self.first_voters.ids)]
        if place.node is not None:
            self._wiped = True
            self.wipe(place)
            self._start_later(place)

    def _begin_changes(self) -> None:
        """Adds an observer as a voter, or removes a voter. Where a disk can be lost, only that voter is removed: the
        others are needed.
        """
        for place in self._leaders():
            node = place.node
            assert node is not None
            voters = node.voters
            others = [p for p in self.places.values() if p.is_controller and voters.find(p.key) is None]
            if others and (self.plan.wipes or len(voters) < 3 or self.chance.random() < 0.6):
                one = self.chance.choice(others)
                stale = voters.by_id(one.node_id)
                if stale is not None:
                    self._request_to_remove(place, stale.key)
                else:
                    self._request_to_add(place, one)
            elif len(voters) > 1 and not self.plan.wipes:
                self._request_to_remove(place, self.chance.choice(voters.voters).key)

    def _begin_upgrades(self) -> None:
        """Raises kraft.version once; the voters change from then on."""
        for place in self._leaders():
            node = place.node
            assert node is not None
            if node.kraft_version == 1:
                self._begin_changes()
            elif node.changes.upgrade_refusal() is None:
                self.note(f"node {place.node_id} makes the voters dynamic")
                node.changes.upgrade()

    def _request_to_add(self, leader: Place, one: Place) -> None:
        listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=one.address[0], port=one.address[1])
        request = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=one.node_id,
            voter_directory_id=one.key.directory_id,
            listeners=[listener],
        )
        self.call(leader, request)

    def _request_to_remove(self, leader: Place, key: VoterKey) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.node_id, voter_directory_id=key.directory_id
        )
        self.call(leader, request)

    def call(self, place: Place, request: Any) -> None:
        assert place.node is not None
        self.note(f"node {place.node_id} is asked: {request.NAME} {request.voter_id}")
        place.node.server.serve(
            request,
            request.VERSIONS[1],
            "CONTROLLER",
            lambda r: self.note(f"node {place.node_id} answers {r.error_code} {r.error_message}"),  # type: ignore[attr-defined]
        )

    # Healing.

    def _heal(self) -> None:
        self.is_healed = True
        self.network.faults.heal()
        self.note("everything heals")
        for place in self.places.values():
            place.make_room()
            if place.node is None:
                self.start(place)
            elif place.is_paused:
                self._resume(place, place.starts)
        begin = self.heap.now
        attempts: list[int] = []

        def attempt() -> None:
            for place in self._leaders():
                self.propose_to(place)
                attempts.append(self.proposals)
            if self.heap.now < begin + _HEALING_MS_MAX:
                self.heap.later(400, attempt)

        attempt()
        promised_before = len(self.checker.promised)
        self.heap.run_until(begin + _HEALING_MS_MAX, lambda: self._is_useful(promised_before))
        if not self._is_useful(promised_before):
            self._report_state()
            raise Violation(f"no progress within {_HEALING_MS_MAX} ms")
        self.checker.check_promises()

    def _report_state(self) -> None:
        for place in self._up():
            node = place.node
            assert node is not None
            voters = [(v.key.node_id, v.key.directory_id[:2]) for v in node.voters]
            self.note(
                f"node {place.node_id} {place.key.directory_id[:2]!r}: {node.quorum.role}, high watermark "
                f"{node.high_watermark}, end {node.log_end_offset}, voters {voters}"
            )

    def _is_useful(self, promised_before: int) -> bool:
        """Returns whether there is a leader and a new commit, and all nodes have everything that is committed."""
        if len(self.checker.promised) <= promised_before + 1 or len(self._leaders()) != 1:
            return False
        newest = max(self.checker.promised)
        return all(self.checker.shadow(place.key).delivered > newest for place in self._up())
