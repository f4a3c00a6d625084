"""`barnabas simulate`: its options. What they ask for is done by `simulate_runs`, which loads brokers and clients."""

from __future__ import annotations

import importlib
import os
from typing import Annotated

import typer

from barnabas.cli.options import Json
from barnabas.embedded.failures import Failure

_DEFAULT_HOURS = 1 / 60

Seed = Annotated[int, typer.Option("--seed", help="The run; with --explore the first of them.")]
Explore = Annotated[int | None, typer.Option("--explore", metavar="COUNT", help="Search so many seeds for failures.")]
Faults = Annotated[
    str, typer.Option("--faults", metavar="KIND,...", help="Kinds that may be drawn; `all`, `none`, or a list.")
]
Hours = Annotated[
    float, typer.Option("--hours", help="How long faults come, in virtual hours.", show_default="a minute")
]
Only = Annotated[
    str | None, typer.Option("--only", metavar="N,...", help="Of the seed's faults only these, by their numbers.")
]
Brokers = Annotated[int, typer.Option("--brokers", min=1, help="Nodes with the role broker.")]
Controllers = Annotated[
    int, typer.Option("--controllers", min=0, help="Nodes that are controllers only; 0: brokers are.")
]
Work = Annotated[
    str, typer.Option("--work", metavar="KIND", help="What clients do: `records`, `transactions` or `groups`.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes for --explore; the cores of this machine.")]


def simulate(
    seed: Seed = 1,
    explore: Explore = None,
    faults: Faults = "all",
    hours: Hours = _DEFAULT_HOURS,
    only: Only = None,
    brokers: Brokers = 1,
    controllers: Controllers = 0,
    work: Work = "records",
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Run a cluster with clients in virtual time, break things, and check that every promise holds.

    Everything comes from the seed: the same seed gives the same run, event by event. Exit code 1 when a promise broke.
    """
    try:
        runs = importlib.import_module("barnabas.cli.simulate_runs")
    except ModuleNotFoundError as error:
        if error.name != "aiokafka":
            raise
        raise Failure(
            "the simulator's clients are aiokafka, which is missing", "pip install 'barnabas[orders]'"
        ) from None
    settings = runs.settings_for(seed, faults, hours, brokers=brokers, controllers=controllers, work=work)
    if explore is None:
        failed = runs.replay(settings, only, as_json=as_json)
    elif only is not None:
        raise Failure("--only picks faults of one seed: leave --explore out")
    else:
        failed = runs.explore(settings, explore, jobs or os.cpu_count() or 1, as_json=as_json)
    if failed:
        raise typer.Exit(1)
