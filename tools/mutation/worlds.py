"""The simulated worlds that run against a mutant, each named by its kind and seed, such as `replication:3`.

    python -m mutation.worlds                              prints the names
    python -m mutation.worlds BUDGET_S NAME:CPU_S...       runs them until one finds something or the budget is used

A world that takes far longer than on the unmutated code counts as found: a mutant can loop without end. Each run ends
with one line of JSON on the standard output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.simulation.raft.rot import RottenWorld, rotten
from tests.simulation.test_power_failures import fail_everywhere
from tests.support.broker_explorer import BrokerExplorer
from tests.support.classic_explorer import ClassicExplorer
from tests.support.controller_explorer import ControllerExplorer
from tests.support.fetcher_explorer import FetcherExplorer
from tests.support.group_explorer import GroupExplorer
from tests.support.health_explorer import HealthExplorer
from tests.support.leader_explorer import LeaderExplorer
from tests.support.log_dirs_explorer import LogDirsExplorer
from tests.support.move_explorer import MoveExplorer
from tests.support.offset_explorer import OffsetExplorer
from tests.support.peers_explorer import PeersExplorer
from tests.support.request_explorer import RequestExplorer
from tests.support.rights_explorer import RightsExplorer
from tests.support.transaction_explorer import TransactionExplorer
from tests.support.znode_access_explorer import ZnodeAccessExplorer
from tests.support.zookeeper_controller_explorer import ZookeeperControllerExplorer

from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.faults import FaultKind
from barnabas.simulation.scenario import Settings
from barnabas.simulation.scenario import run as simulate
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature
from barnabas.simulation.worlds import replication_explorer, security_explorer, txn_explorer, zookeeper_explorer
from barnabas.simulation.worlds.damaged_files import DamagedFiles
from barnabas.simulation.worlds.one_log import OneLog
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World as QuorumWorld

#: The finding of a world, or None.
Found = str | None

#: The limit of a world: this many times its ordinary CPU time, plus some seconds.
_SLOWER = 6
_MORE_S = 8
#: The power fails at every Nth change of the disk, with N by seed; each failure is tried with all three outcomes.
_STORAGE_STRIDES = (9, 7, 4)
#: Many short runs of clusters find more than a few long ones: each ends with the audit.
_FAULTS_S = 25


def _raising(run: Callable[[int], object]) -> Callable[[int], Found]:
    """Returns the run of a world that raises what it finds."""

    def explore(seed: int) -> Found:
        run(seed)
        return None

    return explore


def _storage(seed: int) -> Found:
    stride, fate = divmod(seed - 1, len(Fate))
    with second_decisions().judging():
        fail_everywhere([list(Fate)[fate]], every=_STORAGE_STRIDES[stride])
    return None


def _replication(seed: int) -> Found:
    return replication_explorer.explore(seed).problem


def _power(seed: int) -> Found:
    return replication_explorer.explore(seed, kinds=(FaultKind.POWER,)).problem


def _transactions(seed: int) -> Found:
    return txn_explorer.explore(seed).problem


def _security(seed: int) -> Found:
    return security_explorer.explore(seed).problem


def _zookeeper(seed: int) -> Found:
    return zookeeper_explorer.explore(seed).problem


def _simulated(layout: Layout, work: WorkKind = WorkKind.RECORDS) -> Callable[[int], Found]:
    def explore(seed: int) -> Found:
        settings = Settings(
            seed,
            layout,
            faults_s=_FAULTS_S,
            work=work,
            records_per_s=None,
            features=tuple(WorkFeature),
            draws_properties=True,
            counts_rare_events=False,
        )
        return next(iter(simulate(settings).problems), None)

    return explore


_THREE = Layout(brokers=3)


class Kind(NamedTuple):
    """A kind of worlds: how one of its seeds is run, and how many of them there are, from 1."""

    explore: Callable[[int], Found]
    seeds: int
    #: Whether the worlds are runs of `barnabas simulate`; the others are the small worlds.
    is_cluster: bool = False


KINDS: dict[str, Kind] = {
    "quorum": Kind(_raising(lambda seed: QuorumWorld(Plan.of(seed)).run()), 48),
    "rot": Kind(_raising(lambda seed: RottenWorld(rotten(seed)).run()), 30),
    "storage": Kind(_storage, len(_STORAGE_STRIDES) * len(Fate)),
    "replication": Kind(_replication, 16),
    "power": Kind(_power, 6),
    "transactions": Kind(_transactions, 5),
    "security": Kind(_security, 8),
    "zookeeper": Kind(_zookeeper, 12),
    "files": Kind(_raising(lambda seed: DamagedFiles(seed).run()), 60),
    "log": Kind(_raising(lambda seed: OneLog(seed).run()), 60),
    "coordinator": Kind(_raising(lambda seed: GroupExplorer(seed).run()), 40),
    "controller": Kind(_raising(lambda seed: ControllerExplorer(seed).run()), 40),
    "classic group": Kind(_raising(lambda seed: ClassicExplorer(seed).run()), 60),
    "offsets": Kind(_raising(lambda seed: OffsetExplorer(seed).run()), 40),
    "transaction coordinator": Kind(_raising(lambda seed: TransactionExplorer(seed).run()), 40),
    "answers": Kind(_raising(lambda seed: BrokerExplorer(seed).run()), 24),
    "fetcher": Kind(_raising(lambda seed: FetcherExplorer(seed).run()), 24),
    "leader": Kind(_raising(lambda seed: LeaderExplorer(seed).run()), 24),
    "moves": Kind(_raising(lambda seed: MoveExplorer(seed).run()), 16),
    "znodes": Kind(_raising(lambda seed: ZnodeAccessExplorer(seed).run()), 40),
    "zookeeper controllers": Kind(_raising(lambda seed: ZookeeperControllerExplorer(seed).execute()), 40),
    "peers": Kind(_raising(lambda seed: PeersExplorer(seed).run()), 24),
    "requests": Kind(_raising(lambda seed: RequestExplorer(seed).run()), 40),
    "rights": Kind(_raising(lambda seed: RightsExplorer(seed).run()), 24),
    "log dirs": Kind(_raising(lambda seed: LogDirsExplorer(seed).run()), 40),
    "health": Kind(_raising(lambda seed: HealthExplorer(seed).run()), 40),
    "one broker": Kind(_simulated(Layout()), 6, True),
    "three brokers": Kind(_simulated(_THREE), 6, True),
    "controllers apart": Kind(_simulated(Layout(brokers=3, controllers=3)), 2, True),
    "one controller apart": Kind(_simulated(Layout(brokers=2, controllers=1)), 2, True),
    "transactions of clients": Kind(_simulated(_THREE, WorkKind.TRANSACTIONS), 3, True),
    "groups": Kind(_simulated(_THREE, WorkKind.GROUPS), 4, True),
    "zookeeper mode": Kind(_simulated(Layout(brokers=3, zookeeper=True)), 4, True),
}


def names() -> Iterator[str]:
    """Yields the name of each world."""
    for kind, (_, seeds, _) in KINDS.items():
        for seed in range(1, seeds + 1):
            yield f"{kind}:{seed}"


def explore(name: str) -> Found:
    """Runs one world, and returns its finding. An exception of the mutant itself counts as one."""
    kind, _, seed = name.rpartition(":")
    try:
        return KINDS[kind].explore(int(seed))
    except AssertionError as broken:
        return str(broken) or _place_of(broken)
    except Exception as error:
        return f"{type(error).__name__}: {error} ({_place_of(error)})"


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}: {frames[-1].name}" if frames else "nowhere"


def _say(name: str, found: Found) -> None:
    text = None if found is None else " ".join(found.split())[:300]
    print(json.dumps({"by": name, "found": text, "cpu_s": round(time.process_time(), 2)}), flush=True)


def run(budget_s: float, planned: list[tuple[str, float]]) -> None:
    """Runs the worlds, given with their ordinary CPU times, in their order."""
    current = ""

    def on_overtime(*_: object) -> None:
        _say(current, "it does not end")
        os._exit(0)

    signal.signal(signal.SIGVTALRM, on_overtime)
    began_s = time.process_time()
    for current, cpu_s in planned:
        if time.process_time() - began_s + cpu_s > budget_s:
            continue
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s * _SLOWER + _MORE_S)
        found = explore(current)
        if found is not None:
            _say(current, found)
            return
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    _say("", None)


def main(arguments: list[str]) -> None:
    if not arguments:
        print("\n".join(names()))
        return
    budget_s, *worlds = arguments
    planned = [(name, float(cpu_s)) for name, _, cpu_s in (each.rpartition(":") for each in worlds)]
    run(float(budget_s), planned)


if __name__ == "__main__":
    main(sys.argv[1:])
