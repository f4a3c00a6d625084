"""Worlds with damaged disks: between two runs of a voter, a byte of its metadata directory is flipped, a file is cut,
zeroed or lost, or the whole directory is lost, at a minority of the voters. A voter that refuses to start stays down
until its operator has followed the advice in the refusal.

    RottenWorld(rotten(seed)).run()

In a new cluster all first voters are formatted as such, so that they vote before they have fetched anything. One of
them starts late, and the first leader often crashes soon. A directory that replaces a lost one is formatted as usual.

    NewCluster(rotten(seed)).run()
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support.damage import files_in

from barnabas.common.errors import ConfigError, FatalFault
from barnabas.raft.log_checkpoint import log_checkpoint_path
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.quorum_state import FILE_NAME
from barnabas.raft.repair import MetadataRepair, chain_of
from barnabas.simulation.crashing_disk import CrashingDisk, Fate
from barnabas.simulation.worlds.quorum_checker import Violation
from barnabas.simulation.worlds.quorum_places import Place
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World
from barnabas.storage.offline.repair import Repair
from barnabas.storage.offline.verify import PartitionVerification

LOG_DIR = "/data"
DIRECTORY = metadata_log_directory(LOG_DIR)
CHECKPOINT = log_checkpoint_path(LOG_DIR)


def rotten(seed: int) -> Plan:
    """Voters stay who they are: of how many a minority is one must be known."""
    plan = Plan.of(seed)
    voters = random.Random(seed).choice([3, 3, 3, 5])
    calm = replace(plan, wipes=False, changes=False, upgrades=False, pauses=False, damages=False, full_disks=False)
    return replace(calm, voters=voters, crashes=True)


class RottenWorld(World):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        #: The nodes whose disks are not what they were.
        self.victims: set[int] = set()
        self.refusals = 0
        self.repairs = 0

    # Damage

    def _trouble(self) -> None:
        if not self.is_healed and self.chance.random() < 0.5:
            self._begin_rot()
        super()._trouble()

    def _begin_rot(self) -> None:
        place = self._some_place()
        if place is None:
            return
        is_voter = place.node_id in self.first_voters.ids
        if is_voter and place.node_id not in self.victims and len(self.victims) >= (self.plan.voters - 1) // 2:
            place = self.places[self.chance.choice(sorted(self.victims))]
        if place.node is None:
            return
        if is_voter:
            self.victims.add(place.node_id)
        # Everything written exists: a disk that loses unsynced data is another fault.
        self.crash(place, Fate.KEPT)
        self._damage(place)
        self._start_later(place)

    def _damage(self, place: Place) -> None:
        disk, chance = place.disk, self.chance
        files = {path: data for path, data in files_in(disk, DIRECTORY).items() if "/repair-" not in path}
        if disk.exists(CHECKPOINT):
            files[CHECKPOINT] = disk.read(CHECKPOINT)
        logs = [path for path in files if path.endswith(".log") and files[path]]
        kind = chance.choice(["flip", "flip", "cut", "zero", "lose", "lose", "lose the directory", "lose all"])
        self.note(f"node {place.node_id}: its disk rots: {kind}")
        if kind.startswith("lose the") or kind == "lose all":
            disk.remove_tree(DIRECTORY)
            if kind == "lose all" and disk.exists(CHECKPOINT):
                disk.remove(CHECKPOINT)
            if kind == "lose all" or not place.is_controller:
                # The node has lost its past, so it may begin in any epoch.
                self.checker.shadows.pop(place.key, None)
            return
        path = chance.choice(sorted(logs or files) if chance.random() < 0.6 else sorted(files))
        data = files[path]
        at = chance.randrange(len(data)) if data else 0
        if not place.is_controller:
            # The node grants no vote: its epoch is that of its `quorum-state`, or of its log if that is lost.
            self.checker.shadows.pop(place.key, None)
        if kind == "lose":
            disk.remove(path)
        elif kind == "cut":
            disk.write(path, data[:at])
        elif kind == "zero":
            disk.write(path, data[:at] + bytes(len(data) - at))
        elif data:
            disk.write(path, data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        self.note(f"node {place.node_id}: {path} at {at} of {len(data)}")

    # The outcome of a damaged voter

    def start(self, place: Place) -> None:
        for attempt in range(3):
            try:
                super().start(place)
            except (FatalFault, ConfigError) as refusal:
                assert place.host is not None
                place.host.is_over = True
                place.node = None
                self.refusals += 1
                self.note(f"node {place.node_id} refuses to start: {refusal}")
                if place.node_id not in self.victims and place.node_id in self.first_voters.ids:
                    raise Violation(f"a sound voter refuses to start: {refusal}") from refusal
                self._follow_advice(place, attempt)
            else:
                return
        raise Violation(f"node {place.node_id} cannot be repaired")

    def _follow_advice(self, place: Place, attempt: int) -> None:
        """Runs `barnabas log repair`; where that is not enough, copies another voter's log."""
        disk = place.disk
        if attempt:
            sound = (p for p in self.places.values() if p.is_controller and p.node_id not in self.victims)
            donor = next(p for p in sound if p.disk.is_dir(DIRECTORY))
            self.note(f"node {place.node_id} is given the log of node {donor.node_id}")
            for path in files_in(disk, DIRECTORY):
                if not path.endswith(FILE_NAME):
                    disk.remove(path)
            for path, data in files_in(donor.disk, DIRECTORY).items():
                if not path.endswith(FILE_NAME) and "/repair-" not in path:
                    disk.write(path, data, sync=True)
        self.repairs += 1
        metadata = MetadataRepair(disk, LOG_DIR)
        kept = f"repair-{self.repairs}x"
        if disk.is_dir(DIRECTORY):
            verification = PartitionVerification(disk, DIRECTORY, follows=chain_of(disk, DIRECTORY))
            verification.run()
            Repair(disk, verification).apply(kept)
        for step in metadata.steps:
            self.note(f"node {place.node_id}: {step}")
        if metadata.steps:
            metadata.apply(kept)

    def _is_useful(self, promised_before: int) -> bool:
        """Returns whether the quorum works and all nodes are back."""
        is_whole = all(place.node is not None for place in self.places.values())
        return is_whole and super()._is_useful(promised_before)


class NewCluster(RottenWorld):
    """Static voters that were formatted for a new cluster. Whole disks are lost, too."""

    def __init__(self, plan: Plan) -> None:
        chance = random.Random(plan.seed)
        #: The voter that starts last, and when.
        self._last = chance.randrange(1, plan.voters + 1)
        self._last_ms = chance.choice([0, 300, 1_000, 3_000])
        #: The time from the first election to the crash of its leader.
        self._first_crash_ms = chance.choice([5, 20, 60, 200])
        super().__init__(replace(plan, dynamic=False))
        self._watch_for_leader()

    def _first_start_ms(self, place: Place) -> float:
        later_ms = self._last_ms if place.node_id == self._last else 0
        return super()._first_start_ms(place) + later_ms

    def _is_new_cluster(self, place: Place) -> bool:
        return place.starts == 1

    def _damage(self, place: Place) -> None:
        if not place.is_controller or self.chance.random() < 0.7:
            super()._damage(place)
            return
        self.note(f"node {place.node_id}: its disk is replaced by an empty one")
        self.checker.shadows.pop(place.key, None)
        place.disk = CrashingDisk()

    def _watch_for_leader(self) -> None:
        leaders = self._leaders()
        if not leaders:
            self.heap.later(5, self._watch_for_leader)
        elif self._first_crash_ms < 200:
            self.heap.later(self._first_crash_ms, lambda: self._crash_first(leaders[0]))

    def _crash_first(self, leader: Place) -> None:
        if leader.node is not None:
            self.crash(leader, Fate.KEPT)
            self._start_later(leader)
